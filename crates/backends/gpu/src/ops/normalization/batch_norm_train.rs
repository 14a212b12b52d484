//! Channels normalised by their own statistics, and the gradients of that: two passes over images each, which lie as they
//! are or with their channels last.

use rustorch_ir::ops::{BatchNormBackward, BatchNormTrain};
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use crate::driver::Limits;
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::{Kernel, accumulator};
use crate::ops::functions::rounded;
use crate::ops::views::{Memory, PARTS, WIDEST};

const fn entry(kind: OpKind) -> KernelEntry<GpuKernel> {
    KernelEntry {
        kind,
        accepts,
        layouts: Layouts::Contiguous,
        launch: GpuKernel::everywhere(emit),
    }
}

pub(crate) const KERNELS: [KernelEntry<GpuKernel>; 2] = [
    entry(OpKind::BatchNormTrain),
    entry(OpKind::BatchNormBackward),
];

/// Returns whether there are elements to go through.
pub(in crate::ops) fn accepts(s: &Signature) -> bool {
    s.inputs[0].shape.elements() > 0
}

fn emit(step: &Step, emitter: &mut Emitter) {
    launch(&step.last().op, step, false, emitter);
}

/// Appends the launches of one of these operations, on images whose channels are last or not.
pub(in crate::ops) fn launch(op: &Op, step: &Step, is_last: bool, emitter: &mut Emitter) {
    match op {
        Op::BatchNormTrain(op) => normalise(op, step, is_last, emitter),
        Op::BatchNormBackward(op) => gradients(op, step, is_last, emitter),
        _ => {}
    }
}

/// Way of groups through images, see `kernels/channels.h`.
struct Lines {
    is_last: bool,
    channels: usize,
    /// Elements of a channel.
    members: usize,
    /// The dtype of images, and that of sums.
    dtype: DType,
    sums: DType,
    vector: usize,
    lines: usize,
    vectors: usize,
    plane: usize,
    group: usize,
    resident: usize,
    columns: usize,
    segment: usize,
    segments: usize,
}

impl Lines {
    /// Work-items of a group, if the device allows so many.
    const GROUP: usize = 256;

    /// Vectors side by side of a group: 512 bytes are enough for a GPU's memory.
    const COLUMNS: usize = 32;

    /// Lines that a lane reads before it uses the first.
    const EACH: usize = 4;

    /// Lines of a lane that take as long as the beginning and the end of a group.
    const WORTH: usize = 32;

    /// Largest number of rounds in which groups follow those at work.
    const ROUNDS: usize = 4;

    /// Way of groups through images; a compute unit has `resident` groups at work at a time.
    fn new(images: &[&Place], is_last: bool, resident: usize, limits: &Limits) -> Self {
        let ty = &images[0].ty;
        let dtype = ty.dtype;
        let channels = ty.shape[if is_last { ty.rank() - 1 } else { 1 }];
        let members = ty.shape.elements() / channels;
        let pixels: usize = ty.shape[2..].iter().product();
        let wide = dtype.size().map_or(1, |size| WIDEST / size).max(1);
        let fits = |place: &&Place| place.layout.offset.is_multiple_of(wide);
        let neighbours = if is_last { channels } else { pixels };
        let is_wide = PARTS.contains(&dtype) && neighbours.is_multiple_of(wide);
        let vector = match is_wide && images.iter().all(fits) {
            true => wide,
            false => 1,
        };
        let most = match limits.is_processor {
            true => 1,
            false => 1 << limits.max_group.clamp(1, Self::GROUP).ilog2(),
        };
        let [lines, vectors, columns] = match is_last {
            true => {
                let vectors = channels / vector;
                let columns = vectors.next_power_of_two().min(Self::COLUMNS).min(most);
                [members, vectors, columns]
            }
            false => [members / vector, channels, 1],
        };
        let blocks = vectors.div_ceil(columns);
        // All groups end at the same time: there are as many as are at work together, or a multiple of that.
        let at_once = (limits.compute_units * resident / blocks).max(1);
        let together = most / columns;
        let rounds = lines / (at_once * together * Self::WORTH);
        let segment = lines.div_ceil(at_once * rounds.clamp(1, Self::ROUNDS));
        let segment = segment.max(together * Self::EACH);
        Self {
            is_last,
            channels,
            members,
            dtype,
            sums: match dtype {
                DType::F64 => DType::F64,
                _ => DType::F32,
            },
            vector,
            lines,
            vectors,
            plane: pixels / vector,
            group: most,
            resident,
            columns,
            segment,
            segments: lines.div_ceil(segment),
        }
    }

