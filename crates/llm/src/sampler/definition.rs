//! The definition of a sampler: its name, letter and options. The library, the command line and files of
//! settings derive from it.

use std::fmt;

use rustorch_tokenizer::Tokenizer;

use super::{Sampler, SamplerConfig};
use crate::LlmError;

/// A sampler's options, and the sampler that they make.
pub(super) trait Definition {
    /// Whether it changes anything with these options.
    fn is_on(&self) -> bool;

    /// The sampler. It draws random numbers by `seed`.
    fn sampler(&self, seed: u32) -> Box<dyn Sampler + Send>;

    /// Whether it draws the token. Such a sampler ends the chain.
    fn draws(&self) -> bool {
        false
    }

    /// Whether the best candidate stays, and candidates that are not the best change nothing for it.
    fn keeps_best(&self) -> bool {
        false
    }

    /// Number of the best candidates that its result depends on; `None` for all.
    fn looks_at(&self) -> Option<usize> {
        None
    }

    /// Takes from a vocabulary what the options need of it.
    fn bind(&mut self, _tokenizer: &Tokenizer) {}

    /// Whether it cannot work before [`bind`](Self::bind).
    fn lacks_vocabulary(&self) -> bool {
        false
    }
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq)]
pub enum OptionValue {
    /// A number.
    Number(f32),
    /// A whole number.
    Integer(i64),
    /// A list of texts.
    Texts(Vec<String>),
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Integer(integer) => integer.fmt(f),
            Self::Texts(texts) => write!(f, "{texts:?}"),
        }
    }
}

/// Valid values of an option.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    contains: fn(f64) -> bool,
    /// The valid values, for error messages.
    pub expected: &'static str,
}

impl Bounds {
    pub(super) const TEXTS: Self = Self {
        contains: |_| true,
        expected: "a list of texts",
    };
    pub(super) const WHOLE: Self = Self {
        contains: |_| true,
        expected: "a whole number",
    };
    pub(super) const FINITE: Self = Self {
        contains: f64::is_finite,
        expected: "a finite number",
    };
    pub(super) const SHARE: Self = Self {
        contains: |value| (0.0..=1.0).contains(&value),
        expected: "a number from 0 to 1",
    };
    pub(super) const POSITIVE: Self = Self {
        contains: |value| value > 0.0 && value.is_finite(),
        expected: "a finite number above 0",
    };
    pub(super) const AT_LEAST_ONE: Self = Self {
        contains: |value| value >= 1.0 && value.is_finite(),
        expected: "a finite number, at least 1",
    };
    pub(super) const COUNT: Self = Self {
        contains: |value| value >= 0.0,
        expected: "a whole number, at least 0",
    };
    pub(super) const UP_TO_TWO: Self = Self {
        contains: |value| (0.0..=2.0).contains(&value),
        expected: "0, 1 or 2",
    };
}

/// An option of a sampler.
#[derive(Clone, Copy, Debug)]
pub struct SamplerOption {
    /// The name in the library and in files: `top_p`.
    pub name: &'static str,
    /// The name on the command line, with its value: `--top-p P`.
    pub usage: &'static str,
    /// Description, line by line.
    pub help: &'static [&'static str],
    /// Valid values.
    pub bounds: Bounds,
    pub(super) get: fn(&SamplerConfig) -> OptionValue,
    pub(super) set: fn(&mut SamplerConfig, OptionValue) -> bool,
}

impl SamplerOption {
    /// The value in a configuration.
    pub fn get(&self, config: &SamplerConfig) -> OptionValue {
        (self.get)(config)
    }

    /// Sets the value in a configuration.
    ///
    /// # Errors
    /// Fails for a value of another type or out of range. The configuration is then as before.
    pub fn set(&self, config: &mut SamplerConfig, value: OptionValue) -> Result<(), LlmError> {
        let mut changed = config.clone();
        let told = value.to_string();
        match (self.set)(&mut changed, value) {
            true => self.check(&changed)?,
            false => return Err(self.refuse(told)),
        }
        *config = changed;
        Ok(())
    }

    /// Checks the value in a configuration.
    ///
    /// # Errors
    /// Fails for a value out of range.
    pub(super) fn check(&self, config: &SamplerConfig) -> Result<(), LlmError> {
        let value = self.get(config);
        let number = match value {
            OptionValue::Number(number) => f64::from(number),
            OptionValue::Integer(integer) => integer as f64,
            OptionValue::Texts(_) => return Ok(()),
        };
        match (self.bounds.contains)(number) {
            true => Ok(()),
            false => Err(self.refuse(value.to_string())),
        }
    }

    fn refuse(&self, value: String) -> LlmError {
        LlmError::Sampler {
            option: self.name,
            value,
            expected: self.bounds.expected,
        }
    }
}

/// A type of options.
pub(super) trait Field: Sized {
    fn get(&self) -> OptionValue;

    /// The value in this type, unless it has another.
    fn of(value: OptionValue) -> Option<Self>;
}

impl Field for f32 {
    fn get(&self) -> OptionValue {
        OptionValue::Number(*self)
    }

    fn of(value: OptionValue) -> Option<Self> {
        match value {
            OptionValue::Number(number) => Some(number),
            OptionValue::Integer(integer) => Some(integer as f32),
            OptionValue::Texts(_) => None,
        }
    }
}

