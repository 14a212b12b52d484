//! Answers taken apart, beside llama.cpp's table, and whole or in parts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use proptest::prelude::*;
use rustorch_chat::{Answer, AnswerParser, AnswerSyntax, Delta, ParseOptions, ReasoningFormat};
use serde_json::{Value, json};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn read(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(data(name)).unwrap()).unwrap()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

/// The template of a model, if it is here.
fn template(name: &str) -> Option<String> {
    let file = format!("{name}.jinja");
    let folder = env::var_os("RUSTORCH_CHAT_TEMPLATES").map(PathBuf::from);
    let folders = [Some(data("templates")), folder].into_iter().flatten();
    folders
        .filter_map(|it| fs::read_to_string(it.join(&file)).ok())
        .next()
}

/// A parser's answer to a text that comes in parts, and a record of its pieces.
fn streamed(
    syntax: &'static AnswerSyntax,
    options: &ParseOptions,
    parts: &[&str],
) -> (Answer, String) {
    let mut parser = AnswerParser::new(syntax, options);
    let mut answer = Answer::default();
    let mut sources = String::new();
    let mut steps = Vec::new();
    for part in parts {
        steps.extend(parser.push(part));
    }
    steps.extend(parser.finish());
    for step in &steps {
        answer.add(step);
        sources += &step.source;
    }
    (answer, sources)
}

fn chars(text: &str) -> Vec<&str> {
    text.split_inclusive(|_| true).collect()
}

