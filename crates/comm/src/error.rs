//! Every way in which a call of a group can fail.

use std::fmt;
use std::time::Duration;

use rustorch_errors::ErrorKind;

use serde::{Deserialize, Serialize};

/// The reason why a group cannot be made, or why a call of it fails. Its text is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CommError {
    /// The caller gave something impossible. The group stays as it is.
    #[error("{0}")]
    Invalid(String),

    /// Ranks could not finish a call. The group's epoch ends with it: later calls return the same failure.
    #[error("rank {rank}: {failure}")]
    Failed {
        /// The rank that reports it.
        rank: usize,
        /// The failure, on which ranks agree.
        failure: Box<Failure>,
    },

    /// A rank cannot become a member of its group.
    #[error("rank {rank} of {size} cannot join its group: {problem}")]
    Join {
        /// The rank.
        rank: usize,
        /// The number of ranks that it expects.
        size: usize,
        /// The problem, and what to do.
        problem: String,
    },

    /// A library is missing, or cannot be used.
    #[error("{library}: {problem}")]
    Library {
        /// The library's name.
        library: &'static str,
        /// The problem, and what to do.
        problem: String,
    },

    /// A group of the remaining ranks cannot be made.
    #[error("rank {rank} cannot continue: {problem}; start again from a checkpoint")]
    NoQuorum {
        /// The rank that reports it.
        rank: usize,
        /// The reason.
        problem: String,
    },
}

impl CommError {
    /// The kind, for programs that react to it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Invalid(_) => ErrorKind::Argument,
            Self::Library { .. } => ErrorKind::Missing,
            Self::Failed { .. } | Self::Join { .. } | Self::NoQuorum { .. } => ErrorKind::Ranks,
        }
    }

    /// The failure on which ranks agreed, if it is one.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            CommError::Failed { failure, .. } => Some(failure),
            _ => None,
        }
    }
}

/// The failure that ended an epoch of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The group's epoch: the number of times that ranks were lost before.
    pub epoch: u64,
    /// The number of the collective in the epoch, from 1.
    pub sequence: u64,
    /// The collective's name.
    pub collective: String,
    /// The step of the collective, from 0.
    pub step: u32,
    /// The rank that detected it.
    pub found_by: usize,
    /// The ranks that are missing. None after a mistake in a program.
    pub missing: Vec<usize>,
    /// The cause.
    pub cause: Cause,
}

/// The reason why an epoch ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// Nothing came before the deadline.
    Deadline(Duration),
    /// A rank gave no sign of life.
    Silent(Duration),
    /// The connection to a rank broke.
    Disconnected(String),
    /// A rank left the group before the call.
    Left,
    /// A message was lost, or damaged.
    Lost,
    /// A rank gave up, with this reason.
    Aborted(String),
    /// A library reports an error, or nothing at all.
    Library(String),
    /// Two ranks made different calls.
    Mismatch {
        /// The two ranks.
        ranks: [usize; 2],
        /// Their calls.
        calls: [String; 2],
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.collective, self.sequence)?;
        if self.epoch > 0 {
            write!(f, " of epoch {}", self.epoch)?;
        }
        match &self.missing[..] {
            [] => f.write_str(": ")?,
            [rank] => write!(f, ": rank {rank} is missing: ")?,
            [first @ .., last] => {
                let first: Vec<_> = first.iter().map(usize::to_string).collect();
                write!(f, ": ranks {} and {last} are missing: ", first.join(", "))?;
            }
        }
        write!(f, "{} (found by rank {})", self.cause, self.found_by)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Deadline(after) => {
                write!(
                    f,
                    "nothing came within {after:?}; a slow rank needs a longer deadline"
                )
            }
            Cause::Silent(after) => write!(f, "no sign of life for {after:?}"),
            Cause::Disconnected(why) => write!(f, "the connection is lost: {why}"),
            Cause::Left => f.write_str("it has left the group"),
            Cause::Lost => f.write_str("a message was lost or damaged"),
            Cause::Aborted(reason) => write!(f, "it gave up: {reason}"),
            Cause::Library(error) => f.write_str(error),
            Cause::Mismatch { ranks, calls } => write!(
                f,
                "rank {} calls {}, but rank {} calls {}; all ranks have to make the same calls",
                ranks[0], calls[0], ranks[1], calls[1]
            ),
        }
    }
}
