//! From a lowered graph to launches, without knowing the driver.

use rustorch_ir::{DType, Layout, Signature};
use rustorch_runtime::{Lowered, Place, Slot, Step};
use smallvec::SmallVec;

use crate::dialect::Dialect;
use crate::driver::{Gemm, Limits};
use crate::kernel::{Buffer, Counters, Dispatch, GRANULE, Kernel, Scratch, position};

/// Lanes of a SIMD-group, in the languages that have them.
pub(crate) const SIMD_WIDTH: usize = 32;

/// Appends the launches of a step.
pub(crate) type Emit = fn(&Step, &mut Emitter);

/// Properties of a device by which kernels are chosen.
#[derive(Clone, Copy)]
pub(crate) struct Device<'a> {
    /// Limits of the device.
    pub(crate) limits: &'a Limits,
    /// The language of kernels.
    pub(crate) dialect: Dialect,
}

/// Launch of an operation, and the devices for it.
#[derive(Clone, Copy)]
pub(crate) struct GpuKernel {
    /// Appends the launches.
    pub(crate) emit: Emit,
    /// Does the device suit the kernels for an accepted operation?
    pub(crate) suits: fn(&Device, &Signature) -> bool,
}

impl GpuKernel {
    /// Launches that every device can make.
    pub(crate) const fn everywhere(emit: Emit) -> Self {
        let suits = |_: &Device, _: &Signature| true;
        Self { emit, suits }
    }
}

/// A mistake of the caller that a kernel may find in its data.
pub(crate) struct Mistake {
    pub(crate) node: usize,
    pub(crate) op: &'static str,
    pub(crate) message: String,
    /// The operand with the wrong index, if it is a graph input. Such an input is still there when
    /// the run is over.
    pub(crate) indices: Option<Indices>,
}

/// An operand of indices.
pub(crate) struct Indices {
    /// Number of the graph input.
    input: usize,
    layout: Layout,
    dtype: DType,
    /// They are from 0 up to, but without, this.
    size: usize,
    /// Valid range, for the error text.
    range: String,
}

impl Mistake {
    /// Text for the caller; `read` returns the bytes of a graph input.
    pub(crate) fn told(&self, read: impl FnOnce(usize) -> Option<Vec<u8>>) -> String {
        let told = self.indices.as_ref().and_then(|indices| {
            let (at, index) = indices.first_outside(&read(indices.input)?)?;
            Some(format!(
                "the index {index} at {at:?} is outside {}",
                indices.range
            ))
        });
        told.unwrap_or_else(|| self.message.clone())
    }
}

impl Indices {
    /// The first one that is outside: coordinates and value.
    fn first_outside(&self, bytes: &[u8]) -> Option<(Vec<usize>, i64)> {
        let width = self.dtype.size()?;
        let index = |at: usize| {
            let bytes = bytes.get(at * width..(at + 1) * width)?;
            match self.dtype {
                DType::I32 => Some(i32::from_ne_bytes(bytes.try_into().ok()?).into()),
                _ => Some(i64::from_ne_bytes(bytes.try_into().ok()?)),
            }
        };
        let is_outside = |&(_, index): &(usize, i64)| {
            let index = usize::try_from(index);
            !index.is_ok_and(|index| index < self.size)
        };
        let indices = self.layout.positions().map_while(index);
        let (mut flat, index) = indices.enumerate().find(is_outside)?;
        let mut at = vec![0; self.layout.rank()];
        for (at, &size) in at.iter_mut().zip(&self.layout.shape[..]).rev() {
            *at = flat % size;
            flat /= size;
        }
        Some((at, index))
    }
}

/// The operands of a product of the driver's library.
pub(crate) type Operands = SmallVec<[(Buffer, usize); 4]>;

/// A launch.
pub(crate) enum Work {
    /// Launch of a kernel of ours.
    Kernel(Box<Dispatch>),
    /// Product of the driver's library, with its operands' buffers and the byte at which each
    /// begins.
    Gemm(Box<(Gemm, Operands)>),
}

/// Collects launches.
pub(crate) struct Emitter<'a> {
    /// Limits of the device.
    pub(crate) limits: &'a Limits,
    /// [`Driver::has_gemm`](crate::Driver::has_gemm).
    pub(crate) has_gemm: &'a dyn Fn() -> bool,
    /// The language of kernels.
    pub(crate) dialect: Dialect,
    /// Graph inputs that steps write, once for each result that does.
    written: Vec<usize>,
    /// Each launch, with the step it is for.
    work: Vec<(usize, Work)>,
    /// The step that launches are appended for.
    step: usize,
    mistakes: Vec<Mistake>,
    counters: usize,
    /// Position of ids that the last launch waits for before it lets the next one begin.
    known: Option<(Buffer, usize)>,
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
    /// Meanings of the codes in the status word, from 1 on.
    pub(crate) mistakes: Vec<Mistake>,
    /// Bytes of scratch memory.
    pub(crate) scratch: usize,
    /// Words that are zero between launches.
    pub(crate) counters: usize,
}

