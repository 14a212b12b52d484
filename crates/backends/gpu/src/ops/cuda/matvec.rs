//! Products of few rows of activations, as fast as the weights can be read.

use rustorch_ir::{BlockFormat, DType};
use rustorch_runtime::{Place, Step};
use smallvec::smallvec;

use super::HOPPER;
use crate::driver::Dialect;
use crate::emit::{Emitter, SIMD_WIDTH};
use crate::kernel::{Kernel, name};
use crate::ops::blocks;
use rustorch_runtime::merge::{Product, Products, Then};

/// The most rows of activations.
pub(super) const FEW: usize = 8;

/// The most matrices of a launch.
const MATRICES: usize = 3;

/// Bytes of local memory in front of the rings: HEAD_BYTES of the kernel.
const HEAD: usize = 2048;

/// Bytes of local memory of the rings through which the weights stream, where there is room
/// for two launches at a time, and else.
const RINGS: usize = 72 << 10;
const RINGS_OF_BLOCKS: usize = 56 << 10;
const RINGS_OF_FLOATS: usize = 48 << 10;

/// Local memory of each of two launches that are on one compute unit.
const SHARED: usize = 110 << 10;

/// The shape of a product.
struct Shape {
    m: usize,
    k: usize,
    weights: DType,
}

impl Shape {
    fn of(x: &Place, w: &Place) -> Self {
        let k = w.ty.shape[1];
        Self {
            m: x.ty.shape.elements().checked_div(k).unwrap_or(0),
            k,
            weights: w.ty.dtype,
        }
    }

    /// Rows of activations that the kernel is made for.
    fn rows(&self) -> usize {
        self.m.next_power_of_two()
    }

