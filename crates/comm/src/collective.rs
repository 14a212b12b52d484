//! The names of collectives.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An action of several ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Collective {
    /// Every rank gets the reduction of all buffers.
    AllReduce,
    /// Every rank gets all buffers, one after the other.
    AllGather,
    /// Every rank gets its part of the reduction.
    ReduceScatter,
    /// Every rank gets the buffer of one.
    Broadcast,
    /// Every rank gets its part of each rank's buffer.
    AllToAll,
    /// One rank sends its buffer to another.
    Send,
    /// One rank receives the buffer of another.
    Recv,
    /// All ranks wait for each other.
    Barrier,
}

impl Collective {
    /// PyTorch's name.
    pub const fn name(self) -> &'static str {
        match self {
            Collective::AllReduce => "all_reduce",
            Collective::AllGather => "all_gather",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::Broadcast => "broadcast",
            Collective::AllToAll => "all_to_all",
            Collective::Send => "send",
            Collective::Recv => "recv",
            Collective::Barrier => "barrier",
        }
    }

    /// True if all ranks take part.
    pub(crate) const fn is_for_all(self) -> bool {
        !matches!(self, Collective::Send | Collective::Recv)
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
