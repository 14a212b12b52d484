//! The list of syntaxes.

use super::{AnswerSyntax, Call, Shape, Tags};

const THINK: (&str, &str) = ("<think>", "</think>");

const JSON_IN_TAGS: Call = json("<tool_call>", "</tool_call>");

const FUNCTION_TAGS: Call = Call {
    open: "<function=",
    shape: Shape::Tagged(&Tags {
        name_end: ">",
        key: "<parameter=",
        key_end: ">",
        value_end: "</parameter>",
        ..Tags::PLAIN
    }),
    close: "</function>",
};

const ARGUMENT_TAGS: Call = Call {
    open: "<tool_call>",
    shape: Shape::Tagged(&Tags {
        key: "<arg_key>",
        key_end: "</arg_key>",
        value: "<arg_value>",
        value_end: "</arg_value>",
        ..Tags::PLAIN
    }),
    close: "</tool_call>",
};

/// JSON alone, and reasoning in tags: the syntax for models without one of their own.
pub(super) const GENERIC: AnswerSyntax = AnswerSyntax {
    name: "generic",
    calls: &[BARE],
    ..PLAIN
};

/// A syntax without special features: reasoning in tags, and no calls.
const PLAIN: AnswerSyntax = AnswerSyntax {
    name: "",
    signs: &[&[]],
    quotes_calls: false,
    thinks: &[THINK],
    calls: &[],
    wraps: &[],
    opens: &[],
    closes: &[],
    next: "",
};

/// A call without a mark.
const BARE: Call = json("", "");

/// Calls as JSON between two marks.
const fn json(open: &'static str, close: &'static str) -> Call {
    let shape = Shape::Json;
    Call { open, shape, close }
}

/// A call that is a name, `separator` and JSON between two marks.
const fn named(open: &'static str, separator: &'static str, close: &'static str) -> Call {
    let shape = Shape::Named(separator);
    Call { open, shape, close }
}

/// A call whose first line is the name, behind a mark; `said` in its place begins text.
const fn recipient(open: &'static str, said: &'static str) -> Call {
    let (shape, close) = (Shape::Recipient(said), "");
    Call { open, shape, close }
}

