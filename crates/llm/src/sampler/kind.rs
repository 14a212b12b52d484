//! The samplers by name.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::SamplerKind;

impl SamplerKind {
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
            let kind = Self::ordered().find(|kind| kind.letter() == Some(letter));
            kind.ok_or_else(|| UnknownSampler(letter.to_string()))
        };
        letters.chars().map(kind).collect()
    }

    /// The samplers that may be in an order.
    fn ordered() -> impl Iterator<Item = Self> {
        let all = Self::ALL.iter().copied();
        all.filter(|kind| kind.letter().is_some())
    }
}

impl fmt::Display for SamplerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
        let kind = Self::ordered().find(|kind| is_named(kind.name()));
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
    let named = |kind: SamplerKind| Some(format!("{kind} ({})", kind.letter()?));
    let known: Vec<String> = SamplerKind::ordered().filter_map(named).collect();
    known.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samplers_have_names_and_letters() {
        for kind in SamplerKind::ordered() {
            let (name, letter) = (kind.name(), kind.letter().unwrap());
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
        assert_eq!(SamplerKind::ordered().count(), 11);
        let sequence = SamplerKind::sequence("edskypmxt");
        assert_eq!(sequence, Ok(SamplerKind::DEFAULT.to_vec()));
    }

    #[test]
    fn an_unknown_name_is_reported_with_the_known_ones() {
        let error = "top_q".parse::<SamplerKind>().unwrap_err().to_string();
        let begin = "no sampler is called \"top_q\"; there are temperature (t), top_k (k), ";
        assert!(error.starts_with(begin), "{error}");
        // Mirostat has no place in an order.
        assert!("mirostat".parse::<SamplerKind>().is_err());
        let error = SamplerKind::sequence("kq").unwrap_err();
        assert_eq!(error, UnknownSampler("q".to_owned()));
    }
}
