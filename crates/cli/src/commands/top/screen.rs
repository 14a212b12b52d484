//! The screen of `top`.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{
    Block, Cell, Gauge, Paragraph, RenderDirection, Row, Sparkline, Table, Wrap,
};

use super::{DEVICES, Device, FIRST, Looker, Moment, RUNNING, running};

/// Loads that are remembered of each device.
const REMEMBERED: usize = 512;
/// Lines of a device: its figures, and its load over time.
const DEVICE: u16 = 3;

/// A terminal that is drawn on as a whole; the earlier contents come back.
struct Screen(ratatui::DefaultTerminal);

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the machine until the user ends it.
pub(super) fn show(looker: &mut Looker, interval: Duration) -> io::Result<()> {
    let mut screen = Screen(ratatui::try_init()?);
    let mut loads = Loads::default();
    let mut wait = FIRST;
    loop {
        let moment = looker.look();
        loads.remember(&moment);
        screen.0.draw(|frame| draw(frame, &moment, &loads))?;
        let next = Instant::now() + wait;
        wait = interval;
        while event::poll(next.saturating_duration_since(Instant::now()))? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    let is_ctrl_c = key.code == KeyCode::Char('c')
                        && key.modifiers.contains(KeyModifiers::CONTROL);
                    if is_ctrl_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                        return Ok(());
                    }
                }
                Event::Resize(..) => {
                    screen.0.draw(|frame| draw(frame, &moment, &loads))?;
                }
                _ => {}
            }
        }
    }
}

/// The loads of devices at the last moments, in %, the latest first.
#[derive(Default)]
struct Loads(HashMap<String, VecDeque<u64>>);

impl Loads {
    fn remember(&mut self, moment: &Moment) {
        for device in &moment.devices {
            let its = self.0.entry(device.device.clone()).or_default();
            // An unknown load is not recorded.
            if let Some(load) = device.told.gpu_utilization_percent {
                its.push_front(load.round() as u64);
                its.truncate(REMEMBERED);
            }
        }
    }

    fn of(&self, device: &Device) -> impl Iterator<Item = u64> {
        self.0.get(&device.device).into_iter().flatten().copied()
    }
}

/// Green, yellow, red.
fn colour(share: f64) -> Color {
    match share {
        share if share < 0.6 => Color::Green,
        share if share < 0.9 => Color::Yellow,
        _ => Color::Red,
    }
}

fn block(title: &str) -> Block<'_> {
    Block::bordered().title(title.bold())
}

/// Devices above, then programs, then fallbacks; the keys last.
fn draw(frame: &mut Frame, moment: &Moment, loads: &Loads) {
    let devices = moment.devices.len() as u16;
    let programs = (moment.running.len() as u16).max(1);
    let parts = Layout::vertical([
        Constraint::Length(DEVICE * devices + 2),
        Constraint::Length(programs + 3),
        Constraint::Min(3),
        Constraint::Length(1),
    ]);
    let [above, middle, below, keys] = parts.areas(frame.area());
    draw_devices(frame, above, moment, loads);
    draw_running(frame, middle, moment);
    let fallbacks = moment.fallbacks();
    let fallbacks = match fallbacks.is_empty() {
        true => Paragraph::new("none".dim()),
        false => Paragraph::new(fallbacks.into_iter().map(Line::from).collect::<Vec<_>>()),
    };
    let fallbacks = fallbacks.wrap(Wrap { trim: false });
    frame.render_widget(fallbacks.block(block("fallbacks")), below);
    frame.render_widget("q ends".dim(), keys);
}

