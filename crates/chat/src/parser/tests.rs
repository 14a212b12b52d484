//! Answers in parts, as the parser takes them.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::syntax::SYNTAXES;

/// All marks of a family, but those that end a message, and those that do.
fn marks_of(syntax: &AnswerSyntax) -> (Vec<&'static str>, Vec<&'static str>) {
    let mut marks: Vec<&str> = syntax.opens.to_vec();
    marks.extend(
        syntax
            .thinks
            .iter()
            .flat_map(|&(open, close)| [open, close]),
    );
    marks.extend(syntax.wraps.iter().flat_map(|&(open, close)| [open, close]));
    marks.extend(syntax.calls.iter().flat_map(|call| [call.open, call.close]));
    let ends = |mark: &&str| syntax.closes.contains(mark);
    marks.retain(|mark| !mark.is_empty() && !ends(mark));
    (marks, syntax.closes.to_vec())
}

fn options(tools: bool, reasoning: ReasoningFormat) -> ParseOptions {
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {}}});
    ParseOptions {
        reasoning,
        tools: if tools { vec![tool] } else { Vec::new() },
        thinking_begun: None,
    }
}

/// The steps of a text that comes in parts of this number of characters.
fn steps(
    syntax: &'static AnswerSyntax,
    options: &ParseOptions,
    text: &str,
    n: usize,
) -> Vec<AnswerPart> {
    let mut parser = AnswerParser::new(syntax, options);
    let chars: Vec<char> = text.chars().collect();
    let parts = chars.chunks(n).map(|part| part.iter().collect::<String>());
    let mut steps: Vec<AnswerPart> = parts.flat_map(|part| parser.push(&part)).collect();
    steps.extend(parser.finish());
    steps
}

fn answer(syntax: &'static AnswerSyntax, options: &ParseOptions, text: &str, n: usize) -> Answer {
    let mut answer = Answer::default();
    steps(syntax, options, text, n)
        .iter()
        .for_each(|step| answer.add(step));
    answer
}

/// Marks within ordinary text, one or two together, are text: with tools and without, whole and by characters.
#[test]
fn marks_in_ordinary_text_are_text() {
    for syntax in SYNTAXES {
        let (marks, ends) = marks_of(syntax);
        let all: Vec<&str> = marks.iter().chain(&ends).copied().collect();
        let mut texts = Vec::new();
        for mark in &all {
            texts.push(format!("A mark {mark} is text."));
            texts.push(format!("A{mark}mark."));
            for other in &all {
                // Behind what ends a message, another one begins.
                if !(ends.contains(mark) && *other == syntax.next) {
                    texts.push(format!("Two: {mark}{other} and\n{other} {mark}, too."));
                }
            }
        }
        texts.retain(|text| {
            let next = syntax.next;
            next.is_empty()
                || !ends
                    .iter()
                    .any(|end| text.contains(&format!("{end} {next}")))
        });
        for text in &texts {
            for (tools, chars) in [(false, 9999), (true, 9999), (false, 1), (true, 1)] {
                let got = answer(syntax, &options(tools, ReasoningFormat::Auto), text, chars);
                let expected = Answer {
                    content: text.clone(),
                    ..Answer::default()
                };
                assert_eq!(got, expected, "{}, tools: {tools}", syntax.name);
            }
        }
    }
}

#[test]
fn reasoning_begins_where_a_message_begins() {
    let auto = options(false, ReasoningFormat::Auto);
    for syntax in SYNTAXES {
        for (open, close) in syntax.thinks {
            let said = format!("See {open} here, {close} there, {open} and no end.");
            let text = format!("\n{open}hm {open} hm{close}{said}");
            let got = answer(syntax, &auto, &text, 3);
            let expected = Answer {
                reasoning: format!("hm {open} hm"),
                content: said,
                calls: Vec::new(),
            };
            assert_eq!(got, expected, "{}", syntax.name);
        }
    }
    let gpt_oss = AnswerSyntax::named("gpt-oss").unwrap();
    let text = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>\
                <|start|>assistant<|channel|>final<|message|>The mark <|end|> ends.<|return|>";
    let got = answer(gpt_oss, &auto, text, 5);
    assert_eq!(
        (got.reasoning.as_str(), got.content.as_str()),
        ("ab", "The mark <|end|> ends.")
    );
}

#[test]
fn marks_of_calls_in_reasoning_are_reasoning() {
    let called = options(true, ReasoningFormat::Auto);
    for syntax in SYNTAXES.iter().filter(|it| !it.thinks.is_empty()) {
        let (open, close) = syntax.thinks[0];
        for mark in syntax
            .calls
            .iter()
            .map(|call| call.open)
            .filter(|it| !it.is_empty())
        {
            let text = format!("{open}I write {mark} first.{close}Yes.");
            let got = answer(syntax, &called, &text, 2);
            let expected = Answer {
                reasoning: format!("I write {mark} first."),
                content: "Yes.".to_owned(),
                calls: Vec::new(),
            };
            assert_eq!(got, expected, "{}", syntax.name);
        }
    }
}

#[test]
fn a_call_without_an_end_keeps_all_of_its_text() {
    let called = options(true, ReasoningFormat::Auto);
    for (name, text) in [
        ("qwen3-coder", "<function=f><parameter=a>all of this"),
        ("lfm2", "<|tool_call_start|>[f(a='all of this"),
        ("gemma-4", "<|tool_call>call:f{a:<|\"|>all of this"),
    ] {
        let syntax = AnswerSyntax::named(name).unwrap();
        let got = answer(syntax, &called, text, 4);
        assert_eq!(got.calls.len(), 1, "{name}");
        assert!(
            got.calls[0].arguments.ends_with("all of this"),
            "{name}: {got:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Checks that the parts are the text, byte for byte. Parts that add nothing are marks and white space;
    /// added text is the written text.
    #[test]
    fn every_byte_is_accounted_for(
        words in proptest::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..10),
        n in 1..6_usize, tools in any::<bool>(), separate in any::<bool>(),
    ) {
        let format = if separate { ReasoningFormat::Auto } else { ReasoningFormat::None };
        for syntax in SYNTAXES {
            let (mut marks, ends) = marks_of(syntax);
            marks.extend(ends);
            marks.sort_by_key(|mark| std::cmp::Reverse(mark.len()));
            let all: Vec<&str> = marks.iter().chain(&["word", " ", "\n", "é", "{", "f"]).copied().collect();
            let text: String = words.iter().map(|(index, space)| {
                format!("{}{}", index.get(&all), if *space { " " } else { "" })
            }).collect();
            let mut rest = text.as_str();
            for step in steps(syntax, &options(tools, format), &text, n) {
                rest = match rest.strip_prefix(&step.source) {
                    Some(rest) => rest,
                    None => return Err(TestCaseError::fail(format!("{}: {:?}", syntax.name, step))),
                };
                match &step.delta {
                    Some(Delta::Content(said) | Delta::Reasoning(said)) => {
                        prop_assert_eq!(said, &step.source, "{}: {:?}", syntax.name, text);
                    }
                    None if !tools => {
                        let mut silent = step.source.clone();
                        for mark in &marks {
                            silent = silent.replace(mark, "");
                        }
                        prop_assert_eq!(silent.trim(), "", "{}: {:?}", syntax.name, text);
                    }
                    _ => {}
                }
            }
            prop_assert_eq!(rest, "", "{}: {:?}", syntax.name, text);
        }
    }
}
