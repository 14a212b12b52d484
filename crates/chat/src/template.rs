//! A model's chat template, and what it makes of a conversation.

use jiff::civil::DateTime;
use minijinja::value::Serde;
use serde_json::{Map, Value, json};

use crate::control::ControlTokens;
use crate::engine::Engine;
use crate::error::ChatError;
use crate::message::Message;
use crate::prompt::Prompt;
use crate::syntax::AnswerSyntax;
use crate::tools;

/// What a template is given beside the messages.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// End with what begins an answer.
    pub add_generation_prompt: bool,
    /// The tools that there are, as OpenAI's API has them.
    pub tools: Vec<Value>,
    /// The documents that an answer is to be based on.
    pub documents: Vec<Value>,
    /// Other variables, such as `enable_thinking`.
    pub variables: Map<String, Value>,
    /// The local time; the machine's where there is none.
    pub now: Option<DateTime>,
}

/// A template, with the texts of the tokens that it writes.
pub struct ChatTemplate {
    engine: Engine,
    tokens: Map<String, Value>,
    syntax: &'static AnswerSyntax,
    ways: Ways,
}

/// What a template can do with messages, found out by trying.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ways {
    /// System prompts, as messages of their own.
    system: bool,
    /// Contents that are strings.
    text: bool,
    /// Contents that are arrays of parts.
    parts: bool,
    /// No content beside tool calls.
    null: bool,
    /// Arguments of tool calls as objects, not as JSON in a string.
    objects: bool,
    /// Tools.
    tools: bool,
}

/// Steps that a template may take, beside one for each byte of the conversation.
const STEPS: u64 = 4_000_000;
/// Steps that it may take for the small conversations that it is tried with.
const PROBE_STEPS: u64 = 100_000;
/// Words that no template has.
const PROBE: &str = "qzprobeqz";
const OTHER: &str = "qzotherqz";
const THIRD: &str = "qzthirdqz";

impl ChatTemplate {
    /// Reads the template `source` of `model`, a name for errors. `tokens` are the texts of special tokens
    /// by the names that templates have for them, such as `bos_token`.
    ///
    /// # Errors
    /// If it is not a template.
    pub fn new(source: &str, model: &str, tokens: Map<String, Value>) -> Result<Self, ChatError> {
        let mut template = ChatTemplate {
            engine: Engine::new(source, model)?,
            tokens,
            syntax: AnswerSyntax::detect(source),
            ways: Ways {
                system: true,
                text: true,
                parts: true,
                null: true,
                objects: true,
                tools: true,
            },
        };
        template.ways = template.ways();
        Ok(template)
    }