/// Arguments as JSON, or as they are if they are cut off.
fn arguments(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

fn comparable(answer: &Answer) -> Value {
    let calls = answer.calls.iter().map(
        |call| json!({"name": call.name, "arguments": arguments(&call.arguments), "id": call.id}),
    );
    json!({
        "content": answer.content,
        "reasoning_content": answer.reasoning,
        "tool_calls": calls.collect::<Vec<_>>(),
    })
}

fn expected(case: &Value) -> Value {
    let calls = case["expected"]["tool_calls"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let calls = calls.iter().map(|call| {
        let arguments = arguments(text(call, "arguments"));
        json!({"name": call["name"], "arguments": arguments, "id": call["id"]})
    });
    json!({
        "content": text(&case["expected"], "content"),
        "reasoning_content": text(&case["expected"], "reasoning_content"),
        "tool_calls": calls.collect::<Vec<_>>(),
    })
}

fn options(case: &Value, tools: &Value, syntax: &AnswerSyntax) -> ParseOptions {
    let named = case["tools"].as_array().cloned().unwrap_or_default();
    let format = match text(case, "reasoning_format") {
        "" => ReasoningFormat::None,
        name => name.parse().unwrap(),
    };
    ParseOptions {
        reasoning: format,
        tools: named
            .iter()
            .map(|name| json!({"type": "function", "function": tools[name.as_str().unwrap()]}))
            .collect(),
        thinking_begun: match case["continue"].as_u64() {
            None => {
                let begun = syntax.thinking_begun(text(case, "prompt_end"));
                begun.map(str::to_owned)
            }
            Some(REASONING) => {
                let thought = text(&case["begun"], "reasoning_content");
                syntax
                    .begins_thinking()
                    .map(|open| open.to_owned() + thought)
            }
            Some(_) => None,
        },
    }
}

/// llama.cpp's kind of continuation: reasoning; any other number is content.
const REASONING: u64 = 2;

/// The syntax of templates that are not here.
const ELSEWHERE: [(&str, &str); 23] = [
    ("Cohere2MoE", "command-r7b"),
    ("CohereForAI-c4ai-command-r-plus-tool_use", "command-r"),
    ("muse-glimmer", "muse-glimmer"),
    (
        "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
        "command-r7b",
    ),
    ("Kimi-K3", "kimi-k3"),
    ("LFM2-8B-A1B", "lfm2"),
    ("LFM2.5-8B-A1B", "lfm2"),
    ("LFM2.5-Instruct", "lfm2"),
    ("MiniMax-M3", "minimax-m3"),
    ("Reka-Edge", "hermes"),
    ("Spark2.5", "glm"),
    ("GigaChat3.1-10B-A1.8B", "gigachat-3.1"),
    ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3-coder"),
    ("NVIDIA-Nemotron-Nano-v2", "nemotron-v2"),
    ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes"),
    ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes"),
    ("deepseek-ai-DeepSeek-V4-Flash-0731", "deepseek-v3.2"),
    ("fireworks-ai-llama-3-firefunction-v2", "firefunction"),
    ("google-gemma-2-2b-it", "generic"),
    ("meta-llama-Llama-3.1-8B-Instruct", "llama3"),
    ("meta-llama-Llama-3.2-3B-Instruct", "llama3"),
    ("meta-llama-Llama-3.3-70B-Instruct", "llama3"),
    ("unsloth-Apriel-1.5", "apriel"),
];

/// The syntax of a model's answers, if it is known.
fn syntax(name: &str) -> Option<&'static AnswerSyntax> {
    let elsewhere = ELSEWHERE.iter().find(|(it, _)| *it == name);
    match (template(name), elsewhere) {
        (Some(source), _) => Some(AnswerSyntax::detect(&source)),
        (None, Some((_, syntax))) => AnswerSyntax::named(syntax),
        (None, None) => None,
    }
}

#[test]
fn answers_are_those_of_llama_cpp_s_table() {
    let table = read("chat.json");
    let mut wrong: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut compared, mut elsewhere) = (0, 0);
    for case in table["cases"].as_array().unwrap() {
        let name = text(case, "template");
        let Some(syntax) = syntax(name) else {
            elsewhere += 1;
            continue;
        };
        let options = options(case, &table["tools"], syntax);
        let input = text(case, "input");
        let (mut whole, sources) = streamed(syntax, &options, &[input]);
        assert_eq!(sources, input, "{name}");
        let (single, sources) = streamed(syntax, &options, &chars(input));
        assert_eq!(sources, input, "{name}, by characters");
        assert_eq!(single, whole, "{name}, by characters: {input:?}");
        compared += 1;
        if let Some(begun) = case.get("begun") {
            whole.content.insert_str(0, text(begun, "content"));
            // Earlier reasoning belongs to the message, not to the answer.
            if !text(&case["expected"], "reasoning_content").is_empty() {
                whole
                    .reasoning
                    .insert_str(0, text(begun, "reasoning_content"));
            }
        }
        let (got, expected) = (comparable(&whole), expected(case));
        if got != expected {
            let what = format!("{input:?}:\n  {expected}, but\n  {got}");
            wrong.entry(name.to_owned()).or_default().push(what);
        }
    }
    let known = read("chat-differences.json");
    let mut report = String::new();
    for (name, cases) in &wrong {
        let count = known[name]["cases"].as_u64().unwrap_or_default();
        if count != cases.len() as u64 {
            let lines = cases.join("\n");
            report += &format!("{name}: {} and not {count}:\n{lines}\n", cases.len());
        }
    }
    for name in known.as_object().unwrap().keys() {
        if !wrong.contains_key(name) {
            report += &format!("{name}: passes now\n");
        }
    }
    assert!(report.is_empty(), "{report}");
    println!("{compared} answers; {elsewhere} of syntaxes that are not known");
    assert!(compared >= 400, "{compared}");
}

