//! Options of conversations.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use rustorch_chat::ReasoningFormat;

/// How a conversation is held.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Conversation")]
pub(crate) struct ChatArgs {
    /// What the model is told before the conversation (-sys)
    #[arg(
        long,
        visible_alias = "system",
        value_name = "TEXT",
        allow_hyphen_values = true
    )]
    pub(crate) system_prompt: Option<String>,

    /// A file with it, in UTF-8 (-sysf)
    #[arg(long, value_name = "FILE", conflicts_with = "system_prompt")]
    pub(crate) system_prompt_file: Option<PathBuf>,

    /// Template of the prompt: the name of a family, a file, or the template itself
    /// [default: the model's own]
    #[arg(long, visible_alias = "chat-template-file", value_name = "NAME|FILE")]
    pub(crate) chat_template: Option<OsString>,

    /// Take the model's template as it is, which is always done: for llama.cpp's command lines
    #[arg(long, hide = true)]
    pub(crate) jinja: bool,

    /// End after one answer (-st)
    #[arg(long)]
    pub(crate) single_turn: bool,

    /// Text at which an answer ends, which is not part of it; may be given often
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) reverse_prompt: Vec<String>,

    /// Text before each thing that the user says
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        default_value = ""
    )]
    #[arg(hide_default_value = true)]
    pub(crate) in_prefix: String,

    /// Text behind each thing that the user says
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        default_value = ""
    )]
    #[arg(hide_default_value = true)]
    pub(crate) in_suffix: String,

    /// What becomes of reasoning: none leaves it in the answer, deepseek and auto tell it apart,
    /// deepseek-legacy is as none here. A pipe gets the answer alone
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub(crate) reasoning_format: ReasoningFormat,

    /// Show reasoning on a terminal as one line; /think shows it whole
    #[arg(long)]
    pub(crate) fold_reasoning: bool,

    /// File of the conversation's tokens with their keys and values: read if it is there, written at
    /// the end
    #[arg(long, value_name = "FILE")]
    pub(crate) prompt_cache: Option<PathBuf>,

    /// File of tools that the model may call, each with a command (docs/chat.md has the form). Before
    /// one is run, the user is asked; where there is no terminal, none is
    #[arg(long, value_name = "FILE")]
    pub(crate) tool_command: Option<PathBuf>,

    /// Tools that are run without asking: their names, or all
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "tool_command"
    )]
    pub(crate) tool_approve: Vec<String>,

    /// Rounds of calls before an answer has to come without
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) tool_rounds: usize,
}

impl ChatArgs {
    /// Is any of them given that has no meaning without a conversation?
    pub(crate) fn is_conversation(&self) -> bool {
        let Self {
            system_prompt,
            system_prompt_file,
            chat_template,
            jinja,
            single_turn,
            reverse_prompt,
            in_prefix,
            in_suffix,
            reasoning_format,
            fold_reasoning,
            prompt_cache: _,
            tool_command,
            // Nothing without the one above.
            tool_approve: _,
            tool_rounds: _,
        } = self;
        system_prompt.is_some()
            || system_prompt_file.is_some()
            || chat_template.is_some()
            || *jinja
            || *single_turn
            || !reverse_prompt.is_empty()
            || !in_prefix.is_empty()
            || !in_suffix.is_empty()
            || *reasoning_format != ReasoningFormat::default()
            || *fold_reasoning
            || tool_command.is_some()
    }
}