fn draw_devices(frame: &mut Frame, area: Rect, moment: &Moment, loads: &Loads) {
    let block = block("devices");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let rows = Layout::vertical(moment.devices.iter().map(|_| Constraint::Length(DEVICE)));
    for (device, &row) in moment.devices.iter().zip(rows.split(inner).iter()) {
        let [title, figures, history] = Layout::vertical([Constraint::Length(1); 3]).areas(row);
        let cells = device.cells();
        // After the name: what has no bar.
        let told = DEVICES
            .iter()
            .zip(&cells)
            .skip(4)
            .map(|(name, cell)| format!("{name} {cell}"));
        let told: Vec<String> = told.filter(|told| !told.ends_with(" -")).collect();
        let line = Line::from(vec![
            cells[0].clone().bold(),
            format!("  {}  ", cells[1]).into(),
            told.join(", ").dim(),
        ]);
        frame.render_widget(line, title);
        let [load, memory] = Layout::horizontal([Constraint::Fill(1); 2])
            .spacing(1)
            .areas(figures);
        let share = device
            .told
            .gpu_utilization_percent
            .map(|percent| percent / 100.0);
        gauge(frame, load, &format!("load {}", cells[2]), share);
        let told = &device.told;
        let share = match (told.gpu_memory_used_bytes, told.gpu_memory_total_bytes) {
            (Some(used), Some(total)) if total > 0 => Some(used as f64 / total as f64),
            _ => None,
        };
        gauge(frame, memory, &format!("memory {}", cells[3]), share);
        let bars = Sparkline::default().data(loads.of(device).take(history.width.into()));
        let bars = bars.max(100).direction(RenderDirection::RightToLeft);
        frame.render_widget(bars.style(Style::new().fg(Color::Cyan)), history);
    }
}

fn gauge(frame: &mut Frame, area: Rect, label: &str, share: Option<f64>) {
    match share {
        None => frame.render_widget(label.dim(), area),
        Some(share) => {
            let share = share.clamp(0.0, 1.0);
            let style = Style::new().fg(colour(share)).bg(Color::DarkGray);
            let gauge = Gauge::default().gauge_style(style).ratio(share);
            frame.render_widget(gauge.label(label.to_owned()), area);
        }
    }
}

fn draw_running(frame: &mut Frame, area: Rect, moment: &Moment) {
    let block = block("running");
    if moment.running.is_empty() {
        let nothing = Paragraph::new("no RusTorch program is running".dim());
        frame.render_widget(nothing.block(block), area);
        return;
    }
    let rows = moment.running.iter().map(|status| {
        let failed = status.fallback_count > 0;
        let style = if failed {
            Style::new().yellow()
        } else {
            Style::new()
        };
        Row::new(running(status).map(Cell::from)).style(style)
    });
    let widths = [
        Constraint::Length(8),
        Constraint::Fill(2),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Fill(3),
        Constraint::Length(9),
    ];
    let table = Table::new(rows, widths).header(Row::new(RUNNING).bold());
    frame.render_widget(table.block(block), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use rustorch_profile::GpuBenchmarkMetrics;

    use super::*;

    /// The screen of a terminal with these numbers of columns and lines.
    fn shown(moment: &Moment, columns: u16, lines: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
        let mut loads = Loads::default();
        (0..3).for_each(|_| loads.remember(moment));
        terminal.draw(|frame| draw(frame, moment, &loads)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn devices_are_shown_and_a_small_screen_shows_what_fits() {
        let moment = Moment {
            devices: vec![Device {
                device: "gpu 0".to_owned(),
                told: GpuBenchmarkMetrics {
                    name: "NVIDIA H100".to_owned(),
                    gpu_utilization_percent: Some(37.0),
                    gpu_memory_used_bytes: Some(1 << 30),
                    gpu_memory_total_bytes: Some(4 << 30),
                    gpu_temperature_celsius: Some(61.0),
                    throttle_reasons: Some(vec!["power cap"]),
                    ..GpuBenchmarkMetrics::default()
                },
            }],
            running: Vec::new(),
        };
        let all = shown(&moment, 120, 20);
        for part in [
            "gpu 0",
            "NVIDIA H100",
            "load 37 %",
            "memory 1.0 GiB of 4.0 GiB",
            "temperature 61 °C",
            "throttling power cap",
            "▂▂▂",
            "no RusTorch program is running",
            "none",
            "q ends",
        ] {
            assert!(all.contains(part), "{part}: {all}");
        }
        // Nobody tells it.
        assert!(!all.contains("clock"), "{all}");
        for (columns, lines) in [(12, 4), (1, 1), (40, 8)] {
            shown(&moment, columns, lines);
        }
    }
}
