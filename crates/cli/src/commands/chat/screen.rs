//! The output of a conversation.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use ratatui::crossterm::terminal;

use super::conversation::Listener;
use super::markdown::Markdown;
use super::wrap::Wrap;
use crate::failure::INTERRUPTED;
use crate::output::{is_in_line, line_break, note, stream};

/// The target of Ctrl-C: an answer, else the program.
#[derive(Default)]
pub(super) struct Interrupts {
    answers: AtomicBool,
    came: AtomicBool,
}

impl Interrupts {
    /// Hears of Ctrl-C from now on.
    ///
    /// # Errors
    /// Fails if the system does not allow it.
    pub(super) fn new() -> Result<Arc<Self>> {
        let interrupts = Arc::new(Self::default());
        let heard = interrupts.clone();
        let handler = move || match heard.answers.load(Ordering::Relaxed) {
            true => heard.came.store(true, Ordering::Relaxed),
            false => std::process::exit(INTERRUPTED.into()),
        };
        ctrlc::set_handler(handler).context("Ctrl-C cannot be handled")?;
        Ok(interrupts)
    }

    /// Begins work that Ctrl-C can end, until the result is dropped.
    pub(super) fn begin(&self) -> Interruptible<'_> {
        self.came.store(false, Ordering::Relaxed);
        self.answers.store(true, Ordering::Relaxed);
        Interruptible(self)
    }
}

/// Something that Ctrl-C ends rather than the program.
pub(super) struct Interruptible<'i>(&'i Interrupts);

impl Interruptible<'_> {
    /// Returns whether it was ended.
    pub(super) fn is_ended(&self) -> bool {
        self.0.came.load(Ordering::Relaxed)
    }
}

impl Drop for Interruptible<'_> {
    fn drop(&mut self) {
        self.0.answers.store(false, Ordering::Relaxed);
    }
}

/// Codes of SGR (ECMA-48, 8.3.117).
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// The action for a full context.
#[derive(Clone, Copy)]
pub(super) enum WhenFull {
    /// Drop its oldest part.
    Shift,
    Stop,
    /// The user's choice.
    Ask,
}

/// An answer on standard output, as it comes.
pub(super) struct Answer<'s> {
    /// Formatter for a terminal; `None` in a pipe.
    page: Option<Page>,
    turn: &'s Interruptible<'s>,
    when_full: WhenFull,
    folds: bool,
    /// Characters of reasoning that the answer still has to be separated from.
    thought: usize,
}

impl<'s> Answer<'s> {
    pub(super) fn new(turn: &'s Interruptible, when_full: WhenFull, folds: bool) -> Self {
        Self {
            page: io::stdout().is_terminal().then(Page::default),
            turn,
            when_full,
            folds,
            thought: 0,
        }
    }

    /// Ends the line.
    ///
    /// # Errors
    /// Fails if standard output fails.
    pub(super) fn end(mut self) -> Result<()> {
        self.end_reasoning()?;
        if let Some(page) = self.page.take() {
            page.end()?;
        }
        if is_in_line() {
            write("\n")?;
        }
        Ok(())
    }
}

impl Answer<'_> {
    /// Separates the next text from the reasoning before it.
    fn end_reasoning(&mut self) -> Result<()> {
        let thought = std::mem::take(&mut self.thought);
        match (thought, self.folds) {
            (0, _) => Ok(()),
            (_, true) => self.write(&format!(
                "\r{DIM}thought {thought} characters (/think){PLAIN}\n"
            )),
            (_, false) => self.write(&format!("{PLAIN}\n\n")),
        }
    }
}

/// A terminal that an answer is written to.
#[derive(Default)]
struct Page {
    markdown: Markdown,
    wrap: Wrap,
}

impl Page {
    /// The columns of the terminal, if it has any.
    fn columns() -> Option<usize> {
        let (columns, _) = terminal::size().ok()?;
        (columns > 0).then_some(columns.into())
    }

    /// Writes text as it is, in lines that end between words.
    fn write(&mut self, text: &str) -> Result<()> {
        if !is_in_line() {
            self.wrap.restart();
        }
        write(&self.wrap.push(text, Self::columns()))
    }

    /// Writes the text that was kept back, and resets the terminal's colours.
    fn end(mut self) -> Result<()> {
        let rest = self.markdown.finish();
        let columns = Self::columns();
        let text = self.wrap.push(&rest, columns) + &self.wrap.finish(columns);
        write(&text)
    }
}

impl Answer<'_> {
    fn write(&mut self, text: &str) -> Result<()> {
        match &mut self.page {
            Some(page) => page.write(text),
            None => write(text),
        }
    }
}

impl Listener for Answer<'_> {
    fn reasoning(&mut self, text: &str) -> Result<()> {
        // A pipe gets answers alone.
        if self.page.is_none() {
            return Ok(());
        }
        let before = self.thought;
        self.thought += text.chars().count();
        match (before, self.folds) {
            (0, true) => write(&format!("{DIM}thinking …{PLAIN}")),
            (_, true) => Ok(()),
            (0, false) => self.write(&format!("{DIM}{text}")),
            (_, false) => self.write(text),
        }
    }

    fn text(&mut self, text: &str) -> Result<ControlFlow<()>> {
        if !text.is_empty() {
            self.end_reasoning()?;
            match &mut self.page {
                Some(page) => {
                    let coloured = page.markdown.push(text);
                    page.write(&coloured)?;
                }
                None => write(text)?,
            }
        }
        Ok(match self.turn.is_ended() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })
    }

    fn may_shift(&mut self) -> Result<bool> {
        match self.when_full {
            WhenFull::Stop => return Ok(false),
            WhenFull::Shift => return Ok(true),
            WhenFull::Ask => {}
        }
        eprint!(
            "{}The context is full. Drop its oldest part and continue? [Y/n] ",
            line_break()
        );
        let mut answer = String::new();
        // The end of the input is not consent.
        let read = io::stdin().read_line(&mut answer)?;
        Ok(read > 0 && matches!(answer.trim(), "" | "y" | "Y" | "yes"))
    }
}

fn write(text: &str) -> Result<()> {
    Ok(stream(&mut io::stdout().lock(), text)?)
}

/// A line of the program's own.
pub(super) fn remark(text: impl std::fmt::Display) {
    match io::stderr().is_terminal() {
        true => {
            let (mut wrap, columns) = (Wrap::default(), Page::columns());
            let lines = wrap.push(&text.to_string(), columns) + &wrap.finish(columns);
            note(format_args!("{DIM}{lines}{PLAIN}"));
        }
        false => note(text),
    }
}
