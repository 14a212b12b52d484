//! Chat templates of model families, for files without a template.
//!
//! Their names and their output are those of llama.cpp's `llm_chat_template` (`src/llama-chat.cpp`). They do
//! not write the BOS token, which the tokenizer adds. They support text only: no tools and no reasoning.

use serde_json::Map;

use crate::error::ChatError;
use crate::template::ChatTemplate;

struct Family {
    name: &'static str,
    source: &'static str,
}

/// The families by their names. The source of each is the file of its name in `templates`, or another file.
macro_rules! families {
    ($($name:literal $(= $file:literal)?,)+) => {
        &[$(Family {
            name: $name,
            source: families!(@ $name $($file)?),
        }),+]
    };
    (@ $name:literal) => {
        include_str!(concat!("templates/", $name, ".jinja"))
    };
    (@ $name:literal $file:literal) => {
        include_str!(concat!("templates/", $file, ".jinja"))
    };
}

const FAMILIES: &[Family] = families! {
    "chatml",
    "llama2",
    "llama2-sys",
    "llama2-sys-bos",
    "llama2-sys-strip",
    "mistral-v1",
    "mistral-v3",
    "mistral-v3-tekken",
    "mistral-v7",
    "mistral-v7-tekken",
    "phi3",
    "phi4",
    "falcon3",
    "zephyr",
    "monarch",
    "gemma",
    "orion",
    "openchat",
    "vicuna",
    "vicuna-orca",
    "deepseek",
    "deepseek2",
    "deepseek3",
    "deepseek-ocr",
    "command-r",
    "llama3",
    "chatglm3",
    "chatglm4",
    "glmedge",
    "minicpm",
    "exaone3",
    "exaone4",
    "exaone-moe",
    "rwkv-world",
    "granite",
    "granite-4.0",
    "granite-4.1" = "granite-4.0",
    "gigachat",
    "megrez",
    "yandex",
    "bailing",
    "bailing-think",
    "bailing2",
    "llama4",
    "smolvlm",
    "hunyuan-moe",
    "gpt-oss",
    "hunyuan-dense",
    "hunyuan-vl",
    "kimi-k2",
    "seed_oss",
    "grok-2",
    "pangu-embedded",
    "solar-open",
};

/// The template of a family.
///
/// # Errors
/// Fails if no family has this name.
pub fn family(name: &str) -> Result<ChatTemplate, ChatError> {
    let found = FAMILIES.iter().find(|family| family.name == name);
    let family = found.ok_or_else(|| ChatError::UnknownFamily {
        name: name.to_owned(),
        known: family_names().collect(),
    })?;
    ChatTemplate::new(family.source, family.name, Map::new())
}

/// The names of the families, in llama.cpp's order.
pub fn family_names() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|family| family.name)
}

/// The family of a template, by its text; the first one that fits.
pub fn detect_family(source: &str) -> Option<&'static str> {
    let fits = |signs: &[&str]| {
        signs.iter().all(|sign| match sign.strip_prefix('^') {
            Some(sign) => !source.contains(sign),
            None => source.contains(sign),
        })
    };
    let found = SIGNS.iter().find(|(_, signs)| fits(signs));
    found.map(|&(name, _)| name)
}

