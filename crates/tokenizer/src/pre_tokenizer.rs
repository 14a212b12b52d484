//! The pre-tokenizers of byte-level BPE, by the names that `tokenizer.ggml.pre` gives them.
//!
//! Names, expressions and switches are facts of llama.cpp's `llm_tokenizer_bpe` and `llama_vocab::impl::load`.
//! If its expressions differ from the models' own, they are followed: it knows one class for all letters, so
//! that upper and lower case differ in ASCII only. If a range of characters spans white space, it excludes the
//! white space.

use Rule::{AfterThousands, BeforeThousands, Matches, Words, WordsAndPowersOfTwo};

use crate::TokenizerError;
use crate::special::Adds;
use crate::splitter::{Rule, Splitter};

/// How the models that share some names prepare text.
pub(crate) struct PreTokenizer {
    /// Separated by spaces.
    names: &'static str,
    rules: &'static [Rule],
    /// Words that are tokens and are taken whole, whatever the merges say.
    pub(crate) whole_words: WholeWords,
    /// How words are written in tokens and merges.
    pub(crate) spelling: Spelling,
    /// Whether text begins with a BOS token.
    pub(crate) bos: Adds,
    /// Whether there is a BOS token if the file does not name it.
    pub(crate) default_bos: bool,
    /// Whether the file may do without merges.
    pub(crate) merges_optional: bool,
    /// Whether a SEP token stands between texts that are given together, if the file does not say.
    pub(crate) separates: bool,
    /// Whether text becomes lower-case, with the kind `whitespace`, if the file does not say.
    pub(crate) lowercase: bool,
}

/// Words that are taken whole.
#[derive(Clone, Copy)]
pub(crate) enum WholeWords {
    Never,
    /// Words of line ends.
    LineEnds,
    Always,
}

/// How words are written in tokens and merges.
#[derive(Clone, Copy)]
pub(crate) enum Spelling {
    /// By their bytes, each of which has a character.
    Bytes,
    /// By their characters. Spaces may be U+2581.
    Characters { escapes_spaces: bool },
}

impl PreTokenizer {
    /// The pre-tokenizer of this name.
    pub(crate) fn named(name: &str) -> Result<&'static Self, TokenizerError> {
        let mut table = PRE_TOKENIZERS.iter();
        table
            .find(|entry| entry.names.split(' ').any(|other| other == name))
            .ok_or_else(|| TokenizerError::PreTokenizer {
                name: name.to_owned(),
                supported: Self::names().collect(),
            })
    }

    /// Every name.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        PRE_TOKENIZERS
            .iter()
            .flat_map(|entry| entry.names.split(' '))
    }

    /// Its rules, ready for use.
    pub(crate) fn splitter(&self) -> Splitter {
        Splitter::new(self.rules)
    }

    const fn new(names: &'static str, rules: &'static [Rule]) -> Self {
        PreTokenizer {
            names,
            rules,
            whole_words: WholeWords::Never,
            spelling: Spelling::Bytes,
            bos: Adds::ByKey(false),
            default_bos: true,
            merges_optional: false,
            separates: false,
            lowercase: true,
        }
    }

    const fn with_whole_words(self) -> Self {
        PreTokenizer {
            whole_words: WholeWords::Always,
            ..self
        }
    }

    /// Like SentencePiece: words are characters, with U+2581 for spaces.
    const fn like_sentence_piece(self) -> Self {
        PreTokenizer {
            spelling: Spelling::Characters {
                escapes_spaces: true,
            },
            ..self
        }
    }

    const fn adding_bos(self) -> Self {
        PreTokenizer {
            bos: Adds::ByKey(true),
            ..self
        }
    }

    const fn separating(self) -> Self {
        PreTokenizer {
            separates: true,
            ..self
        }
    }

    const fn without_default_bos(self) -> Self {
        PreTokenizer {
            default_bos: false,
            ..self
        }
    }

    const fn with_optional_merges(self) -> Self {
        PreTokenizer {
            merges_optional: true,
            ..self
        }
    }
}

