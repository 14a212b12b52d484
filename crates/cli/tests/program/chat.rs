//! Conversations: in pipes, and on a terminal.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{program, run, run_with_input};

/// Text that the bundled model, which knows no roles, goes on with.
const PLAIN: &str = "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}\
                     {% endif %}{% endfor %}";

/// How often a terminal is looked at, and the pause between.
const TRIES: usize = 2400;
const PAUSE: Duration = Duration::from_millis(50);

fn talk(args: &[&str], input: &str) -> crate::support::Run {
    let common = ["chat", "--chat-template", PLAIN, "-b", "cpu", "--temp", "0"];
    run_with_input(&[&common, args].concat(), input.as_bytes())
}

/// The messages that `/save` wrote.
pub(crate) fn saved(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["messages"].take()
}

/// The number before a word in a remark.
fn told(text: &str, before: &str, behind: &str) -> usize {
    let (_, rest) = text.rsplit_once(before).unwrap_or_else(|| panic!("{text}"));
    let (number, _) = rest.split_once(behind).unwrap_or_else(|| panic!("{text}"));
    number.trim().parse().unwrap_or_else(|_| panic!("{text}"))
}

pub(crate) fn a_line_is_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talk.json");
    let input = format!("Once upon a time\n\n//stats\n/save {}\n", file.display());
    let told = talk(&["-n", "4", "-sys", "Tell."], &input);
    assert_eq!(told.status, 0, "{}", told.stderr);
    let messages = saved(&file);
    let roles: Vec<&str> = messages
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["system", "user", "assistant", "user", "assistant"]);
    assert_eq!(messages[0]["content"], "Tell.");
    assert_eq!(messages[1]["content"], "Once upon a time");
    assert_eq!(messages[3]["content"], "/stats");
    let answers = [&messages[2], &messages[4]].map(|m| m["content"].as_str().unwrap());
    for answer in answers {
        assert!(
            !answer.is_empty() && told.stdout.contains(answer),
            "{}",
            told.stdout
        );
    }
}

pub(crate) fn one_turn_is_what_the_plain_command_says() {
    let args = ["-p", "Once upon a time", "-n", "6"];
    let chat = talk(&[&args[..], &["-st"]].concat(), "").ok();
    let plain = run(args
        .iter()
        .chain(&["--temp", "0", "-b", "cpu", "--no-display-prompt"]))
    .ok();
    assert_eq!(chat, plain);
    let stopped = talk(&[&args[..], &["-st", "-r", &plain[2..4]]].concat(), "").ok();
    assert_eq!(stopped.trim_end(), plain[..2].trim_end());
}

/// A prompt that has begun reasoning makes all that follows part of it.
pub(crate) fn reasoning_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talk.json");
    let template = "{{ messages[-1].content }}<think>";
    let input = format!("Once upon a time\n/save {}\n", file.display());
    let args = [
        "chat",
        "--chat-template",
        template,
        "-b",
        "cpu",
        "--temp",
        "0",
        "-n",
        "16",
    ];
    let told = run_with_input(&args, input.as_bytes());
    assert_eq!(told.status, 0, "{}", told.stderr);
    assert_eq!(told.stdout.trim(), "");
    let message = &saved(&file)[1];
    let thought = message["reasoning_content"].as_str().unwrap();
    assert!(!thought.is_empty());
    assert_eq!(message["content"], "");
    let whole = run_with_input(
        &[&args[..], &["--reasoning-format", "none"]].concat(),
        input.as_bytes(),
    );
    assert!(whole.ok().contains(thought.trim()));
}

pub(crate) fn the_plain_command_talks_on_request() {
    let args = [
        "-p",
        "Once upon a time",
        "-n",
        "6",
        "--temp",
        "0",
        "-b",
        "cpu",
    ];
    let chat = talk(&["-p", "Once upon a time", "-n", "6", "-st"], "").ok();
    assert_eq!(
        run(args.iter().chain(&["-st", "--chat-template", PLAIN])).ok(),
        chat
    );
    let line = [
        "-cnv",
        "--chat-template",
        PLAIN,
        "-n",
        "6",
        "--temp",
        "0",
        "-b",
        "cpu",
    ];
    assert_eq!(run_with_input(&line, b"Once upon a time\n").ok(), chat);
    let error = run(args.iter().chain(&["-st", "--format", "json"])).error(2);
    assert!(error.contains("/save"), "{error}");
}

