//! Texts that users and models write: forms of answers, chat templates, conversations, answers.

use std::borrow::Cow;
use std::sync::LazyLock;

use rustorch_chat::{
    AnswerParser, AnswerSyntax, ChatTemplate, ControlTokens, Message, ParseOptions, RenderOptions,
};
use rustorch_grammar::{Grammar, Piece, Vocabulary};
use serde_json::{Map, Value, json};

use super::{all_in, repository};

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn owned(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// An error's text, whose lines beyond the first quote the user's own text.
fn line(error: impl ToString) -> String {
    error.to_string().replace('\n', " ")
}

/// Tokens that a text is followed for.
const TOKENS: u64 = 12;

/// Every byte, a few words, and the end.
static VOCABULARY: LazyLock<Vocabulary> = LazyLock::new(|| {
    let bytes = (0..=255).map(|byte| vec![byte]);
    let words = ["true", "\": \"", "{\"", "abc", "é", " "].map(|word| word.as_bytes().to_vec());
    let pieces = bytes.chain(words).map(Piece::Bytes);
    let pieces: Vec<Piece> = pieces
        .chain([Piece::Control("<|end|>".to_owned())])
        .collect();
    let end = pieces.len() as u32 - 1;
    Vocabulary::from_pieces(&pieces, &[end]).expect("a vocabulary")
});

/// Follows a form for a few tokens, each of which the mask allows.
fn follow(grammar: &Grammar) -> Result<(), String> {
    let mut constraint = grammar.constrain(&VOCABULARY).map_err(line)?;
    for step in 0..TOKENS {
        if constraint.is_complete() {
            return Ok(());
        }
        let mask = constraint.mask().map_err(line)?;
        let allowed: Vec<u32> = (0..VOCABULARY.len() as u32)
            .filter(|&token| mask.allows(token))
            .collect();
        assert_eq!(allowed.len(), mask.count());
        let token = allowed[(step as usize * 7) % allowed.len()];
        constraint.accept(token).map_err(line)?;
    }
    constraint.rollback(1).map_err(line)
}

pub(super) fn gbnfs() -> Vec<Vec<u8>> {
    owned(&[
        "root ::= (expr \"=\" term \"\\n\")+\nexpr ::= term ([-+*/] term)*\nterm ::= [0-9]+ | \"(\" expr \")\"",
        "root ::= object\nvalue ::= object | array | string | \"null\"\nobject ::= \"{\" (string \":\" value (\",\" \
         string \":\" value)*)? \"}\"\narray ::= \"[\" (value (\",\" value)*)? \"]\"\nstring ::= \"\\\"\" [^\"\\\\\\x00-\\x1f]* \
         \"\\\"\"",
        "# comment\nroot ::= \"a\"{2,5} [\\u00e9-\\u4e2d]? .",
    ])
}

pub(super) fn gbnf(bytes: &[u8]) -> Result<(), String> {
    follow(&Grammar::Gbnf(text(bytes).into_owned()))
}

pub(super) fn regexes() -> Vec<Vec<u8>> {
    owned(&[
        "[1-9][0-9]?",
        "(?i)[a-z0-9._]+@[a-z0-9-]+(\\.[a-z]{2,})+",
        "\\d{4}-\\d\\d-\\d\\d(T\\d\\d:\\d\\d)?",
        "\\p{Greek}+|(?:é|中){1,3}[^\\s&&\\S]?",
    ])
}

pub(super) fn regex(bytes: &[u8]) -> Result<(), String> {
    follow(&Grammar::Regex(text(bytes).into_owned()))
}

pub(super) fn schemas() -> Vec<Vec<u8>> {
    let schemas = [
        json!({"type": "integer", "minimum": 1, "maximum": 120}),
        json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "tags": {"type": "array",
            "items": {"enum": ["a", "b", null]}, "minItems": 1}}, "required": ["name"], "additionalProperties": false}),
        json!({"$defs": {"tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}, "value": {"type":
            "number"}}}}, "anyOf": [{"$ref": "#/$defs/tree"}, {"const": 3.5}, {"type": "string", "pattern": "^[a-z]+$"}]}),
        json!({"allOf": [{"type": "string"}, {"format": "date"}]}),
    ];
    schemas.iter().map(|s| s.to_string().into_bytes()).collect()
}

