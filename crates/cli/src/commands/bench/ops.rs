//! Operations on every device: `bench --ops`.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::{Result, anyhow, bail};
use rustorch_bench::{Bench, CASES, Case, Measured, Prepared};
use rustorch_ir::DType;
use rustorch_runtime::DeviceType;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::args::{DeviceArgs, DocumentFormat};
use crate::devices::discover;
use crate::failure::Usage;
use crate::machine::{Machine, PROGRAM, now};
use crate::output::{json_line, note};
use crate::progress;
use crate::subject::Subject;
use crate::table::Table;

/// Measurements of operations.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Operations {
    pub(crate) measured: Vec<Measured>,
    /// Failed measurements, and why.
    pub(crate) failed: Vec<String>,
}

/// The JSON of `bench --ops`.
#[derive(Serialize)]
struct Output<'o> {
    program: &'static str,
    finished: String,
    /// Facts of the machine, as names and values.
    machine: Vec<(&'static str, String)>,
    #[serde(flatten)]
    operations: &'o Operations,
}

/// The cases that were asked for; all if none was.
fn cases(names: &[String]) -> Result<Vec<&'static Case>> {
    let named = |name: &String| {
        let known = || CASES.iter().map(|case| case.name).collect::<Vec<_>>();
        Case::named(name).ok_or_else(|| {
            let known = known().join(", ");
            Usage(format!("--ops {name}: unknown operation; expected {known}")).into()
        })
    };
    match names {
        [] => Ok(CASES.iter().collect()),
        names => names.iter().map(named).collect(),
    }
}

/// The devices for operations, from the options of a model: a device, or the f32 hybrid.
fn bench(subject: &Subject) -> Option<Bench> {
    match subject.device() {
        Some(device) => Some(Bench::on(device.clone())),
        None => (subject.is_f32_hybrid()).then(|| Bench::hybrid(subject.backends.iter().cloned())),
    }
}

/// Operations, and where they are measured.
pub(crate) struct Benches {
    cases: Vec<&'static Case>,
    benches: Vec<Bench>,
}

/// A benchmark to run.
struct Job<'b> {
    bench: &'b Bench,
    case: &'static Case,
    size: usize,
    dtype: DType,
}

impl Job<'_> {
    fn told(&self, e: impl Display) -> String {
        let Self {
            bench,
            case,
            size,
            dtype,
        } = self;
        format!("{} of {size} {dtype} on {}: {e}", case.name, bench.name())
    }
}

impl Benches {
    /// Operations of these names, or all, on the chosen device, or on every device.
    pub(super) fn open(names: &[String], options: &DeviceArgs) -> Result<Self> {
        let cases = cases(names)?;
        let found = discover(options.coreml.options(options.workers), &[]);
        let mut subjects = Vec::new();
        match &*options.backend {
            [] => subjects = Subject::find(None, &found)?,
            backends => {
                for &backend in backends {
                    subjects.extend(Subject::find(Some(backend), &found)?);
                }
            }
        }
        Ok(Self {
            cases,
            benches: subjects.iter().filter_map(bench).collect(),
        })
    }

    /// All operations on each of these.
    pub(crate) fn of_all(subjects: &[Subject]) -> Self {
        Self {
            cases: CASES.iter().collect(),
            benches: subjects.iter().filter_map(bench).collect(),
        }
    }

    /// Valid combinations.
    fn jobs(&self) -> Vec<Job<'_>> {
        let mut all = Vec::new();
        for bench in &self.benches {
            for case in self.cases.iter().filter(|case| bench.suits(case)) {
                for &dtype in case.dtypes {
                    all.extend(case.sizes.iter().map(|&size| Job {
                        bench,
                        case,
                        size,
                        dtype,
                    }));
                }
            }
        }
        all
    }

    /// Measures all.
    pub(crate) fn measure(&self) -> Operations {
        let jobs = self.jobs();
        let bar = progress::steps("operations", jobs.len());
        let mut operations = Operations::default();
        for job in jobs {
            match job.bench.measure(job.case, job.size, job.dtype) {
                Ok(one) => operations.measured.push(one),
                Err(e) => operations.failed.push(job.told(e)),
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        operations
    }

    /// Measures all, and writes that.
    pub(super) fn run(&self, format: DocumentFormat) -> Result<()> {
        self.measure().write(format)
    }

    /// Runs requests from standard input until its end, so that two programs can take turns of milliseconds.
    /// One case at a time is ready.
    pub(super) fn answer(&self) -> Result<()> {
        let jobs = self.jobs();
        let mut out = io::stdout().lock();
        let told = |job: &Job| {
            json!([
                job.bench.name(),
                job.case.name,
                job.dtype.to_string(),
                job.size
            ])
        };
        json_line(&mut out, &jobs.iter().map(told).collect::<Vec<_>>())?;
        let mut ready: Option<(usize, Prepared)> = None;
        for line in io::stdin().lines() {
            let line = line?;
            let asked = line.split_once(' ').and_then(|(case, runs)| {
                let (case, runs) = (case.parse::<usize>().ok()?, runs.parse().ok()?);
                Some((case, jobs.get(case)?, runs))
            });
            let Some((case, job, runs)) = asked else {
                bail!("{line:?}: expected CASE RUNS");
            };
            let mut prepared = match ready.take() {
                Some((last, prepared)) if last == case => prepared,
                // Its memory goes first.
                other => {
                    drop(other);
                    let prepared = job.bench.prepare(job.case, job.size, job.dtype);
                    prepared.map_err(|e| anyhow!("{}", job.told(e)))?
                }
            };
            let time = prepared.time(runs);
            let time = time.map_err(|e| anyhow!("{}", job.told(e)))?;
            json_line(&mut out, &time.as_secs_f64())?;
            ready = Some((case, prepared));
        }
        Ok(())
    }
}

impl Operations {
    /// Writes it as a table, or as JSON.
    fn write(&self, format: DocumentFormat) -> Result<()> {
        let mut out = io::stdout().lock();
        match format {
            DocumentFormat::Json => {
                let output = Output {
                    program: PROGRAM,
                    finished: now(),
                    machine: Machine::this().facts(),
                    operations: self,
                };
                serde_json::to_writer_pretty(&mut out, &output)?;
                writeln!(out)?;
            }
            DocumentFormat::Md => {
                write!(out, "{}", self.table())?;
                self.failed.iter().for_each(note);
            }
        }
        Ok(())
    }

    /// The table of all measurements.
    pub(crate) fn table(&self) -> Table {
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

    /// Speed of a device as a multiple of the processor's.
    pub(crate) fn beside_cpu(&self, row: &Measured) -> Option<f64> {
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
