//! Files installed beside the program: completions for shells, and manual pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::run;

/// A program of the system, by its name.
pub(crate) struct Tool(&'static str);

fn find(name: &'static str) -> Result<Tool, String> {
    let found = Command::new(name).arg("--version").output();
    found
        .map(|_| Tool(name))
        .map_err(|e| format!("{name}: {e}"))
}

pub(crate) fn find_bash() -> Result<Tool, String> {
    find("bash")
}

pub(crate) fn find_groff() -> Result<Tool, String> {
    find("groff")
}

impl Tool {
    fn run(&self, args: &[&str]) -> Output {
        Command::new(self.0).args(args).output().unwrap()
    }

    /// Standard output of a successful run.
    #[track_caller]
    fn prints(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let objections = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && objections.is_empty(),
            "{args:?}: {objections}"
        );
        String::from_utf8(output.stdout).unwrap()
    }
}

/// The commands that `--help` lists.
fn commands() -> Vec<String> {
    let help = run(["--help"]).ok();
    let (_, list) = help.split_once("\nCommands:\n").unwrap();
    let lines = list.lines().take_while(|line| !line.is_empty());
    // Texts that go on in the next line are indented further.
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let names = names.filter(|name| !name.is_empty() && *name != "help");
    names.map(str::to_owned).collect()
}

/// The long options that a text names, or a manual page.
fn options(text: &str) -> BTreeSet<String> {
    let text = ["\\fB", "\\fI", "\\fR"]
        .iter()
        .fold(text.replace("\\-", "-"), |text, font| {
            text.replace(font, " ")
        });
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let options = words.filter(|word| word.starts_with("--") && word.len() > 2);
    options.map(str::to_owned).collect()
}

/// The options that the help of a command names, of the program if there is none.
fn help(command: Option<&String>) -> BTreeSet<String> {
    let args = command.map(String::as_str).into_iter().chain(["--help"]);
    options(&run(args).ok())
}

/// The options of a command, as its help lists them: each begins a line.
fn listed(command: &str) -> BTreeSet<String> {
    let help = run([command, "--help"]).ok();
    let lines = help.lines().map(str::trim_start);
    let firsts = lines.filter(|line| line.starts_with('-'));
    let bare = firsts.map(|line| line.split("  ").next().unwrap_or_default());
    options(&bare.collect::<Vec<_>>().join("\n"))
}

/// A folder with all pages, and of each the command and its file.
fn pages() -> (TempDir, Vec<(Option<String>, PathBuf)>) {
    let folder = tempfile::tempdir().unwrap();
    let man = folder.path().join("share/man1");
    assert_eq!(run(["man", "--out", man.to_str().unwrap()]).ok(), "");
    let commands = commands().into_iter().map(Some).chain([None]);
    let pages = commands.map(|command| {
        let name = command
            .iter()
            .fold("rustorch-cli".to_owned(), |name, c| format!("{name}-{c}"));
        (command, man.join(format!("{name}.1")))
    });
    let pages: Vec<_> = pages.collect();
    assert_eq!(fs::read_dir(&man).unwrap().count(), pages.len());
    (folder, pages)
}

pub(crate) fn manual_pages_name_every_option_of_the_help() {
    let (_folder, pages) = pages();
    assert!(pages.len() > 12, "{pages:?}");
    for (command, file) in pages {
        let page = fs::read_to_string(&file).unwrap();
        let (told, help) = (options(&page), help(command.as_ref()));
        let missing: Vec<_> = help.difference(&told).collect();
        assert!(
            help.len() > 1 && missing.is_empty(),
            "{}: {missing:?}",
            file.display()
        );
        if command.is_none() {
            assert_eq!(run(["man"]).ok(), page);
        }
    }
}

pub(crate) fn manual_pages_are_formatted_without_a_warning(groff: &Tool) {
    let (_folder, pages) = pages();
    for (_, file) in pages {
        let text = groff.prints(&["-ww", "-man", "-Kutf8", "-Tutf8", file.to_str().unwrap()]);
        assert!(
            text.contains("rustorch-cli") && text.contains("(1)"),
            "{text}"
        );
    }
}

pub(crate) fn a_folder_for_pages_that_cannot_be_made_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let folder = file.path().join("man1");
    let error = run(["man", "--out", folder.to_str().unwrap()]).error(1);
    assert!(
        error.contains("cannot create the directory") && error.contains("man1"),
        "{error}"
    );
}

pub(crate) fn completions_are_there_for_every_shell() {
    let error = run(["completions", "tcsh"]).error(2);
    let (_, shells) = error.split_once("possible values: ").unwrap();
    let (shells, _) = shells.split_once(']').unwrap();
    let shells: Vec<&str> = shells.split(", ").collect();
    assert_eq!(shells, ["bash", "elvish", "fish", "powershell", "zsh"]);
    for shell in shells {
        let script = run(["completions", shell]).ok();
        for command in commands() {
            assert!(script.contains(&command), "{shell}: {command}");
        }
    }
}

pub(crate) fn bash_completes_commands_and_their_options(bash: &Tool) {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("completions");
    fs::write(&script, run(["completions", "bash"]).ok()).unwrap();
    let script = script.to_str().unwrap();
    bash.prints(&["-n", script]);
    let complete = |words: &[&str]| {
        let words = [&["rustorch-cli"][..], words].concat();
        let [.., before, last] = words[..] else {
            panic!("{words:?}");
        };
        // bash calls the function that the script names in the same way.
        let asked = format!(
            "source {script}; COMP_WORDS=({}); COMP_CWORD={}; \
             $(complete -p rustorch-cli | sed 's/.*-F \\([^ ]*\\).*/\\1/') \
             rustorch-cli {last} {before}; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            words.len() - 1
        );
        let found = bash.prints(&["-c", &asked]);
        let found = found.lines().map(str::to_owned);
        found.collect::<BTreeSet<_>>()
    };
    assert_eq!(
        complete(&["perpl"]),
        BTreeSet::from(["perplexity".to_owned()])
    );
    for command in commands() {
        let (found, listed) = (complete(&[&command, "--"]), listed(&command));
        let missing: Vec<_> = listed.difference(&found).collect();
        assert!(
            listed.len() > 1 && missing.is_empty(),
            "{command}: {missing:?}"
        );
    }
    let preset = complete(&["bench", "--pres"]);
    assert_eq!(preset, BTreeSet::from(["--preset".to_owned()]));
}
