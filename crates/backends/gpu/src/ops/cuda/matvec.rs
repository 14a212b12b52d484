//! Products of few rows of activations, as fast as the weights can be read.

use rustorch_ir::{BlockFormat, DType, Signature, TensorType};

use super::HOPPER;
use crate::emit::{Device, Emitter, SIMD_WIDTH};
use crate::kernel::{Kernel, name};
use crate::ops::blocks;
use crate::ops::fused_linear::{Linear, Linears, factors, with_gate};

/// The most rows of activations.
pub(super) const FEW: usize = 8;

/// The gate in the kernel's text, and its argument.
const GATE: [&str; 2] = ["gate * (1 / (1 + exp(-gate)))", "gate"];

/// The most matrices of a launch.
const MATRICES: usize = 3;

/// Bytes of local memory in front of the rings: HEAD_BYTES of the kernel.
pub(super) const HEAD: usize = 2048;

/// Bytes of local memory of the rings through which the weights stream. This one holds if there is
/// room for two launches at a time.
pub(super) const RINGS: usize = 72 << 10;
const RINGS_OF_BLOCKS: usize = 56 << 10;
const RINGS_OF_FLOATS: usize = 48 << 10;

/// Local memory of each of two launches that are on one compute unit.
pub(super) const SHARED: usize = 110 << 10;

/// The shape of a product.
pub(super) struct Shape {
    pub(super) m: usize,
    pub(super) k: usize,
    weights: DType,
}

impl Shape {
    pub(super) fn of(x: &TensorType, w: &TensorType) -> Self {
        let k = w.shape.last().copied().unwrap_or(0);
        Self {
            m: x.shape.elements().checked_div(k).unwrap_or(0),
            k,
            weights: w.dtype,
        }
    }

    /// Rows of activations that the kernel is made for.
    fn rows(&self) -> usize {
        self.m.next_power_of_two()
    }

    /// Bytes of local memory for one of them: codes, sums and scales of whole steps of the
    /// longest, or numbers in single precision.
    pub(super) fn row_bytes(&self) -> usize {
        match self.weights {
            DType::Block(_) => self.k.next_multiple_of(2048) / 8 * 11,
            _ => self.k.next_multiple_of(256) * 4,
        }
    }

    /// Bytes of local memory for the weights, and in all.
    fn local_bytes(&self) -> [usize; 2] {
        let rest = HEAD + self.rows() * self.row_bytes();
        let rings = match self.weights {
            _ if rest + RINGS <= SHARED => RINGS,
            DType::Block(_) => RINGS_OF_BLOCKS,
            _ => RINGS_OF_FLOATS,
        };
        [rings, rest + rings]
    }
}

/// Is `x · wᵀ` one of those products? Weights begin at multiples of 16 bytes.
pub(crate) fn accepts(x: &TensorType, w: &TensorType) -> bool {
    let shape = Shape::of(x, w);
    let is_float = |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let is_aligned = match w.dtype.size() {
        Some(size) => is_float(w.dtype) && (shape.k * size).is_multiple_of(16),
        // A row of blocks has whole ones.
        None => true,
    };
    (1..=FEW).contains(&shape.m) && shape.k > 0 && is_float(x.dtype) && is_aligned
}

/// Has the device the copy engine, and local memory for products that are all accepted?
pub(crate) fn suits(device: &Device, s: &Signature) -> bool {
    factors(s).is_some_and(|(x, weights)| weights.iter().all(|w| has_room(device, x, w)))
}

fn has_room(device: &Device, x: &TensorType, w: &TensorType) -> bool {
    device.limits.cuda_capability >= HOPPER
        && Shape::of(x, w).local_bytes()[1] <= device.limits.local_bytes
}

/// Can weights of both dtypes be those of one launch?
pub(crate) fn joins(first: DType, second: DType) -> bool {
    first.is_block() && second.is_block()
}

/// Appends the launches of products that are all accepted. Weights have one dtype, or two that are joined, one after
/// the other.
pub(crate) fn emit(linears: &Linears, emitter: &mut Emitter) {
    let has_rows = |linear: &&Linear| linear.rows() > 0;
    let all: Vec<Linear> = linears.each.iter().filter(has_rows).copied().collect();
    for each in all.chunks(MATRICES) {
        let kernel = kernel(linears, each, emitter);
        emitter.launch(kernel);
    }
}

