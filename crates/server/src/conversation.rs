//! Conversations of all interfaces: messages, tools, and the prompt that a model's template makes of them.

use rustorch_chat::{
    Message, ParseOptions, Prompt, ReasoningFormat, RenderOptions, date_variables,
};
use rustorch_grammar::Grammar;
use rustorch_llm::sampler::SamplerConfig;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use crate::answers::{Plan, Shape};
use crate::error::ApiError;
use crate::form;
use crate::model::Loaded;

/// Whether the model calls tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No tool is shown to the model.
    None,
    /// The model calls at least one.
    Required,
    /// The model calls this one.
    Named(String),
}

impl<'de> Deserialize<'de> for ToolChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;

        let value = Value::deserialize(deserializer)?;
        let name = || {
            value["function"]["name"]
                .as_str()
                .or(value["name"].as_str())
        };
        match value.as_str() {
            Some("auto") => Ok(Self::Auto),
            Some("none") => Ok(Self::None),
            Some("required") => Ok(Self::Required),
            None if value["type"] == "function" && name().is_some() => {
                Ok(Self::Named(name().unwrap_or_default().to_owned()))
            }
            _ => Err(D::Error::custom(
                "expected auto, none, required, or a function's name",
            )),
        }
    }
}

/// A conversation to answer.
pub(crate) struct Conversation {
    pub(crate) messages: Vec<Message>,
    /// In the form of OpenAI's chats.
    pub(crate) tools: Vec<Value>,
    pub(crate) choice: ToolChoice,
    /// May an answer have several calls?
    pub(crate) parallel: bool,
    /// The form of the answer.
    pub(crate) grammar: Option<Grammar>,
    /// Variables of the template.
    pub(crate) variables: Map<String, Value>,
    /// The name of the reasoning's format.
    pub(crate) reasoning: Option<String>,
    /// Whether the answer goes on with the last message, which is the assistant's; by default as the server does.
    pub(crate) continues: Option<bool>,
}

impl Conversation {
    /// The plan of an answer, without limits. Tools that cannot be called are added to `ignored`.
    ///
    /// # Errors
    /// Fails if a message or tool is wrong, if the template refuses them, or if a form cannot be enforced.
    pub(crate) fn plan(
        mut self,
        model: &Loaded,
        sampler: SamplerConfig,
        salt: u64,
        ignored: &mut Vec<String>,
    ) -> Result<Plan, ApiError> {
        let reasoning = match &self.reasoning {
            None => model.reasoning,
            Some(name) => name
                .parse::<ReasoningFormat>()
                .map_err(|error| ApiError::field("reasoning_format", error.to_string()))?,
        };
        let prompt = self.render(model, true, ignored)?;
        let options = self.options(model, true);
        let template = model.templates.for_options(&options);
        let syntax = template.syntax_for(&options);
        let constraint = match (&self.grammar, self.forced_calls(syntax)?) {
            (Some(_), Some(_)) => {
                return Err(ApiError::field(
                    "tool_choice",
                    "a forced call has no other form; give one of both",
                ));
            }
            (Some(grammar), None) => {
                let made = model.constraint(grammar);
                Some(made.map_err(|error| form::named("response_format", error))?)
            }
            (None, Some(grammar)) => {
                let made = model.constraint(&grammar);
                Some(made.map_err(|error| form::named("tools", error))?)
            }
            (None, None) => None,
        };
        let mut request = form::request(prompt.encode(model.tokenizer()), sampler, salt);
        request.constraint = constraint;
        let options = ParseOptions {
            reasoning,
            thinking_begun: syntax.thinking_begun(prompt.text()).map(str::to_owned),
            tools: self.tools,
        };
        Ok(Plan {
            request,
            shape: Shape::Chat { syntax, options },
            stops: Vec::new(),
            time: None,
        })
    }

