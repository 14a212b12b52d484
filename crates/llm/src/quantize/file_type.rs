//! The file types that a model can be quantised to.

use std::fmt;
use std::str::FromStr;

use rustorch_gguf::GgmlType;

use crate::LlmError;

macro_rules! file_types {
    ($($variant:ident = $id:literal, $name:literal, $base:ident;)*) => {
        /// A recipe for the tensor types of a file, by `llama-quantize`'s names.
        ///
        /// Source: `enum llama_ftype` in llama.cpp's `include/llama.h`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FileType {
            $(#[doc = concat!("`", $name, "`.")] $variant = $id,)*
        }

        impl FileType {
            /// Every file type.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name, such as `Q4_K_M`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The type of tensors that the recipe does not mention.
            pub fn base(self) -> GgmlType {
                match self {
                    $(Self::$variant => GgmlType::$base,)*
                }
            }
        }
    };
}

file_types! {
    F32 = 0, "F32", F32;
    F16 = 1, "F16", F16;
    BF16 = 32, "BF16", BF16;
    Q4_0 = 2, "Q4_0", Q4_0;
    Q4_1 = 3, "Q4_1", Q4_1;
    Q5_0 = 8, "Q5_0", Q5_0;
    Q5_1 = 9, "Q5_1", Q5_1;
    Q8_0 = 7, "Q8_0", Q8_0;
    Q2K = 10, "Q2_K", Q2K;
    Q2KS = 21, "Q2_K_S", Q2K;
    Q3KS = 11, "Q3_K_S", Q3K;
    Q3KM = 12, "Q3_K_M", Q3K;
    Q3KL = 13, "Q3_K_L", Q3K;
    Q4KS = 14, "Q4_K_S", Q4K;
    Q4KM = 15, "Q4_K_M", Q4K;
    Q5KS = 16, "Q5_K_S", Q5K;
    Q5KM = 17, "Q5_K_M", Q5K;
    Q6K = 18, "Q6_K", Q6K;
    Mxfp4Moe = 38, "MXFP4_MOE", Mxfp4;
}

/// Short names of the medium mixes.
const ALIASES: [(&str, FileType); 3] = [
    ("Q3_K", FileType::Q3KM),
    ("Q4_K", FileType::Q4KM),
    ("Q5_K", FileType::Q5KM),
];

/// llama.cpp's file types that RusTorch cannot make.
const FOREIGN: [&str; 17] = [
    "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M",
    "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "NVFP4", "Q1_0", "Q2_0",
];

impl FileType {
    /// The value of `general.file_type` in a file of this type.
    pub fn id(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for FileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for FileType {
    type Err = LlmError;

    /// Reads a file type's name in any case.
    fn from_str(name: &str) -> Result<Self, LlmError> {
        let names = Self::ALL
            .iter()
            .map(|&file_type| (file_type.name(), file_type));
        let found = names
            .chain(ALIASES)
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        if let Some((_, file_type)) = found {
            Ok(file_type)
        } else if let Some(name) = FOREIGN
            .iter()
            .find(|known| known.eq_ignore_ascii_case(name))
        {
            Err(LlmError::Input(format!(
                "cannot write files of type {name}; use one of {}",
                all()
            )))
        } else {
            Err(LlmError::Input(format!(
                "unknown file type `{name}`; use one of {}",
                all()
            )))
        }
    }
}

fn all() -> String {
    let names: Vec<_> = FileType::ALL
        .iter()
        .map(|file_type| file_type.name())
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_any_case_and_aliases_are_read() {
        for &file_type in FileType::ALL {
            assert_eq!(file_type.name().parse().ok(), Some(file_type));
            assert_eq!(
                file_type.name().to_lowercase().parse().ok(),
                Some(file_type)
            );
        }
        for (alias, medium) in [("Q3_K", "Q3_K_M"), ("q4_k", "Q4_K_M"), ("Q5_K", "Q5_K_M")] {
            assert_eq!(alias.parse::<FileType>().ok(), medium.parse().ok());
        }
    }

    #[test]
    fn other_names_are_refused_by_name() {
        let foreign = "iq4_xs".parse::<FileType>().unwrap_err();
        let message = foreign.to_string();
        assert!(
            message.starts_with("cannot write files of type IQ4_XS; use one of F32, F16"),
            "{message}"
        );
        let message = "Q4".parse::<FileType>().unwrap_err().to_string();
        assert!(
            message.starts_with("unknown file type `Q4`; use one of"),
            "{message}"
        );
    }
}
