//! Attention with grouped queries, in one pass over the keys.

use rustorch_ir::ops::Attention;
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use crate::driver::Limits;
use crate::emit::{Emitter, GpuKernel, SIMD_WIDTH};
use crate::kernel::{Kernel, accumulator};
use crate::ops::cuda;
use crate::ops::tile::Tile;

pub(crate) const KERNELS: [KernelEntry<GpuKernel>; 2] = [
    KernelEntry {
        kind: OpKind::Attention,
        accepts: |s| match (s.op, s.inputs) {
            (Op::Attention(op), &[q, k, v, ..]) => cuda::attention::accepts(op, [q, k, v]),
            _ => false,
        },
        layouts: Layouts::AlignedRows,
        launch: GpuKernel {
            emit: cuda::attention::emit,
            suits: cuda::has_warpgroups,
        },
    },
    KernelEntry {
        kind: OpKind::Attention,
        accepts,
        layouts: Layouts::Any,
        launch: GpuKernel::everywhere(emit),
    },
];

/// Rows of queries that a SIMD-group takes on together.
const FEW: usize = 8;

/// The widest keys and values with a tile that fits the least local memory.
const WIDEST: usize = 256;

fn accepts(s: &Signature) -> bool {
    let width = |i: usize| s.inputs[i].shape.last().is_some_and(|&w| w <= WIDEST);
    // Values of width 0 leave nothing to combine.
    let has_values = s.output().shape.last() != Some(&0);
    (s.outputs.len() == 1 || has_values) && width(1) && width(2) && !s.inputs[1].dtype.is_block()
}

/// Sizes of a call.
struct Sizes {
    /// Rows of queries that share keys.
    rows: usize,
    /// Widths of keys and values, rounded up.
    width: usize,
    values: usize,
}

/// A kernel, and how the work is divided among its groups.
struct Division {
    kernel: Kernel,
    /// Rows of queries of a group.
    rows: usize,
    /// Keys that are worth a group of their own.
    keys: usize,
    /// Groups for each of a device's units, so that it is never idle.
    groups_per_unit: usize,
}

macro_rules! text {
    ($name:literal) => {
        concat!(
            include_str!("../../../kernels/attention.h"),
            include_str!(concat!("../../../kernels/", $name))
        )
    };
}

/// The kernel of tiles.
fn in_tiles(sizes: &Sizes, limits: &Limits, dtype: DType) -> Division {
    let (tile, keys) = match limits.is_processor {
        true => tile_of_one(sizes),
        false => tile_of_lanes(sizes, limits, dtype),
    };
    let mut kernel = Kernel::new("attention", Tile::text(text!("attention.c")), tile.group());
    tile.define(&mut kernel, PAD);
    let columns = tile.lanes[1];
    for (name, value) in [
        ("KEYS", keys),
        ("KV_TILE", kv_tile(sizes, keys)),
        ("LANE_KEYS", keys / columns),
        ("LANE_VALUES", sizes.values / columns),
    ] {
        kernel.define(name, value);
    }
    Division {
        kernel,
        rows: tile.rows(),
        keys: 128,
        groups_per_unit: 4,
    }
}

/// Elements between rows of tiles beyond their length.
const PAD: usize = 1;

/// Rows by keys or values, and keys at a time, for a processor.
fn tile_of_one(sizes: &Sizes) -> (Tile, usize) {
    let rows = sizes.rows.next_power_of_two().min(16);
    let each = [rows.min(2), 16];
    let tile = Tile {
        lanes: [rows / each[0], sizes.values / each[1]],
        each,
        of_one: true,
    };
    (tile, sizes.values)
}

/// Rows by keys or values, and keys at a time, for a GPU.
fn tile_of_lanes(sizes: &Sizes, limits: &Limits, dtype: DType) -> (Tile, usize) {
    let (mut rows, mut keys) = (sizes.rows.next_power_of_two().min(16), 32);
    let local_bytes = |rows: usize, keys: usize| {
        let tiles = (sizes.width + keys) * (rows + PAD) + kv_tile(sizes, keys) + rows * 16;
        tiles * if dtype == DType::F64 { 8 } else { 4 }
    };
    while local_bytes(rows, keys) > limits.local_bytes && rows * keys > 1 {
        match keys >= rows {
            true => keys /= 2,
            false => rows /= 2,
        }
    }
    let lanes = [rows.min(8), keys.min(16)];
    let tile = Tile {
        lanes,
        each: [rows / lanes[0], keys / lanes[1]],
        of_one: false,
    };
    (tile, keys)
}

