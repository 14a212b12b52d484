//! Decomposition: composites that a device has no kernel for become their parts.

use super::{Pass, Places, Rewriting, Rewritten};
use crate::{Graph, OpError};

/// Puts in the parts of composites that the device of their node does not support, and the parts of these.
pub struct Decomposition;

impl Pass for Decomposition {
    fn name(&self) -> &'static str {
        "decomposition"
    }

    fn run(&self, graph: &Graph, places: &dyn Places) -> Result<Option<Rewritten>, OpError> {
        let mut rewritten: Option<Rewritten> = None;
        loop {
            let (source, of) = match &rewritten {
                Some(rewritten) => (&rewritten.graph, Some(&rewritten.origins)),
                None => (graph, None),
            };
            let first = |at: usize| of.map_or(at, |origins| origins[at][0]);
            let is_made_of_others = |at: usize| {
                let node = &source.nodes()[at];
                let supports = || source.with_signature(node, |s| places.supports(first(at), s));
                node.op.def().is_composite() && !supports()
            };
            let chosen: Vec<bool> = (0..source.nodes().len()).map(is_made_of_others).collect();
            if !chosen.contains(&true) {
                return Ok(rewritten);
            }
            let mut out = Rewriting::new(source)?;
            for (at, is_chosen) in chosen.into_iter().enumerate() {
                match is_chosen {
                    true => out.expand(at)?,
                    false => out.keep(at)?,
                }
            }
            let next = out.finish()?;
            rewritten = Some(match &rewritten {
                Some(rewritten) => rewritten.then(next),
                None => next,
            });
        }
    }
}
