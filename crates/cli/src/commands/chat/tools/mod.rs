//! Commands that a model may run.

mod approval;
mod process;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustorch_chat::{ToolCall, schema_mismatch};
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub(super) use approval::{Approval, Verdict};
use process::{End, Ended};

/// Seconds that a tool may take, if its file says nothing.
const TIMEOUT: f64 = 60.0;
/// Bytes of the longest name, as in OpenAI's API.
const NAME: usize = 64;

/// A file of tools.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    tools: Vec<Tool>,
}

/// A tool as its file has it; see `docs/chat.md`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tool {
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: String,
    #[serde(default = "no_parameters")]
    parameters: Value,
    command: Vec<String>,
    #[serde(default)]
    directory: Option<PathBuf>,
    #[serde(default = "timeout")]
    timeout: f64,
    /// Whether the arguments go to standard input.
    #[serde(default = "yes")]
    stdin: bool,
}

fn no_parameters() -> Value {
    json!({"type": "object", "properties": {}})
}

fn timeout() -> f64 {
    TIMEOUT
}

fn yes() -> bool {
    true
}

/// The tools that a model may call.
#[derive(Debug, Default)]
pub(super) struct Tools(Vec<Tool>);

/// A call that can be made.
pub(super) struct Order<'t> {
    pub(super) tool: &'t Tool,
    arguments: Map<String, Value>,
}

impl Tools {
    /// The tools of a file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, has another format, or describes an invalid tool.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = crate::text::from_file(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::of(&text, folder).with_context(|| path.display().to_string())
    }

    /// The tools of a file with this text in `folder`, from which its paths start.
    fn of(text: &str, folder: &Path) -> Result<Self> {
        let file: File = serde_json::from_str(text)
            .map_err(|e| anyhow!("not a file of tools: {e}; docs/chat.md has the format"))?;
        let mut names = BTreeSet::new();
        let mut tools = file.tools;
        for tool in &mut tools {
            ensure!(
                names.insert(tool.name.clone()),
                "two tools named {:?}; rename one",
                tool.name
            );
            let checked = tool.check(folder);
            checked.with_context(|| format!("tool {:?}", tool.name))?;
        }
        ensure!(
            !tools.is_empty(),
            "the file has no tools; list at least one"
        );
        Ok(Self(tools))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Tool> {
        self.0.iter()
    }

    /// The tools for models, in the form of OpenAI's API.
    pub(super) fn definitions(&self) -> Vec<Value> {
        let definition = |tool: &Tool| {
            json!({"type": "function", "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            }})
        };
        self.iter().map(definition).collect()
    }

    /// The command to run for a model's call.
    ///
    /// # Errors
    /// Fails if the tool does not exist or the arguments do not fit it. The error is a message for
    /// the model.
    pub(super) fn order(&self, call: &ToolCall) -> Result<Order<'_>> {
        let tool = self.iter().find(|tool| tool.name == call.name);
        let tool = tool.with_context(|| {
            let names: Vec<&str> = self.iter().map(|tool| tool.name.as_str()).collect();
            format!(
                "there is no tool {:?}; there are {}",
                call.name,
                names.join(", ")
            )
        })?;
        let told = &call.arguments;
        let arguments = match serde_json::from_str(told) {
            Ok(Value::Object(arguments)) => arguments,
            Ok(_) => bail!("the arguments are not a JSON object: {told}"),
            Err(e) => bail!("the arguments are not JSON ({e}): {told}"),
        };
        let value = Value::from(arguments.clone());
        if let Some(wrong) = schema_mismatch(&tool.parameters, &value) {
            bail!("the arguments do not fit the parameters: {wrong}");
        }
        Ok(Order { tool, arguments })
    }
}

impl Tool {
    /// Takes paths from `folder`.
    fn check(&mut self, folder: &Path) -> Result<()> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        ensure!(
            (1..=NAME).contains(&self.name.len()) && self.name.chars().all(is_name),
            "a name must have 1 to {NAME} letters, digits, _ or -"
        );
        ensure!(
            self.name != approval::ALL,
            "the name is reserved and means all tools; rename the tool"
        );
        ensure!(
            self.parameters["type"] == "object",
            "parameters: expected a JSON schema of \"type\": \"object\""
        );
        ensure!(
            Duration::try_from_secs_f64(self.timeout).is_ok_and(|it| !it.is_zero()),
            "timeout {}: expected a number of seconds above 0",
            self.timeout
        );
        let Some(program) = self.command.first_mut() else {
            bail!("command: expected a program and its arguments, as an array of strings");
        };
        let path = Path::new(program);
        if path.is_relative() && path.components().count() > 1 {
            let path = std::path::absolute(folder.join(path))?;
            *program = path.to_string_lossy().into_owned();
        }
        let program = self.command[0].clone();
        ensure!(
            !program.is_empty() && self.filled(&program, &Map::new()).as_deref() == Some(&program),
            "command: the program itself must not contain {{…}}; only its arguments may"
        );
        if let Some(directory) = &mut self.directory {
            *directory = folder.join(&directory);
            ensure!(
                directory.is_dir(),
                "directory: {} is not a folder",
                directory.display()
            );
        }
        Ok(())
    }

    /// A part of the command with arguments in place of their names in braces; nothing if one of them was not
    /// given. Braces around anything else stay.
    fn filled(&self, part: &str, arguments: &Map<String, Value>) -> Option<String> {
        let mut text = String::new();
        let mut rest = part;
        while let Some(start) = rest.find('{') {
            let (before, braced) = rest.split_at(start);
            text += before;
            let end = braced.find('}').unwrap_or_default();
            let name = braced.get(1..end).unwrap_or_default();
            if self.parameters["properties"].get(name).is_none() {
                text.push('{');
                rest = &braced[1..];
                continue;
            }
            match arguments.get(name) {
                None | Some(Value::Null) => return None,
                Some(Value::String(value)) => text += value,
                Some(value) => text += &value.to_string(),
            }
            rest = &braced[end + 1..];
        }
        Some(text + rest)
    }
}

