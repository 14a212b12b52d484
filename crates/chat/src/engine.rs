//! Jinja, set up as Hugging Face's `apply_chat_template` sets it up, with limits.
//!
//! The setup is that of `_compile_jinja_template` in transformers' `utils/chat_template_utils.py`.

use std::fmt;
use std::io::{self, Write};

use jiff::Zoned;
use jiff::civil::DateTime;
use jiff::fmt::strtime;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value, filters, functions};

use crate::error::ChatError;
use crate::limits::{self, Limit};
use crate::{json, python};

/// Bytes that a template may write for each step that it may take. Text and lists that it keeps cost a step for
/// 64 bytes.
const WRITTEN: u64 = 4;
/// Calls of macros, and nested values, that it may be in.
const DEPTH: usize = 200;

/// Items of a list that may be an operand of a sum.
const SUMMAND: usize = 100_000;
/// Number of lists, maps and their items in a value; shared parts count in each place.
const PARTS: usize = 100_000;
/// Parts of a value that are looked at in a step.
const LOOKED_AT: u64 = 64;

/// The name of the only template of an environment.
const NAME: &str = "chat";

/// A template that was read.
pub(crate) struct Engine {
    environment: Environment<'static>,
    model: String,
}

/// The words of a template that calls `raise_exception`.
#[derive(Debug)]
struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl Engine {
    /// Reads the template `source` of `model`.
    ///
    /// # Errors
    /// Fails if the text is not a template.
    pub(crate) fn new(source: &str, model: &str) -> Result<Self, ChatError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        let told = |error: Error| told(model, &error);
        environment.set_syntax(syntax.map_err(told)?);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_recursion_limit(DEPTH);
        environment.set_unknown_method_callback(python::call);
        environment.set_formatter(python::format);
        environment.add_filter("string", python::string);
        environment.add_filter("tojson", json::tojson);
        environment.add_filter(Limit::Summand.name(), summand);
        environment.add_filter(Limit::Nested.name(), nested);
        environment.add_filter(Limit::Kept.name(), kept);
        environment.add_function(
            "namespace",
            of_nested(Value::from_function(functions::namespace)),
        );
        environment.add_function("dict", of_nested(Value::from_function(functions::dict)));
        environment.add_filter("sum", sum);
        // Jinja2 has neither, and they put lists together without counting.
        environment.remove_filter("chain");
        environment.remove_filter("zip");
        environment.add_test("iterable", python::is_iterable);
        environment.add_function("raise_exception", raise_exception);
        let source = limits::with_limits(&without_generation_tags(source));
        environment.add_template_owned(NAME, source).map_err(told)?;
        Ok(Engine {
            environment,
            model: model.to_owned(),
        })
    }

    /// Writes the template for the variables `context`, in at most `steps`.
    ///
    /// `now` is the local time; the machine's where there is none.
    ///
    /// # Errors
    /// Fails if the template fails, rejects the variables, or reaches a limit.
    pub(crate) fn render(
        &self,
        context: Value,
        steps: u64,
        now: Option<DateTime>,
    ) -> Result<String, ChatError> {
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(steps));
        environment.add_function("strftime_now", move |format: &str| {
            strftime(format, now.unwrap_or_else(|| Zoned::now().datetime()))
        });
        let mut out = Bounded {
            text: Vec::new(),
            most: usize::try_from(steps.saturating_mul(WRITTEN)).unwrap_or(usize::MAX),
        };
        environment
            .get_template(NAME)
            .and_then(|template| template.render_captured_to(context, &mut out).map(drop))
            .map_err(|error| told(&self.model, &error))?;
        Ok(String::from_utf8_lossy(&out.text).into_owned())
    }
}

/// A template's output, up to a limit.
struct Bounded {
    text: Vec<u8>,
    most: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.text.len() + bytes.len() > self.most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An operand of a sum: a list that is not too long.
fn summand(value: Value) -> Result<Value, Error> {
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        return Ok(value);
    }
    let value = match value.len() {
        Some(_) => value,
        None => value.try_iter()?.take(SUMMAND + 1).collect(),
    };
    match value.len() {
        Some(0..=SUMMAND) => Ok(value),
        _ => Err(ErrorKind::OutOfFuel.into()),
    }
}

/// A value that becomes a part of another: not too large, not too deep, and without namespaces, which could
/// contain themselves.
fn nested(state: &State, value: Value) -> Result<Value, Error> {
    look_at(state, &value)?;
    Ok(value)
}

/// A value that is assigned to a variable: the same, or a namespace.
fn kept(state: &State, value: Value) -> Result<Value, Error> {
    if !is_namespace(&value) {
        look_at(state, &value)?;
    }
    Ok(value)
}

