//! `top`: the load of this machine's devices, and the programs that cause it.

mod screen;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use rustorch_profile::{GpuBenchmarkMetrics, GpuMonitor};
use serde::Serialize;
use sysinfo::{
    CpuRefreshKind, MemoryRefreshKind, Pid, ProcessRefreshKind, ProcessesToUpdate, RefreshKind,
    System,
};

use crate::args::Format;
use crate::output::{bytes, json_line};
use crate::status::{self, Status};
use crate::table::Table;

/// Rates between two moments need some time between them.
const FIRST: Duration = Duration::from_millis(250);

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Seconds between updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,

    /// Output format: text is live on a terminal and one table in a pipe; json is one object
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("between 0.1 and 3600 seconds".to_owned()),
    }
}

/// The machine at a moment.
#[derive(Serialize)]
struct Moment {
    devices: Vec<Device>,
    running: Vec<Status>,
}

/// A device; figures that no driver reports are `None`.
#[derive(Serialize)]
struct Device {
    device: String,
    #[serde(flatten)]
    told: GpuBenchmarkMetrics,
}

/// Looks at the machine again and again.
struct Looker {
    system: Option<System>,
    gpus: GpuMonitor,
}

impl Looker {
    fn new() -> Self {
        let what = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing().with_usage())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        Self {
            system: System::new_with_specifics(what).ok(),
            gpus: GpuMonitor::open(),
        }
    }

    fn look(&mut self) -> Moment {
        let processor = self.system.as_mut().map(processor);
        let mut devices: Vec<Device> = processor.into_iter().collect();
        let gpus = self.gpus.sample().into_iter().enumerate();
        devices.extend(gpus.map(|(index, told)| Device {
            device: format!("gpu {index}"),
            told,
        }));
        let running = status::folder().map(|folder| {
            let system = &mut self.system;
            status::read(&folder, |pid| is_alive(system, pid))
        });
        Moment {
            devices,
            running: running.unwrap_or_default(),
        }
    }
}

/// The processor, in the figures that GPUs have.
fn processor(system: &mut System) -> Device {
    system.refresh_cpu_usage();
    system.refresh_memory();
    let brand = system
        .cpus()
        .first()
        .map(|cpu| cpu.brand().trim().to_owned());
    Device {
        device: "cpu".to_owned(),
        told: GpuBenchmarkMetrics {
            name: brand.unwrap_or_default(),
            source: "system",
            gpu_utilization_percent: Some(f64::from(system.global_cpu_usage())),
            gpu_memory_used_bytes: Some(system.used_memory()),
            gpu_memory_total_bytes: Some(system.total_memory()),
            ..GpuBenchmarkMetrics::default()
        },
    }
}

/// Returns whether there is such a process. Without an answer of the system, it counts as running.
fn is_alive(system: &mut Option<System>, pid: u32) -> bool {
    let Some(system) = system else { return true };
    let pid = Pid::from_u32(pid);
    let what = ProcessRefreshKind::nothing();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, what);
    system.process(pid).is_some()
}

pub(super) fn run(options: &Options) -> Result<()> {
    let mut looker = Looker::new();
    let out = &mut io::stdout().lock();
    match options.format {
        Format::Text if io::stdout().is_terminal() => {
            let interval = Duration::from_secs_f64(options.interval);
            screen::show(&mut looker, interval).context("cannot draw on the terminal")
        }
        Format::Text => {
            std::thread::sleep(FIRST);
            Ok(text(&looker.look(), out)?)
        }
        Format::Json => {
            std::thread::sleep(FIRST);
            Ok(json_line(out, &looker.look())?)
        }
    }
}

const DEVICES: [&str; 8] = [
    "device",
    "name",
    "load",
    "memory",
    "temperature",
    "power",
    "clock",
    "throttling",
];
const RUNNING: [&str; 6] = [
    "pid",
    "command",
    "tokens/s",
    "tokens",
    "devices",
    "fallbacks",
];

impl Device {
    fn cells(&self) -> [String; 8] {
        let told = &self.told;
        let number = |figure: Option<f64>, unit: &str| {
            figure.map_or("-".to_owned(), |figure| format!("{figure:.0} {unit}"))
        };
        let memory = match (told.gpu_memory_used_bytes, told.gpu_memory_total_bytes) {
            (Some(used), Some(total)) => format!("{} of {}", bytes(used), bytes(total)),
            (Some(used), None) => bytes(used),
            _ => "-".to_owned(),
        };
        [
            self.device.clone(),
            told.name.clone(),
            number(told.gpu_utilization_percent, "%"),
            memory,
            number(told.gpu_temperature_celsius, "°C"),
            number(told.gpu_power_watts, "W"),
            number(told.gpu_clock_mhz, "MHz"),
            match &told.throttle_reasons {
                None => "-".to_owned(),
                Some(reasons) if reasons.is_empty() => "none".to_owned(),
                Some(reasons) => reasons.join(", "),
            },
        ]
    }
}

fn running(status: &Status) -> [String; 6] {
    let devices = status.devices.iter().map(|used| match used.memory_bytes {
        0 => used.device.clone(),
        memory => format!("{} ({})", used.device, bytes(memory)),
    });
    [
        status.pid.to_string(),
        status.command.clone(),
        format!("{:.1}", status.tokens_per_second),
        status.tokens.to_string(),
        devices.collect::<Vec<_>>().join(", "),
        status.fallback_count.to_string(),
    ]
}

impl Moment {
    /// The latest fallbacks of all processes.
    fn fallbacks(&self) -> Vec<String> {
        let told = |status: &Status| {
            let pid = status.pid;
            let lines = status.fallbacks.iter();
            lines
                .map(move |line| format!("{pid}: {line}"))
                .collect::<Vec<_>>()
        };
        self.running.iter().flat_map(told).collect()
    }
}

fn text(moment: &Moment, out: &mut impl Write) -> io::Result<()> {
    let devices = moment.devices.iter().map(|device| device.cells().to_vec());
    write!(out, "{}", Table::new(DEVICES, devices))?;
    if !moment.running.is_empty() {
        let programs = moment.running.iter().map(|status| running(status).to_vec());
        write!(out, "\n{}", Table::new(RUNNING, programs))?;
    }
    for line in moment.fallbacks() {
        writeln!(out, "{line}")?;
    }
    Ok(())
}
