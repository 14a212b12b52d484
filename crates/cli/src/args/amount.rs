//! Amounts as values of options: bytes of memory, layers of a model.

use std::fmt;
use std::str::FromStr;

use rustorch_llm::GpuLayers;

use crate::output;

/// The value of `--gpu-memory`: bytes, with or without a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteCount(pub(crate) u64);

impl FromStr for ByteCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = text[digits.len()..].to_ascii_uppercase();
        let number = digits
            .parse::<f64>()
            .ok()
            .filter(|n| n.is_finite() && *n > 0.0);
        let number = number.ok_or("expected an amount of memory, such as 500M or 6G")?;
        let power = match unit.as_str() {
            "" | "B" => 0,
            "K" | "KB" | "KIB" => 1,
            "M" | "MB" | "MIB" => 2,
            "G" | "GB" | "GIB" => 3,
            "T" | "TB" | "TIB" => 4,
            _ => return Err(format!("unknown unit {unit}; use K, M, G or T")),
        };
        Ok(Self((number * 1024_f64.powi(power)) as u64))
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&output::bytes(self.0))
    }
}

/// Reads the value of `-ngl`.
pub(super) fn gpu_layers(text: &str) -> Result<GpuLayers, String> {
    match text {
        "auto" => Ok(GpuLayers::Auto),
        "all" => Ok(GpuLayers::AtMost(usize::MAX)),
        number => {
            let number = number.parse().map(GpuLayers::AtMost);
            number.map_err(|_| "expected a number of layers, auto or all".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        for (text, bytes) in [
            ("6G", 6 << 30),
            ("500m", 500 << 20),
            ("1.5GiB", 3 << 29),
            ("4096", 4096),
            ("64kB", 64 << 10),
        ] {
            assert_eq!(text.parse(), Ok(ByteCount(bytes)), "{text}");
        }
        for bad in ["", "G", "-1G", "0", "6X", "much", "nanG", "1e400", "6 G"] {
            assert!(bad.parse::<ByteCount>().is_err(), "{bad}");
        }
    }

    #[test]
    fn layers_are_counted() {
        assert_eq!(gpu_layers("auto"), Ok(GpuLayers::Auto));
        assert_eq!(gpu_layers("20"), Ok(GpuLayers::AtMost(20)));
        assert_eq!(gpu_layers("all"), Ok(GpuLayers::AtMost(usize::MAX)));
        for bad in ["", "-1", "many", "3.5"] {
            assert!(gpu_layers(bad).is_err(), "{bad}");
        }
    }
}
