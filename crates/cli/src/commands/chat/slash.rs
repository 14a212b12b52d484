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

/// The help text of all commands.
pub(super) const HELP: &str = "\
/system [TEXT]      set the system prompt; without TEXT, remove it
/clear              start a new conversation with the same system prompt
/regen              generate another answer to your last message
/edit               edit your last message and generate a new answer
/undo               remove your last message and its answer
/save FILE          save the conversation as JSON
/load FILE          load a saved conversation
/set [NAME VALUE]   set a sampling option (/set temp 0.2), or show all
/stats              show tokens, speed, devices and fallbacks
/model FILE         switch to another model
/think              show the reasoning of the last answer
/tools              list the tools that the model may call
/help               show this list
/quit               exit (also Ctrl-D)
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
        let about = |what: &str| match rest {
            "" => Err(format!("/{name} needs {what}: /{name} {what}")),
            rest => Ok(rest.to_owned()),
        };
        let found = match name {
            "system" => Ok(Self::System(rest.to_owned())),
            "clear" => Ok(Self::Clear),
            "regen" => Ok(Self::Regenerate),
            "edit" => Ok(Self::Edit),
            "undo" => Ok(Self::Undo),
            "save" => about("FILE").map(Self::Save),
            "load" => about("FILE").map(Self::Load),
            "set" => match rest.split_once(char::is_whitespace) {
                Some((name, value)) => Ok(Self::Set(Some((name.into(), value.trim().into())))),
                None if rest.is_empty() => Ok(Self::Set(None)),
                None => Err(format!("/set {rest} needs a VALUE: /set {rest} VALUE")),
            },
            "stats" => Ok(Self::Stats),
            "model" => about("FILE").map(Self::Model),
            "think" => Ok(Self::Think),
            "tools" => Ok(Self::Tools),
            "help" | "?" => Ok(Self::Help),
            "quit" | "exit" | "bye" => Ok(Self::Quit),
            other => Err(format!(
                "unknown command /{other}; /help lists all commands"
            )),
        };
        Some(found)
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
    fn help_names_every_command() {
        for line in HELP.lines().filter(|line| line.starts_with('/')) {
            let name = line.split_whitespace().next().unwrap();
            let parsed = Slash::parse(&format!("{name} a b")).unwrap();
            assert!(parsed.is_ok(), "{name}");
        }
    }
}