/// The launch of some of the products, with the operations before and after.
fn kernel(linears: &Linears, each: &[Linear], emitter: &Emitter) -> Kernel {
    let (x, weights) = (linears.x, each[0].w.ty.dtype);
    let shape = Shape::of(&x.ty, &each[0].w.ty);
    let [rings, local_bytes] = shape.local_bytes();
    let m = shape.rows();
    // With few rows it takes many warps to hide latencies, with many it takes registers.
    let warps = if m == 1 { 16 } else { 8 };
    let group = (warps * SIMD_WIDTH) as u32;

    let is_first = |linear: &&Linear| linear.w.ty.dtype == weights;
    let (first, second) = each.split_at(each.iter().take_while(is_first).count());
    let mut dtypes = vec![weights];
    dtypes.extend(second.first().map(|linear| linear.w.ty.dtype));

    let text = with_gate(text(&dtypes), GATE, linears.gate);
    let mut kernel = Kernel::new("matvec", text, group);
    // Two launches and a smaller one fit on a compute unit, and each can begin before the one
    // ahead of it has ended.
    let spared = if warps == 16 { group / 4 } else { 0 };
    kernel.residence(group + spared, 2);
    kernel.dynamic_local(local_bytes);
    // Weights that stay as they are can be read before earlier launches have ended.
    let norm = linears.norm;
    let norm_weight = norm.and_then(|norm| norm.weight);
    let mut weights = each.iter().map(|linear| linear.w).chain(norm_weight);
    if weights.all(|place| emitter.is_constant(place)) {
        kernel.define("STARTS_EARLY", 1);
    }
    kernel.define("MATRICES", each.len());
    kernel.define("FIRST_MATRICES", first.len());
    kernel.define("M", m);
    kernel.define("RING_BYTES", rings);
    kernel.define_dtype("X", x.ty.dtype);
    kernel.read("x", x);
    kernel.define("HAS_NORM", u8::from(norm.is_some()));
    kernel.define("HAS_NORM_WEIGHT", u8::from(norm_weight.is_some()));
    if let Some(weight) = norm_weight {
        kernel.read("norm", weight);
    }
    if let Some(norm) = norm {
        kernel.float("eps", norm.eps as f32);
    }
    kernel.define("IS_GATED", u8::from(linears.gate.is_some()));
    kernel.define("HAS_RESIDUAL", u8::from(linears.other.is_some()));
    if let Some(other) = linears.other {
        kernel.read("residual", other);
    }
    kernel.define("HAS_BIAS", u8::from(each[0].bias.is_some()));
    for (i, linear) in each.iter().enumerate() {
        kernel.read(&format!("w{i}"), linear.w);
        if let Some(bias) = linear.bias {
            kernel.read(&format!("bias{i}"), bias);
        }
        if let Some(y) = linear.y {
            kernel.write(&format!("y{i}"), y);
        }
        kernel.word(&format!("n{i}"), linear.rows());
    }
    kernel.word("m", shape.m);
    kernel.word("k", shape.k);
    kernel.word("x_bytes", shape.row_bytes());
    let rows: usize = each.iter().map(Linear::rows).sum();
    let groups = rows.min(emitter.limits.compute_units);
    kernel.word("first_groups", split(groups, first, second));
    kernel.word("groups", groups);
    kernel.groups(groups, 1, 1)
}

/// Number of groups that multiply the matrices of the first format.
fn split(groups: usize, first: &[Linear], second: &[Linear]) -> usize {
    if second.is_empty() {
        return groups;
    }
    let bytes =
        |linears: &[Linear]| -> usize { linears.iter().map(|linear| linear.w.ty.bytes()).sum() };
    let [a, b] = [first, second].map(bytes);
    ((groups * a + (a + b) / 2) / (a + b)).clamp(1, groups.max(2) - 1)
}

macro_rules! texts {
    ($($name:literal)*) => {
        concat!($(include_str!(concat!("../../../kernels/cuda/", $name))),*)
    };
}

/// The kernel's text for weights of these dtypes, one or two.
fn text(dtypes: &[DType]) -> String {
    let kernel = texts!("matvec.cu");
    format!("{}{kernel}", common_text(dtypes))
}

/// Text that kernels for weights of these dtypes have in common.
pub(super) fn common_text(dtypes: &[DType]) -> String {
    let activations = match dtypes[0] {
        DType::Block(_) => texts!("rounded.h" "units/words.h" "units/packed_pair.h"),
        _ => texts!("exact.h"),
    };
    let units: String = dtypes.iter().zip(["first", "second"]).map(unit).collect();
    let common = texts!("async.h" "activations.h");
    format!("{common}{activations}{units}")
}

/// Text about weights of a dtype for the kernel, in a namespace.
fn unit((dtype, namespace): (&DType, &str)) -> String {
    match *dtype {
        DType::Block(format) => {
            let unit = match format {
                BlockFormat::Q4_0 => texts!("units/q4_0.h"),
                BlockFormat::Q8_0 => texts!("units/q8_0.h"),
                BlockFormat::Q4K => texts!("units/q4_k.h"),
                BlockFormat::Q5K => texts!("units/q5_k.h"),
                BlockFormat::Q6K => texts!("units/q6_k.h"),
                BlockFormat::Mxfp4 => texts!("units/mxfp4.h"),
                _ => texts!("units/portable.h"),
            };
            let description = blocks::description(format);
            let (length, bytes) = (format.block_len(), format.block_bytes());
            let macros = [
                "BLOCK_LENGTH",
                "BLOCK_BYTES",
                "SPAN",
                "ZERO_POINT",
                "HAS_MINIMUM",
            ];
            let ends = macros.map(|name| format!("#undef {name}\n")).concat();
            format!(
                "#define BLOCK_LENGTH {length}\n#define BLOCK_BYTES {bytes}\n\
                 namespace {namespace} {{\n{description}{unit}}}\n{ends}"
            )
        }
        scalar => {
            let unit = texts!("units/floats.h");
            let name = name(scalar);
            format!("#define W {name}\nnamespace {namespace} {{\n{unit}}}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_launches_fit_on_a_compute_unit() {
        // Half of a unit's 228 KiB, less the one that each group has for itself.
        let most = (228 << 10) / 2 - (1 << 10);
        for weights in [DType::F16, DType::Block(BlockFormat::Q4K)] {
            for k in [256, 2048, 4096, 8192, 14336] {
                let shape = Shape { m: 1, k, weights };
                let [rings, all] = shape.local_bytes();
                assert!(all <= most && all > rings, "{weights:?} {k}: {all}");
            }
        }
    }
}
