//! Special tokens: those that begin and end a text, and those that end a generation.
//!
//! Keys name them; otherwise llama.cpp knows many by their text. Both, and what follows for the
//! tokens' types, are as in the second half of its `llama_vocab::impl::load`.

use std::collections::BTreeSet;

use rustorch_gguf::Metadata;
use tracing::warn;

use crate::TokenizerError;
use crate::vocab::{TokenType, Vocab};

/// The ids of special tokens.
pub(crate) struct SpecialTokens {
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    pub(crate) eot: Option<u32>,
    pub(crate) sep: Option<u32>,
    pub(crate) unknown: Option<u32>,
    pub(crate) fill: Option<FillTokens>,
    /// All that end a generation.
    pub(crate) ends: BTreeSet<u32>,
    /// All that a model must not generate.
    pub(crate) suppressed: Vec<u32>,
}

/// Tokens by which a model fills a gap in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillTokens {
    /// Comes before the text in front of the gap.
    pub prefix: u32,
    /// Comes before the text behind the gap.
    pub suffix: u32,
    /// Comes before the text in the gap.
    pub middle: u32,
    /// Comes before the name of a repository.
    pub repository: Option<u32>,
    /// Comes before a file of a repository.
    pub separator: Option<u32>,
}

impl FillTokens {
    /// The tokens of [`FILL_ROLES`], if the first three are known.
    fn of([prefix, suffix, middle, _, repository, separator]: [Option<u32>; 6]) -> Option<Self> {
        Some(Self {
            prefix: prefix?,
            suffix: suffix?,
            middle: middle?,
            repository,
            separator,
        })
    }
}

/// The ids that a kind of tokenizer gives to special tokens that the file does not name.
#[derive(Clone, Copy, Default)]
pub(crate) struct Defaults {
    pub(crate) bos: Option<u32>,
    pub(crate) eos: Option<u32>,
    pub(crate) unknown: Option<u32>,
    pub(crate) sep: Option<u32>,
}

impl Defaults {
    pub(crate) const fn new(bos: Option<u32>, eos: Option<u32>, unknown: Option<u32>) -> Self {
        Defaults {
            bos,
            eos,
            unknown,
            sep: None,
        }
    }

    /// The token for unknown text.
    pub(crate) fn unknown(
        &self,
        metadata: &Metadata,
        vocab: &Vocab,
    ) -> Result<Option<u32>, TokenizerError> {
        special_id(
            metadata,
            "tokenizer.ggml.unknown_token_id",
            self.unknown,
            vocab.len(),
        )
    }
}

/// Whether a special token is put around texts.
#[derive(Clone, Copy)]
pub(crate) enum Adds {
    Never,
    Always,
    /// The file says so; this holds if it does not.
    ByKey(bool),
}

impl Adds {
    /// The answer for a file in which the key is called `key`.
    pub(crate) fn resolve(self, metadata: &Metadata, key: &str) -> Result<bool, TokenizerError> {
        let named = metadata.opt_bool(key)?;
        Ok(match self {
            Adds::Never => false,
            Adds::Always => true,
            Adds::ByKey(default) => named.unwrap_or(default),
        })
    }
}

/// A role that tokens are known for by their text, if no key names the token.
struct Role {
    /// Keys that name it; the last one counts.
    keys: &'static [&'static str],
    /// Its texts. llama.cpp takes any one that a vocabulary has; here it is the first.
    texts: &'static [&'static str],
    /// Whether such a token ends a generation.
    ends: bool,
}

const END_OF_TURN: Role = Role {
    keys: &["tokenizer.ggml.eot_token_id"],
    texts: &[
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<EOT>",
        "_<EOT>",
        "[EOT]",
        "<｜end▁of▁sentence｜>",
        "<end_of_utterance>",
    ],
    ends: true,
};

const END_OF_MESSAGE: Role = Role {
    keys: &["tokenizer.ggml.eom_token_id"],
    texts: &["<|eom_id|>"],
    ends: true,
};

