//! Products of few rows with weights of the experts that they chose, as fast as these can be read.

use rustorch_ir::TensorType;
use rustorch_runtime::Place;

use super::HOPPER;
use super::matvec::{self, HEAD, RINGS, SHARED, Shape, common_text};
use crate::emit::{Device, Emitter, SIMD_WIDTH};
use crate::kernel::Kernel;
use crate::ops::expert_linear::{self, Behind, Experts};

/// The most choices of experts.
const CHOICES: usize = 64;

/// The most slots of a sum: a lane copies the row of each.
const SLOTS: usize = 16;

const WARPS: usize = 16;

/// The most bytes of a row that are copied together: 32 units of 64 values of Q6_K.
const MOST_BYTES: usize = 1680;

/// Can rows `x` be multiplied with weights `w` of experts `ids`, and be added up in so many slots?
pub(crate) fn accepts([x, w, ids]: [&TensorType; 3], slots: usize) -> bool {
    matvec::accepts(x, w)
        && w.shape.elements() > 0
        && slots <= SLOTS
        && (1..=CHOICES).contains(&ids.shape.elements())
}

/// Has the device the copy engine, and local memory for an accepted product?
pub(crate) fn suits(device: &Device, [x, w, _]: [&TensorType; 3], slots: usize) -> bool {
    let [_, bytes] = local_bytes([x, w], slots, false);
    device.limits.cuda_capability >= HOPPER && bytes <= device.limits.local_bytes
}

/// Bytes of local memory of the rings, and in all. The rings have a chunk of each of a sum's rows. A gate has two of
/// each row, if two launches then fit on a compute unit.
fn local_bytes([x, w]: [&TensorType; 2], slots: usize, is_gate: bool) -> [usize; 2] {
    let shape = Shape::of(x, w);
    let row = w.bytes() / (w.shape[0] * w.shape[1]);
    let chunks = WARPS * ((row.min(MOST_BYTES) + 30) / 16 * 16);
    let rest = HEAD + shape.m.next_power_of_two() * shape.row_bytes();
    let rings = match is_gate && rest + 4 * chunks <= SHARED {
        true => RINGS.max(4 * chunks),
        false => RINGS.max(slots * chunks),
    };
    [rings, rest + rings]
}

/// Appends the launch. Each choice has a row of `x`, or several share one. The weights are of one product, or of two.
pub(crate) fn emit(
    (x, weights, y): (&Place, &[Place], &Place),
    experts: &Experts,
    behind: Option<&Behind>,
    emitter: &mut Emitter,
) {
    let w = &weights[0].ty;
    let shape = Shape::of(&x.ty, w);
    let slots = behind.map_or(0, Behind::slots);
    let [rings, local_bytes] = local_bytes([&x.ty, w], slots, weights.len() > 1);
    let text = include_str!("../../../kernels/cuda/matvec_experts.cu");
    let text = expert_linear::text(&format!("{}{text}", common_text(&[w.dtype])));
    let text = match behind {
        Some(behind) => behind.with_gate(&text),
        None => text,
    };
    let group = (WARPS * SIMD_WIDTH) as u32;
    let mut kernel = Kernel::new("matvec_experts", text, group);
    // Two launches fit on a compute unit, and each can begin before the one ahead of it has ended.
    kernel.residence(group, 2);
    kernel.dynamic_local(local_bytes);
    if weights.iter().all(|place| emitter.is_constant(place)) {
        kernel.define("STARTS_EARLY", 1);
    }
    kernel.define("BY_EXPERT", 1);
    kernel.define("CHOICES", CHOICES);
    kernel.define("EXPERT_ROWS", "p.n");
    kernel.define("KNOWS_IDS", u8::from(emitter.is_known(experts.ids)));
    experts.define(&mut kernel);
    kernel.define("RING_BYTES", rings);
    kernel.define("K", shape.k);
    kernel.define("IS_GATED", u8::from(weights.len() > 1));
    kernel.define("SLOTS", slots);
    kernel.define("TABLES", behind.map_or(0, |behind| behind.tables.len()));
    if let Some(behind) = behind {
        behind.pass(&mut kernel);
    }
    kernel.define_dtype("X", x.ty.dtype);
    kernel.define("HAS_NORM", 0);
    kernel.define("HAS_NORM_WEIGHT", 0);
    kernel.read("x", x);
    let other = behind.and_then(|behind| behind.other);
    kernel.define("HAS_RESIDUAL", u8::from(other.is_some()));
    if let Some(other) = other {
        kernel.read("other", other);
    }
    for (i, w) in weights.iter().enumerate() {
        kernel.read(&format!("w{i}"), w);
    }
    kernel.write("y", y);
    let groups = y.ty.shape.elements().min(emitter.limits.compute_units);
    for (name, size) in [
        ("rows", experts.rows),
        ("n", w.shape[1]),
        ("m", shape.m),
        ("x_bytes", shape.row_bytes()),
        ("groups", groups),
    ] {
        kernel.word(name, size);
    }
    emitter.launch(kernel.groups(groups, 1, 1));
    emitter.knows(experts.ids);
}
