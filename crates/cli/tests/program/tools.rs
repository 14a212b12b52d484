//! Tools that a model calls: the bundled one does not know how, and is held to a form that has calls.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::chat::{Terminal, Tmux, saved};
use crate::support::{Run, run, run_with_input};

/// A template with tools and calls. It ends with an example of an answer. So the model calls a tool
/// first, and answers once there is a result.
const TEMPLATE: &str = "\
{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% for m in messages %}{{ m.content }}\
{% for c in m.tool_calls or [] %}<tool_call>{{ c.function|tojson }}</tool_call>{% endfor %}
{% endfor %}{{ ('So it is five!' if messages[-1].role == 'tool' else 'So <tool_call>') * 3 }}So";

/// Bias that makes a call likely: the call's first token is this much likelier.
const BIAS: &str = "29+15";

const CALL: &str = r#"<tool_call>\{"name": "add", "arguments": \{"a": 2, "b": 3\}\}</tool_call>"#;

/// Tools in a folder, with what the program is to be told of them.
struct Folder(tempfile::TempDir);

impl Folder {
    /// With a tool `add`, whose command is a script for sh.
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let number = json!({"type": "number"});
        let tool = json!({
            "name": "add",
            "description": "Adds two numbers.",
            "parameters": {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]},
            "command": ["sh", "-c", script, "sh", "{a}", "{b}"],
            "directory": ".",
        });
        let file = json!({ "tools": [tool] }).to_string();
        fs::write(folder.path().join("tools.json"), file).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// The program's arguments where answers are of a form.
    fn args<'a>(&self, form: &'a str, more: &[&'a str]) -> Vec<String> {
        let file = self.path("tools.json");
        let named = more.contains(&"--chat-template");
        let template: &[&str] = if named {
            &[]
        } else {
            &["--chat-template", TEMPLATE]
        };
        let args = [
            "chat",
            "-b",
            "cpu",
            "--temp",
            "0",
            "-l",
            BIAS,
            "--regex",
            form,
            "--tool-command",
            &file,
        ];
        let args = args.iter().chain(template);
        args.chain(more).map(|&it| it.to_owned()).collect()
    }

    /// A message through a pipe, and what came of it.
    fn talk(&self, form: &str, more: &[&str]) -> (Run, Value) {
        let args = self.args(form, more);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let path = self.path("talk.json");
        let told = run_with_input(&args, format!("What is it?\n/save {path}\n").as_bytes());
        assert_eq!(told.status, 0, "{}", told.stderr);
        (told, saved(Path::new(&path)))
    }
}

fn roles(messages: &Value) -> Vec<&str> {
    let messages = messages.as_array().unwrap().iter();
    messages.map(|it| it["role"].as_str().unwrap()).collect()
}

pub(crate) fn a_tool_is_called_and_its_result_answered() {
    let folder = Folder::new("cat; echo \" is $(($1 + $2))\"");
    let form = format!(" ({CALL}|it is five!)");
    let (told, messages) = folder.talk(&form, &["--tool-approve", "add"]);
    assert_eq!(told.stdout, " it is five!\n");
    assert!(
        told.stderr.contains("→ add {\"a\": 2, \"b\": 3}"),
        "{}",
        told.stderr
    );
    assert_eq!(roles(&messages), ["user", "assistant", "tool", "assistant"]);
    let call = json!({"id": "call00000", "type": "function",
        "function": {"name": "add", "arguments": "{\"a\": 2, \"b\": 3}"}});
    assert_eq!(messages[1]["tool_calls"], json!([call]));
    assert_eq!(messages[1]["content"], "");
    assert_eq!(
        messages[2],
        json!({"role": "tool", "content": "{\"a\":2,\"b\":3} is 5\n", "name": "add", "tool_call_id": "call00000"})
    );
    assert_eq!(messages[3]["content"], " it is five!");
}

pub(crate) fn several_calls_of_an_answer_are_made() {
    let folder = Folder::new("echo $(($1 + $2))");
    let other = CALL.replace('3', "7");
    let form = format!(" ({CALL}\\n{other}|it is five!)");
    let (told, messages) = folder.talk(&form, &["--tool-approve", "all"]);
    assert_eq!(told.stdout, " it is five!\n");
    assert_eq!(
        roles(&messages),
        ["user", "assistant", "tool", "tool", "assistant"]
    );
    assert_eq!(
        [&messages[2]["content"], &messages[3]["content"]],
        ["5\n", "9\n"]
    );
    assert_eq!(messages[3]["tool_call_id"], "call00001");
}

/// A template that has no place for tools gets them with the system prompt, and results with what users say.
pub(crate) fn any_template_takes_tools() {
    let folder = Folder::new("echo $(($1 + $2))");
    let template = "{% for m in messages %}{{ m.content }}\n{% endfor %}\
                    {{ ('So it is five!' if messages[-1].content[:5] == '<tool' else 'So <tool_call>') * 3 }}So";
    let form = format!(" ({CALL}|it is five!)");
    let more = ["--chat-template", template, "--tool-approve", "all"];
    let (told, messages) = folder.talk(&form, &more);
    assert!(
        told.stderr.contains("has no place for tools"),
        "{}",
        told.stderr
    );
    assert_eq!(roles(&messages), ["user", "assistant", "tool", "assistant"]);
    assert_eq!(messages[2]["content"], "5\n");
    assert_eq!(messages[3]["content"], " it is five!");
}

