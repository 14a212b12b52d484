//! A folder's vocabulary, special tokens and chat templates.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use rustorch_gguf::{Array, Metadata};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::LlmError;

use super::config::{Config, json, opt_json, text};
use super::pre_tokenizer::{self, parts};
use super::sentence_piece::SentencePiece;

/// llama.cpp's types of tokens.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// Score of a token that no merge makes.
const NEVER: f32 = -1e6;

/// U+2581, by which SentencePiece writes spaces.
const SPACE: &str = "\u{2581}";

/// The keys of `tokenizer.json` in use.
#[derive(Deserialize)]
struct TokenizerFile {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    post_processor: Option<Value>,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    vocab: Pieces,
    #[serde(default)]
    merges: Vec<Merge>,
    unk_token: Option<String>,
    unk_id: Option<u32>,
    ignore_merges: Option<bool>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Pieces {
    /// Ids by text.
    Ids(BTreeMap<String, u32>),
    /// Texts and scores.
    Scores(Vec<(String, f64)>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Text(String),
    Pair([String; 2]),
}

impl Merge {
    /// Both parts in a line.
    fn line(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            // A space within a part would part it.
            Self::Pair(pair) => pair.each_ref().map(|p| p.replace(' ', "\u{120}")).join(" "),
        }
    }

    /// The token that it makes.
    fn token(&self) -> String {
        match self {
            Self::Text(text) => text.replacen(' ', "", 1),
            Self::Pair(pair) => pair.concat(),
        }
    }
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
}

/// The tokens of a vocabulary in the making.
struct Tokens {
    path: std::path::PathBuf,
    texts: Vec<String>,
    scores: Vec<f32>,
    types: Vec<i32>,
}

impl Tokens {
    fn new(path: &Path, count: usize) -> Self {
        Self {
            path: path.to_owned(),
            texts: (0..count).map(|id| format!("[PAD{id}]")).collect(),
            scores: vec![NEVER; count],
            types: vec![UNUSED; count],
        }
    }

    fn set(&mut self, id: u32, text: &str, score: f32, ty: i32) -> Result<(), LlmError> {
        let count = self.texts.len();
        let place = id as usize;
        if place >= count {
            let problem =
                format!("token {id} {text:?} is outside of the embedding table of {count} rows");
            return Err(LlmError::folder(&self.path, problem));
        }
        text.clone_into(&mut self.texts[place]);
        self.scores[place] = score;
        self.types[place] = ty;
        Ok(())
    }

