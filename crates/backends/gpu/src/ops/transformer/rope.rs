//! Rotary position embedding.

use rustorch_ir::ops::{Rope, RopeLayout};
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use crate::emit::{Emitter, GpuKernel};
use crate::kernel::{Kernel, accumulator, halves};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Rope,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

/// Work-items of a group.
const GROUP: u32 = 64;

/// Pairs of one launch: their frequencies are parameters, and 1024 bytes are sure to fit.
const PAIRS: usize = 64;

/// Least number of heads that a work-item turns by its computed angle; `MOST_HEADS` is the largest.
const LEAST_HEADS: usize = 4;
const MOST_HEADS: usize = 32;

/// Work-items that keep a compute unit busy.
const ITEMS_PER_UNIT: usize = 2048;

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Rope(op) = &step.last().op else {
        return;
    };
    let launches = (op.dims / 2).div_ceil(PAIRS).max(1);
    for launch in 0..launches {
        let first = launch * PAIRS;
        let pairs = (op.dims / 2 - first).min(PAIRS);
        let is_last = launch + 1 == launches;
        let kernel = part(op, step, emitter, [first, pairs], is_last);
        emitter.launch(kernel);
    }
}

/// The kernel for some pairs, and for the features that do not turn.
fn part(
    op: &Rope,
    step: &Step,
    emitter: &Emitter,
    [first, pairs]: [usize; 2],
    with_rest: bool,
) -> Kernel {
    let (x, positions, y) = (&step.inputs[0], &step.inputs[1], step.output());
    let lead = x.ty.rank() - 2;
    let (t, d) = (x.ty.shape[lead], x.ty.shape[lead + 1]);
    let in_f64 = y.ty.dtype == DType::F64;
    let text = concat!(
        include_str!("../../../kernels/rope.h"),
        include_str!("../../../kernels/rope.c")
    );
    let mut kernel = Kernel::new("rope", text, GROUP);
    kernel.define("ACCUMULATOR", accumulator(y.ty.dtype));
    kernel.define(
        "INTERLEAVED",
        u8::from(op.layout == RopeLayout::Interleaved),
    );
    kernel.define("IN_F64", u8::from(in_f64));
    kernel.define_dtype("X", x.ty.dtype);
    kernel.read("x", x);
    kernel.read("positions", positions);
    kernel.word("position_stride", positions.layout.strides[0]);
    kernel.define("HAS_FACTORS", u8::from(step.inputs.len() > 2));
    if let Some(factors) = step.inputs.get(2) {
        kernel.read("factors", factors);
        kernel.word("factor_stride", factors.layout.strides[0]);
    }
    kernel.write("y", y);

    let (frequencies, magnitude) = op.frequencies(None);
    let mut words: Vec<usize> = (frequencies[first..first + pairs].iter())
        .flat_map(|&frequency| match in_f64 {
            true => halves(frequency.to_bits()),
            false => turns(frequency),
        })
        .collect();
    // So that one kernel serves all widths.
    words.resize(2 * PAIRS, 0);
    kernel.words("frequencies", &words);
    kernel.real("MAGNITUDE", y.ty.dtype, magnitude);

    let rest = if with_rest { d - op.dims } else { 0 };
    let heads: usize = x.ty.shape[..lead].iter().product();
    let items = t * (pairs + rest);
    let busy = emitter.limits.compute_units.max(1) * ITEMS_PER_UNIT;
    let (each, at_once) = match emitter.limits.is_processor {
        true => (heads, 1),
        false => (
            (heads * items / busy).clamp(LEAST_HEADS, MOST_HEADS),
            LEAST_HEADS,
        ),
    };
    kernel.define("AT_ONCE", at_once);
    kernel.word("first_pair", first);
    kernel.word("pairs", pairs);
    kernel.word("rest", rest);
    kernel.word("dims", op.dims);
    kernel.word("t", t);
    kernel.word("d", d);
    kernel.word("heads", heads);
    kernel.word("each", each);
    kernel.word("row_stride", x.layout.strides[lead]);
    kernel.word("stride", x.layout.strides[lead + 1]);
    kernel.define("LEAD_RANK", lead);
    kernel.words("lead", &x.ty.shape[..lead]);
    kernel.words("lead_strides", &x.layout.strides[..lead]);
    kernel.groups(items.div_ceil(GROUP as usize), heads.div_ceil(each), 1)
}

/// A frequency in turns as two floats, whose sum has 48 bits.
pub(crate) fn turns(frequency: f64) -> [usize; 2] {
    let turns = frequency / std::f64::consts::TAU;
    let high = turns as f32;
    let low = (turns - f64::from(high)) as f32;
    [high, low].map(|part| part.to_bits() as usize)
}
