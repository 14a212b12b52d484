//! A model's chat template, and its output for a conversation.

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

/// Values for a template besides the messages.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// Ends the prompt with the beginning of an answer.
    pub add_generation_prompt: bool,
    /// The available tools, in the form of OpenAI's API.
    pub tools: Vec<Value>,
    /// Documents for the answer.
    pub documents: Vec<Value>,
    /// Further variables, such as `enable_thinking`.
    pub variables: Map<String, Value>,
    /// The local time; by default the machine's.
    pub now: Option<DateTime>,
}

/// A template, with the texts of special tokens.
pub struct ChatTemplate {
    engine: Engine,
    tokens: Map<String, Value>,
    syntax: &'static AnswerSyntax,
    ways: Ways,
}

/// Features of a template, found by trial.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ways {
    /// System prompts, as their own messages.
    system: bool,
    /// Contents that are strings.
    text: bool,
    /// Contents that are arrays of parts.
    parts: bool,
    /// Is content beside tool calls null?
    null: bool,
    /// Arguments of tool calls as objects, not as JSON in a string.
    objects: bool,
    /// The place of tools, if the template lists them.
    tools: Option<ToolsPlace>,
    /// Tool calls of earlier answers.
    calls: bool,
}

/// A place where templates look for tools.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ToolsPlace {
    /// A variable of this name.
    Variable(&'static str),
    /// The system prompt, with JSON in its `tools`.
    System,
}