/// The launches of `lowered`; `emits` has one function for each step.
pub(crate) fn emit(
    lowered: &Lowered,
    emits: &[Emit],
    device: Device,
    has_gemm: &dyn Fn() -> bool,
) -> Emitted {
    let results = lowered.steps.iter().flat_map(|step| &step.outputs);
    let input = |place: &Place| match place.slot {
        Slot::Input(input) => Some(input),
        Slot::Output(_) | Slot::Arena { .. } => None,
    };
    let mut emitter = Emitter {
        limits: device.limits,
        has_gemm,
        dialect: device.dialect,
        written: results.filter_map(input).collect(),
        work: Vec::new(),
        step: 0,
        mistakes: Vec::new(),
        counters: 0,
        known: None,
        scratch: 0,
        most_scratch: 0,
    };
    let mut ends = Vec::with_capacity(emits.len());
    for (at, (step, emit)) in lowered.steps.iter().zip(emits).enumerate() {
        emitter.step = at;
        emitter.scratch = 0;
        let mut results = step.outputs.iter();
        if results.any(|result| result.ty.shape.elements() > 0) {
            emit(step, &mut emitter);
        }
        emitter.most_scratch = emitter.most_scratch.max(emitter.scratch);
        ends.push(emitter.work.len());
    }
    Emitted {
        work: emitter.work,
        ends,
        mistakes: emitter.mistakes,
        scratch: emitter.most_scratch,
        counters: emitter.counters,
    }
}

impl Emitter<'_> {
    /// Returns whether this is a graph input that stays as it is while the graph runs.
    pub(crate) fn is_constant(&self, place: &Place) -> bool {
        matches!(place.slot, Slot::Input(input) if !self.written.contains(&input))
    }

    /// Returns whether this is a graph input that a single step of the graph writes.
    pub(crate) fn is_written_once(&self, place: &Place) -> bool {
        let writes = |&&written: &&usize| place.slot == Slot::Input(written);
        self.written.iter().filter(writes).count() == 1
    }

    /// Appends a launch, unless it has no groups.
    pub(crate) fn launch(&mut self, kernel: Kernel) {
        self.known = None;
        let dispatch = kernel.finish(self.dialect);
        if !dispatch.groups.contains(&0) {
            self.work
                .push((self.step, Work::Kernel(Box::new(dispatch))));
        }
    }

    /// Appends a product of the driver's library, which [`Emitter::has_gemm`] says there is.
    pub(crate) fn gemm(&mut self, gemm: Gemm, operands: Operands) {
        self.known = None;
        let work = Work::Gemm(Box::new((gemm, operands)));
        self.work.push((self.step, work));
    }

    /// Notes that the last launch begins only when `ids` are there, and lets the next one begin only then.
    pub(crate) fn knows(&mut self, ids: &Place) {
        self.known = Some(position(ids));
    }

    /// Are `ids` there before the next launch begins, even if that is before the last one ends?
    pub(crate) fn is_known(&self, ids: &Place) -> bool {
        self.known == Some(position(ids))
    }

    /// Words that are zero before each launch that uses them, which leaves them so.
    pub(crate) fn zeroed(&mut self, words: usize) -> Counters {
        let at = self.counters;
        self.counters += words;
        Counters { at, words }
    }

    /// Memory until the end of the step, uninitialised.
    pub(crate) fn scratch(&mut self, bytes: usize) -> Scratch {
        let at = self.scratch;
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
            indices: None,
        });
        self.mistakes.len() as u32
    }

    /// [`Emitter::mistake`] of an index among those of `place`, an operand of `step`, that is not
    /// below `size`; `range` is the valid range in the message.
    pub(crate) fn outside(
        &mut self,
        step: &Step,
        place: &Place,
        size: usize,
        range: String,
    ) -> u32 {
        let code = self.mistake(step, 0, format!("an index is outside {range}"));
        if let (Slot::Input(input), true) = (place.slot, self.is_constant(place))
            && let Some(mistake) = self.mistakes.last_mut()
        {
            mistake.indices = Some(Indices {
                input,
                layout: place.layout.clone(),
                dtype: place.ty.dtype,
                size,
                range,
            });
        }
        code
    }
}
