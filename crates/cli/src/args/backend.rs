//! The value of `-b`: a backend, or llama.cpp's batch size.

use std::fmt;
use std::str::FromStr;

use rustorch_runtime::DeviceType;

/// The value of `-b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendArg {
    /// A device, or `auto`.
    Device(DeviceType),
    /// Several devices together.
    Hybrid(Hybrid),
    /// Tokens of a batch.
    Batch(usize),
}

/// Ways to combine devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hybrid {
    /// Convolutions and activations on Core ML, products on Metal.
    Mac,
    /// Each operation by the f32 hybrid's rules.
    F32,
}

/// Their names.
const HYBRIDS: [(&str, Hybrid); 2] = [("mac-hybrid", Hybrid::Mac), ("hybrid-f32", Hybrid::F32)];

impl FromStr for BackendArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            return match text.parse() {
                Ok(0) | Err(_) => Err("expected a batch size above 0".to_owned()),
                Ok(size) => Ok(Self::Batch(size)),
            };
        }
        match HYBRIDS.into_iter().find(|(name, _)| *name == text) {
            Some((_, hybrid)) => Ok(Self::Hybrid(hybrid)),
            None => text.parse().map(Self::Device).map_err(|_| {
                format!(
                    "unknown backend; expected auto, cpu, reference, cuda[:N], metal[:N], \
                     opencl[:N], webgpu[:N], coreml[:N], coreml-hybrid[:N][+GPU], {}, or a number as the batch size",
                    HYBRIDS.map(|(name, _)| name).join(", ")
                )
            }),
        }
    }
}

impl fmt::Display for BackendArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(device) => device.fmt(f),
            Self::Hybrid(hybrid) => {
                let named = HYBRIDS.iter().find(|(_, other)| other == hybrid);
                f.write_str(named.map_or("", |(name, _)| name))
            }
            Self::Batch(size) => size.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        let parse = |text: &str| text.parse::<BackendArg>();
        assert_eq!(parse("auto"), Ok(BackendArg::Device(DeviceType::Auto)));
        assert_eq!(parse("cuda:1"), Ok(BackendArg::Device(DeviceType::Cuda(1))));
        for (name, hybrid) in HYBRIDS {
            assert_eq!(parse(name), Ok(BackendArg::Hybrid(hybrid)));
            assert_eq!(BackendArg::Hybrid(hybrid).to_string(), name);
        }
        for name in ["coreml-hybrid:0", "coreml-hybrid:1+opencl:2"] {
            assert_eq!(parse(name).map(|arg| arg.to_string()), Ok(name.to_owned()));
        }
        assert_eq!(parse("2048"), Ok(BackendArg::Batch(2048)));
        for bad in [
            "",
            "0",
            "-1",
            "12x",
            "gpu",
            "cpu:1",
            "coreml-hybrid+cpu",
            "99999999999999999999999",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
