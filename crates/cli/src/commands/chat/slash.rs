//! What a user says to the program rather than to the model: `/help`.

/// What to do.
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

/// What can be said, and what it does.
pub(super) const HELP: &str = "\
/system [TEXT]      what the model is told before the conversation; nothing for none
/clear              begin anew, with the same system prompt
/regen              another answer to what was said last
/edit               change what was said last, and have it answered
/undo               forget what was said last, and its answer
/save FILE          write the conversation as JSON
/load FILE          go on with such a conversation
/set [NAME VALUE]   change an option of sampling (/set temp 0.2), or show them
/stats              tokens, speed, devices, fallbacks
/model FILE         go on with another model
/think              the reasoning before the last answer
/tools              what the model may call
/help               this list
/quit               end (also Ctrl-D)
Ctrl-C ends an answer. Alt-Enter begins another line; Ctrl-R searches what was said before. A message that
begins with two slashes is said with one.";

impl Slash {
    /// What a line says: `None` if it is for the model.
    ///
    /// # Errors
    /// It is no command, or lacks what it is about: what to say instead.
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
            other => Err(format!("no command /{other}: /help lists what there is")),
        };
        Some(found)
    }
}

/// What a line that is for the model says.
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
