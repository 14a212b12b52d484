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

const fn family_of(name: &'static str, source: &'static str) -> Family {
    Family { name, source }
}

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

const FAMILIES: &[Family] = &[
    family_of(
        "chatml",
        "{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}",
    ),
    family_of(
        "llama2",
        "[INST] {% set turn = namespace(open=true) %}{% for m in messages %}{% if not turn.open %}[INST] {% set turn.open = true %}{% endif %}{% if m.role == 'system' %}{{ m.content + '\n' }}{% elif m.role == 'user' %}{{ m.content }} [/INST]{% else %}{{ m.content }}</s>{% set turn.open = false %}{% endif %}{% endfor %}",
    ),
    family_of(
        "llama2-sys",
        "[INST] {% set turn = namespace(open=true) %}{% for m in messages %}{% if not turn.open %}[INST] {% set turn.open = true %}{% endif %}{% if m.role == 'system' %}{{ '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' }}{% elif m.role == 'user' %}{{ m.content }} [/INST]{% else %}{{ m.content }}</s>{% set turn.open = false %}{% endif %}{% endfor %}",
    ),
    family_of(
        "llama2-sys-bos",
        "[INST] {% set turn = namespace(open=true) %}{% for m in messages %}{% if not turn.open %}<s>[INST] {% set turn.open = true %}{% endif %}{% if m.role == 'system' %}{{ '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' }}{% elif m.role == 'user' %}{{ m.content }} [/INST]{% else %}{{ m.content }}</s>{% set turn.open = false %}{% endif %}{% endfor %}",
    ),
    family_of(
        "llama2-sys-strip",
        "[INST] {% set turn = namespace(open=true) %}{% for m in messages %}{% if not turn.open %}[INST] {% set turn.open = true %}{% endif %}{% if m.role == 'system' %}{{ '<<SYS>>\n' + m.content|trim + '\n<</SYS>>\n\n' }}{% elif m.role == 'user' %}{{ m.content|trim }} [/INST]{% else %}{{ m.content|trim }}</s>{% set turn.open = false %}{% endif %}{% endfor %}",
    ),
    family_of(
        "mistral-v1",
        "{% set turn = namespace(open=false) %}{% for m in messages %}{% if not turn.open %} [INST] {% set turn.open = true %}{% endif %}{% if m.role == 'system' %}{{ m.content + '\n\n' }}{% elif m.role == 'user' %}{{ m.content }} [/INST]{% else %} {{ m.content }}</s>{% set turn.open = false %}{% endif %}{% endfor %}",
    ),
    family_of(
        "mistral-v3",
        "{% set turn = namespace(open=false) %}{% for m in messages %}{% if not turn.open %}[INST] {% set turn.open = true %}{% endif %}{% if m.role == 'system' %}{{ m.content + '\n\n' }}{% elif m.role == 'user' %}{{ m.content }}[/INST]{% else %} {{ m.content|trim }}</s>{% set turn.open = false %}{% endif %}{% endfor %}",
    ),
    family_of(
        "mistral-v3-tekken",
        "{% set turn = namespace(open=false) %}{% for m in messages %}{% if not turn.open %}[INST]{% set turn.open = true %}{% endif %}{% if m.role == 'system' %}{{ m.content + '\n\n' }}{% elif m.role == 'user' %}{{ m.content }}[/INST]{% else %}{{ m.content }}</s>{% set turn.open = false %}{% endif %}{% endfor %}",
    ),
    family_of(
        "mistral-v7",
        "{% for m in messages %}{% if m.role == 'system' %}[SYSTEM_PROMPT] {{ m.content }}[/SYSTEM_PROMPT]{% elif m.role == 'user' %}[INST] {{ m.content }}[/INST]{% else %} {{ m.content }}</s>{% endif %}{% endfor %}",
    ),
    family_of(
        "mistral-v7-tekken",
        "{% for m in messages %}{% if m.role == 'system' %}[SYSTEM_PROMPT]{{ m.content }}[/SYSTEM_PROMPT]{% elif m.role == 'user' %}[INST]{{ m.content }}[/INST]{% else %}{{ m.content }}</s>{% endif %}{% endfor %}",
    ),
    family_of(
        "phi3",
        "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
    ),
    family_of(
        "phi4",
        "{% for m in messages %}<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant<|im_sep|>{% endif %}",
    ),
    family_of(
        "falcon3",
        "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
    ),
    family_of(
        "zephyr",
        "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|endoftext|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
    ),
    family_of(
        "monarch",
        "{% for m in messages %}{% if not loop.first %}<s>{% endif %}{{ m.role + '\n' + m.content + '</s>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}",
    ),
    family_of(
        "gemma",
        "{% set before = namespace(text='') %}{% for m in messages %}{% if m.role == 'system' %}{% set before.text = before.text + m.content|trim %}{% else %}{% set role = 'model' if m.role == 'assistant' else m.role %}{{ '<start_of_turn>' + role + '\n' }}{% if before.text and role != 'model' %}{{ before.text + '\n\n' }}{% set before.text = '' %}{% endif %}{{ m.content|trim + '<end_of_turn>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}",
    ),
    family_of(
        "orion",
        "{% set before = namespace(text='') %}{% for m in messages %}{% if m.role == 'system' %}{% set before.text = before.text + m.content %}{% elif m.role == 'user' %}Human: {% if before.text %}{{ before.text + '\n\n' }}{% set before.text = '' %}{% endif %}{{ m.content + '\n\nAssistant: </s>' }}{% else %}{{ m.content }}</s>{% endif %}{% endfor %}",
    ),
    family_of(
        "openchat",
        "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}<|end_of_turn|>{% else %}GPT4 Correct {{ m.role|capitalize }}: {{ m.content }}<|end_of_turn|>{% endif %}{% endfor %}{% if add_generation_prompt %}GPT4 Correct Assistant:{% endif %}",
    ),
    family_of(
        "vicuna",
        "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\n\n' }}{% elif m.role == 'user' %}{{ 'USER: ' + m.content + '\n' }}{% elif m.role == 'assistant' %}{{ 'ASSISTANT: ' + m.content + '</s>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}",
    ),
    family_of(
        "vicuna-orca",
        "{% for m in messages %}{% if m.role == 'system' %}{{ 'SYSTEM: ' + m.content + '\n' }}{% elif m.role == 'user' %}{{ 'USER: ' + m.content + '\n' }}{% elif m.role == 'assistant' %}{{ 'ASSISTANT: ' + m.content + '</s>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}",
    ),
    family_of(
        "deepseek",
        "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% elif m.role == 'user' %}{{ '### Instruction:\n' + m.content + '\n' }}{% elif m.role == 'assistant' %}{{ '### Response:\n' + m.content + '\n<|EOT|>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '### Response:\n' }}{% endif %}",
    ),
    family_of(
        "deepseek2",
        "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\n\n' }}{% elif m.role == 'user' %}{{ 'User: ' + m.content + '\n\n' }}{% elif m.role == 'assistant' %}Assistant: {{ m.content }}<｜end▁of▁sentence｜>{% endif %}{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}",
    ),
    family_of(
        "deepseek3",
        "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\n\n' }}{% elif m.role == 'user' %}<｜User｜>{{ m.content }}{% elif m.role == 'assistant' %}<｜Assistant｜>{{ m.content }}<｜end▁of▁sentence｜>{% endif %}{% endfor %}{% if add_generation_prompt %}<｜Assistant｜>{% endif %}",
    ),
    family_of(
        "deepseek-ocr",
        "{% for m in messages %}{{ m.content }}{% endfor %}",
    ),
    family_of(
        "command-r",
        "{% set names = {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'} %}{% for m in messages %}{% if m.role in names %}<|START_OF_TURN_TOKEN|><|{{ names[m.role] }}_TOKEN|>{{ m.content|trim }}<|END_OF_TURN_TOKEN|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}",
    ),
    family_of(
        "llama3",
        "{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + m.content|trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
    ),
    family_of(
        "chatglm3",
        "[gMASK]sop{% for m in messages %}{{ '<|' + m.role + '|>\n ' + m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
    ),
    family_of(
        "chatglm4",
        "[gMASK]<sop>{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
    ),
    family_of(
        "glmedge",
        "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}",
    ),
    family_of(
        "minicpm",
        "{% for m in messages %}{% if m.role == 'user' %}<用户>{{ m.content|trim }}<AI>{% else %}{{ m.content|trim }}{% endif %}{% endfor %}",
    ),
    family_of(
        "exaone3",
        "{% for m in messages %}{% if m.role == 'user' %}{{ '[|user|]' + m.content|trim + '\n' }}{% elif m.role in ['system', 'assistant'] %}{{ '[|' + m.role + '|]' + m.content|trim + '[|endofturn|]\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}[|assistant|]{% endif %}",
    ),
    family_of(
        "exaone4",
        "{% for m in messages %}{% if m.role == 'user' %}{{ '[|user|]' + m.content|trim + '\n' }}{% elif m.role in ['system', 'assistant', 'tool'] %}{{ '[|' + m.role + '|]' + m.content|trim + '[|endofturn|]\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}[|assistant|]{% endif %}",
    ),
    family_of(
        "exaone-moe",
        "{% for m in messages %}{% if m.role in ['system', 'user', 'assistant', 'tool'] %}{{ '<|' + m.role + '|>\n' + m.content|trim + '<|endofturn|>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
    ),
    family_of(
        "rwkv-world",
        "{% for m in messages %}{% if m.role == 'system' %}{{ 'System: ' + m.content|trim + '\n\n' }}{% elif m.role == 'user' %}{{ 'User: ' + m.content|trim + '\n\n' }}{% if loop.last %}Assistant:{% endif %}{% elif m.role == 'assistant' %}{{ 'Assistant: ' + m.content|trim + '\n\n' }}{% endif %}{% endfor %}",
    ),
    family_of(
        "granite",
        "{% for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>{% if m.role == 'assistant_tool_call' %}<|tool_call|>{% endif %}{{ m.content + '<|end_of_text|>\n' }}{% endfor %}{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}",
    ),
    family_of("granite-4.0", GRANITE_4),
    family_of("granite-4.1", GRANITE_4),
    family_of(
        "gigachat",
        "<s>{% for m in messages %}{% if m.role == 'system' and loop.first %}{{ m.content }}<|message_sep|>{% elif m.role == 'user' %}user<|role_sep|>{{ m.content }}<|message_sep|>available functions<|role_sep|>[]<|message_sep|>{% elif m.role == 'assistant' %}assistant<|role_sep|>{{ m.content }}<|message_sep|>{% endif %}{% endfor %}{% if add_generation_prompt %}assistant<|role_sep|>{% endif %}",
    ),
    family_of(
        "megrez",
        "{% for m in messages %}<|role_start|>{{ m.role }}<|role_end|>{{ m.content }}<|turn_end|>{% endfor %}{% if add_generation_prompt %}<|role_start|>assistant<|role_end|>{% endif %}",
    ),
    family_of(
        "yandex",
        "{% for m in messages %}{% if m.role == 'user' %}{{ ' Пользователь: ' + m.content + '\n\n' }}{% elif m.role == 'assistant' %}{{ ' Ассистент: ' + m.content + '\n\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %} Ассистент:[SEP]{% endif %}",
    ),
    family_of(
        "bailing",
        "{% for m in messages %}<role>{{ 'HUMAN' if m.role == 'user' else m.role|upper }}</role>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<role>ASSISTANT</role>{% endif %}",
    ),
    family_of(
        "bailing-think",
        "{% for m in messages %}<role>{{ 'HUMAN' if m.role == 'user' else m.role|upper }}</role>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<role>ASSISTANT</role><think>{% endif %}",
    ),
    family_of(
        "bailing2",
        "{% if not messages or messages[0].role != 'system' %}<role>SYSTEM</role>detailed thinking off<|role_end|>{% endif %}{% for m in messages %}<role>{{ 'HUMAN' if m.role == 'user' else m.role|upper }}</role>{{ m.content }}<|role_end|>{% endfor %}{% if add_generation_prompt %}<role>ASSISTANT</role>{% endif %}",
    ),
    family_of(
        "llama4",
        "{% for m in messages %}{{ '<|header_start|>' + m.role + '<|header_end|>\n\n' + m.content|trim + '<|eot|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|header_start|>assistant<|header_end|>\n\n' }}{% endif %}",
    ),
    family_of(
        "smolvlm",
        "<|im_start|>{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\n\n' }}{% else %}{{ ('User: ' if m.role == 'user' else 'Assistant: ') + m.content + '<end_of_utterance>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}",
    ),
    family_of(
        "hunyuan-moe",
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}<|eos|>{% else %}<|startoftext|>{{ m.content }}{% if m.role == 'system' %}<|extra_4|>{% else %}<|extra_0|>{% endif %}{% endif %}{% endfor %}",
    ),
    family_of(
        "gpt-oss",
        "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}{% if m.role == 'assistant' %}<|return|>{% else %}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}",
    ),
    family_of(
        "hunyuan-dense",
        "{% for m in messages %}{% if m.role == 'system' and loop.first %}{{ m.content }}<｜hy_place▁holder▁no▁3｜>{% elif m.role == 'assistant' %}<｜hy_Assistant｜>{{ m.content }}<｜hy_place▁holder▁no▁2｜>{% elif m.role == 'user' %}<｜hy_User｜>{{ m.content }}<｜hy_Assistant｜>{% endif %}{% endfor %}",
    ),
    family_of(
        "hunyuan-vl",
        "<｜hy_begin▁of▁sentence｜>{% for m in messages %}{% if m.role == 'system' and loop.first %}{{ m.content }}<｜hy_place▁holder▁no▁3｜>{% elif m.role == 'user' %}{{ m.content }}<｜hy_User｜>{% elif m.role == 'assistant' %}{{ m.content }}<｜hy_Assistant｜>{% endif %}{% endfor %}",
    ),
    family_of(
        "kimi-k2",
        "{% set starts = {'system': '<|im_system|>system', 'user': '<|im_user|>user', 'assistant': '<|im_assistant|>assistant', 'tool': '<|im_system|>tool'} %}{% for m in messages %}{% if m.role in starts %}{{ starts[m.role] }}<|im_middle|>{% endif %}{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_assistant|>assistant<|im_middle|>{% endif %}",
    ),
    family_of(
        "seed_oss",
        "{% for m in messages %}{{ '<seed:bos>' + m.role + '\n' + (m.content|trim if m.role == 'assistant' else m.content) + '<seed:eos>' }}{% endfor %}{% if add_generation_prompt %}{{ '<seed:bos>assistant\n' }}{% endif %}",
    ),
    family_of(
        "grok-2",
        "{% for m in messages %}{% if m.role == 'system' %}{{ 'System: ' + m.content|trim + '<|separator|>\n\n' }}{% elif m.role == 'user' %}{{ 'Human: ' + m.content|trim + '<|separator|>\n\n' }}{% elif m.role == 'assistant' %}{{ 'Assistant: ' + m.content + '<|separator|>\n\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}",
    ),
    family_of(
        "pangu-embedded",
        "{% set names = {'system': '系统', 'user': '用户', 'assistant': '助手', 'tool': '工具', 'function': '方法'} %}{% if messages and messages[0].role != 'system' %}[unused9]系统：[unused10]{% endif %}{% for m in messages %}{% if m.role in names %}[unused9]{{ names[m.role] }}：{{ m.content }}[unused10]{% endif %}{% endfor %}{% if add_generation_prompt %}[unused9]助手：{% endif %}",
    ),
    family_of(
        "solar-open",
        "{% for m in messages %}<|begin|>{{ m.role }}<|content|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|begin|>assistant{% endif %}",
    ),
];

const GRANITE_4: &str = "{% for m in messages %}<|start_of_role|>{% if m.role == 'assistant_tool_call' %}assistant<|end_of_role|><|tool_call|>{% else %}{{ m.role }}<|end_of_role|>{% endif %}{{ m.content + '<|end_of_text|>\n' }}{% endfor %}{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}";

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
