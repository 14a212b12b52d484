//! Passes: a graph becomes another one that computes the same.
//!
//! A pass is a file here with a [`Pass`], and a word in the list of its stage:
//!
//! | stage | passes, in order |
//! | --- | --- |
//! | recorded: a computation as it was called | [`RECORDED`]; on request [`Chunks`], [`Recomputation`], [`Conversion`] |
//! | planned: each node has its device | [`planned`]: fusion, channels last, late updates |
//!
//! The placement of nodes on devices comes first in planning. It puts in the parts of composites without a kernel, by
//! [`Decomposition`]. The third stage lowers a graph to launches: it is the runtime's.
//!
//! A pass makes its graph by a [`Rewriting`], which notes for each node the nodes that it stands for.
//! [`Rewritten::through`] runs several passes, and combines these notes.

mod changes;
mod channels_last;
mod chunks;
mod conversion;
mod decomposition;
mod fusion;
mod late_updates;
mod recomputation;
mod repeats;
mod rewriting;

use smallvec::{SmallVec, smallvec};

pub use changes::{Changes, Replaced, Stages};
pub use channels_last::ChannelsLastImages;
pub use chunks::Chunks;
pub use conversion::Conversion;
pub use decomposition::Decomposition;
pub use fusion::{Finder, Fusion, Match, RULES, Rule};
pub use late_updates::{LateUpdates, unrepeatable};
pub use recomputation::{Recomputation, Saving, peak};
pub use repeats::Repeats;
pub use rewriting::Rewriting;

use crate::{Graph, OpError, Signature};

/// Passes over every recorded computation, in order.
pub const RECORDED: [&dyn Pass; 1] = [&Repeats];

/// Passes over a graph whose nodes have their devices, in order.
pub fn planned<'a>(fusion: &'a Fusion<'a>) -> [&'a dyn Pass; 3] {
    [fusion, &ChannelsLastImages, &LateUpdates]
}

/// A rewriting of graphs. The new graph has the same inputs and outputs, and computes the same.
pub trait Pass {
    /// Name in lists of passes.
    fn name(&self) -> &'static str;

    /// The new graph; `None` if nothing changes.
    ///
    /// # Errors
    /// Fails only for bugs, such as a rule that gives an operation unsupported operands.
    fn run(&self, graph: &Graph, places: &dyn Places) -> Result<Option<Rewritten>, OpError>;
}

/// The devices of a graph's nodes.
pub trait Places {
    /// Number of the device of a node, by the node's index.
    fn device(&self, at: usize) -> usize;

    /// Does the device of a node support an operation in its place?
    fn supports(&self, at: usize, signature: &Signature) -> bool;

    /// Takes over the nodes of a new graph in place of those of `before`.
    fn follow(&mut self, before: &Graph, rewritten: &Rewritten);
}

/// One device for all nodes, by the operations that it supports.
pub struct OneDevice<F: Fn(&Signature) -> bool>(pub F);

impl<F: Fn(&Signature) -> bool> Places for OneDevice<F> {
    fn device(&self, _at: usize) -> usize {
        0
    }

    fn supports(&self, _at: usize, signature: &Signature) -> bool {
        (self.0)(signature)
    }

    fn follow(&mut self, _before: &Graph, _rewritten: &Rewritten) {}
}

/// Indices of the nodes that a node of a new graph is, or stands for.
pub type Origins = SmallVec<[usize; 2]>;

/// A graph that passes made of another one.
#[derive(Debug)]
pub struct Rewritten {
    /// The graph, of the same inputs and outputs.
    pub graph: Graph,
    /// For each of its nodes, the nodes of the first graph; at least one.
    pub origins: Vec<Origins>,
}

impl From<Graph> for Rewritten {
    /// The graph as it is.
    fn from(graph: Graph) -> Self {
        let origins = (0..graph.nodes().len()).map(|at| smallvec![at]).collect();
        Self { graph, origins }
    }
}

impl Rewritten {
    /// Runs passes one after the other, and reports to `changes` if there is one.
    ///
    /// # Errors
    /// The errors of [`Pass::run`].
    pub fn through(
        mut self,
        passes: &[&dyn Pass],
        places: &mut dyn Places,
        mut changes: Option<&mut Vec<Changes>>,
    ) -> Result<Self, OpError> {
        for pass in passes {
            let rewritten = pass.run(&self.graph, places)?;
            if let Some(changes) = &mut changes {
                changes.push(Changes::of(*pass, &self.graph, rewritten.as_ref()));
            }
            if let Some(rewritten) = rewritten {
                places.follow(&self.graph, &rewritten);
                self = self.then(rewritten);
            }
        }
        Ok(self)
    }

    /// The result of a further pass, by the nodes of the first graph.
    #[must_use]
    pub fn then(&self, next: Self) -> Self {
        let first = |at: Origins| match at[..] {
            [only] => self.origins[only].clone(),
            _ => at
                .iter()
                .flat_map(|&at| &self.origins[at])
                .copied()
                .collect(),
        };
        Self {
            graph: next.graph,
            origins: next.origins.into_iter().map(first).collect(),
        }
    }
}
