//! Special and added tokens: which there are, where text has them, what encoding adds.

use rustorch_tokenizer::{EncodeOptions, Tokenizer};

use crate::common::{CONTROL, NORMAL, USER_DEFINED, byte_level, sentence_piece, tokenizer};

const PARSED: EncodeOptions = EncodeOptions {
    add_special: false,
    parse_special: true,
};
const NOT_PARSED: EncodeOptions = EncodeOptions {
    add_special: false,
    parse_special: false,
};
const ADDED: EncodeOptions = EncodeOptions {
    add_special: true,
    parse_special: false,
};

/// The texts of the tokens of `text`.
fn parts<'t>(tokenizer: &'t Tokenizer, text: &str, options: EncodeOptions) -> Vec<&'t str> {
    let ids = tokenizer.encode(text, options);
    ids.into_iter()
        .map(|id| tokenizer.token_text(id).unwrap())
        .collect()
}

/// The texts of the tokens that end a generation.
fn ends(tokenizer: &Tokenizer) -> Vec<&str> {
    let ids = 0..tokenizer.vocab_size() as u32;
    let ends = ids.filter(|&id| tokenizer.is_end_of_generation(id));
    ends.map(|id| tokenizer.token_text(id).unwrap()).collect()
}

#[test]
fn control_tokens_are_found_only_if_asked_for_and_user_defined_ones_always() {
    let it = tokenizer(&byte_level(&[("<c>", CONTROL), ("<u>", USER_DEFINED)]));
    assert_eq!(parts(&it, "a<c><u>b", PARSED), ["a", "<c>", "<u>", "b"]);
    assert_eq!(
        parts(&it, "a<c><u>b", NOT_PARSED),
        ["a", "<", "c", ">", "<u>", "b"]
    );
    assert_eq!(parts(&it, "<u>", NOT_PARSED), ["<u>"]);
    assert_eq!(parts(&it, "", PARSED), [""; 0]);
    assert!(it.is_control(0) && !it.is_control(1) && !it.is_control(2));
}

#[test]
fn the_longest_added_token_wins_even_if_it_begins_later() {
    let added = [
        ("abc", USER_DEFINED),
        ("bcde", USER_DEFINED),
        ("ca", USER_DEFINED),
    ];
    let it = tokenizer(&byte_level(&added));
    assert_eq!(
        parts(&it, "abcdeabca", NOT_PARSED),
        ["a", "bcde", "abc", "a"]
    );
}

#[test]
fn a_few_models_drop_white_space_around_tokens() {
    let added = [("<|end|>", CONTROL), ("<s>", CONTROL), ("<mask>", CONTROL)];
    let mut metadata = byte_level(&added);
    metadata.insert("general.name", "Phi-3 mini");
    let it = tokenizer(&metadata);
    assert_eq!(
        parts(&it, "a <|end|> \n\u{b} b <s> c", PARSED),
        ["a", "Ġ", "<|end|>", "b", "Ġ", "<s>", "Ġ", "c"]
    );
    assert_eq!(
        parts(&it, "<|end|>  <|end|>  ", PARSED),
        ["<|end|>", "<|end|>"]
    );

    let mut metadata = byte_level(&added);
    metadata.insert("tokenizer.ggml.pre", "jina-v2-de");
    let it = tokenizer(&metadata);
    assert_eq!(
        parts(&it, "a \t<mask> <s> ", PARSED),
        ["a", "<mask>", "Ġ", "<s>", "Ġ"]
    );
}

#[test]
fn bos_and_eos_are_added_as_the_keys_say() {
    let metadata = |keys: &[(&str, bool)]| {
        let mut metadata = byte_level(&[("<b>", CONTROL), ("<e>", CONTROL)]);
        metadata.insert("tokenizer.ggml.bos_token_id", 0u32);
        metadata.insert("tokenizer.ggml.eos_token_id", 1u32);
        for &(key, value) in keys {
            metadata.insert(key, value);
        }
        metadata
    };
    let (add_bos, add_eos) = (
        "tokenizer.ggml.add_bos_token",
        "tokenizer.ggml.add_eos_token",
    );
    let usual = metadata(&[]);
    assert_eq!(parts(&tokenizer(&usual), "a", ADDED), ["a"]);
    let both = metadata(&[(add_bos, true), (add_eos, true)]);
    assert_eq!(parts(&tokenizer(&both), "", ADDED), ["<b>", "<e>"]);
    assert_eq!(parts(&tokenizer(&both), "a", NOT_PARSED), ["a"]);

    let mut llama = metadata(&[]);
    llama.insert("tokenizer.ggml.pre", "llama-bpe");
    assert_eq!(parts(&tokenizer(&llama), "a", ADDED), ["<b>", "a"]);
    llama.insert(add_bos, false);
    assert_eq!(parts(&tokenizer(&llama), "a", ADDED), ["a"]);
}

