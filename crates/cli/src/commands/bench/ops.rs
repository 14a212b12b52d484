//! Operations on every device: `bench --ops`.

use std::io::{self, Write};

use anyhow::Result;
use rustorch_bench::{Bench, CASES, Case, Measured};
use rustorch_runtime::DeviceType;
use serde::Serialize;

use crate::args::{BackendArg, DeviceArgs, DocumentFormat};
use crate::devices::discover;
use crate::failure::Usage;
use crate::machine::{Machine, PROGRAM, now};
use crate::output::note;
use crate::progress;
use crate::subject::Subject;
use crate::table::Table;

/// All that was measured.
#[derive(Serialize)]
pub(super) struct Operations {
    pub(super) program: &'static str,
    pub(super) finished: String,
    /// What the machine is, as names and values.
    pub(super) machine: Vec<(&'static str, String)>,
    pub(super) measured: Vec<Measured>,
    /// What could not be measured, and why.
    pub(super) failed: Vec<String>,
}

/// The cases that were asked for; all if none was.
fn cases(names: &[String]) -> Result<Vec<&'static Case>> {
    let named = |name: &String| {
        let known = || CASES.iter().map(|case| case.name).collect::<Vec<_>>();
        Case::named(name).ok_or_else(|| {
            let known = known().join(", ");
            Usage(format!("--ops {name}: there are {known}")).into()
        })
    };
    match names {
        [] => Ok(CASES.iter().collect()),
        names => names.iter().map(named).collect(),
    }
}

impl Operations {
    /// Measures operations of these names, or all, on what was asked for, or every device.
    pub(super) fn measure(names: &[String], options: &DeviceArgs) -> Result<Self> {
        let cases = cases(names)?;
        let found = discover(options.coreml.options(options.workers), &[]);
        let asked: &[Option<BackendArg>] = match &*options.backend {
            [] => &[None],
            backends => &backends.iter().copied().map(Some).collect::<Vec<_>>(),
        };
        let mut benches = Vec::new();
        for &backend in asked {
            for subject in Subject::find(backend, &found)? {
                match subject.device() {
                    Some(device) => benches.push(Bench::on(device.clone())),
                    None if subject.is_f32_hybrid() => {
                        benches.push(Bench::hybrid(subject.backends.iter().cloned()));
                    }
                    None => {}
                }
            }
        }
        let mut all = Vec::new();
        for bench in &benches {
            for case in cases.iter().filter(|case| bench.suits(case)) {
                for &dtype in case.dtypes {
                    all.extend(case.sizes.iter().map(|&size| (bench, *case, dtype, size)));
                }
            }
        }
        let bar = progress::steps("measuring", all.len());
        let (mut measured, mut failed) = (Vec::new(), Vec::new());
        for (bench, case, dtype, size) in all {
            match bench.measure(case, size, dtype) {
                Ok(one) => measured.push(one),
                Err(e) => failed.push(format!(
                    "{} of {size} {dtype} on {}: {e}",
                    case.name,
                    bench.name()
                )),
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(Self {
            program: PROGRAM,
            finished: now(),
            machine: Machine::this().facts(),
            measured,
            failed,
        })
    }

    /// Writes it as a table, or as JSON.
    pub(super) fn write(&self, format: DocumentFormat) -> Result<()> {
        let mut out = io::stdout().lock();
        match format {
            DocumentFormat::Json => {
                serde_json::to_writer_pretty(&mut out, self)?;
                writeln!(out)?;
            }
            DocumentFormat::Md => {
                write!(out, "{}", self.table())?;
                self.failed.iter().for_each(note);
            }
        }
        Ok(())
    }

    fn table(&self) -> Table {
        let header = [
            "device",
            "operation",
            "type",
            "size",
            "µs",
            "GB/s",
            "GFLOP/s",
            "× cpu",
        ];
        let cells = self.measured.iter().map(|row| {
            let flops = match row.flops {
                0.0 => String::new(),
                _ => format!("{:.1}", row.flops_per_second() / 1e9),
            };
            let by_cpu = self.beside_cpu(row).map(|by| format!("{by:.2}"));
            vec![
                row.device.clone(),
                row.case.clone(),
                row.dtype.clone(),
                row.size.to_string(),
                format!("{:.2}", 1e6 * row.seconds),
                format!("{:.2}", row.bytes_per_second() / 1e9),
                flops,
                by_cpu.unwrap_or_default(),
            ]
        });
        Table::new(header, cells).right()
    }

    /// How many times as fast as the processor a device is.
    pub(super) fn beside_cpu(&self, row: &Measured) -> Option<f64> {
        let cpu = DeviceType::Cpu.to_string();
        let same = |other: &&Measured| {
            other.device == cpu
                && (&other.case, &other.dtype, other.size) == (&row.case, &row.dtype, row.size)
        };
        let cpu = self
            .measured
            .iter()
            .filter(|_| row.device != cpu)
            .find(same)?;
        Some(cpu.seconds / row.seconds)
    }
}