    /// How models that it is for write their answers, where there are no tools or it tells of them.
    pub fn syntax(&self) -> &'static AnswerSyntax {
        self.syntax
    }

    /// How models write their answers to prompts with these options.
    pub fn syntax_for(&self, options: &RenderOptions) -> &'static AnswerSyntax {
        let asked = AnswerSyntax::named(tools::SYNTAX);
        let asked = asked.filter(|_| self.writes_tools(options));
        asked.unwrap_or(self.syntax)
    }

    /// Are there tools that the template does not tell of?
    fn writes_tools(&self, options: &RenderOptions) -> bool {
        !self.ways.tools && !options.tools.is_empty()
    }

    /// Whether system prompts have a place of their own. Where not, the first one is put before what the
    /// user says first, with a line break between.
    pub fn takes_system(&self) -> bool {
        self.ways.system
    }

    /// Whether the model is told of the tools that there are. Where not, the system prompt tells of them, and calls
    /// and their results are part of contents.
    pub fn takes_tools(&self) -> bool {
        self.ways.tools
    }

    /// The prompt of a conversation. The text of the result is what `apply_chat_template` would give; where
    /// that could not be, as the template refuses system prompts or content of a kind, or does not look at tools,
    /// the messages are put into the form that it takes.
    ///
    /// `control` are the tokens that messages, tools, documents and variables must not get into the prompt.
    ///
    /// # Errors
    /// If the template fails, refuses the conversation or does not end.
    pub fn render(
        &self,
        messages: &[Message],
        options: &RenderOptions,
        control: &ControlTokens,
    ) -> Result<Prompt, ChatError> {
        let mut messages = messages.to_vec();
        if self.writes_tools(options) {
            messages = tools::write(messages, &options.tools);
        }
        if !self.ways.system {
            fold_system(&mut messages);
        }
        for message in &mut messages {
            message.name_reasoning();
            self.ways.adapt(message);
        }
        Prompt::guarded(&self.context(&messages, options), control, |context| {
            let size = serde_json::to_string(context).map_or(0, |text| text.len() as u64);
            let context = self.with_tokens(context.clone());
            self.engine
                .render(context, STEPS.saturating_add(size), options.now)
        })
    }

    /// The variables that come from outside.
    fn context(&self, messages: &[Message], options: &RenderOptions) -> Map<String, Value> {
        let list = |items: &[Value]| match items {
            [] => Value::Null,
            items => Value::from(items),
        };
        let mut context = Map::new();
        context.insert("messages".to_owned(), json!(messages));
        context.insert("tools".to_owned(), list(&options.tools));
        context.insert("documents".to_owned(), list(&options.documents));
        context.insert(
            "add_generation_prompt".to_owned(),
            options.add_generation_prompt.into(),
        );
        context.extend(options.variables.clone());
        context
    }

    fn with_tokens(&self, context: Map<String, Value>) -> minijinja::Value {
        let mut all = self.tokens.clone();
        all.extend(context);
        Serde(all).into()
    }

    /// The text for messages as they are; nothing if the template does not take them.
    fn attempt(&self, messages: &Value, tools: &[Value]) -> Option<String> {
        let options = RenderOptions {
            add_generation_prompt: true,
            tools: tools.to_vec(),
            now: Some(DateTime::constant(2024, 7, 26, 12, 0, 0, 0)),
            ..RenderOptions::default()
        };
        let messages = Message::list(messages).ok()?;
        let context = self.with_tokens(self.context(&messages, &options));
        self.engine.render(context, PROBE_STEPS, options.now).ok()
    }

    fn ways(&self) -> Ways {
        let says = |messages: Value, words: &str| {
            let text = self.attempt(&messages, &[]);
            text.filter(|text| text.contains(words))
        };
        let plain = |text: &String| !text.contains("'type'") && !text.contains("\"type\"");

        let user = json!({"role": "user", "content": PROBE});
        let in_parts = json!({"role": "user", "content": [{"type": "text", "text": PROBE}]});
        let system = json!({"role": "system", "content": OTHER});
        let text = says(json!([user]), PROBE);
        let parts = says(json!([in_parts]), PROBE).filter(plain);
        // A template that takes no message of the user alone is none of which we know better.
        let known = text.is_some() || parts.is_some();
        let as_text = text.is_some() || parts.is_none();
        let asked = if as_text { &user } else { &in_parts };
        let system_parts = json!({"role": "system", "content": [{"type": "text", "text": OTHER}]});
        let system = if as_text { &system } else { &system_parts };
        let (null, objects) = self.tool_calls(asked);
        let told = self.attempt(&json!([system, asked]), &[probe_tool(THIRD)]);
        let told = told.or_else(|| self.attempt(&json!([asked]), &[probe_tool(THIRD)]));
        Ways {
            tools: told.is_some_and(|text| text.contains(THIRD)),
            system: !known || says(json!([system, asked]), OTHER).is_some(),
            text: as_text,
            parts: parts.is_some() || !known,
            null,
            objects,
        }
    }

    /// Whether tool calls may have no content, and arguments that are objects.
    fn tool_calls(&self, asked: &Value) -> (bool, bool) {
        let tool = probe_tool("probe");
        let call = |content: Value, arguments: Value| {
            let calls = json!([{"id": "123456789", "type": "function",
                "function": {"name": "probe", "arguments": arguments}}]);
            let answer = json!({"role": "assistant", "content": content, "tool_calls": calls});
            let result = json!({"role": "tool", "name": "probe", "tool_call_id": "123456789",
                "content": "done"});
            self.attempt(&json!([asked, answer, result]), std::slice::from_ref(&tool))
        };
        let object = json!({PROBE: 1});
        let string = Value::from(object.to_string());
        let written = |text: &String| {
            text.contains(PROBE) && !text.contains(&format!("'{PROBE}'")) && !text.contains("\\\"")
        };
        let nulls = |arguments: &Value| {
            let with = call(Value::Null, arguments.clone());
            with.is_some_and(|text| !text.contains("None"))
        };
        let takes = |arguments: &Value| {
            let content = match nulls(arguments) {
                true => Value::Null,
                false => "".into(),
            };
            call(content, arguments.clone()).filter(written).is_some()
        };
        let objects = takes(&object) || !takes(&string);
        (nulls(if objects { &object } else { &string }), objects)
    }
}

impl Ways {
    /// Puts a message into a form that the template takes.
    fn adapt(self, message: &mut Message) {
        match message.get("content") {
            Some(Value::String(text)) if !self.text => {
                let parts = json!([{"type": "text", "text": text}]);
                message.set("content", parts);
            }
            Some(Value::Array(_)) if !self.parts => {
                let text = message.text();
                message.set("content", text);
            }
            Some(Value::Null) | None if !self.null => {
                message.set("content", "");
            }
            _ => {}
        }
        let Some(Value::Array(calls)) = message.get_mut("tool_calls") else {
            return;
        };
        for call in calls {
            let place = match call.get_mut("function") {
                Some(function) => function.get_mut("arguments"),
                None => call.get_mut("arguments"),
            };
            if let Some(arguments) = place {
                self.adapt_arguments(arguments);
            }
        }
    }

    fn adapt_arguments(self, arguments: &mut Value) {
        match arguments {
            Value::String(text) if self.objects => {
                if let Ok(object @ Value::Object(_)) = serde_json::from_str(text) {
                    *arguments = object;
                }
            }
            Value::Object(_) if !self.objects => *arguments = arguments.to_string().into(),
            _ => {}
        }
    }
}

/// A tool of this name.
fn probe_tool(name: &str) -> Value {
    json!({"type": "function", "function": {
        "name": name, "description": "Probes.",
        "parameters": {"type": "object", "properties": {}, "required": []},
    }})
}

/// Puts the first system prompt before what the user says first.
fn fold_system(messages: &mut Vec<Message>) {
    let system = messages.iter().position(|it| it.role() == "system");
    let Some(prompt) = system.map(|at| messages.remove(at).text()) else {
        return;
    };
    match messages.iter_mut().find(|it| it.role() == "user") {
        Some(first) => first.prepend(&(prompt + "\n")),
        None => messages.insert(0, Message::user(&prompt)),
    }
}