    /// Memory for two numbers of each channel in each segment.
    fn parts(&self, emitter: &mut Emitter) -> [Memory<'static>; 2] {
        [(); 2].map(|()| self.of_channels(self.segments, emitter))
    }

    /// Memory for `each` numbers of each channel.
    fn of_channels(&self, each: usize, emitter: &mut Emitter) -> Memory<'static> {
        let bytes = self.sums.size().unwrap_or(1);
        Memory::Scratch(self.sums, emitter.scratch(each * self.channels * bytes))
    }

    /// A kernel that goes through all images.
    fn kernel(&self, name: &'static str, text: &'static str) -> Kernel {
        let mut kernel = Kernel::new(name, text, self.group as u32);
        kernel.residence(self.group as u32, self.resident as u32);
        kernel.define_dtype("X", self.dtype);
        kernel.define_dtype("S", self.sums);
        kernel.define("ACCUMULATOR", accumulator(self.dtype));
        kernel.define("ROUNDED(x)", rounded(self.dtype, "(x)".to_owned()));
        kernel.define("IS_LAST", u8::from(self.is_last));
        kernel.define("VECTOR", self.vector);
        kernel.define("COLUMNS", self.columns);
        kernel.define("EACH", Self::EACH);
        kernel.word("lines", self.lines);
        kernel.word("vectors", self.vectors);
        kernel.word("plane", self.plane);
        kernel.word("segment", self.segment);
        kernel.groups(self.vectors.div_ceil(self.columns), self.segments, 1)
    }

    /// The kernel that adds up the segments' sums.
    fn totals(&self, is_backward: bool, [means, parts]: [Memory; 2]) -> Kernel {
        const TOGETHER: usize = 8;
        let text = include_str!("../../../kernels/channel_totals.c");
        let group = self.group.max(TOGETHER);
        let mut kernel = Kernel::new("channel_totals", text, group as u32);
        kernel.define_dtype("S", self.sums);
        kernel.define("ACCUMULATOR", accumulator(self.dtype));
        kernel.define("IS_BACKWARD", u8::from(is_backward));
        means.read(&mut kernel, "means");
        parts.read(&mut kernel, "parts");
        let elements = self.members / self.lines;
        kernel.word("members", self.members);
        kernel.word("channels", self.channels);
        kernel.word("segment", self.segment * elements);
        kernel.word("segments", self.segments);
        kernel.groups(self.channels.div_ceil(TOGETHER), 1, 1)
    }
}

macro_rules! text {
    ($name:literal) => {
        concat!(
            include_str!("../../../kernels/vectors.h"),
            include_str!("../../../kernels/numbers.h"),
            include_str!("../../../kernels/channels.h"),
            include_str!(concat!("../../../kernels/", $name))
        )
    };
}