/// The families; the first one whose signs a template contains is its.
pub(crate) const SYNTAXES: &[AnswerSyntax] = &[
    AnswerSyntax {
        name: "function-gemma",
        signs: &[
            &["<start_function_call>"],
            &["<start_function_declaration>"],
        ],
        calls: &[Call {
            open: "<start_function_call>",
            shape: Shape::Braced("call:"),
            close: "<end_function_call>",
        }],
        ..PLAIN
    },
    AnswerSyntax {
        name: "muse-glimmer",
        signs: &[&["<atem:function_calls>"]],
        quotes_calls: true,
        thinks: &[(" to=self<|message|>", "<|eom|>")],
        calls: &[Call {
            open: " to=",
            shape: Shape::Tagged(&Tags {
                name: "<atem:invoke name=\"",
                name_end: "\">",
                key: "<atem:parameter name=\"",
                key_end: "\">",
                value_end: "</atem:parameter>",
                ..Tags::PLAIN
            }),
            close: "</atem:invoke>",
        }],
        wraps: &[("<atem:function_calls>", "</atem:function_calls>")],
        opens: &[" to=user<|message|>", NEXT],
        closes: &["<|eom|>", "<|eot|>"],
        next: NEXT,
    },
    AnswerSyntax {
        name: "solar-open",
        signs: &[&["<|tool_call:begin|>"], &["<|begin|>", "<|content|>"]],
        thinks: &[("<|think|>", "<|end|>")],
        calls: &[named(
            "<|tool_call:begin|>",
            "<|tool_call:args|>",
            "<|tool_call:end|>",
        )],
        wraps: &[("<|tool_calls|>", "<|calls|>")],
        opens: &["<|content|>", "<|begin|>assistant"],
        closes: &["<|end|>"],
        next: "<|begin|>assistant",
        ..PLAIN
    },
    AnswerSyntax {
        name: "plamo-3",
        signs: &[&["<|plamo:begin_tool_request"]],
        thinks: &[("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>")],
        calls: &[named(
            "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>",
            "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>",
            "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
        )],
        wraps: &[(
            "<|plamo:begin_tool_requests:plamo|>",
            "<|plamo:end_tool_requests:plamo|>",
        )],
        ..PLAIN
    },
    AnswerSyntax {
        name: "pangu",
        signs: &[&["[unused9]", "[unused10]"]],
        thinks: &[("[unused16]", "[unused17]")],
        calls: &[json("[unused11]", "[unused12]")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "phi-4-mini",
        signs: &[&["<|tool|>", "<|/tool|>"], &["<|/tool_call|>"]],
        calls: &[
            json("<|tool_call|>", "<|/tool_call|>"),
            json("functools", ""),
        ],
        ..PLAIN
    },
    AnswerSyntax {
        name: "hunyuan-3",
        signs: &[&["<tool_sep{}>", ":opensource"]],
        thinks: &[("<think:opensource>", "</think:opensource>")],
        calls: &[Call {
            open: "<tool_call:opensource>",
            shape: Shape::Tagged(&Tags {
                name_end: "<tool_sep:opensource>",
                key: "<arg_key:opensource>",
                key_end: "</arg_key:opensource>",
                value: "<arg_value:opensource>",
                value_end: "</arg_value:opensource>",
                ..Tags::PLAIN
            }),
            close: "</tool_call:opensource>",
        }],
        wraps: &[("<tool_calls:opensource>", "</tool_calls:opensource>")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "hunyuan",
        signs: &[&["<|extra_0|>", "<|extra_4|>"], &["<｜hy_Assistant｜>"]],
        calls: &[json("<tool_calls>", "</tool_calls>")],
        opens: &["<answer>"],
        closes: &["</answer>"],
        ..PLAIN
    },
    AnswerSyntax {
        name: "olmo-3",
        signs: &[&["<function_calls>"]],
        calls: &[Call {
            open: "<function_calls>",
            shape: Shape::Lines,
            close: "</function_calls>",
        }],
        ..PLAIN
    },
    AnswerSyntax {
        name: "internlm-2",
        signs: &[&["<|action_start|>"]],
        calls: &[json("<|action_start|><|plugin|>", "<|action_end|>")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "llama4",
        signs: &[&["<|header_start|>"]],
        calls: &[BARE],
        opens: &["<|python_start|>", "<|python_end|>"],
        closes: &["<|python_end|>"],
        ..PLAIN
    },
    AnswerSyntax {
        name: "exaone-deep",
        signs: &[&["[|assistant|]", "<thought>"]],
        thinks: &[("<thought>", "</thought>")],
        calls: &[BARE],
        ..PLAIN
    },
    AnswerSyntax {
        name: "command-r",
        signs: &[
            &["Action:", "tool_name", "directly_answer"],
            &["Action:", "tool_name", "directly-answer"],
        ],
        calls: &[
            json("Action:\n```json", "```"),
            json("Action: ```json", "```"),
            json("Action:```json", "```"),
        ],
        opens: &["<|CHATBOT_TOKEN|>"],
        closes: &["<|END_OF_TURN_TOKEN|>"],
        ..PLAIN
    },
    AnswerSyntax {
        name: "gemma-4",
        signs: &[&["<|tool_call>call:"]],
        thinks: &[("<|channel>thought", "<channel|>")],
        calls: &[Call {
            open: "<|tool_call>",
            shape: Shape::Braced("call:"),
            close: "<tool_call|>",
        }],
        opens: &["<|channel>", "<channel|>"],
        closes: &["<|channel>thought", "<channel|>"],
        ..PLAIN
    },
    AnswerSyntax {
        name: "kimi-k3",
        signs: &[&["<|open|>", "<|close|>"]],
        thinks: &[("<|open|>think<|sep|>", "<|close|>think<|sep|>")],
        calls: &[Call {
            open: "<|open|>call tool=\"",
            shape: Shape::Tagged(&Tags {
                name_end: "<|sep|>",
                key: "<|open|>argument key=\"",
                key_end: "\"",
                value: "<|sep|>",
                value_end: "<|close|>argument<|sep|>",
                ..Tags::PLAIN
            }),
            close: "<|close|>call<|sep|>",
        }],
        wraps: &[("<|open|>tools<|sep|>", "<|close|>tools<|sep|>")],
        opens: &["<|open|>response<|sep|>"],
        closes: &["<|close|>response<|sep|>", "<|close|>message<|sep|>"],
        ..PLAIN
    },
    AnswerSyntax {
        name: "minimax-m3",
        signs: &[&["]<]minimax[>["]],
        thinks: &[("<mm:think>", "</mm:think>")],
        calls: &[Call {
            open: "]<]minimax[>[<invoke name=\"",
            shape: Shape::Tagged(&Tags {
                name_end: "\">",
                key: "]<]minimax[>[<",
                key_end: ">",
                value_end: "]<]minimax[>[</",
                nests: true,
                ..Tags::PLAIN
            }),
            close: "]<]minimax[>[</invoke>",
        }],
        wraps: &[("]<]minimax[>[<tool_call>", "]<]minimax[>[</tool_call>")],
        opens: &["</mm:think>"],
        ..PLAIN
    },
    AnswerSyntax {
        name: "lfm2",
        signs: &[
            &["<|tool_call_start|>"],
            &["<|tool_list_start|>"],
            &["List of tools: ["],
        ],
        quotes_calls: true,
        calls: &[Call {
            open: "<|tool_call_start|>",
            shape: Shape::Python,
            close: "<|tool_call_end|>",
        }],
        ..PLAIN
    },
    AnswerSyntax {
        name: "minicpm-5",
        signs: &[&["<param name=\""]],
        calls: &[Call {
            open: "<function name=\"",
            shape: Shape::Tagged(&Tags {
                name_end: "\">",
                key: "<param name=\"",
                key_end: "\">",
                value_end: "</param>",
                quote: ("<![CDATA[", "]]>"),
                ..Tags::PLAIN
            }),
            close: "</function>",
        }],
        ..PLAIN
    },
    AnswerSyntax {
        name: "apriel-1.6",
        signs: &[&["[BEGIN FINAL RESPONSE]"]],
        thinks: &[("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]")],
        calls: &[json("<tool_calls>", "</tool_calls>")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "functionary-v3.2",
        signs: &[&[">>>all"]],
        thinks: &[],
        calls: &[recipient(">>>", "all"), recipient("", "all")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "gigachat-3.1",
        signs: &[&["<|function_call|>"]],
        calls: &[json("<|function_call|>", "")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "ling-3",
        signs: &[&["<arg_key>", "<|role_end|>"]],
        calls: &[ARGUMENT_TAGS],
        closes: &["<|role_end|>"],
        ..PLAIN
    },
    AnswerSyntax {
        name: "gpt-oss",
        signs: &[
            &["<|channel|>", "<|message|>"],
            &["<|start|>", "<|message|>"],
        ],
        thinks: &[("<|channel|>analysis<|message|>", "<|end|>")],
        calls: &[
            named(
                "<|channel|>commentary to=functions.",
                "<|message|>",
                "<|call|>",
            ),
            named(
                "<|channel|>analysis to=functions.",
                "<|message|>",
                "<|call|>",
            ),
            named(" to=functions.", "<|message|>", "<|call|>"),
        ],
        opens: &[
            "<|channel|>final<|message|>",
            "<|channel|>commentary<|message|>",
            "<|channel|>commentary to=assistant",
            NEXT,
        ],
        closes: &["<|end|>", "<|return|>", "<|call|>"],
        next: NEXT,
        ..PLAIN
    },
    AnswerSyntax {
        name: "deepseek-v3.2",
        signs: &[&["｜DSML｜"]],
        calls: &[Call {
            open: "<｜DSML｜invoke name=\"",
            shape: Shape::Tagged(&Tags {
                name_end: "\">",
                key: "<｜DSML｜parameter name=\"",
                key_end: "\"",
                value: ">",
                value_end: "</｜DSML｜parameter>",
                ..Tags::PLAIN
            }),
            close: "</｜DSML｜invoke>",
        }],
        wraps: &[
            ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
            ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
        ],
        ..PLAIN
    },
    AnswerSyntax {
        name: "deepseek-r1",
        signs: &[&["<｜tool▁call▁begin｜>", "```json"]],
        calls: &[named(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
            "\n```json\n",
            "```<｜tool▁call▁end｜>",
        )],
        wraps: DEEPSEEK_WRAPS,
        ..PLAIN
    },
    AnswerSyntax {
        name: "deepseek-v3.1",
        signs: &[&["<｜tool▁call▁begin｜>"]],
        calls: &[named(
            "<｜tool▁call▁begin｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>",
        )],
        wraps: DEEPSEEK_WRAPS,
        ..PLAIN
    },
    AnswerSyntax {
        name: "kimi-k2",
        signs: &[&["<|tool_call_begin|>"]],
        calls: &[named(
            "<|tool_call_begin|>",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        )],
        wraps: &[("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "command-r7b",
        signs: &[&["<|START_ACTION|>"]],
        thinks: &[("<|START_THINKING|>", "<|END_THINKING|>")],
        calls: &[json("<|START_ACTION|>", "<|END_ACTION|>")],
        opens: &["<|START_RESPONSE|>", "<|START_TEXT|>"],
        closes: &["<|END_RESPONSE|>", "<|END_TEXT|>"],
        ..PLAIN
    },
    AnswerSyntax {
        name: "mistral",
        signs: &[&["[TOOL_CALLS]"], &["[SYSTEM_PROMPT]"]],
        quotes_calls: true,
        thinks: &[("[THINK]", "[/THINK]"), THINK],
        calls: &[named("[TOOL_CALLS]", "[ARGS]", "")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "glm",
        signs: &[&["<arg_key>"]],
        calls: &[ARGUMENT_TAGS],
        ..PLAIN
    },
    AnswerSyntax {
        name: "minimax-m2",
        signs: &[&["<minimax:tool_call>"]],
        calls: &[Call {
            open: "<invoke name=\"",
            shape: Shape::Tagged(&Tags {
                name_end: "\">",
                key: "<parameter name=\"",
                key_end: "\">",
                value_end: "</parameter>",
                ..Tags::PLAIN
            }),
            close: "</invoke>",
        }],
        wraps: &[("<minimax:tool_call>", "</minimax:tool_call>")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "seed-oss",
        signs: &[&["<seed:tool_call>"], &["<seed:bos>"]],
        thinks: &[("<seed:think>", "</seed:think>")],
        calls: &[FUNCTION_TAGS],
        wraps: &[("<seed:tool_call>", "</seed:tool_call>")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "qwen3-coder",
        signs: &[&["<tool_call>", "<function=", "<parameter="]],
        calls: &[FUNCTION_TAGS],
        wraps: &[("<tool_call>", "</tool_call>")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "nemotron-v2",
        signs: &[&["<TOOLCALL>"]],
        calls: &[json("<TOOLCALL>", "</TOOLCALL>")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "apertus",
        signs: &[&["<|tools_prefix|>"]],
        thinks: &[("<|inner_prefix|>", "<|inner_suffix|>")],
        calls: &[json("<|tools_prefix|>", "<|tools_suffix|>")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "granite-3",
        signs: &[&["<|tool_call|>"]],
        calls: &[json("<|tool_call|>", "")],
        opens: &["<response>"],
        closes: &["</response>"],
        ..PLAIN
    },
    AnswerSyntax {
        name: "ernie-4.5",
        signs: &[&["<tool_call>", "<response>"]],
        calls: &[JSON_IN_TAGS],
        opens: &["<response>"],
        closes: &["</response>"],
        ..PLAIN
    },
    AnswerSyntax {
        name: "hermes",
        signs: &[&["<tool_call>"]],
        calls: &[JSON_IN_TAGS],
        ..PLAIN
    },
    AnswerSyntax {
        name: "apriel",
        signs: &[&["<tool_calls>"]],
        calls: &[json("<tool_calls>", "</tool_calls>")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "gigachat",
        signs: &[&["<|role_sep|>", "function call"]],
        calls: &[json("<|message_sep|>\n\nfunction call<|role_sep|>", "")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "functionary-v3.1",
        signs: &[&["<function="]],
        calls: &[named("<function=", ">", "</function>")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "firefunction",
        signs: &[&["functools["]],
        thinks: &[],
        calls: &[json("functools", "")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "glm-4",
        signs: &[&["[gMASK]<sop>", "<|observation|>"]],
        calls: &[recipient("", "")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "granite-20b",
        signs: &[&["<function_call>"]],
        calls: &[json("<function_call>", "")],
        ..PLAIN
    },
    AnswerSyntax {
        name: "llama3",
        signs: &[&["<|start_header_id|>"]],
        calls: &[json("<|python_tag|>", ""), BARE],
        ..PLAIN
    },
    GENERIC,
];

const DEEPSEEK_WRAPS: &[(&str, &str)] = &[("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")];

const NEXT: &str = "<|start|>assistant";