    /// Tokens beside the vocabulary. The table may lack rows of those that this model never reads.
    fn add(&mut self, added: &AddedToken, is_sentence_piece: bool) -> Result<(), LlmError> {
        if added.id as usize >= self.texts.len() {
            return Ok(());
        }
        let text = &added.content;
        let is_unknown = self.types[added.id as usize] == UNKNOWN;
        match is_unknown {
            true => Ok(()),
            false if added.special || looks_special(text) => {
                self.set(added.id, text, NEVER, CONTROL)
            }
            false => {
                let text = match is_sentence_piece {
                    true => text.replace(SPACE, " "),
                    false => text.clone(),
                };
                self.set(added.id, &text, NEVER, USER_DEFINED)
            }
        }
    }
}

/// Returns whether this is a token that structures texts, whatever its file says.
fn looks_special(text: &str) -> bool {
    let is_within = |begin, end| text.starts_with(begin) && text.ends_with(end);
    matches!(text, "<pad>" | "<mask>" | "<2mass>" | "[@BOS@]")
        || is_within("<|", "|>")
        || is_within("<｜", "｜>")
        || is_within("<unused", ">")
}

/// Returns whether this is the token of a byte, such as `<0x0A>`.
fn is_byte(text: &str) -> bool {
    let digits = text.strip_prefix("<0x").and_then(|t| t.strip_suffix('>'));
    digits.is_some_and(|d| d.len() == 2 && d.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Special tokens of WordPiece.
const WORD_PIECE_ROLES: [&str; 5] = ["cls", "sep", "pad", "unk", "mask"];

/// Adds the keys of the vocabulary, of a model whose embedding table has so many rows.
///
/// # Errors
/// Fails if a file is missing, damaged or unsupported.
pub(super) fn vocabulary(
    folder: &Path,
    config: &Config,
    rows: usize,
    metadata: &mut Metadata,
) -> Result<(), LlmError> {
    let [json_path, model_path, words_path] =
        ["tokenizer.json", "tokenizer.model", "vocab.txt"].map(|name| folder.join(name));
    let mut settings: Map<String, Value> =
        opt_json(&folder.join("tokenizer_config.json"))?.unwrap_or_default();
    let (tokens, added) = if json_path.exists() || !(model_path.exists() || words_path.exists()) {
        let file = json(&json_path)?;
        let tokens = of_json(&json_path, &file, rows, metadata)?;
        if separates(&file) {
            metadata.insert("tokenizer.ggml.add_sep_token", true);
        }
        (tokens, frame(&file))
    } else if model_path.exists() {
        // Nothing says it, and no decoder ends its prompts.
        let added = [None, Some(false)];
        let tokens = of_model(&model_path, folder, &settings, rows, metadata)?;
        (tokens, added)
    } else {
        for role in WORD_PIECE_ROLES {
            let text = format!("[{}]", role.to_uppercase());
            settings
                .entry(format!("{role}_token"))
                .or_insert(text.into());
        }
        (of_words(&words_path, &settings, rows, metadata)?, [None; 2])
    };
    special_tokens(folder, config, &settings, &tokens, metadata)?;
    for (end, added) in ["bos", "eos"].iter().zip(added) {
        let asked = settings.get(&format!("add_{end}_token"));
        if let Some(adds) = asked.and_then(Value::as_bool).or(added) {
            metadata.insert(format!("tokenizer.ggml.add_{end}_token"), adds);
        }
    }
    metadata.insert("tokenizer.ggml.tokens", tokens.texts);
    metadata.insert("tokenizer.ggml.token_type", tokens.types);
    chat_templates(folder, &settings, metadata)
}

/// The vocabulary of a `tokenizer.json`.
fn of_json(
    path: &Path,
    file: &TokenizerFile,
    rows: usize,
    metadata: &mut Metadata,
) -> Result<Tokens, LlmError> {
    let mut tokens = Tokens::new(path, rows);
    let pre = file.pre_tokenizer.as_ref();
    let is_byte_level = pre_tokenizer::is_byte_level(pre);
    let kind = file.model.kind.as_deref().unwrap_or("BPE");
    match (kind, &file.model.vocab) {
        ("BPE", Pieces::Ids(ids)) if is_byte_level => {
            let is_whole = file.model.ignore_merges.unwrap_or(false);
            let name = pre_tokenizer::name(pre, is_whole).map_err(|steps| {
                let problem = format!(
                    "pre_tokenizer: {steps} is not one of those known; convert the model with llama.cpp"
                );
                LlmError::folder(path, problem)
            })?;
            metadata.insert("tokenizer.ggml.model", "gpt2");
            metadata.insert("tokenizer.ggml.pre", name);
            for (text, &id) in ids {
                tokens.set(id, text, 0.0, NORMAL)?;
            }
            let merges: Vec<String> = file.model.merges.iter().map(Merge::line).collect();
            metadata.insert("tokenizer.ggml.merges", merges);
        }
        ("BPE", Pieces::Ids(ids)) if ids.keys().any(|text| text.starts_with(SPACE)) => {
            sentence_piece(file, ids, &mut tokens)?;
            metadata.insert("tokenizer.ggml.model", "llama");
            metadata.insert("tokenizer.ggml.pre", "default");
            metadata.insert("tokenizer.ggml.add_space_prefix", adds_space(file));
        }
        ("WordPiece", Pieces::Ids(ids)) => {
            for (text, &id) in ids {
                tokens.set(id, &word_piece(text), 0.0, NORMAL)?;
            }
            let normalizers = parts(file.normalizer.as_ref(), "normalizers");
            let own = normalizers
                .iter()
                .find(|part| part["type"] == "BertNormalizer");
            let flag = |key: &str| own.and_then(|own| own[key].as_bool());
            let lowercase = flag("lowercase").unwrap_or(false);
            normalization(lowercase, flag("strip_accents"), metadata);
        }
        ("Unigram", Pieces::Scores(pieces)) => {
            for (id, (text, score)) in (0..).zip(pieces) {
                let ty = match () {
                    () if file.model.unk_id == Some(id) => UNKNOWN,
                    () if is_byte(text) => BYTE,
                    () => NORMAL,
                };
                tokens.set(id, text, *score as f32, ty)?;
            }
            metadata.insert("tokenizer.ggml.model", "t5");
            metadata.insert("tokenizer.ggml.pre", "default");
            metadata.insert("tokenizer.ggml.add_space_prefix", adds_space(file));
            if let Some(map) = charsmap(file) {
                metadata.insert("tokenizer.ggml.precompiled_charsmap", map);
            }
        }
        _ => {
            let problem = format!(
                "model: a vocabulary of the kind {kind:?} is not supported; BPE by bytes, BPE of SentencePiece, \
                 Unigram and WordPiece are"
            );
            return Err(LlmError::folder(path, problem));
        }
    }
    let is_sentence_piece = !is_byte_level && kind != "WordPiece";
    for added in &file.added_tokens {
        tokens.add(added, is_sentence_piece)?;
    }
    if is_sentence_piece {
        metadata.insert("tokenizer.ggml.scores", tokens.scores.clone());
    }
    Ok(tokens)
}

/// A piece of WordPiece as GGUF writes it: those that begin a word have a space before them.
fn word_piece(text: &str) -> String {
    match text.strip_prefix("##") {
        Some(rest) => rest.to_owned(),
        None => format!("{SPACE}{text}"),
    }
}

/// Adds the keys of WordPiece.
fn normalization(lowercase: bool, strip_accents: Option<bool>, metadata: &mut Metadata) {
    metadata.insert("tokenizer.ggml.model", "bert");
    metadata.insert("tokenizer.ggml.pre", "default");
    metadata.insert("tokenizer.ggml.normalizer.lowercase", lowercase);
    let strip_accents = strip_accents.unwrap_or(lowercase);
    metadata.insert("tokenizer.ggml.normalizer.strip_accents", strip_accents);
}

/// The vocabulary of WordPiece in a list of words.
fn of_words(
    path: &Path,
    settings: &Map<String, Value>,
    rows: usize,
    metadata: &mut Metadata,
) -> Result<Tokens, LlmError> {
    let words = text(path)?;
    let mut tokens = Tokens::new(path, rows);
    let special = WORD_PIECE_ROLES.map(|role| {
        let own = &settings[&format!("{role}_token")];
        own.as_str().or(own["content"].as_str())
    });
    for (id, word) in (0..).zip(words.lines()) {
        match special.contains(&Some(word)) {
            true => tokens.set(id, word, NEVER, CONTROL)?,
            false => tokens.set(id, &word_piece(word), 0.0, NORMAL)?,
        }
    }
    let flag = |key: &str| settings.get(key).and_then(Value::as_bool);
    let lowercase = flag("do_lower_case").unwrap_or(true);
    normalization(lowercase, flag("strip_accents"), metadata);
    Ok(tokens)
}

/// Do two separators stand between texts that are given together?
fn separates(file: &TokenizerFile) -> bool {
    let processors = parts(file.post_processor.as_ref(), "processors");
    let is_special = |part: &Value| !part["SpecialToken"].is_null();
    let is_double = |part: &Value| {
        let pair = part["pair"].as_array().map_or(&[][..], Vec::as_slice);
        let inner = pair.get(1..pair.len().saturating_sub(1)).unwrap_or(&[]);
        inner.windows(2).any(|two| two.iter().all(is_special))
    };
    processors
        .iter()
        .any(|part| part["type"] == "RobertaProcessing" || is_double(part))
}

/// Pieces with scores that are in the order of merges.
fn sentence_piece(
    file: &TokenizerFile,
    ids: &BTreeMap<String, u32>,
    tokens: &mut Tokens,
) -> Result<(), LlmError> {
    let mut scores: HashMap<String, f32> = HashMap::new();
    for (place, merge) in file.model.merges.iter().enumerate() {
        scores.entry(merge.token()).or_insert(-(place as f32));
    }
    for (text, &id) in ids {
        let ty = match () {
            () if file.model.unk_token.as_ref() == Some(text) => UNKNOWN,
            () if is_byte(text) => BYTE,
            () => NORMAL,
        };
        let score = scores.get(text).copied().unwrap_or(NEVER);
        tokens.set(id, text, score, ty)?;
    }
    Ok(())
}

/// Is a space put before texts?
fn adds_space(file: &TokenizerFile) -> bool {
    let normalizers = parts(file.normalizer.as_ref(), "normalizers");
    let before = parts(file.pre_tokenizer.as_ref(), "pretokenizers");
    normalizers.iter().any(|part| part["type"] == "Prepend")
        || before.iter().any(|part| {
            part["type"] == "Metaspace"
                && part["prepend_scheme"] != "never"
                && part["add_prefix_space"] != false
        })
}

/// The table by which texts are normalised.
fn charsmap(file: &TokenizerFile) -> Option<Vec<u8>> {
    let normalizers = parts(file.normalizer.as_ref(), "normalizers");
    let map = normalizers
        .iter()
        .find(|part| part["type"] == "Precompiled")?;
    base64(map["precompiled_charsmap"].as_str()?)
}

/// Bytes of Base64.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for c in text.trim_end_matches('=').bytes() {
        let value = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

/// Are a first and a last special token put around texts?
fn frame(file: &TokenizerFile) -> [Option<bool>; 2] {
    let processors = parts(file.post_processor.as_ref(), "processors");
    let is_pair =
        |part: &&&Value| part["type"] == "BertProcessing" || part["type"] == "RobertaProcessing";
    if processors.iter().any(|part| is_pair(&part)) {
        return [Some(true); 2];
    }
    let template = processors.iter().find_map(|part| part["single"].as_array());
    let special = |part: Option<&Value>| Some(part.is_some_and(|p| !p["SpecialToken"].is_null()));
    match template {
        Some(single) => [special(single.first()), special(single.last())],
        None => [Some(false); 2],
    }
}

/// The vocabulary of SentencePiece's own file.
fn of_model(
    path: &Path,
    folder: &Path,
    settings: &Map<String, Value>,
    rows: usize,
    metadata: &mut Metadata,
) -> Result<Tokens, LlmError> {
    let bytes = std::fs::read(path).map_err(|error| LlmError::folder(path, error))?;
    let model = SentencePiece::read(&bytes).ok_or_else(|| {
        let problem = "this is not a valid SentencePiece model; fetch the folder's tokenizer.json";
        LlmError::folder(path, problem)
    })?;
    let mut tokens = Tokens::new(path, rows);
    for (id, piece) in (0..).zip(&model.pieces) {
        tokens.set(id, &piece.text, piece.score, piece.kind)?;
    }
    let kind = if model.is_unigram { "t5" } else { "llama" };
    metadata.insert("tokenizer.ggml.model", kind);
    metadata.insert("tokenizer.ggml.pre", "default");
    metadata.insert("tokenizer.ggml.add_space_prefix", model.adds_space);
    metadata.insert(
        "tokenizer.ggml.remove_extra_whitespaces",
        model.merges_spaces,
    );
    if model.is_unigram && !model.charsmap.is_empty() {
        metadata.insert("tokenizer.ggml.precompiled_charsmap", model.charsmap);
    }
    let added: BTreeMap<String, u32> =
        opt_json(&folder.join("added_tokens.json"))?.unwrap_or_default();
    let added = added.into_iter().map(|(content, id)| AddedToken {
        id,
        content,
        special: false,
    });
    let listed = settings
        .get("added_tokens_decoder")
        .and_then(Value::as_object);
    let listed = listed.into_iter().flatten().filter_map(|(id, token)| {
        Some(AddedToken {
            id: id.parse().ok()?,
            content: token["content"].as_str()?.to_owned(),
            special: token["special"] == true,
        })
    });
    for token in added.chain(listed) {
        tokens.add(&token, true)?;
    }
    metadata.insert("tokenizer.ggml.scores", tokens.scores.clone());
    Ok(tokens)
}

/// Adds the ids of special tokens: by their texts in `tokenizer_config.json`, or else by ids in other files.
fn special_tokens(
    folder: &Path,
    config: &Config,
    settings: &Map<String, Value>,
    tokens: &Tokens,
    metadata: &mut Metadata,
) -> Result<(), LlmError> {
    const ROLES: [(&str, &str); 6] = [
        ("bos", "bos"),
        ("eos", "eos"),
        ("unk", "unknown"),
        ("sep", "seperator"),
        ("pad", "padding"),
        ("mask", "mask"),
    ];
    let generation: Map<String, Value> =
        opt_json(&folder.join("generation_config.json"))?.unwrap_or_default();
    let places = (0u32..).zip(&tokens.texts);
    let ids: HashMap<&str, u32> = places.map(|(id, text)| (text.as_str(), id)).collect();
    let known = |id: u32| Some(id).filter(|id| (*id as usize) < tokens.texts.len());
    for (role, key) in ROLES {
        let own = settings.get(&format!("{role}_token"));
        // BERT begins texts with a token for classification.
        let text = match role {
            "bos" => own
                .filter(|own| !own.is_null())
                .or(settings.get("cls_token")),
            _ => own,
        };
        let text = text.and_then(|text| text.as_str().or(text["content"].as_str()));
        let by_text = text.and_then(|text| ids.get(text).copied());
        let name = format!("{role}_token_id");
        let by_id = || {
            let own = config.get(&[&name]).map(|(_, value)| value);
            let listed = [own, generation.get(&name)];
            listed
                .into_iter()
                .flatten()
                .find_map(|v| numbers(v).first().copied())
        };
        let by_type = || {
            let place = tokens.types.iter().position(|ty| *ty == UNKNOWN)?;
            u32::try_from(place).ok().filter(|_| role == "unk")
        };
        let id = by_text.or_else(by_id).or_else(by_type);
        if let Some(id) = id.and_then(known) {
            metadata.insert(format!("tokenizer.ggml.{key}_token_id"), id);
        }
    }
    // The others that end a text end a turn.
    let eos = metadata.opt_u32("tokenizer.ggml.eos_token_id")?;
    let ends = generation
        .get("eos_token_id")
        .map(numbers)
        .unwrap_or_default();
    let end = ends.into_iter().find(|id| Some(*id) != eos).and_then(known);
    if let Some(id) = end.filter(|_| eos.is_some()) {
        metadata.insert("tokenizer.ggml.eot_token_id", id);
    }
    sampling(&generation, metadata);
    Ok(())
}

/// One id, or several.
fn numbers(value: &Value) -> Vec<u32> {
    let number = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value.as_array() {
        Some(list) => list.iter().filter_map(number).collect(),
        None => number(value).into_iter().collect(),
    }
}

/// Adds the sampling that the model's makers recommend.
fn sampling(generation: &Map<String, Value>, metadata: &mut Metadata) {
    let number = |key| generation.get(key).and_then(Value::as_f64);
    if let Some(top_k) = generation.get("top_k").and_then(Value::as_i64) {
        metadata.insert("general.sampling.top_k", top_k as i32);
    }
    for (from, to) in [
        ("top_p", "top_p"),
        ("min_p", "min_p"),
        ("temperature", "temp"),
        ("repetition_penalty", "penalty_repeat"),
    ] {
        if let Some(number) = number(from) {
            metadata.insert(format!("general.sampling.{to}"), number as f32);
        }
    }
}

/// Adds chat templates: of a file of their own, or those of `tokenizer_config.json`.
fn chat_templates(
    folder: &Path,
    settings: &Map<String, Value>,
    metadata: &mut Metadata,
) -> Result<(), LlmError> {
    const KEY: &str = "tokenizer.chat_template";
    let file = folder.join("chat_template.jinja");
    let older: Map<String, Value> =
        opt_json(&folder.join("chat_template.json"))?.unwrap_or_default();
    let listed = settings.get("chat_template").or(older.get("chat_template"));
    if file.exists() {
        metadata.insert(KEY, &*text(&file)?);
    } else if let Some(template) = listed.and_then(Value::as_str) {
        metadata.insert(KEY, template);
    } else if let Some(list) = listed.and_then(Value::as_array) {
        let named = list
            .iter()
            .filter_map(|t| Some((t["name"].as_str()?, t["template"].as_str()?)));
        let mut names = Vec::new();
        for (name, template) in named {
            match name {
                "default" => metadata.insert(KEY, template),
                _ => {
                    names.push(name.to_owned());
                    metadata.insert(format!("{KEY}.{name}"), template)
                }
            };
        }
        if !names.is_empty() {
            metadata.insert("tokenizer.chat_templates", Array::String(names));
        }
    }
    Ok(())
}