/// Elements of a tile of keys or of values.
fn kv_tile(sizes: &Sizes, keys: usize) -> usize {
    (sizes.width * (keys + PAD)).max(keys * sizes.values)
}

/// The kernel whose groups are SIMD-groups, for few rows.
fn few_in_simd_groups(sizes: &Sizes) -> Division {
    let rows = sizes.rows.next_power_of_two();
    let text = text!("metal/attention_few.metal");
    let mut kernel = Kernel::new("attention_few", text, SIMD_WIDTH as u32);
    for (name, value) in [
        ("ROWS", rows),
        ("KEYS", SIMD_WIDTH),
        ("LANE_VALUES", sizes.values / SIMD_WIDTH),
    ] {
        kernel.define(name, value);
    }
    Division {
        kernel,
        rows,
        keys: 2 * SIMD_WIDTH,
        groups_per_unit: 16,
    }
}

/// The kernel of matrices of SIMD-groups, unless the tiles are too large.
fn many_in_simd_groups(sizes: &Sizes, limits: &Limits) -> Option<Division> {
    const ROWS: usize = 16;
    let steps = [sizes.width + 4, sizes.values + 4];
    let kv_tile = |keys: usize| keys * steps[0].max(steps[1]);
    let local_bytes = |keys: usize| {
        let rows: usize = steps.iter().sum::<usize>() + keys + 4;
        (ROWS * rows + kv_tile(keys)) * size_of::<f32>()
    };
    let keys = [32, 16, 8]
        .into_iter()
        .find(|&keys| local_bytes(keys) <= limits.local_bytes)?;
    let mut kernel = Kernel::new("attention", text!("metal/attention.metal"), 128);
    for (name, value) in [("ROWS", ROWS), ("KEYS", keys), ("KV_TILE", kv_tile(keys))] {
        kernel.define(name, value);
    }
    Some(Division {
        kernel,
        rows: ROWS,
        keys: 128,
        groups_per_unit: 4,
    })
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Attention(op) = &step.last().op else {
        return;
    };
    let [q, k, v] = [0, 1, 2].map(|i| &step.inputs[i]);
    let lead = q.ty.rank() - 3;
    let (heads, t) = (k.ty.shape[lead], q.ty.shape[lead + 1]);
    let (s, d, dv) = (
        k.ty.shape[lead + 1],
        k.ty.shape[lead + 2],
        v.ty.shape[lead + 2],
    );
    let each = q.ty.shape[lead] / heads;
    let rows = each * t;
    let all_heads = heads * q.ty.shape[..lead].iter().product::<usize>();
    let dtype = q.ty.dtype;

    let sizes = Sizes {
        rows,
        width: d.next_multiple_of(32).max(32),
        values: dv.next_multiple_of(32).max(32),
    };
    let in_simd_groups = match emitter.dialect.has_simd_groups() {
        false => None,
        true if rows <= FEW => Some(few_in_simd_groups(&sizes)),
        true => many_in_simd_groups(&sizes, emitter.limits),
    };
    let division = in_simd_groups.unwrap_or_else(|| in_tiles(&sizes, emitter.limits, dtype));
    let groups = all_heads * rows.div_ceil(division.rows);
    let wanted = emitter.limits.compute_units * division.groups_per_unit;
    let splits = match emitter.limits.is_processor {
        true => 1,
        false => (wanted / groups).clamp(1, op.window_of(t, s).div_ceil(division.keys)),
    };
    let mut kernel = division.kernel;
    kernel.define("WIDTH", sizes.width);
    kernel.define("VALUES", sizes.values);
    kernel.define("ACCUMULATOR", accumulator(dtype));
    for (name, place) in [("q", q), ("k", k), ("v", v)] {
        operand(&mut kernel, name, place);
    }
    shape(&mut kernel, [q, k, v], splits);
    let others = others(op, step);
    options(op, [q, k], others, step, &mut kernel, emitter);
    kernel.define("IS_SPLIT", u8::from(splits > 1));
    let grid = groups * splits;
    if splits == 1 {
        kernel.write("y", step.output());
        totals(&mut kernel, step.outputs.get(1));
        emitter.launch(kernel.groups(grid, 1, 1));
        return;
    }

    let partial = if dtype == DType::F64 {
        dtype
    } else {
        DType::F32
    };
    let parts = all_heads * rows * splits;
    let size = partial.size().unwrap_or(4);
    let scratch = [
        ("partial_peaks", emitter.scratch(parts * size)),
        ("partial_totals", emitter.scratch(parts * size)),
        ("partial_sums", emitter.scratch(parts * dv * size)),
    ];
    for (name, memory) in scratch {
        kernel.scratch(name, partial, memory, true);
    }
    emitter.launch(kernel.groups(grid, 1, 1));

    let mut kernel = Kernel::new("attention_combine", text!("attention_combine.c"), 64);
    kernel.define("ACCUMULATOR", accumulator(dtype));
    kernel.define_dtype("X", dtype);
    for (name, memory) in scratch {
        kernel.scratch(name, partial, memory, false);
    }
    kernel.write("y", step.output());
    totals(&mut kernel, step.outputs.get(1));
    kernel.word("splits", splits);
    kernel.word("dv", dv);
    emitter.launch(kernel.groups(all_heads * rows, 1, 1));
}