impl Field for i64 {
    fn get(&self) -> OptionValue {
        OptionValue::Integer(*self)
    }

    fn of(value: OptionValue) -> Option<Self> {
        match value {
            OptionValue::Integer(integer) => Some(integer),
            OptionValue::Number(number) if number.fract() == 0.0 => Some(number as i64),
            _ => None,
        }
    }
}

impl Field for Vec<String> {
    fn get(&self) -> OptionValue {
        OptionValue::Texts(self.clone())
    }

    fn of(value: OptionValue) -> Option<Self> {
        match value {
            OptionValue::Texts(texts) => Some(texts),
            _ => None,
        }
    }
}

/// Defines a sampler: a structure of its options with their defaults, bounds and help, and methods of
/// [`SamplerConfig`] that set them. Fields after `bound` come from a vocabulary.
macro_rules! sampler {
    (
        $(#[doc = $doc:literal])+
        $Type:ident: $name:literal, $letter:expr;
        $(
            $(#[doc = $help:literal])+
            $option:ident: $type:ty = $default:expr, $bounds:ident, $usage:literal;
        )*
        $(bound { $($(#[doc = $bound_doc:literal])+ $bound:ident: $bound_type:ty,)+ })?
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Type {
            $($(#[doc = $help])+ pub $option: $type,)*
            $($($(#[doc = $bound_doc])+ pub $bound: $bound_type,)+)?
        }

        impl Default for $Type {
            fn default() -> Self {
                Self {
                    $($option: $default,)*
                    $($($bound: Default::default(),)+)?
                }
            }
        }

        impl $Type {
            pub(super) const NAME: &'static str = $name;
            pub(super) const LETTER: Option<char> = $letter;
            pub(super) const OPTIONS: &'static [$crate::sampler::SamplerOption] = &[$(
                $crate::sampler::SamplerOption {
                    name: stringify!($option),
                    usage: $usage,
                    help: &[$($help),+],
                    bounds: $crate::sampler::Bounds::$bounds,
                    get: |config| {
                        let options: &Self = config.as_ref();
                        $crate::sampler::definition::Field::get(&options.$option)
                    },
                    set: |config, value| {
                        let value = $crate::sampler::definition::Field::of(value);
                        let options: &mut Self = config.as_mut();
                        value.map(|value| options.$option = value).is_some()
                    },
                },
            )*];
        }

        impl $crate::sampler::SamplerConfig {
            $(
                $(#[doc = $help])+
                #[must_use]
                pub fn $option(mut self, value: $type) -> Self {
                    let options: &mut $Type = self.as_mut();
                    options.$option = value;
                    self
                }
            )*
        }
    };
}

/// Lists the samplers: their options in [`SamplerConfig`], and their kinds.
macro_rules! samplers {
    ($($module:ident: $Type:ident,)+) => {
        $(pub use $module::$Type;)+

        /// The chain of samplers, and their options. The default is llama.cpp's.
        #[derive(Clone, Debug, PartialEq)]
        pub struct SamplerConfig {
            /// Seed of the draw; `None` takes a random one, which
            /// [`SamplerChain::seed`] reports.
            pub seed: Option<u32>,
            /// The samplers in their order. A sampler takes part if it is listed here and enabled.
            pub samplers: Vec<SamplerKind>,
            /// The bias of tokens' logits, before any sampler.
            pub logit_bias: Vec<(u32, f32)>,
            $(
                #[doc = concat!("Options of [`", stringify!($Type), "`].")]
                pub $module: $Type,
            )+
        }

        impl Default for SamplerConfig {
            fn default() -> Self {
                Self {
                    seed: None,
                    samplers: SamplerKind::DEFAULT.to_vec(),
                    logit_bias: Vec::new(),
                    $($module: $Type::default(),)+
                }
            }
        }

        $(
            impl AsRef<$Type> for SamplerConfig {
                fn as_ref(&self) -> &$Type {
                    &self.$module
                }
            }

            impl AsMut<$Type> for SamplerConfig {
                fn as_mut(&mut self) -> &mut $Type {
                    &mut self.$module
                }
            }
        )+

        impl SamplerConfig {
            /// The options of each sampler.
            const OPTIONS: &'static [&'static [SamplerOption]] = &[$($Type::OPTIONS),+];

            fn definition(&self, kind: SamplerKind) -> &dyn Definition {
                match kind {
                    $(SamplerKind::$Type => &self.$module,)+
                }
            }

            fn definition_mut(&mut self, kind: SamplerKind) -> &mut dyn Definition {
                match kind {
                    $(SamplerKind::$Type => &mut self.$module,)+
                }
            }
        }

        /// A sampler.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum SamplerKind {
            $(
                #[doc = concat!("[`", stringify!($Type), "`].")]
                $Type,
            )+
        }

        impl SamplerKind {
            /// All samplers.
            pub const ALL: &'static [SamplerKind] = &[$(Self::$Type),+];

            /// The name, as llama.cpp's.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$Type => $Type::NAME,)+
                }
            }

            /// The letter, as llama.cpp's. A sampler without a letter has no place in the order.
            pub fn letter(self) -> Option<char> {
                match self {
                    $(Self::$Type => $Type::LETTER,)+
                }
            }
        }
    };
}

pub(super) use {sampler, samplers};