/// The prompt that a file has keeps what it reads of another one, and nothing changes by it.
pub(crate) fn a_prompt_is_kept_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("prompt.gguf").display().to_string();
    let told = |prompt: &str| {
        let args = [
            "-p", prompt, "-n", "6", "--temp", "0", "-b", "cpu", "--format", "json",
        ];
        let alone = run(args).json();
        let cached = run(args.iter().chain(&["--prompt-cache", &cache])).json();
        assert_eq!(cached["ids"], alone["ids"]);
        assert_eq!(cached["prompt_ids"], alone["prompt_ids"]);
        let fed = |json: &Value| json["timings"]["prompt_n"].as_u64().unwrap();
        (fed(&alone), fed(&cached))
    };
    let (whole, first) = told("Once upon a time there was");
    assert_eq!(whole, first);
    assert_eq!(told("Once upon a time there was").1, 1);
    let (whole, more) = told("Once upon a time there was a king");
    assert!(more < whole, "{more} of {whole}");
}

/// Only the new part of a second message goes through the model. An earlier run's tokens do not go
/// through it again.
pub(crate) fn what_was_read_is_not_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("talk.gguf").display().to_string();
    let long = "Once upon a time there was a king who had a daughter. ".repeat(8);
    let args = ["-n", "4", "--prompt-cache", &cache];
    let first = talk(&args, &format!("{long}\n/stats\n And so\n/stats\n"));
    assert_eq!(first.status, 0, "{}", first.stderr);
    let prompts: Vec<&str> = first
        .stderr
        .lines()
        .filter(|l| l.starts_with("prompt "))
        .collect();
    let [whole, more] = [prompts[0], prompts[1]].map(|line| told(line, "prompt ", " tokens"));
    assert!(whole > 80, "{whole}");
    // The answer's last token, which nobody has read yet, the message, and what joins them.
    assert!(more < 10, "{more}");
    let again = talk(&args, &format!("{long}\n/stats\n"));
    assert_eq!(
        told(&again.stderr, "prompt ", " tokens"),
        1,
        "{}",
        again.stderr
    );
    assert_eq!(again.stdout.lines().next(), first.stdout.lines().next());
}

pub(crate) fn a_conversation_is_saved_and_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a.json", "b.json"].map(|name| folder.path().join(name));
    let [to, back] = [&a, &b].map(|path| path.display());
    let input = format!("The king\n/save {to}\n/undo\n/load {to}\n/save {back}\n/quit\nnot said\n");
    assert_eq!(talk(&["-n", "3"], &input).status, 0);
    assert_eq!(saved(&a), saved(&b));
    assert_eq!(saved(&a).as_array().unwrap().len(), 2);
    // An array of messages is one as well.
    fs::write(
        &a,
        json!([{"role": "user", "content": "The queen"}]).to_string(),
    )
    .unwrap();
    assert_eq!(
        talk(&["-n", "3"], &format!("/load {to}\n/regen\n/save {back}\n")).status,
        0
    );
    assert_eq!(saved(&b)[0]["content"], "The queen");
    assert_eq!(saved(&b)[1]["role"], "assistant");
}

pub(crate) fn mistakes_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.json");
    fs::write(&file, "[{}]").unwrap();
    for (input, why) in [
        ("/foo\n".to_owned(), "/help"),
        ("/regen\n".to_owned(), "there is no message"),
        ("/set temp hot\n".to_owned(), "/set temp hot"),
        ("/set nothing 1\n".to_owned(), "--nothing"),
        ("/load /no/such/file\n".to_owned(), "/no/such/file"),
        (format!("/load {}\n", file.display()), "role"),
        ("/save /no/such/folder/x\n".to_owned(), "/no/such/folder/x"),
        ("/model /no/such/model\n".to_owned(), "/no/such/model"),
    ] {
        let error = talk(&[], &input).error(1);
        assert!(error.contains(why), "{error}");
    }
    let grammar = talk(&[], "/set grammar root\n").error(2);
    assert!(grammar.contains("line 1"), "{grammar}");
    let wrong = run(["chat", "--chat-template", "{% if %}", "-st", "-p", "x"]).error(1);
    assert!(wrong.contains("line 1"), "{wrong}");
    let unknown = run(["chat", "--chat-template", "nobody", "-st", "-p", "x"]).error(1);
    assert!(unknown.contains("chatml"), "{unknown}");
}