/// The dtypes and sizes of queries, keys and values.
pub(crate) fn shape(kernel: &mut Kernel, [q, k, v]: [&Place; 3], splits: usize) {
    let lead = q.ty.rank() - 3;
    kernel.define_dtype("X", q.ty.dtype);
    kernel.define_dtype("C", k.ty.dtype);
    kernel.define("LEAD_RANK", lead);
    kernel.words("lead", &q.ty.shape[..lead]);
    for (name, value) in [
        ("heads", k.ty.shape[lead]),
        ("each", q.ty.shape[lead] / k.ty.shape[lead]),
        ("t", q.ty.shape[lead + 1]),
        ("s", k.ty.shape[lead + 1]),
        ("d", k.ty.shape[lead + 2]),
        ("dv", v.ty.shape[lead + 2]),
        ("splits", splits),
    ] {
        kernel.word(name, value);
    }
}

/// An operand of three dimensions behind those of the batch.
pub(crate) fn operand(kernel: &mut Kernel, name: &str, place: &Place) {
    kernel.read(name, place);
    strides(kernel, name, place);
}

/// Its strides.
pub(crate) fn strides(kernel: &mut Kernel, name: &str, place: &Place) {
    let (lead, strides) = place.layout.strides.split_at(place.layout.rank() - 3);
    kernel.words(&format!("{name}_lead"), lead);
    kernel.words(&format!("{name}_strides"), strides);
}

/// A result of three dimensions behind those of the batch.
pub(crate) fn result(kernel: &mut Kernel, name: &str, place: &Place) {
    kernel.write(name, place);
    strides(kernel, name, place);
}

/// The logarithms of the weights' totals, if they are wanted.
pub(crate) fn totals(kernel: &mut Kernel, totals: Option<&Place>) {
    kernel.define("HAS_TOTALS", u8::from(totals.is_some()));
    if let Some(totals) = totals {
        kernel.write("totals", totals);
    }
}

/// The mask and the past of a step that is an attention.
pub(crate) fn others<'a>(op: &Attention, step: &'a Step) -> [Option<&'a Place>; 2] {
    [
        step.inputs.get(3).filter(|_| op.mask),
        step.inputs.last().filter(|_| op.past),
    ]
}

/// Definitions for the scores of `q` and `k` by the operation, with its mask and its past. All of
/// them are operands of `step`.
pub(crate) fn options(
    op: &Attention,
    [q, k]: [&Place; 2],
    [mask, past]: [Option<&Place>; 2],
    step: &Step,
    kernel: &mut Kernel,
    emitter: &mut Emitter,
) {
    let rank = q.ty.rank();
    let (t, s) = (q.ty.shape[rank - 2], k.ty.shape[rank - 2]);
    kernel.real("SCALE", q.ty.dtype, op.scale.0);
    kernel.word("is_causal", usize::from(op.causal));
    kernel.define("HAS_CAP", u8::from(op.soft_cap.is_some()));
    if let Some(cap) = op.soft_cap {
        kernel.real("CAP", q.ty.dtype, cap.0);
    }
    kernel.define("HAS_MASK", u8::from(op.mask));
    if let Some(mut mask) = mask.cloned() {
        let scores = q.ty.shape.clone().with_dim(rank - 1, s);
        mask.layout = mask.layout.broadcast_to(&scores);
        operand(kernel, "mask", &mask);
    }
    let window = op.window.filter(|&window| window < s);
    kernel.define("HAS_WINDOW", u8::from(window.is_some()));
    if let Some(window) = window {
        kernel.word("window", window);
    }
    kernel.define("HAS_PAST", u8::from(op.past));
    if let Some(past) = past {
        kernel.read("past", past);
        let message = format!("the past leaves no room for {t} new tokens in a cache of {s}");
        kernel.status("status", emitter.mistake(step, 0, message));
    }
}
