//! Attention with grouped queries, in one pass over the keys.

use rustorch_ir::ops::Attention;
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::tile::Tile;
use crate::driver::Limits;
use crate::emit::{Emit, Emitter};
use crate::kernel::{Kernel, accumulator};

pub(crate) const KERNEL: KernelEntry<Emit> = KernelEntry {
    kind: OpKind::Attention,
    accepts,
    layouts: Layouts::Any,
    launch: emit,
};

/// The widest keys and values of which a tile fits the least local memory there is.
const WIDEST: usize = 256;

/// Groups that go through the keys for each of a device's units, so that it is never idle.
const GROUPS_PER_UNIT: usize = 4;

/// Keys that are worth a group of their own.
const KEYS_PER_SPLIT: usize = 128;

fn accepts(s: &Signature) -> bool {
    let width = |i: usize| s.inputs[i].shape.last().is_some_and(|&w| w <= WIDEST);
    width(1) && width(2)
}

/// How a group divides its work.
struct Plan {
    /// Rows of queries, by keys or by values.
    tile: Tile,
    /// Keys at a time.
    keys: usize,
    /// Widths of keys and values, rounded up.
    width: usize,
    values: usize,
}

/// Elements between rows of tiles beyond their length.
const PAD: usize = 1;

impl Plan {
    /// For `rows` rows of queries, keys of `d` and values of `dv` elements.
    fn new(limits: &Limits, dtype: DType, rows: usize, d: usize, dv: usize) -> Self {
        let (width, values) = (
            d.next_multiple_of(32).max(32),
            dv.next_multiple_of(32).max(32),
        );
        let rows = rows.next_power_of_two().min(16);
        if limits.is_processor {
            let each = [rows.min(2), 16];
            let lanes = [rows / each[0], values / each[1]];
            let tile = Tile {
                lanes,
                each,
                of_one: true,
            };
            return Self {
                tile,
                keys: values,
                width,
                values,
            };
        }
        let (mut rows, mut keys) = (rows, 32);
        let local_bytes = |rows: usize, keys: usize| {
            let tiles = (width + keys) * (rows + PAD) + kv_tile(width, keys, values) + rows * 16;
            tiles * if dtype == DType::F64 { 8 } else { 4 }
        };
        while local_bytes(rows, keys) > limits.local_bytes && rows * keys > 1 {
            match keys >= rows {
                true => keys /= 2,
                false => rows /= 2,
            }
        }
        let lanes = [rows.min(8), keys.min(16)];
        let each = [rows / lanes[0], keys / lanes[1]];
        let tile = Tile {
            lanes,
            each,
            of_one: false,
        };
        Self {
            tile,
            keys,
            width,
            values,
        }
    }

    fn define(&self, kernel: &mut Kernel) {
        self.tile.define(kernel, PAD);
        let columns = self.tile.lanes[1];
        for (name, value) in [
            ("KEYS", self.keys),
            ("WIDTH", self.width),
            ("VALUES", self.values),
            ("KV_TILE", kv_tile(self.width, self.keys, self.values)),
            ("LANE_KEYS", self.keys / columns),
            ("LANE_VALUES", self.values / columns),
        ] {
            kernel.define(name, value);
        }
    }
}

/// Elements of a tile of keys or of values.
fn kv_tile(width: usize, keys: usize, values: usize) -> usize {
    (width * (keys + PAD)).max(keys * values)
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

    let plan = Plan::new(emitter.limits, dtype, rows, d, dv);
    let groups = all_heads * rows.div_ceil(plan.tile.rows());
    let wanted = emitter.limits.compute_units * GROUPS_PER_UNIT;
    let splits = match emitter.limits.is_processor {
        true => 1,
        false => (wanted / groups).clamp(1, s.div_ceil(KEYS_PER_SPLIT)),
    };

    let text = Tile::text(include_str!("../../kernels/attention.c"));
    let mut kernel = Kernel::new("attention", text, plan.tile.group());
    plan.define(&mut kernel);
    kernel.define("ACCUMULATOR", accumulator(dtype));
    kernel.define_dtype("X", dtype);
    kernel.define_dtype("C", k.ty.dtype);
    for (name, place) in [("q", q), ("k", k), ("v", v)] {
        operand(&mut kernel, name, place);
    }
    kernel.define("LEAD_RANK", lead);
    kernel.words("lead", &q.ty.shape[..lead]);
    for (name, value) in [
        ("heads", heads),
        ("each", each),
        ("t", t),
        ("s", s),
        ("d", d),
        ("dv", dv),
        ("splits", splits),
    ] {
        kernel.word(name, value);
    }
    options(op, step, &mut kernel, emitter);
    kernel.define("IS_SPLIT", u8::from(splits > 1));
    let grid = groups * splits;
    if splits == 1 {
        kernel.write("y", &step.output);
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

    let text = include_str!("../../kernels/attention_combine.c");
    let mut kernel = Kernel::new("attention_combine", text, 64);
    kernel.define("ACCUMULATOR", accumulator(dtype));
    kernel.define_dtype("X", dtype);
    for (name, memory) in scratch {
        kernel.scratch(name, partial, memory, false);
    }
    kernel.write("y", &step.output);
    kernel.word("splits", splits);
    kernel.word("dv", dv);
    emitter.launch(kernel.groups(all_heads * rows, 1, 1));
}

/// An operand of three dimensions behind those of the batch.
fn operand(kernel: &mut Kernel, name: &str, place: &Place) {
    let (lead, strides) = place.layout.strides.split_at(place.layout.rank() - 3);
    kernel.read(name, place);
    kernel.words(&format!("{name}_lead"), lead);
    kernel.words(&format!("{name}_strides"), strides);
}

/// What the operation says of the scores.
fn options(op: &Attention, step: &Step, kernel: &mut Kernel, emitter: &mut Emitter) {
    let (q, k) = (&step.inputs[0], &step.inputs[1]);
    let rank = q.ty.rank();
    let (t, s) = (q.ty.shape[rank - 2], k.ty.shape[rank - 2]);
    kernel.real("SCALE", q.ty.dtype, op.scale.0);
    kernel.word("is_causal", usize::from(op.causal));
    kernel.define("HAS_CAP", u8::from(op.soft_cap.is_some()));
    if let Some(cap) = op.soft_cap {
        kernel.real("CAP", q.ty.dtype, cap.0);
    }
    kernel.define("HAS_MASK", u8::from(op.mask));
    if op.mask {
        let mut mask = step.inputs[3].clone();
        let scores = q.ty.shape.clone().with_dim(rank - 1, s);
        mask.layout = mask.layout.broadcast_to(&scores);
        operand(kernel, "mask", &mask);
    }
    kernel.define("HAS_PAST", u8::from(op.past));
    if let Some(past) = step.inputs.last().filter(|_| op.past) {
        kernel.read("past", past);
        let message = format!("the past leaves no room for {t} new tokens in a cache of {s}");
        kernel.status("status", emitter.mistake(step, 0, message));
    }
}