fn normalise(op: &BatchNormTrain, step: &Step, is_last: bool, emitter: &mut Emitter) {
    let [x, w, b] = [0, 1, 2].map(|i| &step.inputs[i]);
    let [y, var, mean] = [0, 1, 2].map(|i| &step.outputs[i]);
    let other = step.inputs.get(3);
    let images: Vec<&Place> = [x, y].into_iter().chain(other).collect();
    let lines = Lines::new(&images, is_last, 3, emitter.limits);
    let parts = lines.parts(emitter);

    let mut kernel = lines.kernel("channel_statistics", text!("channel_statistics.c"));
    kernel.read("x", x);
    for (memory, name) in parts.iter().zip(["means", "parts"]) {
        memory.write(&mut kernel, name);
    }
    emitter.launch(kernel);

    let mut kernel = lines.totals(false, parts);
    kernel.write("variance", var);
    kernel.write("mean", mean);
    emitter.launch(kernel);

    let mut kernel = lines.kernel("channel_norm", text!("channel_norm.c"));
    kernel.define_dtype("W", w.ty.dtype);
    kernel.define("HAS_OTHER", u8::from(op.adds));
    kernel.define("HAS_RELU", u8::from(op.relu));
    kernel.real("EPS", lines.sums, op.eps.0);
    for (name, place) in [("x", x), ("var", var), ("mean", mean), ("w", w), ("b", b)] {
        kernel.read(name, place);
    }
    if let Some(other) = other {
        kernel.read("other", other);
    }
    kernel.write("y", y);
    emitter.launch(kernel);
}

fn gradients(op: &BatchNormBackward, step: &Step, is_last: bool, emitter: &mut Emitter) {
    let [x, ct, var, mean, w] = [0, 1, 2, 3, 4].map(|i| &step.inputs[i]);
    let [dx, of_weight, of_bias] = [0, 1, 2].map(|i| &step.outputs[i]);
    let copy = step.outputs.get(3);
    let others = step.inputs[5..]
        .iter()
        .filter(|place| place.ty.shape == x.ty.shape);
    let images: Vec<&Place> = ([x, ct, dx].into_iter().chain(others))
        .chain(copy)
        .collect();
    let lines = Lines::new(&images, is_last, 2, emitter.limits);
    let parts = lines.parts(emitter);
    let shares = lines.of_channels(2, emitter);
    let kernel = |is_sums: bool| {
        let mut kernel = lines.kernel("channel_gradients", text!("channel_gradients.c"));
        kernel.define("IS_SUMS", u8::from(is_sums));
        kernel.define("HAS_OTHER", u8::from(op.sums));
        kernel.define("HAS_RELU", u8::from(op.relu));
        kernel.define("HAS_BIAS", u8::from(op.by_bias));
        kernel.define("HAS_COPY", u8::from(op.also));
        kernel.define_dtype("W", w.ty.dtype);
        kernel.real("EPS", lines.sums, op.eps.0);
        kernel.read("x", x);
        kernel.read("mean", mean);
        if !is_sums || op.relu && op.by_bias {
            kernel.read("var", var);
            kernel.read("w", w);
        }
        if is_sums || copy.is_none() {
            kernel.read("ct", ct);
            if op.sums {
                kernel.read("other", &step.inputs[5]);
            }
            if let (true, Some(last)) = (op.relu, step.inputs.last()) {
                kernel.read(if op.by_bias { "b" } else { "positive" }, last);
            }
        }
        kernel
    };

    let mut sums = kernel(true);
    for (memory, name) in parts.iter().zip(["means", "parts"]) {
        memory.write(&mut sums, name);
    }
    if let Some(copy) = copy {
        sums.write("copy", copy);
    }
    emitter.launch(sums);

    let mut totals = lines.totals(true, parts);
    totals.define_dtype("W", w.ty.dtype);
    totals.real("EPS", lines.sums, op.eps.0);
    totals.read("var", var);
    totals.write("of_weight", of_weight);
    totals.write("of_bias", of_bias);
    shares.write(&mut totals, "shares");
    emitter.launch(totals);

    let mut of_x = kernel(false);
    if let Some(copy) = copy {
        of_x.read("copy", copy);
    }
    shares.read(&mut of_x, "shares");
    of_x.write("dx", dx);
    emitter.launch(of_x);
}
