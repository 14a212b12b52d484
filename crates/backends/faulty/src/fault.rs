//! Descriptions of faults, and their text form.

use std::str::FromStr;

use rustorch_ir::OpKind;
use rustorch_runtime::{DeviceType, FailureClass};

/// A failure on command.
#[derive(Clone, PartialEq, Debug)]
pub struct Fault {
    /// The device that fails.
    pub device: DeviceType,
    /// The operation that fails; `None` for any.
    pub op: Option<OpKind>,
    /// At which of its kernel launches.
    pub when: When,
    /// Kind of the fault.
    pub kind: FaultKind,
}

/// Condition under which a fault strikes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum When {
    /// Once, at the n-th matching launch, counted from 1.
    Nth(u64),
    /// At each matching launch with this probability, by a generator of this seed.
    Probability {
        /// Probability, from 0 to 1.
        p: f64,
        /// Start of the generator.
        seed: u64,
    },
}

/// Kinds of faults, [wrong results](Self::Wrong) among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The kernel turns out to be missing.
    Unsupported,
    /// Memory is refused.
    OutOfMemory,
    /// The device is gone: every later call fails, and its memory cannot be read.
    Lost,
    /// The kernel does not compile.
    Compile,
    /// The device does not answer in time, which loses it.
    Timeout,
    /// The error shows only when the work is waited for, after all of it; the device is lost.
    Sync,
    /// The device does not notice: the run gives a wrong result. No reaction is possible; it shows
    /// that checks of results find it.
    Wrong,
}

impl FaultKind {
    /// The kinds that a device reports.
    pub const FAILURES: [Self; 6] = [
        Self::Unsupported,
        Self::OutOfMemory,
        Self::Lost,
        Self::Compile,
        Self::Timeout,
        Self::Sync,
    ];

    /// The kind's name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unsupported => "unsupported",
            Self::OutOfMemory => "oom",
            Self::Lost => "lost",
            Self::Compile => "compile",
            Self::Timeout => "timeout",
            Self::Sync => "sync",
            Self::Wrong => "wrong",
        }
    }

    /// Class of the failure that the device reports; `None` if it reports none.
    pub fn class(self) -> Option<FailureClass> {
        match self {
            Self::Unsupported | Self::Compile => Some(FailureClass::Unsupported),
            Self::OutOfMemory => Some(FailureClass::OutOfMemory { never_fits: false }),
            Self::Lost | Self::Sync => Some(FailureClass::Lost),
            Self::Timeout => Some(FailureClass::Timeout),
            Self::Wrong => None,
        }
    }
}

/// Why a text describes no fault.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "fault {spec:?}: {problem}; expected device=D;[op=NAME;]nth=N|p=P[;seed=S];kind=K, \
     such as device=cpu;op=matmul;nth=3;kind=lost"
)]
pub struct FaultError {
    spec: String,
    problem: String,
}

/// Faults as they are written on a command line: separated by commas.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Faults(pub Vec<Fault>);

impl FromStr for Faults {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        text.split(',')
            .map(str::parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(spec: &str) -> Result<Self, FaultError> {
        parse(spec).map_err(|problem| FaultError {
            spec: spec.to_owned(),
            problem,
        })
    }
}

fn parse(spec: &str) -> Result<Fault, String> {
    let (mut device, mut op, mut nth, mut p, mut seed, mut kind) = Default::default();
    for part in spec.split(';').map(str::trim) {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?} is not KEY=VALUE"))?;
        match key {
            "device" => set(
                &mut device,
                key,
                value.parse::<DeviceType>().map_err(|e| e.to_string()),
            )?,
            "op" => set(&mut op, key, find_op(value))?,
            "nth" => set(&mut nth, key, number::<u64>(value, "a whole number"))?,
            "p" => set(&mut p, key, number::<f64>(value, "a number"))?,
            "seed" => set(&mut seed, key, number::<u64>(value, "a whole number"))?,
            "kind" => set(&mut kind, key, find_kind(value))?,
            _ => return Err(format!("unknown key {key:?}")),
        }
    }
    let when = match (nth, p, seed) {
        (Some(n), None, None) if n > 0 => When::Nth(n),
        (None, Some(p), seed) if (0.0..=1.0).contains(&p) => When::Probability {
            p,
            seed: seed.unwrap_or(0),
        },
        (Some(_), None, None) => return Err("nth counts from 1".to_owned()),
        (None, Some(p), _) => return Err(format!("p is {p}, not between 0 and 1")),
        (Some(_), _, _) => return Err("nth goes with neither p nor seed".to_owned()),
        (None, None, _) => return Err("nth or p is missing".to_owned()),
    };
    Ok(Fault {
        device: device.ok_or("device is missing")?,
        op,
        when,
        kind: kind.ok_or("kind is missing")?,
    })
}

fn set<T>(slot: &mut Option<T>, key: &str, value: Result<T, String>) -> Result<(), String> {
    match slot.replace(value?) {
        Some(_) => Err(format!("{key} is given twice")),
        None => Ok(()),
    }
}

fn number<T: FromStr>(value: &str, what: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{value:?} is not {what}"))
}

fn find_op(name: &str) -> Result<OpKind, String> {
    let found = OpKind::ALL.iter().find(|k| k.name() == name);
    found
        .copied()
        .ok_or_else(|| format!("unknown operation {name:?}"))
}

fn find_kind(name: &str) -> Result<FaultKind, String> {
    let kinds = || FaultKind::FAILURES.into_iter().chain([FaultKind::Wrong]);
    kinds().find(|k| k.name() == name).ok_or_else(|| {
        let known: Vec<&str> = kinds().map(FaultKind::name).collect();
        format!("unknown kind {name:?} (there are {})", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_parse() {
        let faults: Faults =
            "device=opencl:0;op=matmul;nth=3;kind=lost,device=cpu;p=0.5;seed=7;kind=sync"
                .parse()
                .unwrap();
        assert_eq!(
            faults.0,
            [
                Fault {
                    device: DeviceType::OpenCL(0),
                    op: Some(OpKind::Matmul),
                    when: When::Nth(3),
                    kind: FaultKind::Lost,
                },
                Fault {
                    device: DeviceType::Cpu,
                    op: None,
                    when: When::Probability { p: 0.5, seed: 7 },
                    kind: FaultKind::Sync,
                },
            ]
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (spec, problem) in [
            ("", "is not KEY=VALUE"),
            ("device=cpu;nth=1", "kind is missing"),
            ("nth=1;kind=lost", "device is missing"),
            ("device=cpu;kind=lost", "nth or p is missing"),
            ("device=cpu;nth=0;kind=lost", "counts from 1"),
            ("device=cpu;nth=1;p=1;kind=lost", "neither p nor seed"),
            ("device=cpu;p=2;kind=lost", "not between 0 and 1"),
            ("device=cpu;p=nan;kind=lost", "not between 0 and 1"),
            ("device=cpu;nth=1;kind=gone", "unknown kind"),
            ("device=gpu;nth=1;kind=lost", "unknown device"),
            ("device=cpu;op=mul_mat;nth=1;kind=lost", "unknown operation"),
            ("device=cpu;nth=1;nth=2;kind=lost", "given twice"),
            ("device=cpu;n=1;kind=lost", "unknown key"),
        ] {
            let error = spec.parse::<Faults>().unwrap_err().to_string();
            assert!(error.contains(problem), "{spec}: {error}");
        }
    }
}
