//! The samplers by name.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A sampler that may be in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplerKind {
    /// Penalties on tokens that occurred lately.
    Penalties,
    /// Penalties on tokens that would continue a repetition.
    Dry,
    /// Tokens whose logits are near the best, measured by their deviation.
    TopNSigma,
    /// The best tokens.
    TopK,
    /// Locally typical tokens.
    Typical,
    /// The best tokens up to a total probability.
    TopP,
    /// Tokens at least as likely as a fraction of the best one.
    MinP,
    /// Sometimes removes the most likely tokens, but keeps the least likely of these.
    Xtc,
    /// Division by a temperature, which may depend on the entropy.
    Temperature,
    /// Tokens that fill a gap in a text.
    Infill,
    /// A draw near an adaptive target probability; it ends the chain at any position.
    AdaptiveP,
}

impl SamplerKind {
    /// All, with llama.cpp's names and letters.
    pub const ALL: [(SamplerKind, &str, char); 11] = [
        (Self::Penalties, "penalties", 'e'),
        (Self::Dry, "dry", 'd'),
        (Self::TopNSigma, "top_n_sigma", 's'),
        (Self::TopK, "top_k", 'k'),
        (Self::Typical, "typ_p", 'y'),
        (Self::TopP, "top_p", 'p'),
        (Self::MinP, "min_p", 'm'),
        (Self::Xtc, "xtc", 'x'),
        (Self::Temperature, "temperature", 't'),
        (Self::Infill, "infill", 'i'),
        (Self::AdaptiveP, "adaptive_p", 'a'),
    ];

    /// llama.cpp's chain.
    pub const DEFAULT: [SamplerKind; 9] = [
        Self::Penalties,
        Self::Dry,
        Self::TopNSigma,
        Self::TopK,
        Self::Typical,
        Self::TopP,
        Self::MinP,
        Self::Xtc,
        Self::Temperature,
    ];

    /// The samplers of these letters.
    ///
    /// # Errors
    /// Fails for an unknown letter.
    pub fn sequence(letters: &str) -> Result<Vec<Self>, UnknownSampler> {
        let kind = |letter| {
            let known = Self::ALL.into_iter().find(|&(.., other)| other == letter);
            let kind = known.map(|(kind, ..)| kind);
            kind.ok_or_else(|| UnknownSampler(letter.to_string()))
        };
        letters.chars().map(kind).collect()
    }
}

impl fmt::Display for SamplerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::ALL.iter().find(|(kind, ..)| kind == self);
        f.write_str(named.map_or("", |(_, name, _)| name))
    }
}

impl FromStr for SamplerKind {
    type Err = UnknownSampler;

    /// Also takes `top-k` and `topk` for `top_k`, and three short names, as llama.cpp does.
    fn from_str(text: &str) -> Result<Self, UnknownSampler> {
        let name = text.to_ascii_lowercase().replace('-', "_");
        match name.as_str() {
            "nucleus" => return Ok(Self::TopP),
            "temp" => return Ok(Self::Temperature),
            "typ" => return Ok(Self::Typical),
            _ => {}
        }
        let is_named = |known: &str| known == name || known.replace('_', "") == name;
        let known = Self::ALL.into_iter().find(|(_, known, _)| is_named(known));
        let kind = known.map(|(kind, ..)| kind);
        kind.ok_or_else(|| UnknownSampler(text.to_owned()))
    }
}

/// An unknown sampler name or letter.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("no sampler is called {0:?}; there are {known}", known = known())]
pub struct UnknownSampler(
    /// The given name.
    pub String,
);

fn known() -> String {
    let known = SamplerKind::ALL.map(|(_, name, letter)| format!("{name} ({letter})"));
    known.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samplers_have_names_and_letters() {
        for (kind, name, letter) in SamplerKind::ALL {
            assert_eq!(kind.to_string(), name);
            for spelling in [name, &name.replace('_', "-"), &name.replace('_', "")] {
                assert_eq!(spelling.to_uppercase().parse(), Ok(kind), "{spelling}");
            }
            assert_eq!(SamplerKind::sequence(&letter.to_string()), Ok(vec![kind]));
        }
        for (alias, kind) in [
            ("nucleus", SamplerKind::TopP),
            ("temp", SamplerKind::Temperature),
            ("typ", SamplerKind::Typical),
        ] {
            assert_eq!(alias.parse(), Ok(kind));
        }
        let sequence = SamplerKind::sequence("edskypmxt");
        assert_eq!(sequence, Ok(SamplerKind::DEFAULT.to_vec()));
    }

    #[test]
    fn an_unknown_name_is_told_with_those_there_are() {
        let error = "top_q".parse::<SamplerKind>().unwrap_err().to_string();
        assert!(error.starts_with("no sampler is called \"top_q\"; there are penalties (e), dry"));
        let error = SamplerKind::sequence("kq").unwrap_err();
        assert_eq!(error, UnknownSampler("q".to_owned()));
    }
}
