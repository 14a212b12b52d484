//! The report as one self-contained page with charts in SVG.

use std::fmt::Write;

use rustorch_bench::{Case, Measured};

use super::Report;
use super::before::Before;
use super::memory::{Memory, Run};
use super::models::Models;
use super::operations::Measurements;
use super::svg::{Axis, Bar, Look, Plot, bars, escaped, short};
use crate::commands::bench::limits::Roofs;
use crate::output::bytes;

const STYLE: &str = include_str!("report.css");
/// Size of charts that stand beside each other.
const SMALL: [f64; 2] = [380.0, 260.0];
/// Points of a curve of memory; of more, the most within each part.
const POINTS: usize = 600;
/// Changes of speed that are worth a colour.
const CHANGE: f64 = 1.05;
const GIGA: f64 = 1e9;

/// The page of a report, beside an older one if there is one.
pub(super) fn page(report: &Report, before: Option<&Before>) -> String {
    let mut page = Page::new(report);
    if let Some(before) = before {
        page.changes(report, before);
    }
    if let Some(measured) = &report.operations {
        page.speeds(measured);
        page.rooflines(measured);
        page.beside_cpu(measured);
    }
    if let Some(memory) = &report.memory {
        page.memory(memory);
    }
    if let Some(models) = &report.models {
        page.models(models);
    }
    page.text(&report.to_string());
    page.finish()
}

struct Page {
    html: String,
    /// Devices and hybrid backends; the index of each selects its colour.
    devices: Vec<String>,
    dtypes: Vec<String>,
}

impl Page {
    fn new(report: &Report) -> Self {
        let mut html = String::new();
        let mut page = Self {
            html: String::new(),
            devices: Vec::new(),
            dtypes: Vec::new(),
        };
        for row in measured(report.operations.as_ref()) {
            page.look(&row.device, &row.dtype);
        }
        // Writing to a string cannot fail.
        let _ = write!(
            html,
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>RusTorch: report</title>\n\
             <style>{STYLE}</style>\n<main>\n<h1>RusTorch: operations, backends and types</h1>\n<dl>"
        );
        let mut fact = |name: &str, value: &str| {
            let (name, value) = (escaped(name), escaped(value));
            let _ = write!(html, "<dt>{name}</dt><dd>{value}</dd>");
        };
        fact("program", report.program);
        let finished = format!("{}, after {} s", report.finished, report.seconds);
        fact("finished", &finished);
        for (name, value) in report.machine.facts() {
            fact(name, &value);
        }
        for (device, name) in &report.devices {
            fact(device, name);
        }
        for (device, reason) in &report.missing {
            fact(device, &format!("missing, {reason}"));
        }
        html.push_str("</dl>\n");
        page.html = html;
        page
    }

    /// Colour and form of a device and a type.
    fn look(&mut self, device: &str, dtype: &str) -> Look {
        Look {
            colour: place(&mut self.devices, device),
            form: place(&mut self.dtypes, dtype),
        }
    }

    fn section(&mut self, title: &str, about: &str) {
        let (title, about) = (escaped(title), escaped(about));
        let _ = write!(self.html, "<h2>{title}</h2>\n<p>{about}</p>\n");
    }

    /// The colours of devices, and the forms of types.
    fn legend(&mut self, dtypes: bool) {
        self.html.push_str("<p class=\"legend\">");
        for (colour, device) in self.devices.iter().enumerate() {
            let class = colour % super::svg::COLOURS;
            let device = escaped(device);
            let _ = write!(
                self.html,
                "<span><i class=\"key c{class}\"></i>{device}</span>"
            );
        }
        for (form, dtype) in self.dtypes.iter().enumerate().filter(|_| dtypes) {
            let class = form % super::svg::FORMS;
            let mut plot = String::new();
            let shape = match class {
                0 => "<circle cx=\"20\" cy=\"7\" r=\"3.5\" class=\"m f0\"/>",
                1 => "<rect x=\"16.5\" y=\"3.5\" width=\"7\" height=\"7\" class=\"m f1\"/>",
                _ => "<path d=\"M20 3l4 7h-8z\" class=\"m f2\"/>",
            };
            let _ = write!(
                plot,
                "<svg class=\"inline\" viewBox=\"0 0 40 14\"><path class=\"l f{class}\" d=\"M2 7H38\"/>{shape}</svg>"
            );
            let _ = write!(self.html, "<span>{plot}{}</span>", escaped(dtype));
        }
        self.html.push_str("</p>\n");
    }

