//! A turn of a conversation: answers, and the calls of tools between them.

use anyhow::Result;
use rustorch_chat::{Message, ToolCall};
use rustorch_llm::{Generated, Speed, Stop};

use super::Chat;
use super::conversation::Conversation;
use super::screen::{Answer, Interruptible, WhenFull, remark};
use super::tools::{Verdict, told_error};

/// Characters of a result that are shown.
const SHOWN: usize = 100;

impl Chat<'_> {
    /// Answers the last message.
    pub(super) fn turn(&mut self, talk: &mut Conversation) -> Result<bool> {
        let interrupts = self.interrupts.clone();
        let turn = interrupts.begin();
        let most = self.options.chat.tool_rounds;
        for round in 0..=most {
            let calls = self.answer(talk, &turn)?;
            if calls.is_empty() {
                break;
            }
            let is_last = round == most;
            let mut ends = turn.is_ended();
            for call in calls {
                let result = match (ends, is_last) {
                    (true, _) => told_error("the user ended the answer"),
                    (_, true) => told_error("not run: too many calls in a row"),
                    _ => match self.call(&call, &turn)? {
                        Some(result) => result,
                        None => {
                            ends = true;
                            told_error("the user ended the answer")
                        }
                    },
                };
                talk.push(Message::tool(&call, &result));
                ends = ends || turn.is_ended();
            }
            if ends {
                return Ok(true);
            }
            if is_last {
                remark(format_args!(
                    "stopped after {most} rounds of tool calls; --tool-rounds sets the limit"
                ));
            }
        }
        Ok(turn.is_ended())
    }

    /// One answer: the calls that it wants made.
    fn answer(&mut self, talk: &mut Conversation, turn: &Interruptible) -> Result<Vec<ToolCall>> {
        let mut sampling = self.sampling.clone();
        if sampling.seed >= 0 {
            sampling.seed += self.answers;
        }
        self.answers += 1;
        let mut sampler = sampling.chain(talk.words())?;
        let when_full = match (self.options.length.context_shift, self.input.is_terminal()) {
            (true, _) => WhenFull::Shift,
            (false, true) => WhenFull::Ask,
            (false, false) => WhenFull::Stop,
        };
        let mut screen = Answer::new(turn, when_full, self.options.chat.fold_reasoning);
        let stops = &self.options.chat.reverse_prompt;
        let answered = talk.answer(&mut sampler, &self.limits(), stops, &mut screen);
        screen.end()?;
        let (generated, calls) = answered?;
        if self.input.is_terminal() {
            remark(self.summary(&generated, talk));
        }
        self.last = Some(generated);
        Ok(calls)
    }

    /// Makes a call. The result for the model, or nothing if the answer ends here.
    fn call(&mut self, call: &ToolCall, turn: &Interruptible) -> Result<Option<String>> {
        remark(format_args!(
            "→ {} {}",
            visible(&call.name),
            visible(&call.arguments)
        ));
        let result = match self.tools.order(call) {
            Err(error) => told_error(&error.to_string()),
            Ok(order) => {
                remark(visible(&format!("  {:?}", order.argv())));
                match self.approval.verdict(&order)? {
                    Verdict::Yes => order.run(&|| turn.is_ended()),
                    Verdict::No(reason) => told_error(reason),
                    Verdict::End => return Ok(None),
                }
            }
        };
        let first = result.lines().next().unwrap_or_default();
        let shown: String = first.chars().take(SHOWN).collect();
        let more = if shown.len() < result.trim_end().len() {
            " …"
        } else {
            ""
        };
        remark(format_args!("← {}{more}", visible(&shown)));
        Ok(Some(result))
    }

    /// Summary of an answer, on one line.
    pub(super) fn summary(&self, generated: &Generated, talk: &mut Conversation) -> String {
        let speed = |speed: Speed| match speed.per_second() {
            Some(rate) => format!("{} tokens, {rate:.1} tokens/s", speed.tokens),
            None => format!("{} tokens", speed.tokens),
        };
        let end = match generated.stop {
            Stop::End => "",
            Stop::Limit => " · stopped at -n",
            Stop::Context => " · stopped: the context is full (/clear, or a larger -c)",
            Stop::Caller => " · stopped",
        };
        let session = talk.session();
        let guessed = self.guesses.summary(&generated.speculation);
        let guessed = guessed.map_or(String::new(), |told| format!(" · {told}"));
        format!(
            "prompt {} · answer {}{guessed} · context {} of {} tokens · {}{end}",
            speed(generated.prompt),
            speed(generated.decode),
            session.tokens().len(),
            session.context(),
            self.devices.used().join(", "),
        )
    }
}

/// A text without characters that a terminal would obey, or show as something else.
fn visible(text: &str) -> String {
    let shown = |c: char| match c {
        '"' | '\'' | '\\' => c.to_string(),
        c => c.escape_debug().to_string(),
    };
    text.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::visible;

    #[test]
    fn what_terminals_obey_is_escaped() {
        assert_eq!(visible("{\"a\": 'é\\n'}"), "{\"a\": 'é\\n'}");
        assert_eq!(
            visible("a\u{1b}[2J\u{202e}\u{9b}b\n"),
            "a\\u{1b}[2J\\u{202e}\\u{9b}b\\n"
        );
    }
}