#[test]
fn sentence_piece_puts_a_space_before_text_and_after_tokens() {
    let mut metadata = sentence_piece(&[("▁", -1.0), ("a", -2.0), ("▁a", -3.0), ("aa", -4.0)]);
    let it = tokenizer(&metadata);
    assert_eq!(parts(&it, "aa", ADDED), ["<s>", "▁a", "a"]);
    assert_eq!(parts(&it, "aa</s>a", PARSED), ["▁a", "a", "</s>", "▁a"]);
    assert_eq!(parts(&it, "é", PARSED), ["▁", "<0xC3>", "<0xA9>"]);
    metadata.insert("tokenizer.ggml.add_space_prefix", false);
    let it = tokenizer(&metadata);
    assert_eq!(parts(&it, "aa a", NOT_PARSED), ["aa", "▁a"]);
    assert_eq!(
        (it.bos(), it.eos(), it.unk(), it.eot()),
        (Some(1), Some(2), Some(0), None)
    );
}

#[test]
fn without_byte_tokens_unknown_characters_become_the_unknown_token() {
    let mut metadata = sentence_piece(&[]);
    metadata.insert(
        "tokenizer.ggml.tokens",
        vec!["<unk>".to_owned(), "▁".into(), "a".into()],
    );
    let it = tokenizer(&metadata);
    assert_eq!(parts(&it, "aé", NOT_PARSED), ["▁", "a", "<unk>", "<unk>"]);
}

#[test]
fn ends_of_generation_are_known_by_key_and_by_text() {
    let mut metadata = byte_level(&[
        ("<stop>", CONTROL),
        ("<turn>", CONTROL),
        ("<|im_end|>", NORMAL),
        ("<|file_sep|>", CONTROL),
        ("<|fim_prefix|>", NORMAL),
        ("other", CONTROL),
    ]);
    metadata.insert("tokenizer.ggml.eos_token_id", 0u32);
    let it = tokenizer(&metadata);
    assert_eq!(ends(&it), ["<stop>", "<|im_end|>", "<|file_sep|>"]);
    assert_eq!((it.eos(), it.eot()), (Some(0), Some(2)));
    // They are control tokens, whatever their types say.
    assert!(it.is_control(2) && it.is_control(4));

    metadata.insert("tokenizer.ggml.eot_token_id", 1u32);
    let it = tokenizer(&metadata);
    assert_eq!(
        ends(&it),
        ["<stop>", "<turn>", "<|im_end|>", "<|file_sep|>"]
    );
    assert_eq!(it.eot(), Some(1));
}

#[test]
fn some_texts_end_a_generation_only_without_others() {
    let mut metadata = byte_level(&[
        ("<|return|>", CONTROL),
        ("<|call|>", CONTROL),
        ("<|end|>", CONTROL),
        ("<|channel|>", CONTROL),
        ("<|tool_response>", CONTROL),
        ("</s>", NORMAL),
    ]);
    metadata.insert("tokenizer.ggml.eos_token_id", 0u32);
    let it = tokenizer(&metadata);
    assert_eq!(ends(&it), ["<|return|>", "<|call|>", "<|tool_response>"]);
    let shown = |id| it.decode(&[id]);
    assert_eq!(
        [1, 2, 3, 5].map(shown),
        ["", "<|end|>", "<|channel|>", "</s>"]
    );
}

#[test]
fn ids_outside_the_vocabulary_are_passed_over() {
    let mut metadata = byte_level(&[]);
    metadata.insert("tokenizer.ggml.bos_token_id", u32::MAX);
    metadata.insert("tokenizer.ggml.eot_token_id", 256u32);
    metadata.insert("tokenizer.ggml.unknown_token_id", 255u32);
    let it = tokenizer(&metadata);
    // 11 is what llama.cpp takes where the file does not say.
    assert_eq!(
        (it.bos(), it.eos(), it.eot(), it.unk()),
        (Some(11), Some(11), None, Some(255))
    );
    assert_eq!(it.vocab_size(), 256);
    for id in [256, u32::MAX] {
        assert_eq!((it.token_text(id), it.token_bytes(id)), (None, None));
        assert!(!it.is_control(id) && !it.is_end_of_generation(id));
    }
    assert_eq!(it.decode(&[u32::MAX, 32, 256]), "A");
}