/// A message that does not fit is refused, or the oldest turns are dropped.
pub(crate) fn a_full_context_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("talk.json");
    let input = format!(
        "Once upon a time there was a king.\nThere was a queen who sang.\nAnd a horse that ran.\n/save {}\n",
        file.display()
    );
    let args = ["-n", "8", "-c", "32"];
    let error = talk(&args, &input).error(1);
    assert!(error.contains("does not fit the context of 32") && error.contains("--context-shift"));
    assert_eq!(
        talk(&[&args[..], &["--context-shift"]].concat(), &input).status,
        0
    );
    let messages = saved(&file);
    assert_eq!(
        messages.as_array().unwrap().last().unwrap()["role"],
        "assistant"
    );
    assert_ne!(messages[0]["content"], "Once upon a time there was a king.");
}

/// Within an answer a full context ends it, or is shifted, and the limit stays that of the answer.
pub(crate) fn an_answer_goes_on_behind_a_full_context() {
    let args = ["-n", "60", "-c", "32", "--ignore-eos"];
    let ended = talk(&args, "Once upon a time\n/stats\n");
    assert!(
        ended.stderr.contains("the context is full"),
        "{}",
        ended.stderr
    );
    let shifted = talk(
        &[&args[..], &["--context-shift"]].concat(),
        "Once upon a time\n/stats\n",
    );
    assert!(
        shifted.stderr.contains("stopped at -n"),
        "{}",
        shifted.stderr
    );
    // The last one is not fed back.
    assert_eq!(told(&shifted.stderr, "answer ", " tokens"), 59);
    assert!(
        shifted.stdout.starts_with(ended.stdout.trim_end()),
        "{}",
        shifted.stdout
    );
}

/// A terminal in which the program runs.
pub(crate) struct Terminal {
    socket: String,
    folder: tempfile::TempDir,
}

/// Whether there is tmux.
pub(crate) struct Tmux;

pub(crate) fn find() -> Result<Tmux, String> {
    match Command::new("tmux").arg("-V").output() {
        Ok(output) if output.status.success() => Ok(Tmux),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(e) => Err(format!("tmux: {e} (Debian's package is `tmux`)")),
    }
}

impl Terminal {
    pub(crate) fn new(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let terminal = Self {
            socket: folder.path().join("socket").display().to_string(),
            folder,
        };
        let program = program(args);
        // Wide enough that no line breaks within what is looked for.
        let mut start = vec!["new-session", "-d", "-x", "200", "-y", "50"];
        let state = format!("XDG_STATE_HOME={}", terminal.folder.path().display());
        start.extend(["-e", &state]);
        let cache = program
            .get_envs()
            .find(|(name, _)| *name == "RUSTORCH_CACHE_DIR");
        let cache = format!("RUSTORCH_CACHE_DIR={}", cache.unwrap().1.unwrap().display());
        start.extend(["-e", &cache]);
        start.push(program.get_program().to_str().unwrap());
        start.extend(program.get_args().map(|arg| arg.to_str().unwrap()));
        terminal.tmux(&start);
        terminal
    }

    pub(crate) fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-S", &self.socket])
            .args(args)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn type_line(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
        self.tmux(&["send-keys", "Enter"]);
    }

    /// All that was shown.
    pub(crate) fn shown(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-S", "-"])
    }

    /// Waits until what is shown is as it should be.
    pub(crate) fn wait(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        self.until(what, || Some(self.shown()).filter(|shown| is(shown)))
    }

    /// Looks again and again until there is something. Tries are counted, so that a busy machine fails no test.
    fn until<T>(&self, what: &str, look: impl Fn() -> Option<T>) -> T {
        for _ in 0..TRIES {
            if let Some(found) = look() {
                return found;
            }
            std::thread::sleep(PAUSE);
        }
        panic!("no {what}:\n{}", self.shown());
    }

