//! Levels of vector instructions for the kernels: the best that the machine has, found once.

#[cfg(target_arch = "aarch64")]
use super::Neon;
#[cfg(target_arch = "x86_64")]
use super::{Amx, Avx2, Avx512, Bf16};
use super::{Kernel, Plain, Simd};
use std::fmt;
use std::sync::OnceLock;

use rustorch_runtime::platform::variable;

/// Limits the level by name, see [`Level::current`].
const VARIABLE: &str = "RUSTORCH_CPU_LEVEL";

/// Are kernels compiled for other levels than the least?
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const SIMD: bool = cfg!(feature = "simd");

macro_rules! levels {
    ($($(#[$attribute:meta])* $name:literal, $variant:ident($token:ty), $detect:expr;)+) => {
        /// A set of vector instructions that this machine has.
        #[derive(Clone, Copy, Debug)]
        pub struct Level(Token);

        #[derive(Clone, Copy, Debug)]
        enum Token {
            Plain,
            $($(#[$attribute])* $variant($token)),+
        }

        impl Level {
            /// All levels of this machine, the best last.
            pub fn available() -> Vec<Self> {
                let levels = [
                    Some(Self(Token::Plain)),
                    $($(#[$attribute])* {
                        let token = if SIMD { $detect } else { None };
                        token.map(|token| Self(Token::$variant(token)))
                    }),+
                ];
                levels.into_iter().flatten().collect()
            }

            /// Name in the environment variable and the tests.
            pub fn name(self) -> &'static str {
                match self.0 {
                    Token::Plain => "plain",
                    $($(#[$attribute])* Token::$variant(_) => $name),+
                }
            }

            /// Runs a kernel with the level's instructions.
            pub(crate) fn run<K: Kernel>(self, kernel: K) {
                match self.0 {
                    $($(#[$attribute])* Token::$variant(token) if SIMD => token.run(kernel),)+
                    _ => Plain.run(kernel),
                }
            }
        }
    };
}

// The table of levels above the least, up to the best.
levels! {
    #[cfg(target_arch = "x86_64")]
    "avx2", Avx2(Avx2<false>), Avx2::detect();
    #[cfg(target_arch = "x86_64")]
    "avx-vnni", AvxVnni(Avx2<true>), Avx2::detect();
    #[cfg(target_arch = "x86_64")]
    "avx512-vnni", Avx512(Avx512), Avx512::detect();
    #[cfg(target_arch = "x86_64")]
    "avx512-bf16", Avx512Bf16(Bf16), Bf16::detect();
    #[cfg(target_arch = "x86_64")]
    "amx", Amx(Amx), Amx::detect();
    #[cfg(target_arch = "aarch64")]
    "neon", Neon(Neon<false, false>), Neon::detect();
    #[cfg(target_arch = "aarch64")]
    "neon-dotprod", NeonDotprod(Neon<true, false>), Neon::detect();
    #[cfg(target_arch = "aarch64")]
    "neon-i8mm", NeonI8mm(Neon<true, true>), Neon::detect();
}

impl Level {
    /// The matrix unit, if it belongs to the level.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn amx(self) -> Option<Amx> {
        match self.0 {
            Token::Amx(amx) if SIMD => Some(amx),
            _ => None,
        }
    }

    /// The vector unit with products of bf16, if it is the level's best for them.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn bf16(self) -> Option<Bf16> {
        match self.0 {
            Token::Avx512Bf16(unit) if SIMD => Some(unit),
            _ => None,
        }
    }

    /// The level that products use: the machine's best, or the one that `RUSTORCH_CPU_LEVEL` names
    /// if the machine has it. Found once.
    pub fn current() -> Self {
        static CURRENT: OnceLock<Level> = OnceLock::new();
        *CURRENT.get_or_init(|| {
            let levels = Self::available();
            let wanted = variable(VARIABLE).map(|level| level.to_string_lossy().into_owned());
            let named = levels
                .iter()
                .find(|level| wanted.as_deref() == Some(level.name()));
            if let (Some(wanted), None) = (&wanted, named) {
                let names: Vec<_> = levels.iter().map(|level| level.name()).collect();
                let names = names.join(", ");
                tracing::warn!(
                    "{VARIABLE}={wanted}: this machine has only the levels {names}; using the best"
                );
            }
            *named.or(levels.last()).unwrap_or(&Self(Token::Plain))
        })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