    fn figure(&mut self, title: &str, svg: &str) {
        let title = escaped(title);
        let _ = writeln!(
            self.html,
            "<figure><figcaption>{title}</figcaption>{svg}</figure>"
        );
    }

    fn speeds(&mut self, all: &Measurements) {
        self.section(
            "Speed by size and type",
            "Each operation at several sizes, by device and type; higher is faster. Thin lines are a device's limits: \
             a copy of a large vector, or a large matrix product. Data that fits in a cache can exceed the copy. \
             Point at a mark to see its figures.",
        );
        self.legend(true);
        self.html.push_str("<div class=\"grid\">\n");
        let rows = &all.operations.measured;
        let mut names: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
        names.dedup();
        let mut seen = Vec::new();
        for name in names {
            if seen.contains(&name) {
                continue;
            }
            seen.push(name);
            let its: Vec<&Measured> = rows.iter().filter(|row| row.case == name).collect();
            let svg = self.speed(name, &its, all);
            let of = Case::named(name).map_or("", |case| case.of);
            self.figure(&format!("{name}, by {of}"), &svg);
        }
        self.html.push_str("</div>\n");
    }

    fn speed(&mut self, name: &str, rows: &[&Measured], all: &Measurements) -> String {
        let has_flops = rows.iter().any(|row| row.flops > 0.0);
        let speed = |row: &Measured| match has_flops {
            true => row.flops_per_second() / GIGA,
            false => row.bytes_per_second() / GIGA,
        };
        let mut limits = Vec::new();
        for row in rows {
            let roofs = all.roofs_of(&row.device);
            let limit = roofs.and_then(|roofs| match has_flops {
                true => product_roof(roofs, &row.dtype, &all.operations.measured),
                false => roofs.bytes_per_second,
            });
            // Copies from one memory to another have nothing to do with it.
            let limit = limit.filter(|_| !name.contains("_to_"));
            let look = self.look(&row.device, &row.dtype);
            if let Some(limit) = limit {
                let of = match has_flops {
                    true => format!("{} in {}", row.device, row.dtype),
                    false => row.device.clone(),
                };
                if !limits
                    .iter()
                    .any(|(known, ..): &(String, Look, f64)| *known == of)
                {
                    limits.push((of, look, limit / GIGA));
                }
            }
        }
        let mut sizes: Vec<f64> = rows.iter().map(|row| row.size as f64).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        let x = Axis::log("size", sizes.iter().copied()).at(sizes.iter().copied());
        let top = limits.iter().map(|limit| limit.2);
        let unit = if has_flops { "GFLOP/s" } else { "GB/s" };
        let y = Axis::log(unit, rows.iter().map(|row| speed(row)).chain(top));
        let ends = x.ends();
        let mut plot = Plot::new(x, y, SMALL);
        for (of, look, limit) in &limits {
            let title = format!("{of}: at most {} {unit}", short(*limit));
            plot.limit(&ends.map(|x| (x, *limit)), *look, &title);
        }
        for (device, dtype) in groups(rows) {
            let look = self.look(device, dtype);
            let its = rows
                .iter()
                .filter(|r| (&*r.device, &*r.dtype) == (device, dtype));
            let points: Vec<_> = its
                .clone()
                .map(|row| (row.size as f64, speed(row)))
                .collect();
            plot.line(&points, look, &format!("{device}, {dtype}"));
            for row in its {
                let of = match has_flops {
                    true => format!("{device} in {dtype}"),
                    false => device.to_owned(),
                };
                let limit = limits.iter().find(|limit| limit.0 == of);
                let share = limit
                    .map(|limit| format!(", {:.0} % of the limit", 100.0 * speed(row) / limit.2));
                let title = format!(
                    "{device}, {dtype}, {}: {} {unit}, {} µs{}",
                    short(row.size as f64),
                    short(speed(row)),
                    short(1e6 * row.seconds),
                    share.unwrap_or_default()
                );
                plot.mark((row.size as f64, speed(row)), look, &title);
            }
        }
        plot.finish(&format!("speed of {name} by size"))
    }