/// A function whose arguments become parts of its result.
fn of_nested(function: Value) -> impl Fn(&mut State, Rest<Value>, Kwargs) -> Result<Value, Error> {
    move |state, arguments, named| {
        let mut arguments = arguments.0;
        arguments.push(named.into());
        arguments.iter().try_for_each(|it| look_at(state, it))?;
        function.call(state, &arguments)
    }
}

fn is_namespace(value: &Value) -> bool {
    let object = value.as_object();
    object.is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

/// Fails if a value has too many parts, is too deep, or has a namespace in it.
fn look_at(state: &State, value: &Value) -> Result<(), Error> {
    let mut parts = 1;
    let mut rest = vec![(value.clone(), 0)];
    while let Some((value, depth)) = rest.pop() {
        if is_namespace(&value) {
            let reason = "a namespace within a value";
            return Err(Error::new(ErrorKind::InvalidOperation, reason));
        }
        let is_map = match value.kind() {
            ValueKind::Map => true,
            ValueKind::Seq => false,
            _ => continue,
        };
        for item in value.try_iter()? {
            let item = if is_map { value.get_item(&item)? } else { item };
            parts += 1;
            if parts > PARTS || depth == DEPTH {
                return Err(ErrorKind::OutOfFuel.into());
            }
            if matches!(item.kind(), ValueKind::Map | ValueKind::Seq) {
                rest.push((item, depth + 1));
            }
        }
    }
    state.consume_fuel(parts as u64 / LOOKED_AT)
}

/// The filter `sum`, of numbers: lists and strings would be added without counting.
fn sum(
    state: &State,
    values: Value,
    attribute: Option<&str>,
    start: Option<Value>,
    named: Kwargs,
) -> Result<Value, Error> {
    let first = start.clone().or(named.get("start")?);
    if first.is_some_and(|it| !it.is_number()) {
        let reason = "sum: it does not begin with a number";
        return Err(Error::new(ErrorKind::InvalidOperation, reason));
    }
    filters::sum(state, values, attribute, start, named)
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let refusal = Refusal(message.to_string());
    Err(Error::new(ErrorKind::InvalidOperation, "refused").with_source(refusal))
}

/// Variables of the date that some templates have a fixed date in place of: `date_string` and `datetime`, as
/// llama.cpp gives them.
pub fn date_variables() -> serde_json::Map<String, serde_json::Value> {
    let now = Zoned::now().datetime();
    let formats = [("date_string", "%d %b %Y"), ("datetime", "%b %d %Y")];
    let dates = formats.into_iter().filter_map(|(name, format)| {
        let date = strtime::format(format, now).ok()?;
        Some((name.to_owned(), date.into()))
    });
    dates.collect()
}

fn strftime(format: &str, now: DateTime) -> Result<String, Error> {
    strtime::format(format, now).map_err(|error| {
        let reason = format!("strftime_now({format:?}): {error}");
        Error::new(ErrorKind::InvalidOperation, reason)
    })
}

/// The error `error` of the template of `model`.
fn told(model: &str, error: &Error) -> ChatError {
    let model = model.to_owned();
    let line = error.line().unwrap_or(1);
    let reason = match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    };
    let refusal = causes(error).find_map(|cause| cause.downcast_ref::<Refusal>());
    if let Some(Refusal(reason)) = refusal {
        let reason = reason.clone();
        return ChatError::Refused {
            model,
            line,
            reason,
        };
    }
    let kinds = || {
        causes(error)
            .filter_map(|cause| cause.downcast_ref::<Error>())
            .map(Error::kind)
    };
    if kinds().any(|kind| kind == ErrorKind::OutOfFuel) {
        let reason = "it takes too many steps, or too much memory".to_owned();
        return ChatError::Limit {
            model,
            line,
            reason,
        };
    }
    if kinds().any(|kind| kind == ErrorKind::WriteFailure) {
        let reason = "it writes too much".to_owned();
        return ChatError::Limit {
            model,
            line,
            reason,
        };
    }
    match error.kind() {
        ErrorKind::SyntaxError => ChatError::Syntax {
            model,
            line,
            reason,
        },
        _ => ChatError::Render {
            model,
            line,
            reason,
        },
    }
}

/// An error and its causes.
fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
}

/// The template with `{% generation %}`, which marks text to learn, as a condition that holds. So white
/// space around it is treated as before.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        // In `{%}`, the per cent sign begins the tag and does not end it.
        let Some(length) = rest[start + 2..].find("%}") else {
            break;
        };
        let length = 2 + length;
        let (before, tag) = (&rest[..start], &rest[start..start + length]);
        let inner = tag[2..].trim_matches(['-', '+']).trim();
        let plain = match inner {
            "generation" => "if true",
            "endgeneration" => "endif",
            _ => inner,
        };
        out.push_str(before);
        if plain == inner {
            out.push_str(tag);
        } else {
            out.push_str(&tag.replacen(inner, plain, 1));
        }
        rest = &rest[start + length..];
    }
    out + rest
}