/// In a pipe there is nobody to ask.
pub(crate) fn what_is_not_approved_is_not_run() {
    let folder = Folder::new("touch was_run");
    let form = format!(" ({CALL}|it is five!)");
    let (told, messages) = folder.talk(&form, &[]);
    assert!(!Path::new(&folder.path("was_run")).exists());
    assert!(
        told.stderr.contains("--tool-approve add"),
        "{}",
        told.stderr
    );
    assert_eq!(
        messages[2]["content"],
        "Error: the user has not allowed this tool"
    );
}

pub(crate) fn calls_that_make_no_sense_are_told() {
    let folder = Folder::new("touch was_run");
    let approved = ["--tool-approve", "all"];
    let text = r#"<tool_call>\{"name": "add", "arguments": "2 and 3"\}</tool_call>"#;
    for (call, why) in [
        (
            CALL.replace('2', "\"x\""),
            "/a: \"x\" is not of type number",
        ),
        (
            text.to_owned(),
            "not JSON (trailing characters at line 1 column 3): 2 and 3",
        ),
        (
            CALL.replace("add", "sub"),
            "there is no tool \"sub\"; there are add",
        ),
    ] {
        let form = format!(" ({call}|it is five!)");
        let (_, messages) = folder.talk(&form, &approved);
        let told = messages[2]["content"].as_str().unwrap();
        assert!(told.starts_with("Error: ") && told.contains(why), "{told}");
        assert_eq!(messages[3]["content"], " it is five!");
    }
    assert!(!Path::new(&folder.path("was_run")).exists());
}

pub(crate) fn rounds_of_calls_are_limited() {
    let folder = Folder::new("echo run >> runs");
    let form = format!(" {CALL}");
    let (told, messages) = folder.talk(&form, &["--tool-approve", "all", "--tool-rounds", "2"]);
    assert!(
        told.stderr.contains("--tool-rounds sets"),
        "{}",
        told.stderr
    );
    assert_eq!(
        fs::read_to_string(folder.path("runs")).unwrap(),
        "run\nrun\n"
    );
    assert_eq!(roles(&messages)[1..], ["assistant", "tool"].repeat(3),);
    assert_eq!(
        messages[6]["content"],
        "Error: not run: too many calls in a row"
    );
}

pub(crate) fn wrong_files_and_names_are_told() {
    let folder = Folder::new("");
    let file = folder.path("tools.json");
    let with = |args: &[&str], status| {
        let common = ["chat", "-p", "x", "-st", "-b", "cpu"];
        run(common.iter().chain(args)).error(status)
    };
    let name = with(&["--tool-command", &file, "--tool-approve", "sub"], 2);
    assert!(name.contains("sub") && name.contains("add, all"), "{name}");
    let alone = with(&["--tool-approve", "all"], 2);
    assert!(alone.contains("--tool-command"), "{alone}");
    let missing = with(&["--tool-command", "/no/such/file"], 1);
    assert!(missing.contains("/no/such/file"), "{missing}");
    fs::write(&file, "{\"tools\": [{\"name\": \"f\"}]}").unwrap();
    let wrong = with(&["--tool-command", &file], 1);
    assert!(
        wrong.contains("tools.json") && wrong.contains("command"),
        "{wrong}"
    );
}

/// The user is asked, once or for good.
pub(crate) fn a_terminal_asks_before_a_tool_is_run(_: &Tmux) {
    let folder = Folder::new("echo run >> runs; echo $(($1 + $2))");
    let form = format!(" ({CALL}|it is five!)");
    let args = folder.args(&form, &[]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let terminal = Terminal::new(&args);
    let runs = || {
        let runs = fs::read_to_string(folder.path("runs")).unwrap_or_default();
        runs.lines().count()
    };
    terminal.ready();
    terminal.type_line("/tools");
    terminal.wait("list", |shown| shown.contains("Adds two numbers."));
    terminal.ready();
    for (at, (answer, count)) in [("n", 0), ("y", 1), ("always", 2)].into_iter().enumerate() {
        terminal.type_line("What is it?");
        terminal.wait("question", |shown| {
            shown.matches("Run it? [y/n/always]").count() == at + 1
        });
        assert_eq!(runs(), at.saturating_sub(1));
        terminal.type_line(answer);
        terminal.answers(2 * (at + 1));
        assert_eq!(runs(), count);
    }
    terminal.type_line("What is it?");
    terminal.answers(8);
    assert_eq!(runs(), 3);
    let (_, messages) = terminal.save();
    let results = messages.as_array().unwrap().iter();
    let results: Vec<&Value> = results
        .filter(|it| it["role"] == "tool")
        .map(|it| &it["content"])
        .collect();
    assert_eq!(
        results,
        ["Error: the user refused this call", "5\n", "5\n", "5\n"]
    );
    terminal.type_line("/quit");
}

pub(crate) fn ctrl_c_ends_the_tool_and_not_the_program(_: &Tmux) {
    let folder = Folder::new("echo $$ > pid; sleep 600 & wait");
    let form = format!(" ({CALL}|it is five!)");
    let args = folder.args(&form, &["--tool-approve", "all"]);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let terminal = Terminal::new(&args);
    terminal.ready();
    terminal.type_line("What is it?");
    let pid = || fs::read_to_string(folder.path("pid")).unwrap_or_default();
    while !pid().ends_with('\n') {
        std::thread::sleep(Duration::from_millis(10));
    }
    terminal.tmux(&["send-keys", "C-c"]);
    terminal.ready();
    let (_, messages) = terminal.save();
    assert_eq!(roles(&messages), ["user", "assistant", "tool"]);
    assert_eq!(messages[2]["content"], "Error: the user ended it");
    assert!(!Path::new("/proc").join(pid().trim()).exists());
    terminal.type_line("/quit");
}