    fn rooflines(&mut self, all: &Measurements) {
        self.section(
            "Rooflines",
            "Matrix products and convolutions of each device, by arithmetic intensity (FLOP per byte). Left of the \
             edge, memory bandwidth is the limit; right of it, the rate of products.",
        );
        self.legend(true);
        self.html.push_str("<div class=\"grid\">\n");
        for roofs in &all.roofs {
            let rows = &all.operations.measured;
            let rows: Vec<&Measured> = (rows.iter())
                .filter(|row| row.device == roofs.device && row.flops > 0.0)
                .collect();
            if let Some(svg) = self.roofline(roofs, &rows, &all.operations.measured) {
                self.figure(&roofs.device, &svg);
            }
        }
        self.html.push_str("</div>\n");
    }

    fn roofline(&mut self, roofs: &Roofs, rows: &[&Measured], all: &[Measured]) -> Option<String> {
        let bandwidth = roofs.bytes_per_second?;
        let intensity = |row: &Measured| row.flops / row.bytes;
        let types = roofs.flops_per_second.iter();
        let tops: Vec<(&str, f64)> = types
            .filter_map(|(dtype, _)| Some((dtype.as_str(), product_roof(roofs, dtype, all)?)))
            .collect();
        let edges = tops.iter().map(|(_, top)| top / bandwidth);
        let edges = edges.flat_map(|edge| [edge / 10.0, 4.0 * edge]);
        let x = Axis::log(
            "FLOP per byte",
            edges.chain(rows.iter().map(|row| intensity(row))),
        );
        let [from, to] = x.ends();
        let speeds = rows.iter().map(|row| row.flops_per_second() / GIGA);
        let low = (bandwidth * from / GIGA).max(1e-3);
        let tops_told = tops.iter().map(|(_, top)| top / GIGA);
        let y = Axis::log("GFLOP/s", speeds.chain(tops_told).chain([low]));
        let mut plot = Plot::new(x, y, SMALL);
        for (dtype, top) in &tops {
            let look = self.look(&roofs.device, dtype);
            let edge = (top / bandwidth).clamp(from, to);
            let corners = [
                (from, bandwidth * from / GIGA),
                (edge, bandwidth * edge / GIGA),
                (to, top / GIGA),
            ];
            let title = format!(
                "{dtype}: {} GB/s, {} GFLOP/s",
                short(bandwidth / GIGA),
                short(top / GIGA)
            );
            plot.line(&corners, look, &title);
        }
        for row in rows {
            let look = self.look(&row.device, &row.dtype);
            let roof = tops.iter().find(|(dtype, _)| *dtype == row.dtype);
            let share = roof.map(|(_, top)| {
                let reachable = (bandwidth * intensity(row)).min(*top);
                format!(
                    ", {:.0} % of the roof",
                    100.0 * row.flops_per_second() / reachable
                )
            });
            let title = format!(
                "{} of {} in {}: {} GFLOP/s{}",
                row.case,
                short(row.size as f64),
                row.dtype,
                short(row.flops_per_second() / GIGA),
                share.unwrap_or_default()
            );
            plot.mark(
                (intensity(row), row.flops_per_second() / GIGA),
                look,
                &title,
            );
        }
        Some(plot.finish(&format!("roofline of {}", roofs.device)))
    }

