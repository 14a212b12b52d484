//! Templates beside llama.cpp's tables and Hugging Face's `apply_chat_template`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use rustorch_chat::{
    ChatError, ChatTemplate, ControlTokens, DateTime, Message, Prompt, RenderOptions,
    detect_family, family, family_names,
};
use serde_json::{Map, Value, json};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    serde_json::from_str(&text).unwrap()
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap()
}

fn tokens(bos: &str, eos: &str) -> Map<String, Value> {
    json!({"bos_token": bos, "eos_token": eos})
        .as_object()
        .unwrap()
        .clone()
}

fn no_control() -> ControlTokens {
    ControlTokens::new([])
}

fn render(
    template: &ChatTemplate,
    messages: &[Message],
    options: &RenderOptions,
) -> Result<String, ChatError> {
    let prompt = template.render(messages, options, &no_control())?;
    Ok(prompt.text().to_owned())
}

/// Cases that do not pass are those that a file names, with the reason.
fn assert_known(differences: &str, found: &BTreeMap<String, String>) {
    let known = read(&data(differences));
    let known: Vec<_> = known.as_object().unwrap().keys().collect();
    let mut report = String::new();
    for (case, what) in found {
        if !known.contains(&case) {
            report += &format!("{case}: {what}\n");
        }
    }
    for case in known {
        if !found.contains_key(case) {
            report += &format!("{case}: passes now\n");
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn jinja_is_that_of_llama_cpp_s_table() {
    let cases = read(&data("jinja.json"));
    let mut wrong = BTreeMap::new();
    for case in cases.as_array().unwrap() {
        let options = RenderOptions {
            variables: case["vars"].as_object().cloned().unwrap_or_default(),
            ..RenderOptions::default()
        };
        let got = ChatTemplate::new(text(case, "template"), "test", Map::new())
            .and_then(|template| render(&template, &[], &options));
        let expected = text(case, "expected");
        if got.as_deref().ok() != Some(expected) {
            let name = format!("{}: {}", text(case, "group"), text(case, "name"));
            wrong.insert(
                name,
                format!("{expected:?}, but {got:?} of {}", case["template"]),
            );
        }
    }
    assert_eq!(cases.as_array().unwrap().len(), 306);
    assert_known("jinja-differences.json", &wrong);
}

#[test]
fn templates_and_families_write_what_llama_cpp_s_table_says() {
    let table = read(&data("chat-template.json"));
    let options = RenderOptions {
        add_generation_prompt: true,
        ..RenderOptions::default()
    };
    let mut wrong = BTreeMap::new();
    let mut families = Vec::new();
    for case in table["cases"].as_array().unwrap() {
        let mut messages = Message::list(&table["conversation"]).unwrap();
        messages.extend(Message::list(&case["extra"]).unwrap());
        let name = text(case, "name");
        let source = text(case, "template");
        let mut check = |kind: &str, got: Result<String, ChatError>| {
            let expected = text(case, kind);
            if got.as_deref().ok() != Some(expected) {
                wrong.insert(
                    format!("{name}: {kind}"),
                    format!("{expected:?}, but {got:?}"),
                );
            }
        };
        let tokens = tokens(text(case, "bos"), text(case, "eos"));
        if case["supported_with_jinja"] == true {
            let template = ChatTemplate::new(source, name, tokens);
            check(
                "jinja",
                template.and_then(|it| render(&it, &messages, &options)),
            );
        }
        let found = detect_family(source).unwrap_or_else(|| panic!("{name} is of no family"));
        families.push(found);
        check(
            "builtin",
            family(found).and_then(|it| render(&it, &messages, &options)),
        );
    }
    families.sort_unstable();
    families.dedup();
    assert!(families.len() >= 25, "{families:?}");
    assert_known("chat-template-differences.json", &wrong);
}

#[test]
fn every_family_has_a_template_that_says_everything() {
    let messages = ["system", "user", "assistant", "user"]
        .into_iter()
        .enumerate()
        .map(|(index, role)| Message::new(role, &format!("<said {index}>")));
    let messages: Vec<_> = messages.collect();
    for name in family_names() {
        let written = render(&family(name).unwrap(), &messages, &RenderOptions::default()).unwrap();
        // YandexGPT's has no place for a system prompt: it is put before what the user says.
        for index in 0..4 {
            assert!(
                written.contains(&format!("<said {index}>")),
                "{name}: {written:?}"
            );
        }
    }
    assert_eq!(family_names().count(), 54);
    let Err(error) = family("chatmi") else {
        panic!("there is no such family");
    };
    assert!(error.to_string().contains("chatml, llama2"), "{error}");
}

/// Templates of models in a folder, and what Hugging Face makes of them.
fn compare(folder: &Path) {
    let conversations = read(&data("conversations.json"));
    let goldens = read(&folder.join("goldens.json"));
    let mut wrong = BTreeMap::new();
    let mut compared = 0;
    for (name, prompts) in goldens.as_object().unwrap() {
        let source = fs::read_to_string(folder.join(format!("{name}.jinja"))).unwrap();
        let template = ChatTemplate::new(&source, name, tokens("<s>", "</s>")).unwrap();
        for (conversation, golden) in prompts.as_object().unwrap() {
            let got = golden_case(&template, &conversations[conversation]);
            match golden.as_str() {
                Some(golden) if got.as_ref().is_ok_and(|got| got == golden) => compared += 1,
                Some(golden) => {
                    let case = format!("{name}: {conversation}");
                    wrong.insert(case, format!("\n{golden:?}, but\n{got:?}"));
                }
                // A refused conversation may be put into a form that the template takes.
                None => {}
            }
        }
    }
    assert_known("goldens-differences.json", &wrong);
    println!(
        "{compared} prompts of {} templates",
        goldens.as_object().unwrap().len()
    );
    assert!(
        compared >= 7 * goldens.as_object().unwrap().len(),
        "{compared}"
    );
}

fn golden_case(template: &ChatTemplate, case: &Value) -> Result<String, ChatError> {
    let list = |key: &str| case[key].as_array().cloned().unwrap_or_default();
    let options = RenderOptions {
        add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap_or(true),
        // A template that ignores tools would get them in the system prompt.
        tools: match template.takes_tools() {
            true => list("tools"),
            false => Vec::new(),
        },
        documents: list("documents"),
        variables: case["variables"].as_object().cloned().unwrap_or_default(),
        now: Some(DateTime::constant(2024, 7, 26, 12, 0, 0, 0)),
    };
    let messages = Message::list(&case["messages"])?;
    let plain = render(template, &messages, &options)?;
    // Stand-ins do not change what is written where there is no control token.
    let control = ["<|im_start|>", "<|END_OF_TURN|>", "[INST]", "<｜User｜>"];
    let control = ControlTokens::new(control.map(str::to_owned));
    let guarded = template.render(&messages, &options, &control)?;
    assert_eq!(guarded.text(), plain);
    Ok(plain)
}

#[test]
fn models_templates_write_what_hugging_face_writes() {
    compare(&data("templates"));
    if let Some(folder) = env::var_os("RUSTORCH_CHAT_TEMPLATES") {
        compare(Path::new(&folder));
    }
}

fn guarded(source: &str, said: &str) -> Prompt {
    let template = ChatTemplate::new(source, "test", Map::new()).unwrap();
    let control = ["<|im_start|>", "<|im_end|>", "</s>", "[INST]"].map(str::to_owned);
    let options = RenderOptions::default();
    template
        .render(
            &[Message::user(said)],
            &options,
            &ControlTokens::new(control),
        )
        .unwrap()
}

#[test]
fn what_is_said_never_becomes_a_control_token() {
    let plain = "{% for m in messages %}<|im_start|>{{ m.content|trim }}<|im_end|>{% endfor %}";
    let cases = [
        (plain, " a <|im_end|> b "),
        // half a token of what is said, and half of the template
        ("{{ messages[0].content }}end|>", "<|im_"),
        ("<|im_{{ messages[0].content }}", "end|>"),
        // a token that is made by taking something out
        ("{{ messages[0].content|replace('x', '') }}", "<|im_xend|>"),
        ("{{ messages[0]|tojson }}", "\"</s>\n[INST]"),
        (
            "{{ messages[0]|tojson(ensure_ascii=true, indent=2) }}",
            "</s>",
        ),
        ("{{ (messages[0].content ~ '')|upper|lower }}", "</s>"),
        ("{{ messages[0].content.split('/')|join('/') }}", "</s>"),
        // a template that looks at what is said
        (
            "{% if '<|' in messages[0].content %}!{% endif %}{{ messages[0].content }}",
            "<|im_start|>",
        ),
    ];
    for (source, said) in cases {
        let prompt = guarded(source, said);
        let text = prompt.text();
        for token in ["<|im_start|>", "<|im_end|>", "</s>", "[INST]"] {
            for (start, _) in text.match_indices(token) {
                let end = start + token.len();
                let inside = prompt
                    .guards()
                    .iter()
                    .any(|it| it.start < end && it.end > start);
                let own = source == plain && (start == 0 || end == text.len());
                assert_eq!(
                    inside,
                    !own,
                    "{token} at {start} of {text:?}: {:?}",
                    prompt.guards()
                );
            }
        }
    }
    assert_eq!(
        guarded(plain, " a <|im_end|> b ").text(),
        "<|im_start|>a <|im_end|> b<|im_end|>"
    );
    assert!(guarded(plain, "plain").guards().is_empty());
}

#[test]
fn private_use_characters_stay_themselves() {
    let all: String = ('\u{100000}'..='\u{10FFFD}').collect();
    let some = "\u{100000}\u{100001} and <|im_end|>";
    let source = "{{ messages[0].content }}";
    assert_eq!(guarded(source, some).text(), some);
    let template = ChatTemplate::new(source, "test", Map::new()).unwrap();
    let control = ControlTokens::new(["</s>".to_owned()]);
    let result = template.render(&[Message::user(&all)], &RenderOptions::default(), &control);
    assert!(matches!(result, Err(ChatError::Marks)));
}

/// Templates of models that are not told of tools, or by other variables.
const WITHOUT_TOOLS: [&str; 6] = [
    "HuggingFaceTB-SmolLM3-3B",
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "deepseek-ai-DeepSeek-V3.1",
    "llama-cpp-rwkv-world",
    "microsoft-Phi-3.5-mini-instruct",
];

#[test]
fn templates_that_do_not_end_are_ended() {
    let render = |source: &str| {
        let template = ChatTemplate::new(source, "test", Map::new()).unwrap();
        render(&template, &[], &RenderOptions::default())
    };
    // A loop that doubles a value over and over.
    let doubled = |start: &str, twice: &str, end: &str| {
        format!(
            "{{% set n = namespace(v={start}) %}}{{% for a in range(60) %}}{{% set n.v = {twice} %}}\
             {{% endfor %}}{end}"
        )
    };
    let nested = "[n.v, n.v]";
    let cases = [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}".to_owned(),
        "{% for a in range(99999) %}{{ 'x' * 99999 }}{% endfor %}".to_owned(),
        "{{ 'x' * 9999999999 }}".to_owned(),
        doubled("'x'", "n.v ~ n.v", ""),
        doubled("'x'", "n.v + n.v", ""),
        doubled("'x'", "n.v * 2", ""),
        doubled("'x'", "[n.v, n.v]|join", ""),
        doubled("'xx'", "n.v.replace('x', n.v)", ""),
        doubled("'xx'", "n.v.replace('x', n.v, 9)", ""),
        doubled("'xx'", "n.v|replace('x', n.v)", ""),
        doubled("'xx'", "n.v.join(n.v)", ""),
        doubled("'xx'", "n.v|join(n.v)", ""),
        doubled("[1]", "n.v + n.v", ""),
        doubled("[1]", "[1] + n.v + n.v|list", ""),
        doubled("[1]", "(n.v) * 99 + (n.v) * 99", ""),
        doubled("[1]", "n.v|map('string') + n.v|select", ""),
        doubled("[1]", "n.v * 2 + n.v[::-1]", ""),
        doubled("[1]", nested, "{{ n.v }}"),
        doubled("[1]", nested, "{{ n.v|tojson }}"),
        doubled("[1]", nested, "{{ n.v|tojson(indent=4) }}"),
        doubled("{'a': 1}", "{'a': n.v, 'b': n.v}", "{{ n.v|tojson }}"),
        doubled("[1]", nested, "{{ n.v ~ '' }}"),
        doubled("[1]", nested, "{{ n.v|upper }}"),
        doubled("[1]", nested, "{{ n.v|join(',') }}"),
        doubled("[1]", nested, "{{ ','.join(n.v) }}"),
        doubled("[1]", nested, "{{ n.v == n.v[::-1] }}"),
        doubled("[1]", "(n.v, n.v)", "{{ n.v|upper }}"),
        doubled("[1]", "dict(a=n.v, b=n.v)", "{{ n.v|upper }}"),
        doubled("[1]", "[0, 0]|map('replace', '0', n.v)|list", ""),
        doubled("[1]", "[n.x, n.x]|map('default', n.v)|list", "{{ n.v|upper }}"),
        "{% set n = namespace(v=[]) %}{% for a in range(99999) %}{% set n.v = [n.v] %}{% endfor %}".to_owned(),
        "{% set n = namespace(v=[1]) %}{% for a in range(999) %}{% set n.v = n.v|batch(1)|list %}{% endfor %}"
            .to_owned(),
        format!("{{% set l = [] %}}{}{{{{ l|upper }}}}", "{% set l = [l] %}".repeat(999)),
        "{{ '{:999999999999}'.format(1) }}".to_owned(),
        "{{ '%999999999999d'|format(1) }}".to_owned(),
        "{{ 'a\nb'|indent(999999999999) }}".to_owned(),
    ];
    for source in &cases {
        let result = render(source);
        assert!(
            matches!(result, Err(ChatError::Limit { .. })),
            "{source}: {:?}",
            result.map(|it| it.len())
        );
    }
    for refused in [
        "{% macro f() %}{{ f() }}{% endmacro %}\n{{ f() }}",
        "{{ range(1000000000)|list|length }}",
        "{{ ['a', 'b']|sum(start='') }}",
        "{{ [1]|chain([2]) }}",
        "{{ [1]|zip([2]) }}",
        "{% set n = namespace() %}{% set n.n = n %}{{ n }}",
        "{% set n = namespace() %}{% set n.n = [n] %}{{ n }}",
        "{% set n = namespace() %}{% set m = namespace(n=n) %}{{ m }}",
    ] {
        assert!(render(refused).is_err(), "{refused}");
    }
    // Many small sums are none too large.
    let long = "{% set n = namespace(v=[]) %}{% for a in range(9999) %}{% set n.v = n.v + [a] %}{% endfor %}\
                {{ n.v|length }} {{ [1, 2]|sum(start=3) }}";
    assert_eq!(render(long).unwrap(), "9999 6");
}

#[test]
fn errors_say_model_and_line() {
    let message = |source: &str| {
        let options = RenderOptions::default();
        ChatTemplate::new(source, "tiny", Map::new())
            .and_then(|it| render(&it, &[], &options))
            .unwrap_err()
            .to_string()
    };
    let syntax = message("a\n{% if %}");
    assert!(
        syntax.starts_with("the chat template of tiny has an error in line 2: "),
        "{syntax}"
    );
    let fails = message("a\n\n{{ 1 + 'a' }}");
    assert!(
        fails.starts_with("the chat template of tiny fails in line 3: "),
        "{fails}"
    );
    let refused = message("{% if true %}\n{{ raise_exception('No!') }}{% endif %}");
    assert_eq!(
        refused,
        "the chat template of tiny refuses the conversation in line 2: No!"
    );
}

#[test]
fn messages_are_put_into_the_form_that_a_template_takes() {
    let options = RenderOptions::default();
    let of = |source: &str| ChatTemplate::new(source, "test", Map::new()).unwrap();

    let refuses = of(
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}[{{ m.content }}]{% endfor %}",
    );
    assert!(!refuses.takes_system());
    let messages = [Message::system("Be brief."), Message::user("Hi")];
    assert_eq!(
        render(&refuses, &messages, &options).unwrap(),
        "[Be brief.\nHi]"
    );

    let parts = of(
        "{% for m in messages %}{% for part in m.content %}({{ part.text }}){% endfor %}{% endfor %}",
    );
    assert!(parts.takes_system());
    assert_eq!(
        render(&parts, &messages, &options).unwrap(),
        "(Be brief.)(Hi)"
    );

    let strings = of("{% for m in messages %}{{ m.content + ';' }}{% endfor %}");
    let several = json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]);
    assert_eq!(
        render(&strings, &Message::list(&several).unwrap(), &options).unwrap(),
        "a\nb;"
    );

    let call = json!([{"role": "user", "content": "go"}, {"role": "assistant", "tool_calls": [
        {"type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]}]);
    let call = Message::list(&call).unwrap();
    let objects = of(
        "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls %}{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}",
    );
    assert_eq!(render(&objects, &call, &options).unwrap(), "go{\"a\": 1}");
    let texts = of(
        "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls %}{{ '<' + c.function.arguments + '>' }}{% endfor %}{% endfor %}",
    );
    assert_eq!(render(&texts, &call, &options).unwrap(), "go<{\"a\": 1}>");
}

#[test]
fn templates_that_do_not_tell_of_tools_are_known() {
    let folder = data("templates");
    let files = fs::read_dir(&folder).unwrap().map(|it| it.unwrap().path());
    let templates = files.filter(|it| it.extension().is_some_and(|it| it == "jinja"));
    let mut without = Vec::new();
    for path in templates {
        let source = fs::read_to_string(&path).unwrap();
        let template = ChatTemplate::new(&source, "test", tokens("<s>", "</s>")).unwrap();
        if !template.takes_tools() {
            without.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
        }
    }
    without.sort();
    assert_eq!(without, WITHOUT_TOOLS);
    assert!(!family("chatml").unwrap().takes_tools());
}

#[test]
fn tools_are_told_of_where_a_template_has_no_place_for_them() {
    let template = family("chatml").unwrap();
    let call = |city: &str| {
        json!({"id": "1", "type": "function",
            "function": {"name": "f", "arguments": format!("{{\"city\":\"{city}\"}}")}})
    };
    let messages = json!([
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [call("Rome"), call("Oslo")]},
        {"role": "tool", "content": "here"},
        {"role": "tool", "content": "there"},
    ]);
    let options = RenderOptions {
        add_generation_prompt: true,
        tools: vec![json!({"type": "function", "function": {"name": "f"}})],
        ..RenderOptions::default()
    };
    let prompt = render(&template, &Message::list(&messages).unwrap(), &options).unwrap();
    let (told, rest) = prompt.split_once("<|im_end|>\n").unwrap();
    assert!(told.starts_with("<|im_start|>system\n# Tools\n"), "{told}");
    assert!(
        told.contains("\n{\"type\":\"function\",\"function\":{\"name\":\"f\"}}\n</tools>"),
        "{told}"
    );
    assert_eq!(
        rest,
        "<|im_start|>user\nWhere?<|im_end|>\n<|im_start|>assistant\nI look.\n\
         <tool_call>\n{\"name\":\"f\",\"arguments\":{\"city\":\"Rome\"}}\n</tool_call>\n\
         <tool_call>\n{\"name\":\"f\",\"arguments\":{\"city\":\"Oslo\"}}\n</tool_call><|im_end|>\n\
         <|im_start|>user\n<tool_response>\nhere\n</tool_response>\n\
         <tool_response>\nthere\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(template.syntax_for(&options).name, "hermes");
    let none = RenderOptions::default();
    assert_eq!(template.syntax_for(&none), template.syntax());
}

#[test]
fn generation_tags_keep_white_space() {
    let source = "a\n  {% generation %}\nb\n{%- endgeneration -%}\n c{% for x in [1,2,3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}";
    let template = ChatTemplate::new(source, "test", Map::new()).unwrap();
    assert_eq!(
        render(&template, &[], &RenderOptions::default()).unwrap(),
        "a\nbc13"
    );
}
