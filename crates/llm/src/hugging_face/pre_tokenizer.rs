//! Names of pre-tokenizers by their structure in `tokenizer.json`.

use serde_json::Value;

macro_rules! contraction {
    () => {
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    };
}

macro_rules! spaces {
    () => {
        r"|\s+(?!\S)|\s+"
    };
}

macro_rules! gpt_2_words {
    () => {
        concat!(r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+", spaces!())
    };
}

/// Contractions, words, digits, symbols with what follows, line ends, spaces.
macro_rules! words {
    ($digits:literal, $behind:literal, $lines:literal) => {
        concat!(
            contraction!(),
            r"|[^\r\n\p{L}\p{N}]?\p{L}+|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+",
            $behind,
            "|",
            $lines,
            spaces!()
        )
    };
}

/// The same, as `tiktoken` writes it.
macro_rules! tiktoken {
    ($digits:literal) => {
        concat!(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]",
            spaces!()
        )
    };
}

/// Words that begin with upper case.
macro_rules! cased {
    ($behind:expr, $digits:literal) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $behind,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $behind,
            "|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+",
            spaces!()
        )
    };
}

/// llama.cpp's names by steps. A `*` ends the known part of a long expression.
const NAMES: &[(&str, &[&str])] = &[
    ("gpt-2", &["ByteLevel"]),
    (
        "gpt-2",
        &[concat!("'s|'t|'re|'ve|'m|'ll|'d", gpt_2_words!())],
    ),
    ("starcoder", &["Digits true", "ByteLevel"]),
    (
        "falcon",
        &[
            "Punctuation Contiguous",
            "ByteLevel",
            "Digits false",
            "[0-9][0-9][0-9]",
        ],
    ),
    ("dbrx", &[words!(r"\p{N}{1,3}", r"[\r\n]*", r"\s*[\r\n]+")]),
    ("dbrx", &[tiktoken!(r"\p{N}{1,3}")]),
    ("qwen2", &[words!(r"\p{N}", r"[\r\n]*", r"\s*[\r\n]+")]),
    (
        "qwen35",
        &[concat!(
            contraction!(),
            r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+",
            spaces!()
        )],
    ),
    (
        "seed-coder",
        &[concat!(
            contraction!(),
            r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+",
            spaces!()
        )],
    ),
    (
        "gpt-4o",
        &[cased!(concat!(contraction!(), "?"), r"\p{N}{1,3}")],
    ),
    ("tekken", &[cased!("", r"\p{N}")]),
    (
        "deepseek-v3",
        &[
            r"\p{N}{1,3}",
            "[一-龥\u{3040}-ゟ゠-ヿ]+",
            concat!(
                r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
                r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+",
                spaces!()
            ),
        ],
    ),
    (
        "deepseek-coder",
        &[
            r"[\r\n]",
            r"\s?\p{L}+",
            r"\s?\p{P}+",
            "[一-龥ࠀ-一가-\u{d7ff}]+",
            "Digits true",
        ],
    ),
    (
        "deepseek-llm",
        &[
            r"[\r\n]",
            r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓ*",
            r"\s?[!-/:-~*",
            r"\s+$",
            "[一-龥ࠀ-一가-\u{d7ff}]+",
            "Digits true",
        ],
    ),
    ("bloom", &[r" ?[^(\s|[.,!?…。，、।۔،])]+"]),
];

/// The parts of a pre-tokenizer, or of another processor.
pub(super) fn parts<'a>(whole: Option<&'a Value>, list: &str) -> Vec<&'a Value> {
    match whole.and_then(|whole| whole[list].as_array()) {
        Some(parts) => parts.iter().collect(),
        None => whole.into_iter().filter(|whole| !whole.is_null()).collect(),
    }
}

/// Are words written by their bytes?
pub(super) fn is_byte_level(whole: Option<&Value>) -> bool {
    let parts = parts(whole, "pretokenizers");
    parts.iter().any(|part| part["type"] == "ByteLevel")
}

/// llama.cpp's name of the pre-tokenizer, if it is known here. Words that are tokens may be taken whole.
///
/// # Errors
/// Fails for an unknown pre-tokenizer. The error names its steps.
pub(super) fn name(whole: Option<&Value>, is_whole: bool) -> Result<&'static str, String> {
    let parts = parts(whole, "pretokenizers");
    let steps: Vec<String> = parts.iter().filter_map(|part| step(part)).collect();
    let fits = |known: &&str, step: &String| match known.strip_suffix('*') {
        Some(begin) if known.len() > 8 => step.starts_with(begin),
        _ => step == known,
    };
    let is_same = |known: &[&str]| {
        known.len() == steps.len() && known.iter().zip(&steps).all(|(k, s)| fits(k, s))
    };
    match NAMES.iter().find(|(_, known)| is_same(known)) {
        Some(("dbrx", _)) if is_whole => Ok("llama-bpe"),
        Some((name, _)) => Ok(name),
        None => Err(format!("{steps:?}")),
    }
}

/// A step in a line; `None` if it splits nothing.
fn step(part: &Value) -> Option<String> {
    let kind = part["type"].as_str().unwrap_or("unnamed");
    match kind {
        "ByteLevel" => (part["use_regex"] != false).then(|| kind.to_owned()),
        "Digits" => Some(format!("{kind} {}", part["individual_digits"] == true)),
        "Punctuation" => {
            let behavior = part["behavior"].as_str().unwrap_or("Isolated");
            Some(format!("{kind} {behavior}"))
        }
        "Split" => {
            let pattern = &part["pattern"];
            let pattern = pattern["Regex"].as_str().or(pattern["String"].as_str());
            // No word here ends where it could take more: possessive or not, it is the same.
            let pattern = pattern.unwrap_or_default();
            Some(pattern.replace("++", "+").replace("?+", "?"))
        }
        _ => Some(kind.to_owned()),
    }
}