fn tools() -> Vec<Value> {
    let parameters = json!({"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}});
    ["f", "g"]
        .iter()
        .map(|name| json!({"type": "function", "function": {"name": name, "parameters": parameters}}))
        .collect()
}

#[test]
fn arguments_come_while_they_are_written() {
    let options = ParseOptions {
        tools: tools(),
        ..ParseOptions::default()
    };
    let syntax = AnswerSyntax::named("hermes").unwrap();
    let mut parser = AnswerParser::new(syntax, &options);
    let mut deltas = |text: &str| -> Vec<Delta> {
        parser
            .push(text)
            .into_iter()
            .filter_map(|step| step.delta)
            .collect()
    };
    let more = |text: &str| Delta::Arguments {
        index: 0,
        text: text.to_owned(),
    };
    assert_eq!(deltas("Well <tool"), [Delta::Content("Well".to_owned())]);
    assert_eq!(deltas("_call>\n{\"name\": \"f\", \"argu"), []);
    let call = Delta::Call {
        index: 0,
        name: "f".to_owned(),
        id: None,
    };
    assert_eq!(deltas("ments\": {\"a\""), [call, more("{\"a\"")]);
    assert_eq!(deltas(": \"x"), [more(": \"x")]);
    assert_eq!(deltas("\"}"), [more("\"}")]);
    assert_eq!(
        deltas("}</tool_call> Done."),
        [Delta::Content("Done.".to_owned())]
    );
}

#[test]
fn what_is_no_call_is_said() {
    let options = ParseOptions {
        tools: tools(),
        ..ParseOptions::default()
    };
    let cases = [
        ("hermes", "Use <tool_call> like this."),
        ("hermes", "<tool_call>{\"name\": 3}</tool_call>"),
        ("hermes", "<tool_call>\n{\"nam"),
        ("llama3", "{\"answer\": 42}"),
        ("llama3", "{\"name\": \"nobody\", \"parameters\": {}}"),
        ("qwen3-coder", "The tag <tool_call> stands alone."),
        ("mistral", "[TOOL_CALLS] are [ARGS] marks"),
        ("glm", "<tool_call>two words</tool_call>"),
        ("generic", "{"),
    ];
    for (name, input) in cases {
        let syntax = AnswerSyntax::named(name).unwrap();
        let answer = AnswerParser::parse(syntax, &options, input);
        assert_eq!(answer.content, input, "{name}");
        assert!(answer.calls.is_empty(), "{name}: {input:?}");
        // Without tools there are no calls at all.
        let plain = AnswerParser::parse(syntax, &ParseOptions::default(), input);
        assert_eq!(plain.content, input, "{name}");
    }
}

#[test]
fn reasoning_goes_where_the_format_says() {
    let syntax = AnswerSyntax::named("hermes").unwrap();
    let input = "<think>\nhm\n</think>\n\nYes.";
    let of = |name: &str| ParseOptions {
        reasoning: name.parse().unwrap(),
        ..ParseOptions::default()
    };
    let answer = |reasoning: &str, content: &str| Answer {
        reasoning: reasoning.to_owned(),
        content: content.to_owned(),
        calls: Vec::new(),
    };
    let cases = [
        ("none", answer("", input), answer("", input)),
        ("auto", answer("hm", "Yes."), answer("hm", "Yes.")),
        ("deepseek", answer("hm", "Yes."), answer("hm", "Yes.")),
        ("deepseek-legacy", answer("hm", "Yes."), answer("", input)),
    ];
    for (name, whole, stream) in cases {
        assert_eq!(
            AnswerParser::parse(syntax, &of(name), input),
            whole,
            "{name}"
        );
        assert_eq!(streamed(syntax, &of(name), &[input]).0, stream, "{name}");
        // In the middle of an answer the markers are text.
        let text = "A <think> begins it, and a </think> ends it.";
        let expected = answer("", text);
        assert_eq!(AnswerParser::parse(syntax, &of(name), text), expected);
    }
    let error = "sometimes"
        .parse::<ReasoningFormat>()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("none, deepseek, deepseek-legacy, auto"),
        "{error}"
    );

    let begun = syntax
        .thinking_begun("<|im_start|>assistant\n<think>\n")
        .unwrap();
    let options = ParseOptions {
        thinking_begun: Some(begun.to_owned()),
        ..ParseOptions::default()
    };
    assert_eq!(
        AnswerParser::parse(syntax, &options, "hm</think>Yes."),
        answer("hm", "Yes.")
    );
    assert_eq!(syntax.thinking_begun("<think>\n\n</think>\n\n"), None);
}

/// Texts that are made of what answers are made of.
fn answers() -> impl Strategy<Value = String> {
    let pieces = [
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "{\"name\": \"f\", ",
        "\"arguments\": {\"a\": \"x\"}}",
        "<function=f>",
        "<parameter=a>",
        "1</parameter>",
        "</function>",
        "[TOOL_CALLS]",
        "f[ARGS]",
        "{\"n\": 1}",
        "<|channel|>analysis<|message|>",
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
        "<|end|>",
        "<|start|>assistant",
        "<|call|>",
        "<arg_key>a</arg_key>",
        "<arg_value>b</arg_value>",
        "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "\n",
        " ",
        "é",
        "f",
        "<",
        "{",
        "}",
        "[",
        "]",
        "\"",
        "\\",
        "```json\n",
        "```",
        "<|channel>thought",
        "<|channel>",
        "<channel|>",
        "<|tool_call>call:f",
        "{a:<|\"|>x<|\"|>}",
        "<tool_call|>",
        "<|tool_call_start|>[f",
        "(a='x', n=1)",
        ", g()",
        "<|tool_call_end|>",
        "<function name=\"f\">",
        "<param name=\"a\">",
        "<![CDATA[</param>]]>",
        "</param>",
        "<|open|>call tool=\"f\" index=\"1\"<|sep|>",
        "<|open|>argument key=\"a\" type=\"string\"<|sep|>",
        "<|close|>argument<|sep|>",
        "<|close|>call<|sep|>",
        "]<]minimax[>[<invoke name=\"f\">",
        "]<]minimax[>[<a>",
        "]<]minimax[>[</a>",
        "]<]minimax[>[</invoke>",
        "[BEGIN FINAL RESPONSE]",
        ">>>",
        "all\n",
        "<|function_call|>",
        "f\n{\"a\": \"x\"}",
        " to=f<|message|><atem:function_calls>\n<atem:invoke name=\"f\">",
        "</atem:invoke>",
        "<|eom|>",
        "<function_calls>\nf(a='x')\ng()",
        "</function_calls>",
        "[f(a='x'), g()]",
        "{\"name\": \"f\", \"parameters\": {}}",
        "; ",
        "<|tool_call:begin|>i<|tool_call:name|>f<|tool_call:args|>",
        "<|python_start|>",
        "functools",
        "<answer>",
        "</answer>",
    ];
    let piece = proptest::sample::select(pieces.to_vec());
    proptest::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever a model writes, and however it comes, all of it is accounted for, and means the same.
    #[test]
    fn nothing_is_dropped(input in answers(), seed in any::<u64>(), begun in any::<bool>(), separate in any::<bool>()) {
        let mut parts = Vec::new();
        let mut state = seed;
        let mut rest = input.as_str();
        while !rest.is_empty() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let length = 1 + (state >> 60) as usize;
            let cut = rest.char_indices().nth(length).map_or(rest.len(), |(at, _)| at);
            let (part, after) = rest.split_at(cut);
            parts.push(part);
            rest = after;
        }
        for name in AnswerSyntax::names() {
            let syntax = AnswerSyntax::named(name).unwrap();
            let options = ParseOptions {
                reasoning: if separate { ReasoningFormat::Auto } else { ReasoningFormat::None },
                tools: tools(),
                thinking_begun: begun.then(|| "<think>".to_owned()),
            };
            let (whole, sources) = streamed(syntax, &options, &[&input]);
            prop_assert_eq!(&sources, &input, "{}", name);
            let (split, sources) = streamed(syntax, &options, &parts);
            prop_assert_eq!(&sources, &input, "{} in parts", name);
            prop_assert_eq!(&split, &whole, "{} in parts {:?}", name, parts);
        }
    }
}