    /// The prompt, which ends with the beginning of an answer if one is wanted.
    ///
    /// # Errors
    /// Fails if a message or tool is wrong, or if the template refuses them.
    pub(crate) fn render(
        &mut self,
        model: &Loaded,
        answers: bool,
        ignored: &mut Vec<String>,
    ) -> Result<Prompt, ApiError> {
        if self.messages.is_empty() {
            return Err(ApiError::field("messages", "there is no message"));
        }
        for (index, message) in self.messages.iter_mut().enumerate() {
            check_message(index, message)?;
        }
        self.check_tools(ignored)?;
        let begun = match answers {
            true => self.begun(model)?,
            false => None,
        };
        let options = self.options(model, answers);
        let template = model.templates.for_options(&options);
        let mut prompt = template.render(&self.messages, &options, &model.control)?;
        if let Some(begun) = begun {
            let syntax = template.syntax_for(&options);
            if syntax.thinking_begun(prompt.text()).is_some() {
                let problem = "the template begins answers with reasoning, which a begun answer cannot follow; set \
                               chat_template_kwargs.enable_thinking to false";
                return Err(ApiError::field("messages", problem));
            }
            prompt.push(&begun);
        }
        Ok(prompt)
    }

    /// Takes the beginning of the answer away, if the last message is one.
    fn begun(&mut self, model: &Loaded) -> Result<Option<String>, ApiError> {
        let is_begun = |message: &Message| {
            message.role() == "assistant" && message.get("tool_calls").is_none_or(Value::is_null)
        };
        let is_last = self.messages.last().is_some_and(is_begun);
        match self.continues {
            Some(true) if !is_last => {
                let problem = "the last message is not the text of an assistant";
                return Err(ApiError::field("continue_final_message", problem));
            }
            continues if is_last && continues.unwrap_or(!model.defaults.ends_turns) => {}
            _ => return Ok(None),
        }
        let last = self.messages.pop();
        let text = last.and_then(|message| match message.get("content")? {
            Value::Array(parts) => {
                let texts: Vec<&str> = parts.iter().filter_map(|it| it["text"].as_str()).collect();
                Some(texts.join("\n\n"))
            }
            content => content.as_str().map(str::to_owned),
        });
        Ok(text)
    }

    fn options(&self, model: &Loaded, answers: bool) -> RenderOptions {
        let mut variables = self.variables.clone();
        if let Some(thinking) = model.defaults.thinking {
            let variable = variables.entry("enable_thinking");
            variable.or_insert(thinking.into());
        }
        for (name, date) in date_variables() {
            variables.entry(name).or_insert(date);
        }
        RenderOptions {
            add_generation_prompt: answers,
            tools: self.tools.clone(),
            variables,
            ..RenderOptions::default()
        }
    }

    /// Keeps the tools that the model may call.
    fn check_tools(&mut self, ignored: &mut Vec<String>) -> Result<(), ApiError> {
        for (index, tool) in self.tools.iter().enumerate() {
            let kind = tool["type"].as_str();
            let kind = kind.ok_or_else(|| {
                ApiError::field(format!("tools[{index}].type"), "expected a string")
            })?;
            match kind {
                "function"
                    if tool["function"]["name"]
                        .as_str()
                        .is_some_and(|name| !name.is_empty()) =>
                {
                    let parameters = &tool["function"]["parameters"];
                    if !parameters.is_null() && !parameters.is_object() {
                        let param = format!("tools[{index}].function.parameters");
                        return Err(ApiError::field(param, "expected a JSON schema"));
                    }
                }
                "function" => {
                    let param = format!("tools[{index}].function.name");
                    return Err(ApiError::field(param, "expected a name"));
                }
                other => ignored.push(format!("tools[{index}] of type {other}")),
            }
        }
        self.tools.retain(|tool| tool["type"] == "function");
        match &self.choice {
            ToolChoice::None => self.tools.clear(),
            ToolChoice::Auto => {}
            ToolChoice::Required if self.tools.is_empty() => {
                return Err(ApiError::field(
                    "tool_choice",
                    "a call is required, and there are no tools",
                ));
            }
            ToolChoice::Required => {}
            ToolChoice::Named(name) => {
                if !self
                    .tools
                    .iter()
                    .any(|tool| tool["function"]["name"] == **name)
                {
                    return Err(ApiError::field(
                        "tool_choice",
                        format!("there is no tool {name:?}"),
                    ));
                }
            }
        }
        Ok(())
    }