    /// Bytes of local memory for one of them: codes, sums and scales of whole steps of the
    /// longest, or numbers in single precision.
    fn row_bytes(&self) -> usize {
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

/// Is this product one of those?
pub(crate) fn accepts(step: &Step, emitter: &Emitter) -> bool {
    let [x, w] = [0, 1].map(|i| &step.inputs[i]);
    let shape = Shape::of(x, w);
    let is_float = |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let is_aligned = match w.ty.dtype.size() {
        Some(size) => {
            (shape.k * size).is_multiple_of(16) && (w.layout.offset * size).is_multiple_of(16)
        }
        // A row of blocks has whole ones.
        None => true,
    };
    emitter.dialect() == Dialect::Cuda
        && emitter.limits.cuda_capability >= HOPPER
        && (1..=FEW).contains(&shape.m)
        && shape.k > 0
        && is_float(x.ty.dtype)
        && (w.ty.dtype.is_block() || is_float(w.ty.dtype))
        && is_aligned
        && step.inputs.iter().all(|place| place.layout.is_contiguous())
        && shape.local_bytes()[1] <= emitter.limits.local_bytes
}

/// Appends the launch of a product that is accepted.
pub(crate) fn emit_one(step: &Step, emitter: &mut Emitter) {
    let products = Products {
        x: &step.inputs[0],
        norm: None,
        each: smallvec![Product {
            w: &step.inputs[1],
            bias: step.inputs.get(2),
            y: step.output(),
        }],
        then: Then::Nothing,
    };
    emit(&products, emitter);
}

/// Appends the launches of products that are all accepted, those of one dtype side by side,
/// and of two dtypes at most.
pub(crate) fn emit(products: &Products, emitter: &mut Emitter) {
    let has_rows = |product: &&Product| product.w.ty.shape[0] > 0;
    let all: Vec<Product> = products.each.iter().filter(has_rows).copied().collect();
    // A kernel adds a bias to all results or to none.
    let (with, without): (Vec<Product>, Vec<Product>) =
        all.into_iter().partition(|product| product.bias.is_some());
    for alike in [with, without] {
        for each in alike.chunks(MATRICES) {
            let kernel = kernel(products, each, emitter);
            emitter.launch(kernel);
        }
    }
}

/// The launch of some of the products, with what is done before and after.
fn kernel(products: &Products, each: &[Product], emitter: &Emitter) -> Kernel {
    let (x, weights) = (products.x, each[0].w.ty.dtype);
    let shape = Shape::of(x, each[0].w);
    let [rings, local_bytes] = shape.local_bytes();
    // With few rows it takes many warps to hide latencies, with many it takes registers.
    let warps = if shape.rows() == 1 { 16 } else { 8 };
    let group = (warps * SIMD_WIDTH) as u32;

    let is_first = |product: &&Product| product.w.ty.dtype == weights;
    let (first, second) = each.split_at(each.iter().take_while(is_first).count());
    let mut dtypes = vec![weights];
    dtypes.extend(second.first().map(|product| product.w.ty.dtype));

    let mut kernel = Kernel::new("matvec", text(&dtypes), group);
    // Two launches and a smaller one fit on a compute unit, and each can begin before the one
    // ahead of it has ended.
    let spared = if warps == 16 { group / 4 } else { 0 };
    kernel.residence(group + spared, 2);
    kernel.dynamic_local(local_bytes);
    // Weights that stay as they are can be read before earlier launches have ended.
    let norm = products.norm;
    let norm_weight = norm.and_then(|norm| norm.weight);
    let mut weights = each.iter().map(|product| product.w).chain(norm_weight);
    if weights.all(|place| emitter.is_constant(place)) {
        kernel.define("STARTS_EARLY", 1);
    }
    kernel.define("MATRICES", each.len());
    kernel.define("FIRST_MATRICES", first.len());
    kernel.define("M", shape.rows());
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
    let (gated, residual) = match products.then {
        Then::Nothing => (None, None),
        Then::Add { other, sum } => (None, Some((other, sum))),
        Then::SwiGlu { gated } => (Some(gated), None),
    };
    kernel.define("IS_GATED", u8::from(gated.is_some()));
    kernel.define("HAS_RESIDUAL", u8::from(residual.is_some()));
    if let Some((other, _)) = residual {
        kernel.read("residual", other);
    }
    kernel.define("HAS_BIAS", u8::from(each[0].bias.is_some()));
    for (i, product) in each.iter().enumerate() {
        kernel.read(&format!("w{i}"), product.w);
        if let Some(bias) = product.bias {
            kernel.read(&format!("bias{i}"), bias);
        }
        match (gated, residual) {
            (Some(gated), _) if i == 0 => kernel.write("y0", gated),
            (Some(_), _) => {}
            (None, Some((_, sum))) => kernel.write("y0", sum),
            (None, None) => kernel.write(&format!("y{i}"), product.y),
        }
        kernel.word(&format!("n{i}"), product.w.ty.shape[0]);
    }
    kernel.word("m", shape.m);
    kernel.word("k", shape.k);
    kernel.word("x_bytes", shape.row_bytes());
    let rows: usize = each.iter().map(|product| product.w.ty.shape[0]).sum();
    let groups = rows.min(emitter.limits.compute_units);
    kernel.word("first_groups", split(groups, first, second));
    kernel.word("groups", groups);
    kernel.groups(groups, 1, 1)
}

/// How many of the groups multiply the matrices of the first format.
fn split(groups: usize, first: &[Product], second: &[Product]) -> usize {
    if second.is_empty() {
        return groups;
    }
    let bytes = |products: &[Product]| -> usize {
        products.iter().map(|product| product.w.ty.bytes()).sum()
    };
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
    let activations = match dtypes[0] {
        DType::Block(_) => texts!("rounded.h" "units/words.h" "units/packed_pair.h"),
        _ => texts!("exact.h"),
    };
    let units: String = dtypes.iter().zip(["first", "second"]).map(unit).collect();
    let common = texts!("async.h" "activations.h");
    let kernel = texts!("matvec.cu");
    format!("{common}{activations}{units}{kernel}")
}

/// What the kernel knows of weights of a dtype, in a namespace.
fn unit((dtype, namespace): (&DType, &str)) -> String {
    match *dtype {
        DType::Block(format) => {
            let unit = match format {
                BlockFormat::Q4_0 => texts!("units/q4_0.h"),
                BlockFormat::Q8_0 => texts!("units/q8_0.h"),
                BlockFormat::Q4K => texts!("units/q4_k.h"),
                BlockFormat::Q5K => texts!("units/q5_k.h"),
                BlockFormat::Q6K => texts!("units/q6_k.h"),
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
        // Of 228 KiB, of which each group has one for itself.
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
