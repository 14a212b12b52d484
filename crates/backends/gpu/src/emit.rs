//! From a lowered graph to launches, without knowing the driver.

use rustorch_runtime::merge::{self, CachedAttention, Merge};
use rustorch_runtime::{Lowered, Place, Slot, Step};

use crate::driver::{Dialect, Gemm, Limits};
use crate::kernel::{Buffer, Counters, Dispatch, GRANULE, Kernel, Scratch};
use crate::ops::cuda;

/// Lanes of a SIMD-group, in the languages that have them.
pub(crate) const SIMD_WIDTH: usize = 32;

/// Appends the launches of a step.
pub(crate) type Emit = fn(&Step, &mut Emitter);

/// A mistake of the caller that a kernel may find in its data.
pub(crate) struct Mistake {
    pub(crate) node: usize,
    pub(crate) op: &'static str,
    pub(crate) message: String,
}

/// A launch.
pub(crate) enum Work {
    /// Of a kernel of ours.
    Kernel(Box<Dispatch>),
    /// Of a product of the driver's library, with the buffers of its operands and the byte
    /// that each begins at.
    Gemm(Gemm, [(Buffer, usize); 3]),
}

/// Collects launches.
pub(crate) struct Emitter<'a> {
    /// What the device can do.
    pub(crate) limits: &'a Limits,
    dialect: Dialect,
    /// Graph inputs that a step writes.
    written: Vec<usize>,
    /// Each launch, with the step it is for.
    work: Vec<(usize, Work)>,
    /// The step that launches are appended for.
    step: usize,
    mistakes: Vec<Mistake>,
    counters: usize,
    /// Bytes of the values in the arena; scratch memory is behind them.
    values: usize,
    /// Bytes of scratch memory of this step so far, and of the step that has most.
    scratch: usize,
    most_scratch: usize,
}

/// The launches of a graph.
pub(crate) struct Emitted {
    /// All launches, each with the step that it is for.
    pub(crate) work: Vec<(usize, Work)>,
    /// For each step, the number of launches up to its end.
    pub(crate) ends: Vec<usize>,
    /// What the codes in the status word mean, from 1 on.
    pub(crate) mistakes: Vec<Mistake>,
    /// Bytes of values and scratch memory.
    pub(crate) arena_bytes: usize,
    /// Words that are zero between launches.
    pub(crate) counters: usize,
}

/// The launches of `lowered`; `emits` has one function for each step.
pub(crate) fn emit(
    lowered: &Lowered,
    emits: &[Emit],
    limits: &Limits,
    dialect: Dialect,
) -> Emitted {
    let mut emitter = Emitter {
        limits,
        dialect,
        written: (lowered.steps.iter())
            .filter_map(|step| match step.output().slot {
                Slot::Input(input) => Some(input),
                Slot::Output(_) | Slot::Arena(_) => None,
            })
            .collect(),
        work: Vec::new(),
        step: 0,
        mistakes: Vec::new(),
        counters: 0,
        values: lowered.arena_bytes.next_multiple_of(GRANULE),
        scratch: 0,
        most_scratch: 0,
    };
    let mut ends = Vec::with_capacity(emits.len());
    for (first, window) in lowered.windows() {
        emitter.scratch = 0;
        let begin = emitter.work.len();
        for launch in window.launches(&Cuda(&emitter)) {
            emitter.step = first + launch.steps[0];
            match &launch.work {
                merge::Work::Alone(step) if step.output().ty.shape.elements() == 0 => {}
                merge::Work::Alone(step) => emits[emitter.step](step, &mut emitter),
                merge::Work::Products(products) => cuda::emit(products, &mut emitter),
                merge::Work::Attention(attention) => {
                    cuda::attention::emit(attention, &mut emitter);
                }
            }
        }
        emitter.most_scratch = emitter.most_scratch.max(emitter.scratch);
        ends.extend(std::iter::repeat_n(begin, window.steps.len() - 1));
        ends.push(emitter.work.len());
    }
    Emitted {
        work: emitter.work,
        ends,
        mistakes: emitter.mistakes,
        arena_bytes: emitter.values + emitter.most_scratch,
        counters: emitter.counters,
    }
}

/// What the kernels of CUDA do together.
struct Cuda<'a, 'b>(&'a Emitter<'b>);

impl Merge for Cuda<'_, '_> {
    fn product(&self, step: &Step) -> bool {
        cuda::multiplies(step, self.0)
    }

    fn norms(&self) -> bool {
        true
    }

    fn joins(&self, products: [&Step; 2]) -> bool {
        cuda::joins(products, self.0)
    }

    fn attends(&self, attention: &CachedAttention) -> bool {
        cuda::attention::accepts(attention, self.0)
    }
}

impl Emitter<'_> {
    /// The language of kernels.
    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Is this a graph input that stays as it is while the graph runs?
    pub(crate) fn is_constant(&self, place: &Place) -> bool {
        matches!(place.slot, Slot::Input(input) if !self.written.contains(&input))
    }

    /// Is this a graph input that a single step of the graph writes?
    pub(crate) fn is_written_once(&self, place: &Place) -> bool {
        let writes = |&&written: &&usize| place.slot == Slot::Input(written);
        self.written.iter().filter(writes).count() == 1
    }

    /// Appends a launch, unless it has no groups.
    pub(crate) fn launch(&mut self, kernel: Kernel) {
        let dispatch = kernel.finish(self.dialect);
        if !dispatch.groups.contains(&0) {
            self.work
                .push((self.step, Work::Kernel(Box::new(dispatch))));
        }
    }

    /// Appends a product of the driver's library, which [`Limits::has_gemm`] says there is.
    pub(crate) fn gemm(&mut self, gemm: Gemm, operands: [(Buffer, usize); 3]) {
        self.work.push((self.step, Work::Gemm(gemm, operands)));
    }

    /// Words that are zero before each launch that uses them, which leaves them so.
    pub(crate) fn zeroed(&mut self, words: usize) -> Counters {
        let at = self.counters;
        self.counters += words;
        Counters { at, words }
    }

    /// Memory until the end of the step, uninitialised.
    pub(crate) fn scratch(&mut self, bytes: usize) -> Scratch {
        let at = self.values + self.scratch;
        self.scratch += bytes.next_multiple_of(GRANULE);
        Scratch { at, bytes }
    }

    /// The code for a kernel to report a mistake of the caller in part `part` of `step`, with
    /// `message`.
    pub(crate) fn mistake(&mut self, step: &Step, part: usize, message: String) -> u32 {
        self.mistakes.push(Mistake {
            node: step.parts[part].node,
            op: step.parts[part].op.name(),
            message,
        });
        self.mistakes.len() as u32
    }
}
