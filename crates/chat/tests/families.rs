//! Answers as each family of models writes them, whole and in parts, and templates that show the family.

use rustorch_chat::{
    Answer, AnswerParser, AnswerSyntax, ChatTemplate, ControlTokens, Message, ParseOptions,
    RenderOptions, ToolCall,
};
use serde_json::{Map, Value, json};

/// The form of one family's answers.
struct Form {
    syntax: &'static str,
    /// The marks around reasoning; nothing if the family has none.
    thinks: [&'static str; 2],
    /// The marks around text.
    says: [&'static str; 2],
    /// The marks before, between and behind calls.
    calls: [&'static str; 3],
    /// A call.
    call: fn(&str, &Value) -> String,
    /// Text may stand before calls.
    mixes: bool,
}

const TAGS: [&str; 2] = ["<think>\n", "\n</think>\n\n"];
const NO_THOUGHT: [&str; 2] = ["", ""];

impl Form {
    const fn new(syntax: &'static str, call: fn(&str, &Value) -> String) -> Self {
        Form {
            syntax,
            thinks: TAGS,
            says: ["", ""],
            calls: ["", "\n", ""],
            call,
            mixes: true,
        }
    }

    const fn thinks(self, open: &'static str, close: &'static str) -> Self {
        let thinks = [open, close];
        Form { thinks, ..self }
    }

    const fn says(self, open: &'static str, close: &'static str) -> Self {
        let says = [open, close];
        Form { says, ..self }
    }

    const fn calls(self, open: &'static str, between: &'static str, close: &'static str) -> Self {
        let calls = [open, between, close];
        Form { calls, ..self }
    }

    const fn alone(self) -> Self {
        Form {
            mixes: false,
            ..self
        }
    }
}

fn object(name: &str, arguments: &Value) -> String {
    json!({"name": name, "arguments": arguments}).to_string()
}

/// Each argument as `write` has it, between `open` and `close`.
fn each(arguments: &Value, between: &str, write: impl Fn(&str, &Value) -> String) -> String {
    let arguments = arguments.as_object().unwrap().iter();
    let written: Vec<String> = arguments.map(|(key, value)| write(key, value)).collect();
    written.join(between)
}

/// A string as it is, and anything else as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or(value.to_string(), str::to_owned)
}

fn python(value: &Value) -> String {
    let all = |values: Vec<String>| values.join(", ");
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => {
            let text = text.replace('\\', "\\\\").replace('\'', "\\'");
            format!("'{}'", text.replace('\n', "\\n"))
        }
        Value::Array(items) => format!("[{}]", all(items.iter().map(python).collect())),
        Value::Object(_) => {
            let members = each(value, ", ", |key, value| {
                format!("'{key}': {}", python(value))
            });
            format!("{{{members}}}")
        }
    }
}

fn python_call(name: &str, arguments: &Value) -> String {
    let arguments = each(arguments, ", ", |key, value| {
        format!("{key}={}", python(value))
    });
    format!("{name}({arguments})")
}

/// Keys without quotes, and strings between these.
fn braced(value: &Value, quote: &str) -> String {
    match value {
        Value::String(text) => format!("{quote}{text}{quote}"),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|it| braced(it, quote)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(_) => {
            let members = each(value, ",", |key, value| {
                format!("{key}:{}", braced(value, quote))
            });
            format!("{{{members}}}")
        }
        other => other.to_string(),
    }
}

fn in_tags(name: &str, arguments: &Value) -> String {
    format!("<tool_call>\n{}\n</tool_call>", object(name, arguments))
}

fn function_tags(name: &str, arguments: &Value) -> String {
    let arguments = each(arguments, "", |key, value| {
        format!("<parameter={key}>\n{}\n</parameter>\n", plain(value))
    });
    format!("<function={name}>\n{arguments}</function>")
}

fn forms() -> Vec<Form> {
    vec![
        Form::new("hermes", in_tags),
        Form::new("hermes", |name, arguments| {
            format!("{}\n", object(name, arguments))
        })
        .calls("<tool_call>\n", "", "</tool_call>"),
        Form::new("ernie-4.5", in_tags).says("<response>\n", "\n</response>\n"),
        Form::new("qwen3-coder", |name, arguments| {
            format!("<tool_call>\n{}\n</tool_call>", function_tags(name, arguments))
        }),
        Form::new("seed-oss", function_tags)
            .thinks("<seed:think>", "</seed:think>")
            .calls("<seed:tool_call>\n", "\n", "\n</seed:tool_call>"),
        Form::new("glm", |name, arguments| {
            let arguments = each(arguments, "", |key, value| {
                format!("<arg_key>{key}</arg_key>\n<arg_value>{}</arg_value>\n", plain(value))
            });
            format!("<tool_call>{name}\n{arguments}</tool_call>")
        }),
        Form::new("glm-4", |name, arguments| format!("{name}\n{arguments}")).alone(),
        Form::new("hunyuan-3", |name, arguments| {
            let arguments = each(arguments, "", |key, value| {
                format!(
                    "<arg_key:opensource>{key}</arg_key:opensource>\n\
                     <arg_value:opensource>{}</arg_value:opensource>\n",
                    plain(value)
                )
            });
            format!("<tool_call:opensource>{name}<tool_sep:opensource>\n{arguments}</tool_call:opensource>")
        })
        .thinks("<think:opensource>", "</think:opensource>")
        .calls("<tool_calls:opensource>\n", "\n", "\n</tool_calls:opensource>"),
        Form::new("hunyuan", object)
            .says("<answer>\n", "\n</answer>")
            .calls("<tool_calls>[", ", ", "]</tool_calls>"),
        Form::new("minimax-m2", |name, arguments| {
            let arguments = each(arguments, "", |key, value| {
                format!("<parameter name=\"{key}\">{}</parameter>\n", plain(value))
            });
            format!("<invoke name=\"{name}\">\n{arguments}</invoke>")
        })
        .calls("<minimax:tool_call>\n", "\n", "\n</minimax:tool_call>"),
        Form::new("apriel", object).calls("<tool_calls>\n", "\n", "\n</tool_calls>"),
        Form::new("mistral", |name, arguments| {
            format!("[TOOL_CALLS]{name}[ARGS]{arguments}")
        })
        .thinks("[THINK]", "[/THINK]")
        .calls("", "", ""),
        Form::new("mistral", object).calls("[TOOL_CALLS][", ", ", "]"),
        Form::new("gpt-oss", |name, arguments| {
            format!(
                "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>"
            )
        })
        .thinks("<|channel|>analysis<|message|>", "<|end|><|start|>assistant")
        .says("<|channel|>final<|message|>", "<|return|>")
        .calls("", "<|start|>assistant", "")
        .alone(),
        Form::new("solar-open", |name, arguments| {
            format!(
                "<|tool_call:begin|>a1b2<|tool_call:name|>{name}<|tool_call:args|>{arguments}<|tool_call:end|>"
            )
        })
        .thinks("<|think|>", "<|end|><|begin|>assistant")
        .says("<|content|>", "<|end|>")
        .calls("<|tool_calls|>", "", "<|calls|>")
        .alone(),
        Form::new("muse-glimmer", |name, arguments| {
            let arguments = each(arguments, "", |key, value| {
                format!("<atem:parameter name=\"{key}\">{}</atem:parameter>\n", plain(value))
            });
            format!(
                " to={name}<|message|><atem:function_calls>\n<atem:invoke name=\"{name}\">\n\
                 {arguments}</atem:invoke>\n</atem:function_calls>"
            )
        })
        .thinks(" to=self<|message|>", "<|eom|><|start|>assistant")
        .says(" to=user<|message|>", "<|eot|>")
        .calls("", "<|eom|><|start|>assistant", "<|eot|>")
        .alone(),
        Form::new("plamo-3", |name, arguments| {
            format!(
                "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>{name}\
                 <|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json\
                 <|plamo:msg|>{arguments}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
            )
        })
        .thinks("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>")
        .calls(
            "<|plamo:begin_tool_requests:plamo|>",
            "",
            "<|plamo:end_tool_requests:plamo|>",
        ),
        Form::new("pangu", object)
            .thinks("[unused16]", "[unused17]")
            .calls("[unused11][", ", ", "][unused12]"),
        Form::new("phi-4-mini", object).calls("<|tool_call|>[", ", ", "]<|/tool_call|>"),
        Form::new("phi-4-mini", object).calls("functools[", ", ", "]"),
        Form::new("gemma-4", |name, arguments| {
            let arguments = braced(arguments, "<|\"|>");
            format!("<|tool_call>call:{name}{arguments}<tool_call|>")
        })
        .thinks("<|channel>thought\n", "<channel|>"),
        Form::new("function-gemma", |name, arguments| {
            let arguments = braced(arguments, "<escape>");
            format!("<start_function_call>call:{name}{arguments}<end_function_call>")
        }),
        Form::new("olmo-3", python_call).calls("<function_calls>\n", "\n", "\n</function_calls>"),
        Form::new("lfm2", python_call).calls("<|tool_call_start|>[", ", ", "]<|tool_call_end|>"),
        Form::new("internlm-2", |name, arguments| {
            let call = object(name, arguments);
            format!("<|action_start|><|plugin|>\n{call}<|action_end|>")
        }),
        Form::new("llama4", |name, arguments| {
            json!({"name": name, "parameters": arguments}).to_string()
        })
        .calls("", "; ", "")
        .alone(),
        Form::new("llama4", python_call)
            .calls("<|python_start|>[", ", ", "]<|python_end|>")
            .alone(),
        Form::new("llama3", python_call).calls("[", ", ", "]").alone(),
        Form::new("generic", object).calls("[", ", ", "]").alone(),
        Form::new("exaone-deep", object)
            .thinks("<thought>\n", "\n</thought>\n\n")
            .alone(),
        Form::new("command-r", |name, arguments| {
            json!({"tool_name": name, "parameters": arguments}).to_string()
        })
        .calls("Action: ```json\n[\n", ",\n", "\n]```"),
        Form::new("command-r7b", |name, arguments| {
            json!({"tool_call_id": "0", "tool_name": name, "parameters": arguments}).to_string()
        })
        .thinks("<|START_THINKING|>", "<|END_THINKING|>")
        .says("<|START_RESPONSE|>", "<|END_RESPONSE|>")
        .calls("<|START_ACTION|>[\n", ",\n", "\n]<|END_ACTION|>"),
        Form::new("granite-3", object).calls("<|tool_call|>[", ", ", "]"),
        Form::new("granite-20b", |name, arguments| {
            format!("<function_call> {}", object(name, arguments))
        }),
        Form::new("apertus", |name, arguments| json!({name: arguments}).to_string())
            .thinks("<|inner_prefix|>", "<|inner_suffix|>")
            .calls("<|tools_prefix|>[", ", ", "]<|tools_suffix|>"),
        Form::new("nemotron-v2", object).calls("<TOOLCALL>[", ", ", "]</TOOLCALL>"),
        Form::new("firefunction", object)
            .thinks(NO_THOUGHT[0], NO_THOUGHT[1])
            .calls(" functools[", ", ", "]"),
    ]
}

fn options() -> ParseOptions {
    let tool = |name: &str, properties: Value| {
        let parameters = json!({"type": "object", "properties": properties});
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    };
    ParseOptions {
        tools: vec![
            tool("f", json!({"a": {"type": "string"}})),
            tool("g", json!({})),
        ],
        ..ParseOptions::default()
    }
}

/// Arguments with all that a syntax may stumble over.
fn odd() -> Value {
    json!({
        "a": "it's \"q\" \\ {x} [y] (z) <b> & é 日本 🦀\nlines; ```",
        "n": -1.5e-7, "i": 42, "yes": true, "none": null,
        "list": [1, {"k": []}, "two"], "more": {"z": {"deep": "x"}}
    })
}

/// Reasoning, content, and calls with their arguments.
type Meaning = (String, String, Vec<(String, Value)>);

/// The meaning of a text that comes in parts.
fn read(syntax: &'static AnswerSyntax, options: &ParseOptions, parts: &[&str]) -> Meaning {
    let mut parser = AnswerParser::new(syntax, options);
    let (mut answer, mut sources) = (Answer::default(), String::new());
    let mut steps: Vec<_> = parts.iter().flat_map(|part| parser.push(part)).collect();
    steps.extend(parser.finish());
    for step in &steps {
        answer.add(step);
        sources += &step.source;
    }
    assert_eq!(sources, parts.concat(), "{}", syntax.name);
    let call = |call: ToolCall| {
        let arguments = serde_json::from_str(&call.arguments);
        (call.name, arguments.unwrap_or(call.arguments.into()))
    };
    let calls = answer.calls.into_iter().map(call).collect();
    (answer.reasoning, answer.content, calls)
}

/// Whether a text has this meaning: whole, in two parts at every place, and by characters. Otherwise what differs.
fn check(syntax: &'static AnswerSyntax, text: &str, expected: &Meaning) -> Result<(), String> {
    let options = options();
    let compare = |parts: &[&str]| match read(syntax, &options, parts) {
        got if got == *expected => Ok(()),
        got => Err(format!(
            "{}: {parts:?}:\n  {expected:?}, but\n  {got:?}\n",
            syntax.name
        )),
    };
    compare(&[text])?;
    for (at, _) in text.char_indices() {
        let (start, end) = text.split_at(at);
        compare(&[start, end])?;
        // A text that ends anywhere keeps all of its bytes.
        read(syntax, &options, &[start]);
    }
    compare(&text.split_inclusive(|_| true).collect::<Vec<_>>())
}

#[test]
fn every_family_is_read_whole_and_in_parts() {
    const THOUGHT: &str = "First, a {brace} and [a list].\nThen é.";
    const SAID: &str = "It is 21° in \"Oslo\".\n\n- [x] done <b>";
    let mut wrong = String::new();
    for form in forms() {
        let syntax = AnswerSyntax::named(form.syntax).unwrap();
        let mut check = |text: &str, expected: &Meaning| {
            wrong += &check(syntax, text, expected).err().unwrap_or_default();
        };
        let [thinks, thought] = form.thinks;
        let [says, said] = form.says;
        let reasons = !thinks.is_empty();
        let thinking = match reasons {
            true => format!("{thinks}{THOUGHT}{thought}"),
            false => String::new(),
        };
        let thought = if reasons { THOUGHT } else { "" };
        let calls = |calls: &[(&str, Value)]| {
            let [open, between, close] = form.calls;
            let calls: Vec<String> = calls
                .iter()
                .map(|(name, it)| (form.call)(name, it))
                .collect();
            format!("{open}{}{close}", calls.join(between))
        };
        let meaning = |thought: &str, said: &str, calls: &[(&str, Value)]| {
            let calls = calls
                .iter()
                .map(|(name, it)| ((*name).to_owned(), it.clone()));
            (
                thought.to_owned(),
                said.to_owned(),
                calls.collect::<Vec<_>>(),
            )
        };
        let text = format!("{says}{SAID}{said}");
        check(&text, &meaning("", SAID, &[]));
        check(&format!("{thinking}{text}"), &meaning(thought, SAID, &[]));
        // In the middle of an answer the markers of reasoning are text.
        if reasons && form.says == ["", ""] {
            let said = format!(
                "It begins with {} and ends with {}.",
                form.thinks[0], form.thinks[1]
            );
            check(&said, &meaning("", &said, &[]));
        }

        let one = [("f", odd())];
        let text = format!("{thinking}{}", calls(&one));
        check(&text, &meaning(thought, "", &one));

        let simple = json!({"a": "x"});
        let several = match form.syntax {
            "glm-4" => vec![("f", simple.clone())],
            _ => vec![
                ("f", simple.clone()),
                ("g", json!({})),
                ("f", simple.clone()),
            ],
        };
        check(&calls(&several), &meaning("", "", &several));
        if form.mixes {
            let text = format!("{thinking}Let me see.\n\n{}", calls(&several));
            check(&text, &meaning(thought, "Let me see.", &several));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn templates_show_their_family() {
    let cases = [
        ("{{ '<|tool_call>call:' }}", "gemma-4"),
        ("<start_function_declaration>declaration:", "function-gemma"),
        ("<start_of_turn>model", "generic"),
        ("<|start|>assistant<|channel|>final<|message|>", "gpt-oss"),
        (
            "<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>",
            "gpt-oss",
        ),
        (
            "<|start|>assistant to=self<|message|><atem:function_calls>",
            "muse-glimmer",
        ),
        ("[INST]{{ m.content }}[/INST][TOOL_CALLS]", "mistral"),
        ("[SYSTEM_PROMPT]{{ m.content }}[/SYSTEM_PROMPT]", "mistral"),
        (
            "'<|tool|>' + m['tools'] + '<|/tool|>' + '<|end|>'",
            "phi-4-mini",
        ),
        ("<|user|>{{ m.content }}<|end|>", "generic"),
        ("<|header_start|>{{ m.role }}<|header_end|>", "llama4"),
        ("<|start_header_id|>{{ m.role }}<|end_header_id|>", "llama3"),
        ("[gMASK]<sop><|observation|>", "glm-4"),
        ("[gMASK]<sop><|observation|><tool_call><arg_key>", "glm"),
        (
            "<|start_of_role|>assistant<|end_of_role|><|tool_call|>",
            "granite-3",
        ),
        (
            "<|start_of_role|>assistant<|end_of_role|><tool_call>",
            "hermes",
        ),
        ("<|im_start|><tools></tools><tool_call>", "hermes"),
        (
            "<|im_start|><tool_call><function=f><parameter=a>",
            "qwen3-coder",
        ),
        ("<｜hy_Assistant｜>", "hunyuan"),
        ("<|startoftext|><|extra_4|><|extra_0|>", "hunyuan"),
        ("'<tool_sep{}>'.format(':opensource')", "hunyuan-3"),
        ("<|im_start|><tool_call></tool_call><response>", "ernie-4.5"),
        ("[|assistant|]<tool_call>", "hermes"),
        ("[|assistant|]<thought>", "exaone-deep"),
        ("<|START_THINKING|><|START_ACTION|>", "command-r7b"),
        ("directly-answer 'Action:' tool_name", "command-r"),
        ("<minimax:tool_call><invoke name=", "minimax-m2"),
        ("<seed:bos>{{ m.role }}", "seed-oss"),
        ("<|tools_prefix|>", "apertus"),
        ("<function_calls></function_calls>", "olmo-3"),
        ("<TOOLCALL>", "nemotron-v2"),
        ("<|begin|>assistant<|content|>", "solar-open"),
        ("<|plamo:begin_tool_requests:plamo|>", "plamo-3"),
        ("[unused9]系统：[unused10]", "pangu"),
        ("<|action_start|><|plugin|>", "internlm-2"),
        ("List of tools: [", "lfm2"),
        ("<|tool_list_start|>", "lfm2"),
    ];
    for (template, family) in cases {
        assert_eq!(AnswerSyntax::detect(template).name, family, "{template}");
    }
}

#[test]
fn text_beside_tools_comes_at_once() {
    for name in ["glm-4", "functionary-v3.2", "generic", "llama4"] {
        let mut parser = AnswerParser::new(AnswerSyntax::named(name).unwrap(), &options());
        let steps = parser.push("Hello there");
        let said: usize = steps.iter().map(|step| step.source.len()).sum();
        assert!(said >= "Hello".len(), "{name}: {steps:?}");
    }
}

fn rendered(source: &str, messages: &Value, tools: &[Value]) -> String {
    let template = ChatTemplate::new(source, "test", Map::new()).unwrap();
    let options = RenderOptions {
        tools: tools.to_vec(),
        ..RenderOptions::default()
    };
    let messages = Message::list(messages).unwrap();
    let prompt = template.render(&messages, &options, &ControlTokens::new([]));
    prompt.unwrap().text().to_owned()
}

#[test]
fn tools_go_where_a_template_looks_for_them() {
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": {}}});
    let user = json!({"role": "user", "content": "Hi"});
    let plain = "{% for m in messages %}{{ '<|' + m.role + '|>' + (m.content or '') }}\
                 {% if m.role == 'system' and m.tools %}{{ '<|tool|>' + m.tools + '<|/tool|>' }}{% endif %}\
                 {{ '<|end|>' }}{% endfor %}";
    let listed = r#"<|tool|>[{"name":"f","parameters":{}}]<|/tool|>"#;
    assert_eq!(
        rendered(plain, &json!([user]), std::slice::from_ref(&tool)),
        format!("<|system|>{listed}<|end|><|user|>Hi<|end|>")
    );
    assert_eq!(rendered(plain, &json!([user]), &[]), "<|user|>Hi<|end|>");
    // The template writes no calls, so they are text in the form of the family.
    let call = json!({"role": "assistant", "content": "I look.", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": [1]}"}}]});
    let system = json!({"role": "system", "content": "Be brief."});
    assert_eq!(
        rendered(
            plain,
            &json!([system, user, call]),
            std::slice::from_ref(&tool)
        ),
        format!(
            "<|system|>Be brief.{listed}<|end|><|user|>Hi<|end|><|assistant|>I look.\n\
             <|tool_call|>[{{\"name\":\"f\",\"arguments\":{{\"a\":[1]}}}}]<|/tool_call|><|end|>"
        )
    );

    let variable = "{% for t in xml_tools or [] %}({{ t.function.name }}){% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}";
    assert_eq!(
        rendered(variable, &json!([user]), std::slice::from_ref(&tool)),
        "(f)Hi"
    );
}

#[test]
fn numbers_are_those_of_python() {
    let source =
        "{% set a = messages[0].x %}{{ a.n }} {{ a.l }} {{ a.m|string }} {{ a }} {{ a.s }}";
    let message = json!([{"role": "user", "content": "", "x":
        {"n": 1e-7, "l": [1e20, "it's", true], "m": {"k": -2.5e-5, "o": null}, "s": [1.5, 0.0001, 3]}}]);
    assert_eq!(
        rendered(source, &message, &[]),
        "1e-07 [1e+20, \"it's\", True] {'k': -2.5e-05, 'o': None} \
         {'n': 1e-07, 'l': [1e+20, \"it's\", True], 'm': {'k': -2.5e-05, 'o': None}, 's': [1.5, 0.0001, 3]} \
         [1.5, 0.0001, 3]"
    );
}