// Literals, where constants will not do, for `concat!`.

macro_rules! any_case_contraction {
    () => {
        "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
    };
}

macro_rules! maybe_contraction {
    () => {
        concat!("(?:", any_case_contraction!(), ")?")
    };
}

macro_rules! han {
    () => {
        r"[\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\U00020000-\U0002A6DF\U0002A700-\U0002EBEF\U0002F800-\U0002FA1F]"
    };
}

// Expressions that several pre-tokenizers share, or that are long.

const CONTRACTION: &str = "'s|'t|'re|'ve|'m|'ll|'d";
const ANY_CASE_CONTRACTION: &str = any_case_contraction!();
const WORD: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+";
const WORD_WITH_MARKS: &str = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+";
const WORD_WITH_MARKS_AND_CONTRACTION: &str =
    concat!(r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", maybe_contraction!());
const PUNCTUATION_AND_WORD: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##;
const SYMBOLS: &str = r" ?[^\s\p{L}\p{N}]+";
const SYMBOLS_AND_LINE_ENDS: &str = r" ?[^\s\p{L}\p{N}]+[\r\n]*";
const SYMBOLS_AND_SLASHES: &str = r" ?[^\s\p{L}\p{N}]+[\r\n/]*";
const LINE_ENDS: &str = r"\s*[\r\n]+";
const DIGIT: &str = r"\p{N}";
const DIGITS: &str = r"\p{N}+";
const UP_TO_THREE_DIGITS: &str = r"\p{N}{1,3}";
const THREE_ASCII_DIGITS: &str = "[0-9]{3}";
const CHINESE_AND_KANA: &str = r"[\u4E00-\u9FA5\u3040-\u30FF]+";
/// DeepSeek's class of Chinese, Japanese and Korean: all from Samaritan to Chinese, and Korean.
const SAMARITAN_TO_KOREAN: &str = r"[\u0800-\u9FA5\uAC00-\uD7FF&&\S]+";
/// Scripts without spaces. llama.cpp's range from U+8C48 is meant to be one from U+F900.
const ASIAN_LETTERS: &str = r"(?x) [
    \u0E40-\u0EFF \u1000-\u109F \u1100-\u11FF \u1780-\u17FF \u2F00-\u2FDF \u3040-\u30FF
    \u3400-\u4DBF \u4E00-\u9FFF \u8C48-\uFAFF \uFF65-\uFF9F
]+";
/// White space and letters that have case: those of Unicode 12 but for some Armenian and Georgian.
const CASED_LETTERS: &str = r"(?x) \s? [
    A-Z a-z \xB5 \xC0-\xD6 \xD8-\xF6 \xF8-\u01BA \u01BC-\u01BF \u01C4-\u0293 \u0295-\u02AF
    \u0370-\u0373 \u0376 \u0377 \u037B-\u037D \u037F \u0386 \u0388-\u038A \u038C \u038E-\u03A1
    \u03A3-\u03F5 \u03F7-\u0481 \u048A-\u052F \u0531-\u0556 \u10A0-\u10C5 \u13A0-\u13F5
    \u13F8-\u13FD \u1C90-\u1CBA \u1CBD-\u1CBF \u1D00-\u1D2B \u1D6B-\u1D77 \u1D79-\u1D9A
    \u1E00-\u1F15 \u1F18-\u1F1D \u1F20-\u1F45 \u1F48-\u1F4D \u1F50-\u1F57 \u1F59 \u1F5B \u1F5D
    \u1F5F-\u1F7D \u1F80-\u1FB4 \u1FB6-\u1FBC \u1FBE \u1FC2-\u1FC4 \u1FC6-\u1FCC \u1FD0-\u1FD3
    \u1FD6-\u1FDB \u1FE0-\u1FEC \u1FF2-\u1FF4 \u1FF6-\u1FFC \u2102 \u2107 \u210A-\u2113 \u2115
    \u2119-\u211D \u2124 \u2126 \u2128 \u212A-\u212D \u212F-\u2134 \u2139 \u213C-\u213F
    \u2145-\u2149 \u214E \u2183 \u2184 \u2C00-\u2C7B \u2C7E-\u2CE4 \u2CEB-\u2CEE \u2CF2 \u2CF3
    \uA640-\uA66D \uA680-\uA69B \uA722-\uA76F \uA771-\uA787 \uA78B-\uA78E \uAB70-\uABBF
    \uFB00-\uFB06 \uFB13-\uFB17 \uFF21-\uFF3A \uFF41-\uFF5A \U00010400-\U0001044F
    \U000104B0-\U000104D3 \U000104D8-\U000104FB \U00010C80-\U00010CB2 \U00010CC0-\U00010CF2
    \U000118A0-\U000118DF \U0001E900-\U0001E943
]+";

