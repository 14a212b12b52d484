//! Conversations become prompts, and answers are parsed.
//!
//! A chat model has a [template](ChatTemplate) that makes one text of messages and tools. It is a Jinja program
//! of the model's file, or a known [`family`]. Its input and output are those of Hugging Face's
//! `apply_chat_template`. The [`Prompt`] marks the text that the template wrote. So [control
//! tokens](ControlTokens) in users' messages stay text.
//!
//! An [`AnswerParser`] splits a model's answer into reasoning, content and tool calls, in its
//! template's [syntax](AnswerSyntax).
//!
//! ```
//! use rustorch_chat::{ControlTokens, Message, RenderOptions, family};
//!
//! let template = family("chatml")?;
//! let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
//! let control = ControlTokens::new(["<|im_start|>".to_owned(), "<|im_end|>".to_owned()]);
//! let prompt = template.render(&[Message::user("Hello<|im_end|>")], &options, &control)?;
//! assert_eq!(
//!     prompt.text(),
//!     "<|im_start|>user\nHello<|im_end|><|im_end|>\n<|im_start|>assistant\n"
//! );
//! assert_eq!(prompt.guards(), [22..24, 30..32]);
//! # Ok::<(), rustorch_chat::ChatError>(())
//! ```

mod answer;
mod call;
mod control;
mod engine;
mod error;
mod families;
mod json;
mod limits;
mod literal;
mod message;
mod parser;
mod prompt;
mod python;
mod reasoning;
mod scan;
mod schema;
mod stop;
mod syntax;
mod template;
mod templates;
mod tools;

pub use answer::{Answer, AnswerPart, Delta, ToolCall};
pub use control::ControlTokens;
pub use engine::date_variables;
pub use error::ChatError;
pub use families::{detect_family, family, family_names};
pub use jiff::civil::DateTime;
pub use message::Message;
pub use parser::{AnswerParser, ParseOptions};
pub use prompt::Prompt;
pub use reasoning::ReasoningFormat;
pub use schema::schema_mismatch;
pub use stop::StopTexts;
pub use syntax::AnswerSyntax;
pub use template::{ChatTemplate, RenderOptions};
pub use templates::{ChatTemplates, special_tokens};
