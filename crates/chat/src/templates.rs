//! The templates of a GGUF file.

use std::collections::BTreeMap;

use rustorch_gguf::Metadata;
use rustorch_tokenizer::Tokenizer;
use serde_json::{Map, Value};

use crate::error::ChatError;
use crate::template::{ChatTemplate, RenderOptions};

/// The key of a file's template; others of the file follow it with a point and their name.
const KEY: &str = "tokenizer.chat_template";
/// The name of the template for conversations with tools.
const TOOL_USE: &str = "tool_use";

/// The templates of a model, at least one.
pub struct ChatTemplates {
    default: ChatTemplate,
    named: BTreeMap<String, ChatTemplate>,
}

impl ChatTemplates {
    /// The templates in `metadata`.
    ///
    /// # Errors
    /// Fails if all templates have names, or if one is invalid.
    pub fn from_gguf(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Self, ChatError> {
        let model = metadata.display("general.name");
        let model = model.as_deref().unwrap_or("the file");
        let tokens = special_tokens(metadata, tokenizer)?;
        let prefix = format!("{KEY}.");
        let mut named = BTreeMap::new();
        for (key, _) in metadata.iter() {
            if let Some(name) = key.strip_prefix(&prefix) {
                let template = ChatTemplate::new(metadata.str(key)?, model, tokens.clone())?;
                named.insert(name.to_owned(), template);
            }
        }
        let missing = |name: &str| ChatError::Missing {
            model: model.to_owned(),
            name: name.to_owned(),
        };
        let default = match metadata.opt_str(KEY)? {
            Some(source) => ChatTemplate::new(source, model, tokens)?,
            None => named.remove("default").ok_or_else(|| missing(""))?,
        };
        Ok(ChatTemplates { default, named })
    }

    /// One template for everything.
    pub fn of(template: ChatTemplate) -> Self {
        ChatTemplates {
            default: template,
            named: BTreeMap::new(),
        }
    }

    /// The names of the named templates.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(String::as_str)
    }

    /// The template with a name.
    pub fn named(&self, name: &str) -> Option<&ChatTemplate> {
        self.named.get(name)
    }

    /// The template for a conversation: the one for tools if there are some and the model has one.
    pub fn for_options(&self, options: &RenderOptions) -> &ChatTemplate {
        let tools = self.named(TOOL_USE).filter(|_| !options.tools.is_empty());
        tools.unwrap_or(&self.default)
    }
}

/// The texts of a model's special tokens, under their names in templates.
///
/// # Errors
/// Fails if a key has the wrong type.
pub fn special_tokens(
    metadata: &Metadata,
    tokenizer: &Tokenizer,
) -> Result<Map<String, Value>, ChatError> {
    let keyed = |key: &str| metadata.opt_u32(&format!("tokenizer.ggml.{key}_token_id"));
    let ids = [
        ("bos_token", tokenizer.bos()),
        ("eos_token", tokenizer.eos()),
        ("unk_token", tokenizer.unk()),
        ("pad_token", keyed("padding")?),
        ("sep_token", keyed("seperator")?),
        ("mask_token", keyed("mask")?),
    ];
    let texts = ids
        .into_iter()
        .filter_map(|(name, id)| Some((name.to_owned(), tokenizer.token_text(id?)?.into())));
    Ok(texts.collect())
}
