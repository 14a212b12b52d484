//! Options of conversations.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use rustorch_chat::ReasoningFormat;

/// Options of conversations.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Conversation")]
pub(crate) struct ChatArgs {
    /// System prompt (-sys)
    #[arg(
        long,
        visible_alias = "system",
        value_name = "TEXT",
        allow_hyphen_values = true
    )]
    pub(crate) system_prompt: Option<String>,

    /// File of the system prompt, in UTF-8 (-sysf)
    #[arg(long, value_name = "FILE", conflicts_with = "system_prompt")]
    pub(crate) system_prompt_file: Option<PathBuf>,

    /// Chat template: the name of a model family, a file, or the template itself [default: the model's own]
    #[arg(long, visible_alias = "chat-template-file", value_name = "NAME|FILE")]
    pub(crate) chat_template: Option<OsString>,

    /// Use the model's Jinja template; always on, accepted for llama.cpp's command lines
    #[arg(long, hide = true)]
    pub(crate) jinja: bool,

    /// Exit after one answer (-st)
    #[arg(long)]
    pub(crate) single_turn: bool,

    /// Reverse prompt: a text that ends the answer and is not part of it; repeatable
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) reverse_prompt: Vec<String>,

    /// Text added before each user message
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        default_value = ""
    )]
    #[arg(hide_default_value = true)]
    pub(crate) in_prefix: String,

    /// Text added after each user message
    #[arg(
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        default_value = ""
    )]
    #[arg(hide_default_value = true)]
    pub(crate) in_suffix: String,

    /// Handling of reasoning: `none` leaves it in the answer; `auto`, `deepseek` and `deepseek-legacy`
    /// separate it. A pipe gets the answer only
    #[arg(long, value_name = "FORMAT", default_value = "auto")]
    pub(crate) reasoning_format: ReasoningFormat,

    /// Show reasoning as one line on a terminal; /think shows all of it
    #[arg(long)]
    pub(crate) fold_reasoning: bool,

    /// File of the conversation's tokens and KV cache: read at the start if it exists, written at the end
    #[arg(long, value_name = "FILE")]
    pub(crate) prompt_cache: Option<PathBuf>,

    /// File of tools that the model may call, each with a command (docs/chat.md has the format). The program asks
    /// before each call. Without a terminal it runs only those of --tool-approve
    #[arg(long, value_name = "FILE")]
    pub(crate) tool_command: Option<PathBuf>,

    /// Tools that run without asking: names separated by commas, or `all`
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "tool_command"
    )]
    pub(crate) tool_approve: Vec<String>,

    /// Maximum rounds of tool calls for one answer
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
