//! The user's commands to the program: `/help`.

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Slash {
    System(String),
    Clear,
    Regenerate,
    Edit,
    Undo,
    Save(String),
    Load(String),
    Set(Option<(String, String)>),
    Stats,
    Model(String),
    Think,
    Tools,
    Help,
    Quit,
}

/// A command's definition, from which parsing and help follow.
struct Definition {
    /// Its names, the one in the help first.
    names: &'static [&'static str],
    /// Its argument in the help; none may be missing unless it is in brackets.
    argument: &'static str,
    help: &'static str,
    /// The command with an argument. The error is the message to show.
    make: fn(&str) -> Result<Slash, String>,
}

/// All commands, in the order of the help.
#[rustfmt::skip]
const COMMANDS: [Definition; 14] = [
    command(&["system"], "[TEXT]", "set the system prompt; without TEXT, remove it", |text| Ok(Slash::System(text.into()))),
    command(&["clear"], "", "start a new conversation with the same system prompt", |_| Ok(Slash::Clear)),
    command(&["regen"], "", "generate another answer to your last message", |_| Ok(Slash::Regenerate)),
    command(&["edit"], "", "edit your last message and generate a new answer", |_| Ok(Slash::Edit)),
    command(&["undo"], "", "remove your last message and its answer", |_| Ok(Slash::Undo)),
    command(&["save"], "FILE", "save the conversation as JSON", |file| Ok(Slash::Save(file.into()))),
    command(&["load"], "FILE", "load a saved conversation", |file| Ok(Slash::Load(file.into()))),
    command(&["set"], "[NAME VALUE]", "set a sampling option (/set temp 0.2), or show all", set),
    command(&["stats"], "", "show tokens, speed, devices and fallbacks", |_| Ok(Slash::Stats)),
    command(&["model"], "FILE", "switch to another model", |file| Ok(Slash::Model(file.into()))),
    command(&["think"], "", "show the reasoning of the last answer", |_| Ok(Slash::Think)),
    command(&["tools"], "", "list the tools that the model may call", |_| Ok(Slash::Tools)),
    command(&["help", "?"], "", "show this list", |_| Ok(Slash::Help)),
    command(&["quit", "exit", "bye"], "", "exit (also Ctrl-D)", |_| Ok(Slash::Quit)),
];

const fn command(
    names: &'static [&'static str],
    argument: &'static str,
    help: &'static str,
    make: fn(&str) -> Result<Slash, String>,
) -> Definition {
    Definition {
        names,
        argument,
        help,
        make,
    }
}

fn set(rest: &str) -> Result<Slash, String> {
    match rest.split_once(char::is_whitespace) {
        Some((name, value)) => Ok(Slash::Set(Some((name.into(), value.trim().into())))),
        None if rest.is_empty() => Ok(Slash::Set(None)),
        None => Err(format!("/set {rest} needs a VALUE: /set {rest} VALUE")),
    }
}

/// The help text of all commands.
pub(super) fn help() -> String {
    let mut text = String::new();
    for Definition {
        names,
        argument,
        help,
        ..
    } in &COMMANDS
    {
        let usage = format!("/{} {argument}", names[0]);
        text += &format!("{usage:20}{help}\n");
    }
    text + KEYS
}

const KEYS: &str = "\
Ctrl-C stops an answer. Alt-Enter inserts a line break. Ctrl-R searches earlier messages. To send a message
that begins with a slash, type two slashes.";

impl Slash {
    /// The command of a line: `None` if it is for the model.
    ///
    /// # Errors
    /// Fails if the line is not a command or lacks its argument. The error is the message to show.
    pub(super) fn parse(line: &str) -> Option<Result<Self, String>> {
        let command = line
            .strip_prefix('/')
            .filter(|rest| !rest.starts_with('/'))?;
        let (name, rest) = command
            .split_once(char::is_whitespace)
            .unwrap_or((command, ""));
        let rest = rest.trim();
        let mut all = COMMANDS.iter();
        let Some(known) = all.find(|known| known.names.contains(&name)) else {
            return Some(Err(format!(
                "unknown command /{name}; /help lists all commands"
            )));
        };
        let argument = known.argument;
        let is_needed = !argument.is_empty() && !argument.starts_with('[');
        Some(match is_needed && rest.is_empty() {
            true => Err(format!("/{name} needs {argument}: /{name} {argument}")),
            false => (known.make)(rest),
        })
    }
}

/// The message in a line for the model.
pub(super) fn spoken(line: &str) -> &str {
    match line.starts_with("//") {
        true => &line[1..],
        false => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_commands_or_said() {
        let parsed = |line| Slash::parse(line);
        assert_eq!(parsed("hello /clear"), None);
        assert_eq!(parsed("//clear"), None);
        assert_eq!(spoken("//clear"), "/clear");
        assert_eq!(spoken("a // b"), "a // b");
        assert_eq!(parsed("/clear"), Some(Ok(Slash::Clear)));
        assert_eq!(
            parsed("/save  a b.json "),
            Some(Ok(Slash::Save("a b.json".into())))
        );
        let set = Slash::Set(Some(("temp".into(), "0.5".into())));
        assert_eq!(parsed("/set temp  0.5"), Some(Ok(set)));
        assert_eq!(parsed("/set"), Some(Ok(Slash::Set(None))));
    }

    #[test]
    fn mistakes_say_what_to_say() {
        for (line, why) in [
            ("/save", "/save FILE"),
            ("/set temp", "/set temp VALUE"),
            ("/rest", "/help"),
            ("/", "/help"),
        ] {
            let error = Slash::parse(line).unwrap().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn names_are_used_once_and_are_in_the_guide() {
        let guide = include_str!("../../../../../docs/chat.md");
        let mut names: Vec<_> = COMMANDS.iter().flat_map(|known| known.names).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        for known in &COMMANDS {
            assert!(
                guide.contains(&format!("`/{}", known.names[0])),
                "{}",
                known.names[0]
            );
            assert!(help().contains(known.help));
        }
        assert!(help().starts_with("/system [TEXT]      set the system prompt"));
    }
}
