//! `verify`: checks that this machine computes correctly, and measures its speed.

mod conformance;
mod copies;
mod faults;
mod findings;
mod goldens;
mod report;
mod speed;
mod units;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::{Args, ValueEnum};
use rustorch_faulty::Fault;
use rustorch_ir::OpKind;
use serde::Serialize;

use crate::args::{BackendArg, CoreMlArgs, DocumentArgs, InjectArgs, ThreadArgs, operation};
use crate::devices::discover;
use crate::document::Document;
use crate::resume::{Ended, Progress, identity};
use crate::subject::Subject;
use crate::variants::Variants;
use findings::{Findings, Row};
use report::{DeviceReport, Report, SEND_TO};
use speed::Speeds;

const METHOD: &str = "\
Checks of each device:
  conformance  each operation's results match the slow reference
  goldens      the bundled model's tokens and logits match llama.cpp's
  faults       the generated text stays the same when the device fails
  copies       devices that share memory copy nothing between each other
  units        preferred compute units, if the device has several
  speed        speed, compared with the CPU

A run takes a few minutes; --full takes much longer. The report lists each check with its tolerance and \
results, and the checks that did not run. Nothing is sent anywhere. An interrupted run continues when the \
same command is run again.
Exit status: 0 all checks passed, 1 a check failed or the report cannot be written.";

#[derive(Debug, Args)]
#[command(after_help = METHOD)]
pub(crate) struct Options {
    /// Check only this backend: cpu, reference, cuda, metal, opencl, coreml, mac-hybrid, coreml-hybrid or
    /// hybrid-f32; cuda:1 is the second CUDA device [default: all devices of this machine]
    #[arg(short, long, value_name = "BACKEND")]
    backend: Option<BackendArg>,

    /// Run only these checks
    #[arg(long, value_enum, value_name = "PART,…", value_delimiter = ',')]
    only: Vec<Part>,

    /// Operations whose conformance is checked: matmul,softmax [default: all]
    #[arg(long, value_name = "OP,…", value_delimiter = ',', value_parser = operation)]
    ops: Vec<OpKind>,

    /// Check all cases of all operations, and inject a failure into every kernel of a token
    #[arg(long)]
    full: bool,

    /// The bundled model in another type, compared with llama.cpp's answers; repeatable. The program makes
    /// missing types from the f16 file
    #[arg(short, long, value_name = "FILE")]
    model: Vec<PathBuf>,

    #[command(flatten)]
    coreml: CoreMlArgs,

    #[command(flatten)]
    workers: ThreadArgs,

    #[command(flatten)]
    document: DocumentArgs,

    #[command(flatten)]
    inject: InjectArgs,
}

/// A part of the verification.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Part {
    Conformance,
    Goldens,
    Faults,
    Copies,
    Units,
    Speed,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Conformance => "conformance",
            Self::Goldens => "goldens",
            Self::Faults => "faults",
            Self::Copies => "copies",
            Self::Units => "units",
            Self::Speed => "speed",
        }
    }
}