    /// The form of answers that have to call a tool.
    fn forced_calls(
        &self,
        syntax: &rustorch_chat::AnswerSyntax,
    ) -> Result<Option<Grammar>, ApiError> {
        let tools: Vec<&Value> = match &self.choice {
            ToolChoice::Auto | ToolChoice::None => return Ok(None),
            ToolChoice::Required => self.tools.iter().collect(),
            ToolChoice::Named(name) => {
                let named = |tool: &&Value| tool["function"]["name"] == **name;
                self.tools.iter().filter(named).collect()
            }
        };
        let Some((before, after)) = syntax.json_call() else {
            let problem = format!(
                "calls in the form {:?} cannot be forced; use auto",
                syntax.name
            );
            return Err(ApiError::field("tool_choice", problem));
        };
        let call = |tool: &&Value| {
            let function = &tool["function"];
            let parameters = match &function["parameters"] {
                Value::Null => json!({"type": "object"}),
                parameters => parameters.clone(),
            };
            json!({
                "type": "object",
                "properties": {"name": {"const": function["name"]}, "arguments": parameters},
                "required": ["name", "arguments"],
                "additionalProperties": false,
            })
        };
        let schema = json!({"anyOf": tools.iter().map(call).collect::<Vec<_>>()});
        Ok(Some(Grammar::Framed {
            before: before.to_owned(),
            schema: schema.to_string(),
            after: after.to_owned(),
            repeats: self.parallel && !before.is_empty(),
        }))
    }
}

/// Checks a message, and gives a system prompt the role that templates know.
fn check_message(index: usize, message: &mut Message) -> Result<(), ApiError> {
    let at = |field: &str| format!("messages[{index}].{field}");
    if message.get("role").is_none_or(|role| !role.is_string()) {
        return Err(ApiError::field(at("role"), "expected a string"));
    }
    match message.role() {
        "developer" => {
            message.set("role", "system");
        }
        "system" | "user" | "assistant" | "tool" => {}
        other => {
            let problem = format!("{other:?}: expected system, developer, user, assistant or tool");
            return Err(ApiError::field(at("role"), problem));
        }
    }
    match message.get("content") {
        Some(Value::String(_)) => {}
        None | Some(Value::Null) if message.role() == "assistant" => {}
        Some(Value::Array(parts)) => {
            for (number, part) in parts.iter().enumerate() {
                let param = at(&format!("content[{number}]"));
                match (part["type"].as_str(), part["text"].is_string()) {
                    (Some("text"), true) => {}
                    (Some("refusal"), _) => {}
                    (Some("text"), false) => {
                        return Err(ApiError::field(param, "its text is missing"));
                    }
                    (Some(kind), _) => {
                        let problem =
                            format!("this server reads no parts of type {kind}; send text");
                        return Err(ApiError::field(param, problem));
                    }
                    (None, _) => return Err(ApiError::field(param, "its type is missing")),
                }
            }
        }
        _ => {
            return Err(ApiError::field(
                at("content"),
                "expected a text, or an array of parts",
            ));
        }
    }
    if let Some(calls) = message.get("tool_calls").filter(|calls| !calls.is_null()) {
        let is_call = |call: &Value| call["function"]["name"].is_string();
        if !calls
            .as_array()
            .is_some_and(|calls| calls.iter().all(is_call))
        {
            return Err(ApiError::field(
                at("tool_calls"),
                "expected an array of calls of functions",
            ));
        }
    }
    Ok(())
}
