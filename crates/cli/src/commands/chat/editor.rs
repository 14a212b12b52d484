//! The line that a user edits.

use std::borrow::Cow;
use std::path::PathBuf;

use anyhow::{Context, Result};
use reedline::{
    EditCommand, EditMode, Emacs, FileBackedHistory, KeyCode, KeyModifiers, Prompt, PromptEditMode,
    PromptHistorySearch, PromptHistorySearchStatus, Reedline, ReedlineEvent, Signal,
    default_emacs_keybindings,
};

/// Messages that the history keeps.
const HISTORY: usize = 1000;

/// Input of the user.
pub(super) enum Line {
    Said(String),
    /// Ctrl-C on an empty line.
    Nothing,
    /// Ctrl-D.
    End,
}

pub(super) struct Editor(Reedline);

impl Editor {
    /// With the messages of earlier conversations, if there is a folder for them.
    pub(super) fn new() -> Result<Self> {
        let mut keys = default_emacs_keybindings();
        let another_line = ReedlineEvent::Edit(vec![EditCommand::InsertNewline]);
        for modifier in [KeyModifiers::ALT, KeyModifiers::SHIFT] {
            keys.add_binding(modifier, KeyCode::Enter, another_line.clone());
        }
        let mode: Box<dyn EditMode> = Box::new(Emacs::new(keys));
        let editor = Reedline::create()
            .with_edit_mode(mode)
            .use_bracketed_paste(true);
        let editor = match history_file() {
            Some(path) => {
                let history = FileBackedHistory::with_file(HISTORY, path.clone());
                let history =
                    history.with_context(|| format!("{}: cannot read the history", path.display()));
                match history {
                    Ok(history) => editor.with_history(Box::new(history)),
                    Err(e) => {
                        tracing::warn!(
                            "{e:#}; messages of earlier conversations are not available"
                        );
                        editor
                    }
                }
            }
            None => editor,
        };
        Ok(Self(editor))
    }

    /// The user's next message, with `text` to edit.
    ///
    /// # Errors
    /// Fails if the terminal fails.
    pub(super) fn read(&mut self, text: &str) -> Result<Line> {
        if !text.is_empty() {
            let insert = EditCommand::InsertString(text.to_owned());
            self.0.run_edit_commands(&[insert]);
        }
        Ok(match self.0.read_line(&Mark("> "))? {
            Signal::Success(line) => Line::Said(line),
            Signal::CtrlC => Line::Nothing,
            _ => Line::End,
        })
    }
}

/// The user's answer to a question; nothing at Ctrl-C and Ctrl-D.
///
/// # Errors
/// Fails if the terminal fails.
pub(super) fn ask(question: &'static str) -> Result<Option<String>> {
    Ok(match Reedline::create().read_line(&Mark(question))? {
        Signal::Success(line) => Some(line),
        _ => None,
    })
}

/// `chat_history` in the folder of the user's state (XDG Base Directory Specification).
fn history_file() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty());
    let state = folder("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(folder("HOME")?).join(".local/state")))?;
    Some(state.join("rustorch/chat_history"))
}

/// The text before the line.
struct Mark(&'static str);

impl Prompt for Mark {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        "".into()
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        "".into()
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        self.0.into()
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        "  ".into()
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        let found = match search.status {
            PromptHistorySearchStatus::Passing => "",
            PromptHistorySearchStatus::Failing => "nothing ",
        };
        format!("({found}said before: {}) ", search.term).into()
    }
}