impl Order<'_> {
    /// The program and its arguments.
    pub(super) fn argv(&self) -> Vec<String> {
        let parts = self.tool.command.iter();
        parts
            .filter_map(|part| self.tool.filled(part, &self.arguments))
            .collect()
    }

    /// Runs the command, until it ends or `is_ended`. The text for the model.
    pub(super) fn run(&self, is_ended: &dyn Fn() -> bool) -> String {
        let argv = self.argv();
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]);
        if let Some(directory) = &self.tool.directory {
            command.current_dir(directory);
        }
        let arguments = Value::from(self.arguments.clone()).to_string();
        let input = self.tool.stdin.then_some(arguments);
        let timeout = Duration::from_secs_f64(self.tool.timeout);
        match process::run(command, input, timeout, is_ended) {
            Ok(ended) => ended.told(timeout),
            Err(e) => told_error(&format!("{} cannot be run: {e}", argv[0])),
        }
    }
}

impl Ended {
    /// The tool's description for a model.
    fn told(&self, timeout: Duration) -> String {
        let error = match self.end {
            End::Status(status) if status.success() => {
                return match self.stdout.as_str() {
                    "" => "(no output)".to_owned(),
                    text => text.to_owned(),
                };
            }
            End::Status(status) => status.to_string(),
            End::Timeout => format!(
                "ended after {} s, which is its limit",
                timeout.as_secs_f64()
            ),
            End::Interrupt => "the user ended it".to_owned(),
        };
        let parts = [&told_error(&error), &self.stderr, &self.stdout];
        let parts = parts.map(|part| part.trim_end());
        let parts = parts.into_iter().filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join("\n")
    }
}

/// The error result of a call for a model.
pub(super) fn told_error(reason: &str) -> String {
    format!("Error: {reason}")
}

#[cfg(all(test, unix))]
mod tests {
    use rustorch_fuzz::Target;

    use super::*;
    use crate::failure::told;

    fn seeds() -> Vec<Vec<u8>> {
        let tool = json!({"name": "f", "description": "Adds.", "parameters": {"type": "object", "properties": {"a":
            {"type": "number"}}, "required": ["a"]}, "command": ["./run", "{a}"], "directory": "x", "timeout": 2.5,
            "stdin": false});
        let least = json!({"name": "g-1", "command": ["echo"]});
        let files = [json!({"tools": [tool, least]}), json!({"tools": [least]})];
        files.map(|it| it.to_string().into_bytes()).into()
    }