    fn beside_cpu(&mut self, all: &Measurements) {
        let largest = |row: &&Measured| {
            let same = |other: &&Measured| (&other.case, &other.device) == (&row.case, &row.device);
            let sizes = all
                .operations
                .measured
                .iter()
                .filter(same)
                .map(|other| other.size);
            sizes.max() == Some(row.size)
        };
        let rows = all.operations.measured.iter().filter(largest);
        let rows: Vec<(&Measured, f64)> = rows
            .filter_map(|row| Some((row, all.operations.beside_cpu(row)?)))
            .collect();
        self.section(
            "Devices compared with the CPU",
            match rows.is_empty() {
                true => "There is nothing to compare: only one device was measured, or the CPU was not.",
                false => "Speed of each device relative to the CPU, at the largest size of each operation.",
            },
        );
        if rows.is_empty() {
            return;
        }
        self.legend(false);
        let axis = Axis::log(
            "times as fast as the CPU",
            rows.iter().map(|row| row.1).chain([1.0]),
        );
        let all_bars: Vec<Bar> = (rows.iter())
            .map(|&(row, by)| Bar {
                name: format!("{} {} {}", row.case, short(row.size as f64), row.dtype),
                value: by,
                told: format!("{} ×", short(by)),
                class: format!(
                    "c{}",
                    self.look(&row.device, &row.dtype).colour % super::svg::COLOURS
                ),
            })
            .collect();
        let svg = bars(&axis, &all_bars, "devices beside the CPU");
        self.figure("", &svg);
    }

    fn memory(&mut self, memory: &Memory) {
        self.section(
            "Memory over time",
            "Memory of tensors and programs on each device while the bundled model loads, reads a prompt and \
             generates, with two or three warm-up runs. Weights that the CPU reads from the program itself do not \
             count.",
        );
        self.legend(false);
        self.html.push_str("<div class=\"grid\">\n");
        for run in &memory.runs {
            let svg = self.memory_of(run);
            let peaks = run
                .peaks()
                .map(|(device, peak)| format!("{device} at most {}", bytes(peak)));
            let peaks: Vec<String> = peaks.collect();
            self.figure(&format!("-b {}: {}", run.backend, peaks.join(", ")), &svg);
        }
        self.html.push_str("</div>\n");
    }

    fn memory_of(&mut self, run: &Run) -> String {
        const MIB: f64 = (1 << 20) as f64;
        let most = run.peaks().map(|(_, bytes)| bytes as f64 / MIB);
        let x = Axis::linear("seconds", [run.seconds]);
        let mut plot = Plot::new(x, Axis::linear("MiB", most), SMALL);
        for (device, points) in &run.devices {
            let points: Vec<_> = (points.chunks(points.len().div_ceil(POINTS).max(1)))
                .filter_map(|part| {
                    let most = part.iter().map(|&(_, bytes)| bytes).max()?;
                    Some((part.first()?.0, most as f64 / MIB))
                })
                .collect();
            let look = self.look(device, "");
            plot.steps(&points, run.seconds, look, device);
        }
        plot.finish(&format!("memory over time on {}", run.backend))
    }

    fn models(&mut self, models: &Models) {
        self.section(
            "Backends and types",
            "Tokens per second of the bundled model: a prompt of 512 tokens, and generation of 64.",
        );
        self.legend(false);
        for (title, speed) in [
            (
                "prompt, tokens/s",
                (|row| row.prompt) as fn(&super::models::Row) -> f64,
            ),
            ("generation, tokens/s", |row| row.generation),
        ] {
            let axis = Axis::linear("tokens/s", models.rows.iter().map(speed));
            let all: Vec<Bar> = (models.rows.iter())
                .map(|row| Bar {
                    name: format!("{} on {}", row.file_type, row.backend),
                    value: speed(row),
                    told: short(speed(row)),
                    class: format!(
                        "c{}",
                        place(&mut self.devices, &row.backend) % super::svg::COLOURS
                    ),
                })
                .collect();
            let svg = bars(&axis, &all, title);
            self.figure(title, &svg);
        }
    }

    fn changes(&mut self, report: &Report, before: &Before) {
        let mut about = format!(
            "Speed relative to the report of {}, by {}. Each is a single run, so other load on the machine matters. \
             scripts/compare.sh runs two builds in turns and is more precise.",
            before.finished, before.program
        );
        let machine = serde_json::to_value(&report.machine).unwrap_or_default();
        if before.machine["processor"] != machine["processor"] {
            let _ = write!(
                about,
                " The earlier report is of another machine: {}.",
                before.machine["processor"]
            );
        }
        self.section("Before and after", &about);
        let changes = changes(report, before);
        if changes.is_empty() {
            self.html
                .push_str("<p>The reports have no measurement in common.</p>\n");
            return;
        }
        self.html.push_str(
            "<p class=\"legend\"><span><i class=\"key faster\"></i>faster by more than 5 %</span>\
             <span><i class=\"key slower\"></i>slower</span><span><i class=\"key same\"></i>neither</span></p>\n",
        );
        let axis = Axis::log(
            "times as fast as before",
            changes.iter().map(|c| c.1).chain([0.5, 2.0]),
        );
        let mut devices: Vec<&str> = changes.iter().map(|c| c.0.as_str()).collect();
        devices.dedup();
        for device in devices {
            let its = changes.iter().filter(|c| c.0 == device);
            let all: Vec<Bar> = its
                .map(|(_, by, name, told)| change(*by, name, told))
                .collect();
            let svg = bars(&axis, &all, &format!("changes on {device}"));
            self.figure(device, &svg);
        }
    }

