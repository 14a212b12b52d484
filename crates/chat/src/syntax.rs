//! How families of models write reasoning and tool calls.

/// One family's way.
#[derive(Debug, PartialEq)]
pub struct AnswerSyntax {
    /// Its name.
    pub name: &'static str,
    /// What its templates contain.
    pub(crate) signs: &'static [&'static str],
    /// Tool calls within reasoning are part of it. In other families models forget to end it.
    pub(crate) quotes_calls: bool,
    /// What begins and ends reasoning.
    pub(crate) thinks: &'static [(&'static str, &'static str)],
    /// What begins a tool call, and how it goes on.
    pub(crate) calls: &'static [Call],
    /// Marks before and behind a group of tool calls.
    pub(crate) wraps: &'static [(&'static str, &'static str)],
    /// Marks before the text of a message.
    pub(crate) opens: &'static [&'static str],
    /// Marks behind the text of a message.
    pub(crate) closes: &'static [&'static str],
    /// Mark that begins another message of the same answer; nothing if answers are one message.
    pub(crate) next: &'static str,
}

/// A way to write a tool call. White space may be between its parts.
#[derive(Debug, PartialEq)]
pub(crate) struct Call {
    /// What it begins with; nothing for JSON that an answer begins with.
    pub(crate) open: &'static str,
    pub(crate) shape: Shape,
    /// What it ends with, which models may forget.
    pub(crate) close: &'static str,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Shape {
    /// An object with the name and the arguments, or an array of them.
    Json,
    /// The name, this text, and the arguments as JSON; or as [`Shape::Json`] if it begins with a bracket.
    Named(&'static str),
    /// The name, and arguments in tags.
    Tagged(&'static Tags),
    /// This text, the name, and the arguments as an object without quotes around its keys.
    Braced(&'static str),
    /// A list of Python's calls, with named arguments.
    Python,
    /// On a line of its own the name, and the arguments as JSON; or `all`, and no call. Answers may begin so.
    Recipient,
}

/// The tags around arguments.
#[derive(Debug, PartialEq)]
pub(crate) struct Tags {
    /// Behind the name; nothing if it ends where a key begins, or the call ends.
    pub(crate) name_end: &'static str,
    pub(crate) key: &'static str,
    pub(crate) key_end: &'static str,
    /// Before the value; what is between is passed over.
    pub(crate) value: &'static str,
    pub(crate) value_end: &'static str,
    /// What is put around values that contain such tags.
    pub(crate) quote: (&'static str, &'static str),
    /// The key, and what is behind it, is behind `value_end`, too. Objects and lists are such tags in values.
    pub(crate) nests: bool,
}

impl Tags {
    /// Of a family that has nothing special.
    const PLAIN: Self = Self {
        name_end: "",
        key: "",
        key_end: "",
        value: "",
        value_end: "",
        quote: ("", ""),
        nests: false,
    };
}

impl AnswerSyntax {
    /// The families' names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SYNTAXES.iter().map(|it| it.name)
    }

    /// The syntax of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SYNTAXES.iter().find(|it| it.name == name)
    }

    /// The syntax that a template asks models for, by what it contains.
    pub fn detect(template: &str) -> &'static Self {
        let fits = |it: &&AnswerSyntax| it.signs.iter().all(|sign| template.contains(sign));
        SYNTAXES.iter().find(fits).unwrap_or(&GENERIC)
    }

    /// What begins reasoning, if answers have any.
    pub fn begins_thinking(&self) -> Option<&'static str> {
        self.thinks.first().map(|(open, _)| *open)
    }

    /// The part of a prompt that began reasoning which the answer goes on with.
    pub fn thinking_begun<'p>(&self, prompt: &'p str) -> Option<&'p str> {
        self.thinks.iter().find_map(|(open, close)| {
            let tail = &prompt[prompt.rfind(open)?..];
            (!tail.contains(close) && tail[open.len()..].trim().is_empty()).then_some(tail)
        })
    }
}

const THINK: (&str, &str) = ("<think>", "</think>");

const JSON_IN_TAGS: Call = Call {
    open: "<tool_call>",
    shape: Shape::Json,
    close: "</tool_call>",
};

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

/// JSON alone, and reasoning in tags: what models without a syntax of their own are asked for.
const GENERIC: AnswerSyntax = AnswerSyntax {
    name: "generic",
    signs: &[],
    quotes_calls: false,
    thinks: &[THINK],
    calls: &[BARE],
    wraps: &[],
    opens: &[],
    closes: &[],
    next: "",
};

const BARE: Call = Call {
    open: "",
    shape: Shape::Json,
    close: "",
};

