//! Which calls may be made.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};

use anyhow::Result;

use super::{Order, Tools};
use crate::commands::chat::editor;
use crate::commands::chat::screen::remark;
use crate::failure::Usage;

/// What stands for every tool.
pub(super) const ALL: &str = "all";

/// The tools that need not be asked for.
#[derive(Default)]
pub(in crate::commands::chat) struct Approval {
    names: BTreeSet<String>,
    /// There is somebody to ask.
    asks: bool,
}

/// Whether a call is made.
pub(in crate::commands::chat) enum Verdict {
    Yes,
    /// What the model is told.
    No(&'static str),
    /// No, nor does the answer go on.
    End,
}

impl Approval {
    /// Of tools by their names, or all. On a terminal the user is asked for others.
    ///
    /// # Errors
    /// One of the names is of no tool.
    pub(in crate::commands::chat) fn of(names: &[String], tools: &Tools) -> Result<Self, Usage> {
        let known = |name: &str| tools.iter().any(|tool| tool.name == name);
        if let Some(name) = names.iter().find(|name| *name != ALL && !known(name)) {
            let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
            return Err(Usage(format!(
                "--tool-approve {name}: there is no such tool; there are {}",
                [&names[..], &[ALL]].concat().join(", ")
            )));
        }
        Ok(Self {
            names: names.iter().cloned().collect(),
            asks: io::stdin().is_terminal() && io::stderr().is_terminal(),
        })
    }

    /// Is a tool run without being asked for?
    pub(in crate::commands::chat) fn has(&self, name: &str) -> bool {
        self.names.contains(name) || self.names.contains(ALL)
    }

    /// Whether a call may be made. The user has been shown what it is.
    ///
    /// # Errors
    /// The terminal fails.
    pub(in crate::commands::chat) fn verdict(&mut self, order: &Order) -> Result<Verdict> {
        let name = &order.tool.name;
        if self.has(name) {
            return Ok(Verdict::Yes);
        }
        if !self.asks {
            remark(format_args!(
                "{name} was not run: it needs --tool-approve {name}"
            ));
            return Ok(Verdict::No("the user has not allowed this tool"));
        }
        let answer = editor::ask("Run it? [y/n/always] ")?;
        let answer = answer.map(|it| it.trim().to_lowercase());
        Ok(match answer.as_deref() {
            Some("y" | "yes") => Verdict::Yes,
            Some("a" | "always") => {
                self.names.insert(name.clone());
                Verdict::Yes
            }
            Some(_) => Verdict::No("the user refused this call"),
            None => Verdict::End,
        })
    }
}