    fn text(&mut self, text: &str) {
        let text = escaped(text);
        let _ = write!(
            self.html,
            "<h2>Figures</h2>\n<details><summary>All of them, as text</summary>\n<pre>{text}</pre>\n</details>\n"
        );
    }

    fn finish(mut self) -> String {
        self.html.push_str("</main>\n</html>\n");
        self.html
    }
}

/// The place of a name, which is added if it is not known.
fn place(names: &mut Vec<String>, name: &str) -> usize {
    match names.iter().position(|known| known == name) {
        Some(place) => place,
        None => {
            names.push(name.to_owned());
            names.len() - 1
        }
    }
}

fn measured(all: Option<&Measurements>) -> &[Measured] {
    all.map_or(&[], |all| &all.operations.measured)
}

/// The rate of products in a type: the best that was seen of it.
fn product_roof(roofs: &Roofs, dtype: &str, measured: &[Measured]) -> Option<f64> {
    let known = roofs
        .flops_per_second
        .iter()
        .find(|(known, _)| known == dtype)?;
    let its = measured
        .iter()
        .filter(|row| row.device == roofs.device && row.dtype == dtype);
    Some(its.map(Measured::flops_per_second).fold(known.1, f64::max))
}

/// Devices and types of rows, each once.
fn groups<'r>(rows: &[&'r Measured]) -> Vec<(&'r str, &'r str)> {
    let mut groups = Vec::new();
    for row in rows {
        let group = (row.device.as_str(), row.dtype.as_str());
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
}

/// The entries that both reports have: device, speedup, name, and both figures.
fn changes(report: &Report, before: &Before) -> Vec<(String, f64, String, String)> {
    let mut changes = Vec::new();
    for row in measured(report.operations.as_ref()) {
        let same = |old: &&Measured| {
            (&old.device, &old.case, &old.dtype, old.size)
                == (&row.device, &row.case, &row.dtype, row.size)
        };
        if let Some(old) = measured(before.operations.as_ref()).iter().find(same) {
            let name = format!("{} {} {}", row.case, short(row.size as f64), row.dtype);
            let told = [old, row].map(|row| short(1e6 * row.seconds));
            let told = format!("{} → {} µs", told[0], told[1]);
            changes.push((row.device.clone(), old.seconds / row.seconds, name, told));
        }
    }
    let (Some(now), Some(old)) = (&report.models, &before.models) else {
        return changes;
    };
    for row in &now.rows {
        let same = |old: &&super::models::Row| {
            (&old.backend, &old.file_type) == (&row.backend, &row.file_type)
        };
        let Some(old) = old.rows.iter().find(same) else {
            continue;
        };
        for (what, old, new) in [
            ("prompt", old.prompt, row.prompt),
            ("generation", old.generation, row.generation),
        ] {
            let told = format!("{} → {} tokens/s", short(old), short(new));
            let name = format!("{}, {what}", row.file_type);
            changes.push((row.backend.clone(), new / old, name, told));
        }
    }
    // The charts of a device are one.
    changes.sort_by(|a, b| a.0.cmp(&b.0));
    changes
}

fn change(by: f64, name: &str, told: &str) -> Bar {
    let class = match by {
        by if by > CHANGE => "faster",
        by if by < 1.0 / CHANGE => "slower",
        _ => "same",
    };
    Bar {
        name: name.to_owned(),
        value: by,
        told: told.to_owned(),
        class: class.to_owned(),
    }
}