pub(super) fn run(options: &Options) -> Result<ExitCode> {
    let start = Instant::now();
    let found = discover(
        options.coreml.options(options.workers),
        &options.inject.faults.0,
    );
    let subjects = Subject::find(options.backend, &found)?;
    let variants = Variants::open(&options.model)?;
    let document = Document::open(&options.document, "rustorch-verify")?;
    let cpu = Subject::cpu(&found)?;
    let cpu = cpu.iter().find(|_| options.does(Part::Speed));
    let verifier = Verifier {
        options,
        // If the CPU fails, its own part says so.
        cpu: cpu.and_then(|cpu| Speeds::of(cpu, &variants.bundled().model).ok()),
        variants,
    };
    let mut progress = Progress::open(document.path(), &identity());
    let devices = subjects
        .iter()
        .map(|subject| verifier.verify(subject, &mut progress))
        .collect();
    let report = Report::new(devices, found.absent, start.elapsed());
    if let Some(file) = document.write(&report)? {
        write!(
            io::stdout().lock(),
            "{}\nReport: {file}; {SEND_TO}\n",
            report.summary()
        )?;
    }
    progress.finish();
    Ok(match report.passed() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

impl Options {
    fn does(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// Are faults injected into one of these devices?
    fn spoils(&self, subject: &Subject) -> bool {
        let device = |fault: &Fault| {
            subject
                .backends
                .iter()
                .any(|b| b.info().device == fault.device)
        };
        self.inject.faults.0.iter().any(device)
    }
}

/// The checks of each device.
struct Verifier<'a> {
    options: &'a Options,
    variants: Variants,
    /// The CPU's speeds, if speed is measured.
    cpu: Option<Speeds>,
}

impl Verifier<'_> {
    fn verify(&self, subject: &Subject, progress: &mut Progress) -> DeviceReport {
        let parts = Part::value_variants().iter().copied();
        let chosen = parts.filter(|&part| self.options.does(part));
        let timed = chosen.map(|part| {
            let key = format!("{} {}", subject.name, part.name());
            let findings = progress.done(&key, || {
                let start = Instant::now();
                let findings = self.part(part, subject);
                let seconds = (start.elapsed().as_secs_f64() * 10.0).round() / 10.0;
                Findings {
                    seconds,
                    ..findings
                }
            });
            let ended = |Ended| Findings {
                did: "Nothing.".to_owned(),
                rows: vec![Row::failed(
                    "all",
                    "the program ended twice during this check",
                )],
                ..Findings::default()
            };
            (part, findings.unwrap_or_else(ended))
        });
        DeviceReport::new(subject, timed)
    }

    fn part(&self, part: Part, subject: &Subject) -> Findings {
        let (options, model) = (self.options, &self.variants.bundled().model);
        match (part, subject.device()) {
            (Part::Conformance, Some(b)) => conformance::check(b, &options.ops, options.full),
            (Part::Faults, Some(b)) => faults::check(b, model, options.full),
            (Part::Conformance | Part::Faults, None) => {
                Findings::skipped("all", "each of its devices is checked alone")
            }
            (Part::Goldens, _) => goldens::check(subject, &self.variants),
            // A device that may be lost keeps its memory apart, to lose what is in it.
            (Part::Copies, _) if options.spoils(subject) => {
                Findings::skipped("all", "injected faults change the number of copies")
            }
            (Part::Copies, _) => copies::check(subject, model),
            (Part::Units, _) => units::check(subject, model),
            (Part::Speed, _) => speed::check(subject, model, self.cpu.as_ref()),
        }
    }
}

#[cfg(all(test, feature = "coreml"))]
mod tests {
    use std::sync::Arc;

    use clap::Parser;
    use rustorch_conformance::Extent;
    use rustorch_coreml::cache::Cache;
    use rustorch_coreml::{CoreMl, Settings};
    use rustorch_coreml_emulator::Emulated;
    use rustorch_runtime::{Backend, Compilation};
    use rustorch_tensor::Discovered;

    use super::findings::Outcome;
    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    /// The processor, and a Core ML whose compiler is said to be slow.
    fn emulated(macos: u32, folder: &std::path::Path) -> Discovered {
        emulated_with(false, macos, folder)
    }

    fn emulated_with(states: bool, macos: u32, folder: &std::path::Path) -> Discovered {
        let api = Emulated::new(macos).compiling_slowly(Compilation {
            program: std::time::Duration::from_secs(20),
            least_operations: 2,
        });
        let mut settings = Settings::new(Cache::new(folder, 1 << 30));
        settings.options.states = states;
        let coreml: Arc<dyn Backend> = Arc::new(CoreMl::new(api, 0, settings).unwrap());
        let mut backends = rustorch_tensor::host(1);
        backends.push(coreml);
        Discovered {
            backends,
            absent: Vec::new(),
        }
    }

    #[test]
    fn core_ml_is_verified_with_the_cpu_behind_it() {
        let line = ["verify", "--ops", "matmul,scan,where", "-b", "coreml"];
        let options = Line::try_parse_from(line).unwrap().options;
        let folder = tempfile::tempdir().unwrap();
        let found = emulated(15, folder.path());
        let subjects = Subject::find(options.backend, &found).unwrap();
        let [subject] = &subjects[..] else {
            panic!("{} subjects", subjects.len());
        };
        let verifier = Verifier {
            options: &options,
            variants: Variants::open(&[]).unwrap(),
            cpu: None,
        };
        let conformance = verifier.part(Part::Conformance, subject);
        assert_eq!(conformance.count(Outcome::Failed), 0, "{conformance}");
        assert!(conformance.count(Outcome::Passed) > 0, "{conformance}");
        let copies = verifier.part(Part::Copies, subject);
        assert_eq!(copies.count(Outcome::Passed), 1, "{copies}");
        let told = copies.to_string();
        assert!(told.contains("coreml:0 ran"), "{told}");
        let units = verifier.part(Part::Units, subject);
        let told = units.to_string();
        for row in [
            "prompt: coreml:0 prefers Neural Engine",
            "token: coreml:0 prefers",
        ] {
            assert!(told.contains(row), "{told}");
        }
        let cpu = Subject::cpu(&found).unwrap();
        let units = verifier.part(Part::Units, &cpu[0]);
        assert_eq!(units.count(Outcome::Skipped), 1, "{units}");
    }

    /// Programs have weights in blocks from macOS 13 on, in another form than from macOS 15 on.
    #[test]
    fn weights_in_blocks_are_verified_where_programs_have_them() {
        let line = ["verify", "--ops", "linear,embedding", "-b", "coreml"];
        let options = Line::try_parse_from(line).unwrap().options;
        for macos in [12, 13, 15] {
            let folder = tempfile::tempdir().unwrap();
            let found = emulated(macos, folder.path());
            let subjects = Subject::find(options.backend, &found).unwrap();
            let verifier = Verifier {
                options: &options,
                variants: Variants::open(&[]).unwrap(),
                cpu: None,
            };
            let findings = verifier.part(Part::Conformance, &subjects[0]);
            assert_eq!(
                findings.count(Outcome::Failed),
                0,
                "macOS {macos}: {findings}"
            );
            assert_eq!(
                findings.count(Outcome::Passed),
                2,
                "macOS {macos}: {findings}"
            );
        }
    }

    /// Its text stays the same when it fails, and its answers are llama.cpp's, also with states.
    #[test]
    fn core_ml_fails_and_answers_as_other_devices_do() {
        let line = ["verify", "-b", "coreml", "--coreml-states"];
        let options = Line::try_parse_from(line).unwrap().options;
        let folder = tempfile::tempdir().unwrap();
        let found = emulated_with(options.coreml.coreml_states, 15, folder.path());
        let subjects = Subject::find(options.backend, &found).unwrap();
        let verifier = Verifier {
            options: &options,
            variants: Variants::open(&[]).unwrap(),
            cpu: None,
        };
        for part in [Part::Faults, Part::Goldens] {
            // Short test runs check one part only.
            if part == Part::Goldens && Extent::of_tests() != Extent::Full {
                continue;
            }
            let findings = verifier.part(part, &subjects[0]);
            assert_eq!(findings.count(Outcome::Failed), 0, "{findings}");
            assert!(findings.count(Outcome::Passed) > 0, "{findings}");
        }
    }
}
