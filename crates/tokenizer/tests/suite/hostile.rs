//! Whatever the metadata and the text: no panic, an error of one line, and ids of the vocabulary.

use std::sync::LazyLock;

use proptest::prelude::*;
use rustorch_gguf::{Array, Metadata, Value};
use rustorch_tokenizer::{EncodeOptions, Tokenizer, TokenizerError};

use crate::common::{
    CONTROL, KINDS, NOT_BYTE_LEVEL, USER_DEFINED, byte_level, kind, sentence_piece, tokenizer,
};

const ALL: EncodeOptions = EncodeOptions {
    add_special: true,
    parse_special: true,
};

fn refusal(metadata: &Metadata) -> String {
    match Tokenizer::from_gguf(metadata) {
        Ok(_) => panic!("this must be refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn refusals_say_what_is_wrong() {
    let with = |key: &str, value: Value| {
        let mut metadata = byte_level(&[]);
        metadata.insert(key, value);
        metadata
    };
    let without = |key: &str| {
        let mut metadata = byte_level(&[]);
        metadata.remove(key);
        metadata
    };
    let texts = |texts: &[&str]| {
        Value::from(
            texts
                .iter()
                .map(|&text| text.to_owned())
                .collect::<Vec<String>>(),
        )
    };
    let cases = [
        (
            Metadata::new(),
            "key `tokenizer.ggml.model` (string) is missing",
        ),
        (
            without("tokenizer.ggml.tokens"),
            "key `tokenizer.ggml.tokens` (array of string) is missing",
        ),
        (
            without("tokenizer.ggml.merges"),
            "key `tokenizer.ggml.merges` (array of string) is missing",
        ),
        (
            with("tokenizer.ggml.model", "unheard-of".into()),
            r#"tokenizer.ggml.model is "unheard-of", which is not supported; supported are llama, gpt2, "#,
        ),
        (
            with("tokenizer.ggml.pre", "unheard-of".into()),
            r#"tokenizer.ggml.pre is "unheard-of", which is not supported"#,
        ),
        (
            with("tokenizer.ggml.tokens", texts(&[])),
            "tokenizer.ggml.tokens is empty",
        ),
        (
            with("tokenizer.ggml.tokens", texts(&["a", "b", "a"])),
            r#"tokenizer.ggml.tokens has "a" twice, as 0 and as 2"#,
        ),
        (
            with("tokenizer.ggml.tokens", 3u32.into()),
            "key `tokenizer.ggml.tokens` must be array of string",
        ),
        (
            with(
                "tokenizer.ggml.tokens",
                Value::Array(Array::Bytes(vec![vec![0xff]])),
            ),
            "key `tokenizer.ggml.tokens` must be array of string",
        ),
        (
            with("tokenizer.ggml.token_type", vec![1i32].into()),
            "tokenizer.ggml.token_type has 1 elements for 256 tokens",
        ),
        (
            with("tokenizer.ggml.bos_token_id", (-1i32).into()),
            "key `tokenizer.ggml.bos_token_id` must be u32",
        ),
        (
            with("tokenizer.ggml.add_bos_token", 1u32.into()),
            "key `tokenizer.ggml.add_bos_token` must be bool",
        ),
    ];
    for (metadata, expected) in cases {
        let error = refusal(&metadata);
        assert!(error.starts_with(expected), "{error}");
    }

    let with = |name: &str, key: &str, value: Value| {
        let mut metadata = kind(name);
        metadata.insert(format!("tokenizer.ggml.{key}"), value);
        metadata
    };
    let charsmap = |units: &[u32], texts: &[u8]| {
        let mut bytes = (4 * units.len() as u32).to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend(texts);
        let array = Value::Array(Array::U8(bytes));
        with("t5", "precompiled_charsmap", array)
    };
    // The root's children begin at 4; `\x01`, which is at 5, ends a key whose replacement is at 6.
    let (root, child) = (4 << 10, 1 | 0x100 | 3 << 10);
    let cases = [
        (
            with("t5", "precompiled_charsmap", vec![1.0f32].into()),
            "key `tokenizer.ggml.precompiled_charsmap` must be array of u8",
        ),
        (
            with(
                "t5",
                "precompiled_charsmap",
                Value::Array(Array::U8(vec![0; 3])),
            ),
            "tokenizer.ggml.precompiled_charsmap is damaged (it has fewer than 4 bytes)",
        ),
        (
            charsmap(&[root], b""),
            "tokenizer.ggml.precompiled_charsmap is damaged (its trie is longer than the map)",
        ),
        (
            charsmap(&[root, 0, 0, 0, 0, child], b"a\0"),
            "tokenizer.ggml.precompiled_charsmap is damaged (a replacement lies outside)",
        ),
        (
            charsmap(&[root, 0, 0, 0, 0, child, 2], b"a\0"),
            "tokenizer.ggml.precompiled_charsmap is damaged (a replacement lies outside)",
        ),
        (
            charsmap(&[root, 0, 0, 0, 0, 1 | 1 << 10], b"a\0"),
            "tokenizer.ggml.precompiled_charsmap is damaged (its trie loops)",
        ),
        (
            with("plamo2", "token_type", vec![1i32; 600].into()),
            "tokenizer.ggml.tokens has no byte token <0x00>, but this kind",
        ),
        (
            with("bert", "normalizer.lowercase", 1u32.into()),
            "key `tokenizer.ggml.normalizer.lowercase` must be bool",
        ),
        (
            with("rwkv", "suppress_tokens", "x".into()),
            "key `tokenizer.ggml.suppress_tokens` must be",
        ),
    ];
    for (metadata, expected) in cases {
        let error = refusal(&metadata);
        assert!(error.starts_with(expected), "{error}");
    }
    tokenizer(&charsmap(&[root, 0, 0, 0, 0, child, 1], b"a\0"));
    tokenizer(&charsmap(&[], b"\0"));

    let mut metadata = sentence_piece(&[("a", 1.0)]);
    metadata.insert("tokenizer.ggml.scores", vec![1.0f32]);
    assert!(refusal(&metadata).starts_with("tokenizer.ggml.scores has 1 elements for 260 tokens"));
}

#[test]
fn merges_that_make_no_sense_have_no_effect() {
    let mut metadata = byte_level(&[("abc", 1), ("ab", 1)]);
    let merges = [
        "", " ", "a", "ab ", " b", "b  c", "a b c", "zz zz", "x y", "b b", "a b", "a b", "ab c",
        "abc abc",
    ];
    metadata.insert("tokenizer.ggml.merges", merges.map(str::to_owned).to_vec());
    let it = tokenizer(&metadata);
    let texts = |text| -> Vec<_> {
        let ids = it.encode(text, EncodeOptions::default());
        ids.into_iter()
            .map(|id| it.token_text(id).unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        texts("abcabc"),
        ["a", "b", "c", "a", "b", "c"],
        "merged to what is not a token"
    );
    assert_eq!(texts("abcab"), ["abc", "ab"]);
    assert_eq!(texts("xyzz"), ["x", "y", "z", "z"]);
}

#[test]
fn text_that_bytes_cannot_express_is_dropped() {
    let mut metadata = byte_level(&[]);
    metadata.insert(
        "tokenizer.ggml.tokens",
        vec!["a".to_owned(), "b".to_owned()],
    );
    metadata.insert("tokenizer.ggml.token_type", vec![1i32, 1]);
    assert_eq!(tokenizer(&metadata).encode("a é!b", ALL), [0, 1]);
}

/// Text of all sorts, with many of the characters and tokens that matter.
fn any_text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "\\PC{0,6}",
        "[ \\n\\r\\t\u{a0}\u{3000}]{0,5}",
        "[a-cA-C]{0,6}",
        "[0-9]{0,8}",
        prop::sample::select(vec![
            "<a>",
            "</s>",
            "<|im_end|>",
            "'s",
            "'LL",
            "▁",
            "\0",
            "é",
            "中文",
            "🦀",
            "<0x41>",
            "<dna>",
            "</dna>",
            "<extra_0>",
            "\\\\x4"
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ];
    prop::collection::vec(part, 0..6).prop_map(|parts| parts.concat())
}

fn any_value() -> impl Strategy<Value = Value> {
    let text = || {
        prop_oneof![
            any_text(),
            "[a-c]{0,2}( [a-c]{0,2})?",
            "gpt2|llama|qwen2|default|gemma4|bert|t5|rwkv|plamo2|whitespace|hybriddna|test"
        ]
    };
    prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        (0u32..300).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f32>().prop_map(Value::from),
        text().prop_map(Value::from),
        prop::collection::vec(text(), 0..20).prop_map(Value::from),
        prop::collection::vec(any::<f32>(), 0..300).prop_map(Value::from),
        prop::collection::vec(-1i32..8, 0..300).prop_map(Value::from),
        prop::collection::vec(any::<u8>(), 0..9).prop_map(Value::Bytes),
        prop::collection::vec(0u8..10, 0..99).prop_map(|bytes| Value::Array(Array::U8(bytes))),
    ]
}

const KEYS: &[&str] = &[
    "general.name",
    "tokenizer.ggml.model",
    "tokenizer.ggml.pre",
    "tokenizer.ggml.tokens",
    "tokenizer.ggml.token_type",
    "tokenizer.ggml.scores",
    "tokenizer.ggml.merges",
    "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.fim_pad_token_id",
    "tokenizer.ggml.add_bos_token",
    "tokenizer.ggml.add_eos_token",
    "tokenizer.ggml.add_space_prefix",
    "tokenizer.ggml.add_sep_token",
    "tokenizer.ggml.seperator_token_id",
    "tokenizer.ggml.suppress_tokens",
    "tokenizer.ggml.remove_extra_whitespaces",
    "tokenizer.ggml.precompiled_charsmap",
    "tokenizer.ggml.normalizer.lowercase",
    "tokenizer.ggml.normalizer.strip_accents",
    "general.architecture",
];

/// Metadata of a small tokenizer, with some keys changed or removed.
fn any_metadata() -> impl Strategy<Value = Metadata> {
    let byte_level = {
        let added = [
            ("<a>", CONTROL),
            ("</s>", USER_DEFINED),
            ("ab", 1),
            ("bc", 1),
            ("abc", 1),
            ("Ġa", 1),
        ];
        let mut metadata = byte_level(&added);
        let merges = ["a b", "b c", "ab c", "Ġ a", "c c"]
            .map(str::to_owned)
            .to_vec();
        metadata.insert("tokenizer.ggml.merges", merges);
        metadata
    };
    let sentence_piece = sentence_piece(&[
        ("▁", 0.5),
        ("a", 0.0),
        ("▁a", -1.0),
        ("ab", f32::NAN),
        ("<|im_end|>", 3.0),
    ]);
    let change = (
        prop::sample::select(KEYS),
        prop::option::weighted(0.8, any_value()),
    );
    let changes = prop::collection::vec(change, 0..4);
    let mut all = vec![byte_level, sentence_piece];
    all.extend(KINDS.map(kind));
    (prop::sample::select(all), changes).prop_map(|(mut metadata, changes)| {
        for (key, value) in changes {
            match value {
                Some(value) => metadata.insert(key, value),
                None => metadata.remove(key),
            };
        }
        metadata
    })
}

/// A tokenizer for each name of a byte-level pre-tokenizer; none of them can merge anything.
static EVERY_PRE_TOKENIZER: LazyLock<Vec<(&str, Tokenizer)>> = LazyLock::new(|| {
    let mut metadata = byte_level(&[]);
    metadata.insert("tokenizer.ggml.pre", "unheard-of");
    let Err(TokenizerError::PreTokenizer { supported, .. }) = Tokenizer::from_gguf(&metadata)
    else {
        panic!("an unknown name must be refused")
    };
    let byte_level = |name: &&str| !NOT_BYTE_LEVEL.contains(name);
    let tokenizers = supported.into_iter().filter(byte_level).map(|name| {
        metadata.insert("tokenizer.ggml.pre", name);
        (name, tokenizer(&metadata))
    });
    tokenizers.collect()
});

proptest! {
    #[test]
    fn any_metadata_and_any_text(metadata in any_metadata(), text in any_text(), ids in prop::collection::vec(any::<u32>(), 0..9)) {
        match Tokenizer::from_gguf(&metadata) {
            Err(error) => prop_assert_eq!(error.to_string().lines().count(), 1),
            Ok(tokenizer) => {
                for options in [ALL, EncodeOptions::default()] {
                    let ids = tokenizer.encode(&text, options);
                    prop_assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
                    tokenizer.decode(&ids);
                }
                tokenizer.decode(&ids);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_pre_tokenizer_keeps_any_text(text in any_text()) {
        for (name, tokenizer) in EVERY_PRE_TOKENIZER.iter() {
            let ids = tokenizer.encode(&text, EncodeOptions::default());
            prop_assert_eq!(ids.len(), text.len(), "{}", name);
            prop_assert_eq!(&tokenizer.decode(&ids), &text, "{}", name);
        }
    }
}
