//! Approval of tool calls.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};

use anyhow::Result;

use super::{Order, Tools};
use crate::commands::chat::editor;
use crate::commands::chat::screen::remark;
use crate::failure::Usage;

/// The name for every tool.
pub(super) const ALL: &str = "all";

/// The tools that need not be asked for.
#[derive(Default)]
pub(in crate::commands::chat) struct Approval {
    names: BTreeSet<String>,
    /// Can a user be asked?
    asks: bool,
}

/// Whether a call is made.
pub(in crate::commands::chat) enum Verdict {
    Yes,
    /// The refusal for the model.
    No(&'static str),
    /// Refused, and the answer stops.
    End,
}

impl Approval {
    /// Approval of tools by their names, or of all. On a terminal the user is asked for others.
    ///
    /// # Errors
    /// Fails if no tool has one of the names.
    pub(in crate::commands::chat) fn of(names: &[String], tools: &Tools) -> Result<Self, Usage> {
        let known = |name: &str| tools.iter().any(|tool| tool.name == name);
        if let Some(name) = names.iter().find(|name| *name != ALL && !known(name)) {
            let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
            return Err(Usage(format!(
                "--tool-approve {name}: no such tool; known tools: {}",
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

    /// Whether a call may be made. The user has been shown the call.
    ///
    /// # Errors
    /// Fails if the terminal fails.
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
