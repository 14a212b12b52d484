//! Versions: the operations of each system, and the precision of programs.

use std::fmt;
use std::str::FromStr;

use crate::proto::mil::DataType;

/// A set of operations of ML Programs. Each set includes the earlier ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Opset {
    /// Operations of macOS 12 and iOS 15.
    CoreML5,
    /// Operations of macOS 13 and iOS 16: inputs and outputs in half precision.
    CoreML6,
    /// Operations of macOS 14 and iOS 17.
    CoreML7,
    /// Operations of macOS 15 and iOS 18: states.
    CoreML8,
}

impl Opset {
    /// Every set, the oldest first.
    pub const ALL: [Self; 4] = [Self::CoreML5, Self::CoreML6, Self::CoreML7, Self::CoreML8];

    /// The name that functions give.
    pub fn name(self) -> &'static str {
        match self {
            Self::CoreML5 => "CoreML5",
            Self::CoreML6 => "CoreML6",
            Self::CoreML7 => "CoreML7",
            Self::CoreML8 => "CoreML8",
        }
    }

    /// The version of the model format that has it.
    pub fn specification_version(self) -> i32 {
        6 + self as i32
    }

    /// The newest set that a version of macOS knows; `None` before macOS 12, which has no ML
    /// Programs.
    pub fn of_macos(major: u32) -> Option<Self> {
        let index = major.checked_sub(12)?.min(3);
        Some(Self::ALL[index as usize])
    }

    /// The newest set that a version of iOS knows; `None` before iOS 15.
    pub fn of_ios(major: u32) -> Option<Self> {
        Self::of_macos(major.checked_sub(3)?)
    }

    /// Returns whether inputs and outputs can be in half precision.
    pub fn has_half_features(self) -> bool {
        self >= Self::CoreML6
    }

    /// Returns whether programs can keep their own states from one prediction to the next (`MLState`).
    pub fn has_states(self) -> bool {
        self >= Self::CoreML8
    }
}

/// Precision of computations on values of type `f32`. A value's type in an ML Program is the least
/// precision that Core ML may use for it. This is [typed
/// execution](https://apple.github.io/coremltools/docs-guides/source/typed-execution.html).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Precision {
    /// Single precision, which the Neural Engine does not have.
    #[default]
    F32,
    /// Half precision, on any compute unit. Inputs and outputs stay as they are.
    F16,
}

impl Precision {
    /// The type that values of `f32` have in a program.
    pub fn data_type(self) -> DataType {
        match self {
            Self::F32 => DataType::Float32,
            Self::F16 => DataType::Float16,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
        })
    }
}

impl FromStr for Precision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "f32" => Ok(Self::F32),
            "f16" => Ok(Self::F16),
            _ => Err("expected f32 or f16".to_owned()),
        }
    }
}

/// Target of programs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Target {
    /// The operations that there are.
    pub opset: Opset,
    /// Precision of `f32`.
    pub precision: Precision,
    /// Whether programs that update a state row by row keep it themselves, if the system supports that.
    pub states: bool,
}

impl Target {
    /// Programs that keep no states.
    pub fn new(opset: Opset, precision: Precision) -> Self {
        Self {
            opset,
            precision,
            states: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_get_the_newest_that_they_know() {
        for (macos, opset) in [
            (11, None),
            (12, Some(Opset::CoreML5)),
            (13, Some(Opset::CoreML6)),
            (14, Some(Opset::CoreML7)),
            (15, Some(Opset::CoreML8)),
            (26, Some(Opset::CoreML8)),
        ] {
            assert_eq!(Opset::of_macos(macos), opset, "macOS {macos}");
        }
        assert_eq!(Opset::of_ios(14), None);
        assert_eq!(Opset::of_ios(17), Some(Opset::CoreML7));
        assert_eq!(Opset::of_ios(0), None);
        let versions = Opset::ALL.map(Opset::specification_version);
        assert_eq!(versions, [6, 7, 8, 9]);
    }
}