    fn read(bytes: &[u8]) -> Result<(), String> {
        let tools = Tools::of(&String::from_utf8_lossy(bytes), Path::new(""));
        let tools = tools.map_err(|e| told(&e))?;
        assert_eq!(tools.definitions().len(), tools.iter().count());
        // The command is not run.
        let orders = tools.iter().map(|tool| ToolCall {
            name: tool.name.clone(),
            ..call(r#"{"a": 1}"#)
        });
        orders.for_each(|call| drop(tools.order(&call)));
        Ok(())
    }

    #[test]
    fn damaged_files_are_refused_in_a_line() {
        static FILE: Target = Target {
            name: "tools",
            seeds,
            read,
            rounds: 5000,
        };
        FILE.stand();
    }

    fn tools(tools: Value) -> Result<Tools> {
        Tools::of(&json!({"tools": tools}).to_string(), Path::new(""))
    }

    fn shell(script: &str, more: Value) -> Tools {
        let mut tool = json!({
            "name": "f",
            "parameters": {"type": "object", "properties": {
                "a": {"type": "string"}, "n": {"type": "integer"}, "list": {"type": ["array", "null"]},
            }},
            "command": ["sh", "-c", script, "sh", "{a}", "--n={n}", "{list}", "{b} {", "{}"],
        });
        let fields = tool.as_object_mut().unwrap();
        fields.extend(more.as_object().cloned().unwrap_or_default());
        tools(json!([tool])).unwrap()
    }

    fn call(arguments: &str) -> ToolCall {
        ToolCall {
            id: "1".to_owned(),
            name: "f".to_owned(),
            arguments: arguments.to_owned(),
        }
    }

    fn run(tools: &Tools, arguments: &str) -> String {
        tools.order(&call(arguments)).unwrap().run(&|| false)
    }

    #[test]
    fn arguments_get_to_the_command_and_no_shell_reads_them() {
        let all = shell(r#"for it in "$@"; do echo "<$it>"; done; cat"#, json!({}));
        assert_eq!(
            run(&all, r#"{"a": "$(id) {n}; *", "n": 3, "list": [1, "x"]}"#),
            "<$(id) {n}; *>\n<--n=3>\n<[1,\"x\"]>\n<{b} {>\n<{}>\n\
             {\"a\":\"$(id) {n}; *\",\"n\":3,\"list\":[1,\"x\"]}"
        );
        assert_eq!(
            run(&all, r#"{"list": null}"#),
            "<{b} {>\n<{}>\n{\"list\":null}"
        );
        let none = shell("cat", json!({"stdin": false}));
        assert_eq!(run(&none, r#"{"a": "x"}"#), "(no output)");
        let zero = run(&none, r#"{"a": "x\u0000y"}"#);
        assert!(zero.starts_with("Error: sh cannot be run: "), "{zero}");
    }

    #[test]
    fn what_goes_wrong_is_told() {
        let fails = shell("echo out; echo err >&2; exit 3", json!({}));
        assert_eq!(run(&fails, "{}"), "Error: exit status: 3\nerr\nout");
        let quiet = shell("echo noise >&2; echo out", json!({}));
        assert_eq!(run(&quiet, "{}"), "out\n");
        let missing = shell("", json!({"command": ["/no/such/program"]}));
        let told = run(&missing, "{}");
        assert!(
            told.starts_with("Error: /no/such/program cannot be run: "),
            "{told}"
        );
        let folder = shell("pwd", json!({"directory": "/"}));
        assert_eq!(run(&folder, "{}"), "/\n");
    }

    /// The command's children end with it, and their earlier output is reported.
    #[test]
    fn a_command_ends_with_its_group() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let script = format!(
            "sleep 600 & echo $! $$ > {}; echo begun; wait",
            pids.display()
        );
        let slow = shell(&script, json!({"timeout": 0.5}));
        assert_eq!(
            run(&slow, "{}"),
            "Error: ended after 0.5 s, which is its limit\nbegun"
        );
        let pids = std::fs::read_to_string(&pids).unwrap();
        assert_eq!(pids.split_whitespace().count(), 2, "{pids}");
        for pid in pids.split_whitespace() {
            // The child of a dead parent is reaped by another process, some time later.
            let state = || {
                let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                let (_, state) = stat.rsplit_once(") ").unwrap_or_default();
                state.chars().next()
            };
            while !matches!(state(), None | Some('Z')) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let ended = shell("sleep 600", json!({}));
        let told = ended.order(&call("{}")).unwrap().run(&|| true);
        assert_eq!(told, "Error: the user ended it");
        // One that is left behind holds the output open.
        let left = shell("sleep 600 &", json!({"timeout": 0.2}));
        assert_eq!(
            run(&left, "{}"),
            "Error: ended after 0.2 s, which is its limit"
        );
    }

    #[test]
    fn long_output_is_cut() {
        let long = shell(
            "yes é | head -n 100000; yes x | head -n 100000 >&2",
            json!({}),
        );
        let told = run(&long, "{}");
        assert!(told.starts_with("é\né\n"), "{told}");
        assert!(told.ends_with("\n[cut: 16384 of 300000 bytes]"), "{told}");
        assert!(!told.contains('\u{fffd}') && told.len() < 16500);
    }

    #[test]
    fn calls_that_make_no_sense_are_told_to_the_model() {
        let tools = shell(
            "",
            json!({"parameters": {"type": "object", "properties":
            {"n": {"type": "integer"}}, "required": ["n"]}}),
        );
        for (arguments, why) in [
            ("{\"n\": ", "the arguments are not JSON (EOF"),
            ("[1]", "the arguments are not a JSON object: [1]"),
            ("{\"n\": \"x\"}", "/n: \"x\" is not of type integer"),
            ("{}", "\"n\" is missing"),
        ] {
            let Err(error) = tools.order(&call(arguments)) else {
                panic!("{arguments}");
            };
            assert!(error.to_string().contains(why), "{error}");
        }
        let other = ToolCall {
            name: "g".to_owned(),
            ..call("{}")
        };
        let Err(error) = tools.order(&other) else {
            panic!("there is no such tool");
        };
        assert_eq!(error.to_string(), "there is no tool \"g\"; there are f");
    }

    #[test]
    fn files_that_are_wrong_are_told() {
        let tool = |more: Value| {
            let mut tool = json!({"name": "f", "command": ["true"]});
            let fields = tool.as_object_mut().unwrap();
            fields.extend(more.as_object().cloned().unwrap_or_default());
            tool
        };
        assert!(tools(json!([tool(json!({}))])).is_ok());
        for (list, why) in [
            (json!([]), "no tools"),
            (
                json!([tool(json!({})), tool(json!({}))]),
                "two tools named \"f\"",
            ),
            (
                json!([tool(json!({"name": "two words"}))]),
                "1 to 64 letters",
            ),
            (json!([tool(json!({"name": "all"}))]), "means all tools"),
            (
                json!([tool(json!({"commands": []}))]),
                "unknown field `commands`",
            ),
            (json!([tool(json!({"command": []}))]), "expected a program"),
            (json!([tool(json!({"timeout": 0}))]), "timeout 0"),
            (
                json!([tool(json!({"directory": "/no/such"}))]),
                "/no/such is not a folder",
            ),
            (
                json!([tool(json!({"parameters": {}}))]),
                "\"type\": \"object\"",
            ),
            (
                json!([tool(json!({"command": ["{p}"], "parameters":
                    {"type": "object", "properties": {"p": {"type": "string"}}}}))]),
                "must not contain",
            ),
        ] {
            let error = format!("{:#}", tools(list).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn the_example_of_the_documentation_is_one() {
        let text = include_str!("../../../../../../docs/chat.md");
        let (_, example) = text.split_once("```json\n").unwrap();
        let (example, _) = example.split_once("```").unwrap();
        let tools = Tools::of(example, Path::new("")).unwrap();
        let call = ToolCall {
            name: "weather".to_owned(),
            ..call("{\"city\": \"New York\", \"unit\": \"C\"}")
        };
        let order = tools.order(&call).unwrap();
        assert_eq!(
            order.argv().last().unwrap(),
            "https://wttr.in/New York?format=3"
        );
    }

    #[test]
    fn paths_start_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tools.json");
        let file = json!({"tools": [{"name": "f", "command": ["./run.sh"], "directory": "."}]});
        std::fs::write(&path, file.to_string()).unwrap();
        let tools = Tools::read(&path).unwrap();
        let order = tools.order(&call("{}")).unwrap();
        let program = folder.path().join("./run.sh");
        assert_eq!(Path::new(&order.argv()[0]), program);
        assert_eq!(
            order.tool.directory.as_deref(),
            Some(&*folder.path().join("."))
        );
    }
}