// Rules that several pre-tokenizers share.

const GPT_2: Rule = Words(&[CONTRACTION, r" ?\p{L}+", r" ?\p{N}+", SYMBOLS]);
const LLAMA_3_WORDS: &[&str] = &[
    ANY_CASE_CONTRACTION,
    WORD,
    UP_TO_THREE_DIGITS,
    SYMBOLS_AND_LINE_ENDS,
    LINE_ENDS,
];
const LLAMA_3: Rule = Words(LLAMA_3_WORDS);
const QWEN_2: Rule = Words(&[
    ANY_CASE_CONTRACTION,
    WORD,
    DIGIT,
    SYMBOLS_AND_LINE_ENDS,
    LINE_ENDS,
]);
const DEEPSEEK_3: Rule = Words(&[
    PUNCTUATION_AND_WORD,
    WORD_WITH_MARKS,
    r" ?[\p{P}\p{S}]+[\r\n]*",
    LINE_ENDS,
]);
const LINES: Rule = Matches(r"[^\n]+|\n+");
const BLOOM: Rule = Matches(r" ?[^(\s|.,!?…。，、।۔،)]+");

const PRE_TOKENIZERS: &[PreTokenizer] = &[
    PreTokenizer::new(
        "default",
        &[Matches(r"[\p{P}$+<=>^~|]+"), GPT_2, Matches(DIGITS), Matches(THREE_ASCII_DIGITS)],
    ),
    PreTokenizer::new(
        "gpt-2 phi-2 mpt olmo jais trillion granite-docling gigachat exaone4 a.x-4.0 mellum \
         modern-bert jina-es jina-de jina-v2-es jina-v2-de",
        &[GPT_2],
    ),
    PreTokenizer::new("jina-v1-en jina-v2-code roberta-bpe", &[GPT_2]).separating(),
    PreTokenizer::new(
        "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2",
        &[Matches(DIGIT), GPT_2],
    ),
    PreTokenizer::new(
        "falcon",
        &[Matches(r"[\p{P}$+<=>^~|`]+"), GPT_2, Matches(THREE_ASCII_DIGITS)],
    ),
    PreTokenizer::new(
        "chameleon",
        &[
            Matches("<sentinel:[0-9]+>"),
            Matches("IMGIMG[A-I]{1,4}Z"),
            Matches(r"[\t\n]|    |  "),
            Matches(DIGIT),
            Matches(r"[\p{P}!-/:-@\[-`{-~]"),
            GPT_2,
        ],
    )
    .adding_bos(),
    PreTokenizer::new(
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        &[LLAMA_3],
    )
    .with_whole_words()
    .adding_bos(),
    PreTokenizer::new("dbrx smaug-bpe", &[LLAMA_3]),
    PreTokenizer::new("chatglm-bpe", &[LLAMA_3]).without_default_bos(),
    PreTokenizer::new("glm4 glm5", &[LLAMA_3]).with_whole_words().without_default_bos(),
    PreTokenizer::new("jais-2", &[WordsAndPowersOfTwo(LLAMA_3_WORDS)]),
    PreTokenizer::new(
        "minicpm5",
        &[
            Matches(UP_TO_THREE_DIGITS),
            Words(&[ANY_CASE_CONTRACTION, WORD, DIGITS, SYMBOLS_AND_LINE_ENDS, LINE_ENDS]),
        ],
    )
    .with_whole_words(),
    PreTokenizer::new(
        "qwen2 deepseek-r1-qwen stablelm2 hunyuan solar-open grok-2 megrez kormo f2llmv2 \
         bailingmoe bailingmoe2 llada-moe",
        &[QWEN_2],
    ),
    PreTokenizer::new(
        "qwen35",
        &[Words(&[
            ANY_CASE_CONTRACTION,
            r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
            DIGIT,
            r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
            LINE_ENDS,
        ])],
    ),
    PreTokenizer::new("laguna", &[LINES, QWEN_2]),
    PreTokenizer {
        whole_words: WholeWords::LineEnds,
        bos: Adds::Always,
        ..PreTokenizer::new("gemma4 granite-embed-multi-311m", &[LINES]).like_sentence_piece()
    },
    PreTokenizer::new("sarvam-moe", &[LINES]).like_sentence_piece(),
    PreTokenizer {
        spelling: Spelling::Characters {
            escapes_spaces: false,
        },
        lowercase: false,
        ..PreTokenizer::new("whitespace", &[Matches(r"\S+")])
    },
    PreTokenizer::new(
        "seed-coder",
        &[Words(&[ANY_CASE_CONTRACTION, WORD, DIGIT, SYMBOLS, LINE_ENDS])],
    ),
    PreTokenizer::new("ufakzeka", &[Words(&[WORD, DIGIT, SYMBOLS_AND_LINE_ENDS, LINE_ENDS])]),
    PreTokenizer::new(
        "exaone-moe",
        &[Words(&[
            ANY_CASE_CONTRACTION,
            r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
            DIGIT,
            r" ?[^\s\p{L}\p{N}]+[\r\n/]?",
            LINE_ENDS,
        ])],
    ),
    PreTokenizer::new(
        "deepseek-llm",
        &[
            Matches(r"[\r\n]"),
            Matches(CASED_LETTERS),
            Matches(r"\s?[!-/:-~\u2018-\u201F\u3001\u3002\uFF01-\uFF0F\uFF1A-\uFF5E]+"),
            Matches(r"\s+$"),
            Matches(SAMARITAN_TO_KOREAN),
            Matches(DIGITS),
        ],
    ),
    PreTokenizer::new(
        "deepseek-coder",
        &[
            Matches(r"[\r\n]"),
            Matches(r"\s?\p{L}+"),
            Matches(r"\s?\p{P}+"),
            Matches(SAMARITAN_TO_KOREAN),
            Matches(DIGIT),
        ],
    ),
    PreTokenizer::new(
        "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
        &[Matches(UP_TO_THREE_DIGITS), Matches(CHINESE_AND_KANA), DEEPSEEK_3],
    ),
    PreTokenizer::new(
        "spark2_5",
        &[
            Matches(UP_TO_THREE_DIGITS),
            Matches(CHINESE_AND_KANA),
            Words(&[PUNCTUATION_AND_WORD, WORD_WITH_MARKS, r" ?[\p{P}\p{S}]+", r"[\r\n]"]),
            Matches(DIGIT),
        ],
    ),
    PreTokenizer::new("afmoe", &[AfterThousands, Matches(ASIAN_LETTERS), DEEPSEEK_3]),
    PreTokenizer::new(
        "youtu",
        &[
            Matches(concat!(
                r"[\uAC00-\uD7A3\u3131-\u318E]+|",
                r"[\u2014\u2018\u2019\u201C\u201D\u2026\u3001-\u303F\uFE30-\uFE4F\uFF01\uFF0C\uFF1A\uFF1B]+|",
                r"[\u3105-\u312F]+|[\u4E00-\u9FA5\u3040-\u30FF]+",
            )),
            Words(&[WORD_WITH_MARKS_AND_CONTRACTION, DIGIT, SYMBOLS_AND_SLASHES, LINE_ENDS]),
        ],
    )
    .with_whole_words(),
    PreTokenizer::new(
        "tiny_aya cohere2moe",
        &[
            AfterThousands,
            Words(&[
                WORD_WITH_MARKS_AND_CONTRACTION,
                UP_TO_THREE_DIGITS,
                SYMBOLS_AND_SLASHES,
                LINE_ENDS,
            ]),
        ],
    ),
    PreTokenizer::new(
        "tekken",
        &[Words(&[
            r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+",
            r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*",
            DIGIT,
            SYMBOLS_AND_SLASHES,
            LINE_ENDS,
        ])],
    )
    .with_whole_words()
    .adding_bos(),
    PreTokenizer::new(
        "gpt-4o llama4 kanana2 talkie minimax-m2",
        &[Words(&[
            concat!(r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+", maybe_contraction!()),
            concat!(r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*", maybe_contraction!()),
            UP_TO_THREE_DIGITS,
            SYMBOLS_AND_SLASHES,
            LINE_ENDS,
        ])],
    ),
    PreTokenizer::new(
        "granite-embed-multi-97m",
        &[Words(&[
            concat!(
                r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}&&[^a-z]]*[\p{L}\p{M}&&[^A-Z]]+",
                maybe_contraction!()
            ),
            concat!(
                r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}&&[^a-z]]+[\p{L}\p{M}&&[^A-Z]]*",
                maybe_contraction!()
            ),
            UP_TO_THREE_DIGITS,
            SYMBOLS_AND_SLASHES,
            LINE_ENDS,
        ])],
    )
    .with_whole_words(),
    PreTokenizer::new(
        "kimi-k2",
        &[Words(&[
            concat!(han!(), "+"),
            concat!(r"[^\r\n\p{L}\p{N}]?[\p{L}--", han!(), "]+", maybe_contraction!()),
            UP_TO_THREE_DIGITS,
            SYMBOLS_AND_LINE_ENDS,
            LINE_ENDS,
        ])],
    )
    .with_optional_merges(),
    PreTokenizer::new("superbpe", &[Matches(DIGITS), BeforeThousands]),
    PreTokenizer::new("poro-chat bloom gpt3-finnish", &[BLOOM]),
    PreTokenizer::new("viking", &[BLOOM, Matches(DIGIT)]),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn words(name: &str, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        let splitter = PreTokenizer::named(name).unwrap().splitter();
        splitter.split(text, |word| words.push(word.to_owned()));
        words
    }

    #[test]
    fn names_are_unique() {
        let mut seen = HashSet::new();
        assert!(PreTokenizer::names().all(|name| seen.insert(name)));
    }

    #[test]
    fn every_pre_tokenizer_keeps_all_of_the_text() {
        let text = "I'll’ve  PAID\u{a0}$1234567.89 — für\r\n\n\tЁлки «中文ひらがな한국어» a\u{301}\u{3000}\0🦀 ";
        for name in PreTokenizer::names() {
            assert_eq!(words(name, text).concat(), text, "{name}");
            assert_eq!(words(name, ""), [""; 0], "{name}");
        }
    }

    #[test]
    fn the_same_text_is_cut_in_different_ways() {
        let text = "We'VE 12345 gains!\n\n  x";
        assert_eq!(
            words("gpt-2", text),
            ["We", "'", "VE", " 12345", " gains", "!", "\n\n ", " x"]
        );
        assert_eq!(
            words("llama-bpe", text),
            ["We", "'VE", " ", "123", "45", " gains", "!\n\n", " ", " x"]
        );
        assert_eq!(
            words("qwen2", text),
            [
                "We", "'VE", " ", "1", "2", "3", "4", "5", " gains", "!\n\n", " ", " x"
            ]
        );
        assert_eq!(
            words("superbpe", text),
            ["We'VE ", "12", "345", " gains!\n\n  x"]
        );
    }
}