pub(super) fn schema(bytes: &[u8]) -> Result<(), String> {
    follow(&Grammar::JsonSchema(text(bytes).into_owned()))
}

pub(super) fn larks() -> Vec<Vec<u8>> {
    owned(&[
        "start: \"a\" WORD+ | number\nWORD: /[a-z]+/\nnumber: /[0-9]+/ (\".\" /[0-9]{1,3}/)?\n%ignore / +/",
        "start: item (\",\" item)*\nitem: \"x\" | \"(\" start \")\"",
    ])
}

pub(super) fn lark(bytes: &[u8]) -> Result<(), String> {
    follow(&Grammar::Lark(text(bytes).into_owned()))
}

pub(super) fn templates() -> Vec<Vec<u8>> {
    let mut all = all_in("crates/chat/tests/data/templates", ".jinja");
    all.sort_by_key(Vec::len);
    // Templates of many pages take long.
    all.truncate(16);
    all
}

fn control() -> ControlTokens {
    ControlTokens::new(["<s>", "</s>", "<|im_start|>", "<|im_end|>"].map(str::to_owned))
}

/// A conversation is written by what is a template.
pub(super) fn template(bytes: &[u8]) -> Result<(), String> {
    let tokens: Map<String, Value> = [("bos_token", "<s>"), ("eos_token", "</s>")]
        .map(|(name, text)| (name.to_owned(), Value::from(text)))
        .into_iter()
        .collect();
    let template = ChatTemplate::new(&text(bytes), "model", tokens).map_err(line)?;
    let messages = [
        Message::system("Be <s>brief."),
        Message::user("Hi"),
        Message::assistant("Hello"),
        Message::user("Well?"),
    ];
    let options = RenderOptions {
        add_generation_prompt: true,
        ..RenderOptions::default()
    };
    let prompt = template.render(&messages, &options, &control());
    prompt.map(drop).map_err(line)
}

pub(super) fn conversations() -> Vec<Vec<u8>> {
    let call =
        json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}});
    let conversation = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "<|im_start|>"}]},
        {"role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "2"},
        {"role": "user", "content": "Thanks"},
    ]);
    vec![conversation.to_string().into_bytes()]
}

/// Renders a conversation by a template that knows all of its parts.
pub(super) fn conversation(bytes: &[u8]) -> Result<(), String> {
    static TEMPLATE: LazyLock<ChatTemplate> = LazyLock::new(|| {
        let path = repository("crates/chat/tests/data/templates/Qwen-Qwen3-0.6B.jinja");
        let source = std::fs::read_to_string(path).expect("the template is in the repository");
        ChatTemplate::new(&source, "model", Map::new()).expect("a template")
    });
    let value: Value = serde_json::from_slice(bytes).map_err(line)?;
    let messages = Message::list(&value).map_err(line)?;
    let prompt = TEMPLATE.render(&messages, &RenderOptions::default(), &control());
    prompt.map(drop).map_err(line)
}

/// Each of a few answers in every syntax: in one of them it is a call.
pub(super) fn answers() -> Vec<Vec<u8>> {
    let texts = [
        "<think>\nHm.\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, \"é\"]}}\n</tool_call>",
        "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"x\": null}}]",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
        "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>",
    ];
    let syntaxes = 0..AnswerSyntax::names().count() as u8;
    let each = syntaxes.flat_map(|first| texts.map(|text| [&[first], text.as_bytes()].concat()));
    each.collect()
}

/// The first byte chooses the syntax. Whole and character by character, there is an answer.
pub(super) fn answer(bytes: &[u8]) -> Result<(), String> {
    let names: Vec<&str> = AnswerSyntax::names().collect();
    let Some((&first, rest)) = bytes.split_first() else {
        return Err("no syntax".to_owned());
    };
    let name = names[usize::from(first) % names.len()];
    let syntax = AnswerSyntax::named(name).expect("one of the names");
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"x": {"type": "integer"}}}}});
    let options = ParseOptions {
        tools: vec![tool],
        ..ParseOptions::default()
    };
    let text = text(rest);
    let whole = AnswerParser::parse(syntax, &options, &text);
    let mut parser = AnswerParser::new(syntax, &options);
    for char in text.chars() {
        parser.push(char.encode_utf8(&mut [0; 4]));
    }
    parser.finish();
    match whole.calls.is_empty() {
        true => Err(format!("no call in {name}")),
        false => Ok(()),
    }
}