impl ToolsPlace {
    const ALL: [ToolsPlace; 3] = [
        ToolsPlace::Variable("tools"),
        ToolsPlace::Variable("xml_tools"),
        ToolsPlace::System,
    ];
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
    /// Reads the template `source`; errors name the model as `model`. `tokens` are the texts of special tokens by the
    /// names that templates have for them, such as `bos_token`.
    ///
    /// # Errors
    /// Fails if the text is not a template.
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
                tools: Some(ToolsPlace::ALL[0]),
                calls: true,
            },
        };
        template.ways = template.ways();
        Ok(template)
    }

    /// Syntax of the model's answers, if there are no tools or if the template lists them.
    pub fn syntax(&self) -> &'static AnswerSyntax {
        self.syntax
    }

    /// Syntax of answers to prompts with these options.
    pub fn syntax_for(&self, options: &RenderOptions) -> &'static AnswerSyntax {
        let asked = AnswerSyntax::named(tools::SYNTAX);
        let asked = asked.filter(|_| self.writes_tools(options));
        asked.unwrap_or(self.syntax)
    }

    /// Returns whether there are tools that the template does not list.
    fn writes_tools(&self, options: &RenderOptions) -> bool {
        self.ways.tools.is_none() && !options.tools.is_empty()
    }

    /// Returns whether the template supports system prompts. Otherwise the system prompt goes before the first
    /// user message, with a line break between.
    pub fn takes_system(&self) -> bool {
        self.ways.system
    }

    /// Returns whether the template lists the tools.
    pub fn takes_tools(&self) -> bool {
        self.ways.tools.is_some()
    }

    /// The prompt of a conversation. The result equals that of `apply_chat_template`. A template
    /// may reject system prompts or kinds of content, or ignore tools. Then the messages are
    /// changed to the form that it supports.
    ///
    /// Messages, tools, documents and variables cannot add tokens of `control` to the prompt.
    ///
    /// # Errors
    /// Fails if the template fails, rejects the conversation or does not end.
    pub fn render(
        &self,
        messages: &[Message],
        options: &RenderOptions,
        control: &ControlTokens,
    ) -> Result<Prompt, ChatError> {
        let mut messages = messages.to_vec();
        if self.writes_tools(options) {
            messages = tools::write(messages, &options.tools);
        } else if !self.ways.calls
            && let Some(marks) = self.syntax.call_marks()
        {
            let write = |message| tools::with_list(message, marks);
            messages = messages.into_iter().map(write).collect();
        }
        if !self.ways.system {
            fold_system(&mut messages);
        }
        for message in &mut messages {
            message.name_reasoning();
            self.ways.adapt(message);
        }
        let context = self.context(messages, options, self.ways.tools);
        Prompt::guarded(&context, control, |context| {
            let size = serde_json::to_string(context).map_or(0, |text| text.len() as u64);
            let context = self.with_tokens(context.clone());
            self.engine
                .render(context, STEPS.saturating_add(size), options.now)
        })
    }

    /// The variables that come from outside, with tools in this place.
    fn context(
        &self,
        mut messages: Vec<Message>,
        options: &RenderOptions,
        place: Option<ToolsPlace>,
    ) -> Map<String, Value> {
        let list = |items: &[Value]| match items {
            [] => Value::Null,
            items => Value::from(items),
        };
        let mut context = Map::new();
        context.insert("tools".to_owned(), Value::Null);
        match place.unwrap_or(ToolsPlace::ALL[0]) {
            ToolsPlace::Variable(name) => {
                context.insert(name.to_owned(), list(&options.tools));
            }
            ToolsPlace::System => tools::attach(&mut messages, &options.tools),
        }
        context.insert("messages".to_owned(), json!(messages));
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

    /// The text for messages as they are, with a tool in this place; nothing if the template does not take them.
    fn attempt(&self, messages: &Value, tool: Option<(Value, ToolsPlace)>) -> Option<String> {
        let (tools, place) = tool.into_iter().unzip::<_, _, Vec<_>, Vec<_>>();
        let options = RenderOptions {
            add_generation_prompt: true,
            tools,
            now: Some(DateTime::constant(2024, 7, 26, 12, 0, 0, 0)),
            ..RenderOptions::default()
        };
        let messages = Message::list(messages).ok()?;
        let context = self.context(messages, &options, place.first().copied());
        let context = self.with_tokens(context);
        self.engine.render(context, PROBE_STEPS, options.now).ok()
    }

    fn ways(&self) -> Ways {
        let says = |messages: Value, words: &str| {
            let text = self.attempt(&messages, None);
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
        let lists = |place: &ToolsPlace| {
            let tool = || Some((probe_tool(THIRD), *place));
            let text = self.attempt(&json!([system, asked]), tool());
            let text = text.or_else(|| self.attempt(&json!([asked]), tool()));
            text.is_some_and(|text| text.contains(THIRD))
        };
        let tools = ToolsPlace::ALL.into_iter().find(lists);
        let calls = self.tool_calls(asked, tools.unwrap_or(ToolsPlace::ALL[0]));
        Ways {
            tools,
            system: !known || says(json!([system, asked]), OTHER).is_some(),
            text: as_text,
            parts: parts.is_some() || !known,
            ..calls
        }
    }

    /// Whether tool calls are written, may have no content, and arguments that are objects.
    fn tool_calls(&self, asked: &Value, place: ToolsPlace) -> Ways {
        let call = |content: Value, arguments: &Value| {
            let calls = json!([{"id": "123456789", "type": "function",
                "function": {"name": "probe", "arguments": arguments}}]);
            let answer = json!({"role": "assistant", "content": content, "tool_calls": calls});
            let result = json!({"role": "tool", "name": "probe", "tool_call_id": "123456789",
                "content": "done"});
            let tool = Some((probe_tool("probe"), place));
            self.attempt(&json!([asked, answer, result]), tool)
        };
        let object = json!({THIRD: 1});
        let string = Value::from(object.to_string());
        let written = |text: &String| {
            text.contains(THIRD) && !text.contains(&format!("'{THIRD}'")) && !text.contains("\\\"")
        };
        let nulls = |arguments: &Value| {
            let with = call(Value::Null, arguments);
            with.is_some_and(|text| !text.contains("None"))
        };
        let filled = |arguments: &Value| {
            let content = match nulls(arguments) {
                true => Value::Null,
                false => "".into(),
            };
            call(content, arguments)
        };
        let (with_object, with_string) = (filled(&object), filled(&string));
        let takes = |text: &Option<String>| text.as_ref().is_some_and(written);
        let drops = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.contains(THIRD));
        let objects = takes(&with_object) || !takes(&with_string);
        Ways {
            null: nulls(if objects { &object } else { &string }),
            objects,
            calls: !(drops(&with_object) && drops(&with_string)),
            ..self.ways
        }
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

/// Puts the first system prompt before the user's first message.
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
