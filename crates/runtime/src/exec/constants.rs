//! Inputs that programs are compiled with.

use std::sync::atomic::Ordering;

use rustorch_ir::ValueId;

use super::{Executable, Inputs};
use crate::plan::segment::Segment;
use crate::{HostBuffer, Storage};

/// The inputs of a plan whose memory its programs were compiled with, by their index.
#[derive(Default)]
pub(super) struct Constants(Vec<(usize, HostBuffer)>);

impl Constants {
    /// A segment's program was compiled with these.
    pub(super) fn extend(&mut self, segment: &Segment, known: Vec<Option<HostBuffer>>) {
        let known = segment.inputs.iter().zip(known);
        (self.0).extend(known.filter_map(|(value, memory)| Some((value.index(), memory?))));
    }

    /// Returns whether these are the inputs that programs were compiled with.
    pub(super) fn are_in(&self, inputs: Inputs) -> bool {
        self.0.iter().all(|(input, memory)| {
            let given = inputs.get(*input).and_then(Storage::constant);
            given.is_some_and(|given| given.same_memory(memory))
        })
    }
}

impl Executable {
    /// The memory of each of a segment's inputs, if it is a graph input that nothing can write to; nothing
    /// where the device has no use for it.
    pub(super) fn constants(&self, segment: &Segment, inputs: Inputs) -> Vec<Option<HostBuffer>> {
        let takes = self.devices.backend(segment.device).takes_constants();
        if !takes || self.has_varied.load(Ordering::Relaxed) {
            return Vec::new();
        }
        // The graph's inputs are the first of its values.
        let memory = |value: ValueId| inputs.get(value.index())?.constant();
        segment.inputs.iter().map(|&value| memory(value)).collect()
    }
}