/// Texts that families' templates contain, or with `^` do not contain. The order counts.
const SIGNS: &[(&str, &[&str])] = &[
    ("phi4", &["<|im_start|>", "<|im_sep|>"]),
    ("smolvlm", &["<|im_start|>", "<end_of_utterance>"]),
    ("chatml", &["<|im_start|>"]),
    ("mistral-v7", &["[INST]", "[SYSTEM_PROMPT]"]),
    ("mistral-v1", &["[INST]", "' [INST] ' + system_message"]),
    ("mistral-v1", &["[AVAILABLE_TOOLS]", " [INST]"]),
    ("mistral-v3-tekken", &["[AVAILABLE_TOOLS]", "\"[INST]\""]),
    ("mistral-v3", &["[INST]", "[AVAILABLE_TOOLS]"]),
    ("llama2-sys-strip", &["[INST]", "content.strip()"]),
    ("llama2-sys-bos", &["[INST]", "bos_token + '[INST]"]),
    ("llama2-sys", &["[INST]", "<<SYS>>"]),
    ("llama2", &["[INST]"]),
    ("phi3", &["<|assistant|>", "<|end|>"]),
    ("chatglm4", &["[gMASK]<sop>"]),
    (
        "exaone-moe",
        &["<|assistant|>", "<|user|>", "<|tool_declare|>"],
    ),
    ("falcon3", &["<|assistant|>", "<|user|>", "</s>"]),
    ("glmedge", &["<|assistant|>", "<|user|>"]),
    ("glmedge", &["<|{{ item['role'] }}|>", "<|begin_of_image|>"]),
    ("zephyr", &["<|user|>", "<|endoftext|>"]),
    ("monarch", &["bos_token + message['role']"]),
    ("gemma", &["<start_of_turn>"]),
    ("orion", &["'\\n\\nAssistant: ' + eos_token"]),
    ("openchat", &["GPT4 Correct "]),
    ("vicuna-orca", &["USER: ", "ASSISTANT: ", "SYSTEM: "]),
    ("vicuna", &["USER: ", "ASSISTANT: "]),
    ("deepseek", &["### Instruction:", "<|EOT|>"]),
    ("command-r", &["<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>"]),
    ("llama3", &["<|start_header_id|>", "<|end_header_id|>"]),
    ("chatglm3", &["[gMASK]sop"]),
    ("minicpm", &["<用户>"]),
    (
        "deepseek2",
        &["'Assistant: ' + message['content'] + eos_token"],
    ),
    (
        "deepseek3",
        &["<｜Assistant｜>", "<｜User｜>", "<｜end▁of▁sentence｜>"],
    ),
    (
        "exaone4",
        &["[|system|]", "[|assistant|]", "[|endofturn|]", "[|tool|]"],
    ),
    ("exaone3", &["[|system|]", "[|assistant|]", "[|endofturn|]"]),
    ("rwkv-world", &["rwkv-world"]),
    (
        "rwkv-world",
        &["{{- 'User: ' + message['content']|trim + '\\n\\n' -}}"],
    ),
    (
        "granite",
        &["<|start_of_role|>", "^<tool_call>", "^<tools>"],
    ),
    (
        "granite-4.0",
        &["<|start_of_role|>", "g4_default_system_message"],
    ),
    ("granite-4.1", &["<|start_of_role|>"]),
    (
        "gigachat",
        &[
            "message['role'] + additional_special_tokens[0] + message['content'] + additional_special_tokens[1]",
        ],
    ),
    ("megrez", &["<|role_start|>"]),
    ("yandex", &[" Ассистент:"]),
    ("bailing", &["<role>ASSISTANT</role>", "'HUMAN'"]),
    (
        "bailing-think",
        &["<role>ASSISTANT</role>", "\"HUMAN\"", "<think>"],
    ),
    (
        "bailing2",
        &[
            "<role>ASSISTANT</role>",
            "<role>HUMAN</role>",
            "<|role_end|>",
        ],
    ),
    ("llama4", &["<|header_start|>", "<|header_end|>"]),
    ("hunyuan-moe", &["<|extra_0|>", "<|extra_4|>"]),
    ("gpt-oss", &["<|start|>", "<|channel|>"]),
    (
        "hunyuan-vl",
        &["<｜hy_Assistant｜>", "<｜hy_begin▁of▁sentence｜>"],
    ),
    (
        "hunyuan-dense",
        &["<｜hy_Assistant｜>", "<｜hy_place▁holder▁no▁3｜>"],
    ),
    ("kimi-k2", &["<|im_assistant|>assistant<|im_middle|>"]),
    ("seed_oss", &["<seed:bos>"]),
    (
        "grok-2",
        &["'Assistant: '  + message['content'] + '<|separator|>"],
    ),
    ("pangu-embedded", &["[unused9]系统：[unused10]"]),
    ("solar-open", &["<|begin|>", "<|end|>", "<|content|>"]),
];