    /// Presses a key, and waits until the program has ended.
    pub(crate) fn end(&self, key: &str) {
        self.tmux(&["send-keys", key]);
        self.until("end", || {
            let session = ["-S", &self.socket, "has-session"];
            let there = Command::new("tmux").args(session).output().unwrap();
            (!there.status.success()).then_some(())
        });
    }

    /// Waits for so many answers.
    pub(crate) fn answers(&self, count: usize) {
        let told = |shown: &str| shown.matches("· context ").count() == count;
        self.wait("answer", told);
        self.ready();
    }

    /// Waits until it is the user's turn.
    pub(crate) fn ready(&self) {
        let is_empty = |shown: &str| {
            shown
                .trim_end()
                .lines()
                .last()
                .is_some_and(|l| l.trim_end() == ">")
        };
        self.wait("line to edit", is_empty);
    }

    /// The file that `/save` writes, and its contents.
    pub(crate) fn save(&self) -> (PathBuf, Value) {
        let files = fs::read_dir(self.folder.path()).unwrap().count();
        let path = self.folder.path().join(format!("{files}.json"));
        self.type_line(&format!("/save {}", path.display()));
        self.until("file", || {
            let text = fs::read_to_string(&path).ok()?;
            text.ends_with('\n').then_some(())
        });
        self.ready();
        let messages = saved(&path);
        (path, messages)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It is over already where the program has ended.
        let _ = Command::new("tmux")
            .args(["-S", &self.socket, "kill-server"])
            .output();
    }
}

pub(crate) fn a_turn_on_a_terminal(_: &Tmux) {
    let common = ["chat", "--chat-template", PLAIN, "-b", "cpu", "-s", "1"];
    let terminal = Terminal::new(&[&common[..], &["-n", "12", "--temp", "1.5"]].concat());
    terminal.ready();
    terminal.type_line("Once upon a time");
    terminal.answers(1);
    let (first, messages) = terminal.save();
    assert_eq!(messages[0]["content"], "Once upon a time");
    let answer = messages[1]["content"].as_str().unwrap().to_owned();
    let word = answer.split_whitespace().next().unwrap();
    assert!(terminal.shown().contains(word), "{word}");

    terminal.type_line("/regen");
    terminal.answers(2);
    let (_, messages) = terminal.save();
    assert_eq!(messages[0]["content"], "Once upon a time");
    assert_ne!(messages[1]["content"], answer.as_str());

    terminal.type_line("/edit");
    terminal.wait("text to edit", |shown| {
        shown
            .trim_end()
            .lines()
            .last()
            .is_some_and(|line| line.trim_end() == "> Once upon a time")
    });
    terminal.type_line(" in Rome");
    terminal.answers(3);
    let (_, messages) = terminal.save();
    assert_eq!(messages[0]["content"], "Once upon a time in Rome");
    assert_eq!(messages.as_array().unwrap().len(), 2);

    terminal.type_line(&format!("/load {}", first.display()));
    terminal.wait("remark", |shown| shown.contains("2 messages from"));
    terminal.ready();
    let (_, messages) = terminal.save();
    assert_eq!(messages, saved(&first));

    // Another line, and what was said before.
    terminal.tmux(&["send-keys", "-l", "a king"]);
    terminal.tmux(&["send-keys", "M-Enter"]);
    terminal.type_line("a queen");
    terminal.answers(4);
    let (_, messages) = terminal.save();
    assert_eq!(messages[2]["content"], "a king\na queen");
    terminal.type_line("/nothing");
    terminal.wait("error", |shown| shown.contains("unknown command /nothing"));
    terminal.type_line("/quit");
}

pub(crate) fn ctrl_c_ends_the_answer_and_not_the_program(_: &Tmux) {
    let common = ["chat", "--chat-template", PLAIN, "-b", "cpu", "-s", "1"];
    let terminal = Terminal::new(&[&common[..], &["-c", "1024", "--ignore-eos"]].concat());
    terminal.ready();
    terminal.type_line("Once upon a time");
    terminal.wait("text", |shown| {
        shown.lines().filter(|line| !line.trim().is_empty()).count() > 3
    });
    terminal.tmux(&["send-keys", "C-c"]);
    terminal.wait("end", |shown| shown.contains("· stopped"));
    terminal.ready();
    let (_, messages) = terminal.save();
    assert!(!messages[1]["content"].as_str().unwrap().is_empty());
    terminal.type_line("/quit");
}