/// The families; the first one whose signs a template contains is its.
pub(crate) const SYNTAXES: &[AnswerSyntax] = &[
    AnswerSyntax {
        name: "gemma-4",
        signs: &["<|tool_call>call:"],
        quotes_calls: false,
        thinks: &[("<|channel>thought", "<channel|>")],
        calls: &[Call {
            open: "<|tool_call>",
            shape: Shape::Braced("call:"),
            close: "<tool_call|>",
        }],
        wraps: &[],
        opens: &["<|channel>", "<channel|>"],
        closes: &["<|channel>thought", "<channel|>"],
        next: "",
    },
    AnswerSyntax {
        name: "kimi-k3",
        signs: &["<|open|>", "<|close|>"],
        quotes_calls: false,
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
        next: "",
    },
    AnswerSyntax {
        name: "minimax-m3",
        signs: &["]<]minimax[>["],
        quotes_calls: false,
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
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "lfm2",
        signs: &["<|tool_call_start|>"],
        quotes_calls: true,
        thinks: &[THINK],
        calls: &[Call {
            open: "<|tool_call_start|>",
            shape: Shape::Python,
            close: "<|tool_call_end|>",
        }],
        wraps: &[],
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "minicpm-5",
        signs: &["<param name=\""],
        quotes_calls: false,
        thinks: &[THINK],
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
        wraps: &[],
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "apriel-1.6",
        signs: &["[BEGIN FINAL RESPONSE]"],
        quotes_calls: false,
        thinks: &[("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]")],
        calls: &[Call {
            open: "<tool_calls>",
            shape: Shape::Json,
            close: "</tool_calls>",
        }],
        wraps: &[],
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "functionary-v3.2",
        signs: &[">>>all"],
        quotes_calls: false,
        thinks: &[],
        calls: &[
            Call {
                open: ">>>",
                shape: Shape::Recipient,
                close: "",
            },
            Call {
                open: "",
                shape: Shape::Recipient,
                close: "",
            },
        ],
        wraps: &[],
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "gigachat-3.1",
        signs: &["<|function_call|>"],
        quotes_calls: false,
        thinks: &[THINK],
        calls: &[Call {
            open: "<|function_call|>",
            shape: Shape::Json,
            close: "",
        }],
        wraps: &[],
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "ling-3",
        signs: &["<arg_key>", "<|role_end|>"],
        quotes_calls: false,
        thinks: &[THINK],
        calls: &[ARGUMENT_TAGS],
        wraps: &[],
        opens: &[],
        closes: &["<|role_end|>"],
        next: "",
    },
    AnswerSyntax {
        name: "gpt-oss",
        signs: &["<|channel|>", "<|message|>"],
        quotes_calls: false,
        thinks: &[("<|channel|>analysis<|message|>", "<|end|>")],
        calls: &[
            Call {
                open: "<|channel|>commentary to=functions.",
                shape: Shape::Named("<|message|>"),
                close: "<|call|>",
            },
            Call {
                open: "<|channel|>analysis to=functions.",
                shape: Shape::Named("<|message|>"),
                close: "<|call|>",
            },
            Call {
                open: " to=functions.",
                shape: Shape::Named("<|message|>"),
                close: "<|call|>",
            },
        ],
        wraps: &[],
        opens: &[
            "<|channel|>final<|message|>",
            "<|channel|>commentary<|message|>",
            "<|channel|>commentary to=assistant",
            GPT_OSS_NEXT,
        ],
        closes: &["<|end|>", "<|return|>", "<|call|>"],
        next: GPT_OSS_NEXT,
    },
    AnswerSyntax {
        name: "deepseek-v3.2",
        signs: &["｜DSML｜"],
        quotes_calls: false,
        thinks: &[THINK],
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
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "deepseek-r1",
        signs: &["<｜tool▁call▁begin｜>", "```json"],
        quotes_calls: false,
        thinks: &[THINK],
        calls: &[Call {
            open: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
            shape: Shape::Named("\n```json\n"),
            close: "```<｜tool▁call▁end｜>",
        }],
        wraps: DEEPSEEK_WRAPS,
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "deepseek-v3.1",
        signs: &["<｜tool▁call▁begin｜>"],
        quotes_calls: false,
        thinks: &[THINK],
        calls: &[Call {
            open: "<｜tool▁call▁begin｜>",
            shape: Shape::Named("<｜tool▁sep｜>"),
            close: "<｜tool▁call▁end｜>",
        }],
        wraps: DEEPSEEK_WRAPS,
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "kimi-k2",
        signs: &["<|tool_call_begin|>"],
        quotes_calls: false,
        thinks: &[THINK],
        calls: &[Call {
            open: "<|tool_call_begin|>",
            shape: Shape::Named("<|tool_call_argument_begin|>"),
            close: "<|tool_call_end|>",
        }],
        wraps: &[("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")],
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "command-r7b",
        signs: &["<|START_ACTION|>"],
        quotes_calls: false,
        thinks: &[("<|START_THINKING|>", "<|END_THINKING|>")],
        calls: &[Call {
            open: "<|START_ACTION|>",
            shape: Shape::Json,
            close: "<|END_ACTION|>",
        }],
        wraps: &[],
        opens: &["<|START_RESPONSE|>", "<|START_TEXT|>"],
        closes: &["<|END_RESPONSE|>", "<|END_TEXT|>"],
        next: "",
    },
    AnswerSyntax {
        name: "mistral",
        signs: &["[TOOL_CALLS]"],
        quotes_calls: true,
        thinks: &[("[THINK]", "[/THINK]")],
        calls: &[Call {
            open: "[TOOL_CALLS]",
            shape: Shape::Named("[ARGS]"),
            close: "",
        }],
        wraps: &[],
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "glm",
        signs: &["<arg_key>"],
        quotes_calls: false,
        thinks: &[THINK],
        calls: &[ARGUMENT_TAGS],
        wraps: &[],
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "minimax-m2",
        signs: &["<minimax:tool_call>"],
        quotes_calls: false,
        thinks: &[THINK],
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
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "seed-oss",
        signs: &["<seed:tool_call>"],
        quotes_calls: false,
        thinks: &[("<seed:think>", "</seed:think>")],
        calls: &[FUNCTION_TAGS],
        wraps: &[("<seed:tool_call>", "</seed:tool_call>")],
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "qwen3-coder",
        signs: &["<tool_call>", "<function=", "<parameter="],
        quotes_calls: false,
        thinks: &[THINK],
        calls: &[FUNCTION_TAGS],
        wraps: &[("<tool_call>", "</tool_call>")],
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "nemotron-v2",
        signs: &["<TOOLCALL>"],
        quotes_calls: false,
        thinks: &[THINK],
        calls: &[Call {
            open: "<TOOLCALL>",
            shape: Shape::Json,
            close: "</TOOLCALL>",
        }],
        wraps: &[],
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "apertus",
        signs: &["<|tools_prefix|>"],
        quotes_calls: false,
        thinks: &[("<|inner_prefix|>", "<|inner_suffix|>")],
        calls: &[Call {
            open: "<|tools_prefix|>",
            shape: Shape::Json,
            close: "<|tools_suffix|>",
        }],
        wraps: &[],
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "granite-3",
        signs: &["<|tool_call|>"],
        quotes_calls: false,
        thinks: &[THINK],
        calls: &[Call {
            open: "<|tool_call|>",
            shape: Shape::Json,
            close: "",
        }],
        wraps: &[],
        opens: &["<response>"],
        closes: &["</response>"],
        next: "",
    },
    AnswerSyntax {
        name: "hermes",
        signs: &["<tool_call>"],
        quotes_calls: false,
        thinks: &[THINK],
        calls: &[JSON_IN_TAGS],
        wraps: &[],
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "apriel",
        signs: &["<tool_calls>"],
        quotes_calls: false,
        thinks: &[THINK],
        calls: &[Call {
            open: "<tool_calls>",
            shape: Shape::Json,
            close: "</tool_calls>",
        }],
        wraps: &[],
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "gigachat",
        signs: &["<|role_sep|>", "function call"],
        quotes_calls: false,
        thinks: &[THINK],
        calls: &[Call {
            open: "<|message_sep|>\n\nfunction call<|role_sep|>",
            shape: Shape::Json,
            close: "",
        }],
        wraps: &[],
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "functionary-v3.1",
        signs: &["<function="],
        quotes_calls: false,
        thinks: &[THINK],
        calls: &[Call {
            open: "<function=",
            shape: Shape::Named(">"),
            close: "</function>",
        }],
        wraps: &[],
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "firefunction",
        signs: &["functools["],
        quotes_calls: false,
        thinks: &[],
        calls: &[Call {
            open: " functools",
            shape: Shape::Json,
            close: "",
        }],
        wraps: &[],
        opens: &[],
        closes: &[],
        next: "",
    },
    AnswerSyntax {
        name: "llama3",
        signs: &["<|start_header_id|>"],
        quotes_calls: false,
        thinks: &[THINK],
        calls: &[
            Call {
                open: "<|python_tag|>",
                shape: Shape::Json,
                close: "",
            },
            BARE,
        ],
        wraps: &[],
        opens: &[],
        closes: &[],
        next: "",
    },
    GENERIC,
];

const DEEPSEEK_WRAPS: &[(&str, &str)] = &[("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")];

const GPT_OSS_NEXT: &str = "<|start|>assistant";