/// Fill in the middle: prefix, suffix, middle, padding, repository, file separator.
const FILL_ROLES: [Role; 6] = [
    Role {
        keys: &[
            "tokenizer.ggml.fim_pre_token_id",
            "tokenizer.ggml.prefix_token_id",
        ],
        texts: &[
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "▁<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
        ends: false,
    },
    Role {
        keys: &[
            "tokenizer.ggml.fim_suf_token_id",
            "tokenizer.ggml.suffix_token_id",
        ],
        texts: &[
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "▁<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
        ends: false,
    },
    Role {
        keys: &[
            "tokenizer.ggml.fim_mid_token_id",
            "tokenizer.ggml.middle_token_id",
        ],
        texts: &[
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "▁<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ],
        ends: false,
    },
    Role {
        keys: &["tokenizer.ggml.fim_pad_token_id"],
        texts: &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
        ends: true,
    },
    Role {
        keys: &["tokenizer.ggml.fim_rep_token_id"],
        texts: &[
            "<|fim_repo|>",
            "<|repo_name|>",
            "<fim-repo>",
            "<REPO>",
            "<reponame>",
        ],
        ends: true,
    },
    Role {
        keys: &["tokenizer.ggml.fim_sep_token_id"],
        texts: &["<|file_sep|>"],
        ends: true,
    },
];

/// Texts of tokens that end a generation in whatever model has them, beside those of [`END_OF_TURN`].
const OTHER_ENDS: &[&str] = &[
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<|eom_id|>",
    "<|tool_response>",
    "<turn|>",
    "<eos>",
    "[EOS]",
    "</s>",
    "[e~[",
];

/// Texts of tokens that structure an answer (gpt-oss) and are always shown.
const SHOWN: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

impl SpecialTokens {
    /// Finds the special tokens of `vocab`, and corrects the types of those known by their texts.
    pub(crate) fn find(
        metadata: &Metadata,
        vocab: &mut Vocab,
        defaults: Defaults,
        unknown: Option<u32>,
    ) -> Result<Self, TokenizerError> {
        let tokens = vocab.len();
        let id = |key, default| special_id(metadata, key, default, tokens);
        let bos = id("tokenizer.ggml.bos_token_id", defaults.bos)?;
        let eos = id("tokenizer.ggml.eos_token_id", defaults.eos)?;
        // Misspelt in files, too.
        let sep = id("tokenizer.ggml.seperator_token_id", defaults.sep)?;
        let suppressed = metadata.opt_i32_array("tokenizer.ggml.suppress_tokens")?;
        let suppressed = suppressed.unwrap_or_default();

        let mut ends = BTreeSet::from_iter(eos);
        let eot = END_OF_TURN.find(metadata, vocab)?;
        ends.extend(eot);
        ends.extend(END_OF_MESSAGE.find(metadata, vocab)?);
        let mut fill = [None; FILL_ROLES.len()];
        for (role, token) in FILL_ROLES.iter().zip(&mut fill) {
            *token = role.find(metadata, vocab)?;
            ends.extend(token.filter(|_| role.ends));
        }
        for text in END_OF_TURN.texts.iter().chain(OTHER_ENDS) {
            ends.extend(vocab.set_type(text, TokenType::Control));
        }
        for text in SHOWN {
            vocab.set_type(text, TokenType::UserDefined);
        }

        let is_end = |text| vocab.id(text).is_some_and(|id| ends.contains(&id));
        // Beside these, `<|end|>` only ends a part of the answer (gpt-oss, Solar Open).
        let within = (is_end("<|call|>") || is_end("<|calls|>"))
            && (is_end("<|return|>") || is_end("<|flush|>"));
        // Beside these, `</s>` is an ordinary token (Gemma 4, PLaMo).
        let ordinary = is_end("<|tool_response>") || is_end("<|plamo:eos|>");
        for (text, applies, ty) in [
            ("<|end|>", within, TokenType::UserDefined),
            ("</s>", ordinary, TokenType::Normal),
        ] {
            if applies && let Some(id) = vocab.id(text).filter(|id| ends.contains(id)) {
                ends.remove(&id);
                vocab.set_type(text, ty);
            }
        }
        Ok(SpecialTokens {
            bos,
            eos,
            eot,
            sep,
            unknown,
            fill: FillTokens::of(fill),
            ends,
            suppressed: suppressed
                .iter()
                .filter_map(|&id| u32::try_from(id).ok())
                .filter(|&id| (id as usize) < tokens)
                .collect(),
        })
    }
}

impl Role {
    /// The token that has the role. One found by its text becomes a control token.
    fn find(&self, metadata: &Metadata, vocab: &mut Vocab) -> Result<Option<u32>, TokenizerError> {
        let mut named = None;
        for key in self.keys {
            named = special_id(metadata, key, named, vocab.len())?;
        }
        let mut known = self
            .texts
            .iter()
            .filter_map(|text| vocab.set_type(text, TokenType::Control));
        Ok(named.or_else(|| known.next()))
    }
}

/// The id at `key`; `default`, if it lies in the vocabulary, where the key is missing or wrong.
fn special_id(
    metadata: &Metadata,
    key: &str,
    default: Option<u32>,
    tokens: usize,
) -> Result<Option<u32>, TokenizerError> {
    let in_vocab = |id: &u32| (*id as usize) < tokens;
    let default = default.filter(in_vocab);
    let Some(id) = metadata.opt_u32(key)? else {
        return Ok(default);
    };
    if !in_vocab(&id) {
        let instead = match default {
            Some(default) => format!("token {default} is used instead"),
            None => "no token is used instead".to_owned(),
        };
        warn!("{key} is {id}, but there are only {tokens} tokens; {instead}");
        return Ok(default);
    }
    Ok(Some(id))
}
