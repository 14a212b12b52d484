//! Products of a few rows of activations on tensor cores, which read the weights once; see
//! `kernels/cuda/product_few.cu`.

use std::ops::RangeInclusive;

use rustorch_ir::{DType, Signature, TensorType};

use super::HOPPER;
use super::matvec::SHARED;
use crate::driver::Limits;
use crate::emit::{Device, Emitter};
use crate::kernel::{Kernel, Scratch, name};
use crate::ops::blocks;
use crate::ops::fused_linear::{Linear, Linears, factors, with_gate};

/// Rows of activations. Fewer and more rows are faster by other kernels on an H200.
const ROWS_OF_X: RangeInclusive<usize> = 5..=16;

/// The gate in the kernel's text, and its argument.
const GATE: [&str; 2] = ["gate * (1 / (1 + exp(-gate)))", "gate"];

/// The most matrices of a launch.
const MATRICES: usize = 3;

/// Rows of weights that a cluster takes at a time, and work-items of a group.
const ROWS: usize = 64;
const GROUP: usize = 256;

/// Groups of a cluster, which share rows of weights along k.
const CLUSTER: usize = 4;

/// Stages in local memory at most.
const STAGES: usize = 6;

/// Lists of all numbers of tokens that there are kernels for: whole tiles of tensor cores.
fn tokens(m: usize) -> usize {
    m.next_power_of_two().max(8)
}

/// The form of weights, and of the activations for them.
#[derive(Clone, Copy)]
struct Form {
    weights: DType,
    /// Values along k that are in local memory together.
    stage: usize,
    /// Values with one scale, and with one sum if there are sums.
    scaled: usize,
    span: usize,
    has_sums: bool,
}

impl Form {
    /// The form, if there are kernels for such weights.
    fn of(weights: DType) -> Option<Self> {
        let form = match weights {
            DType::F16 | DType::BF16 => Self {
                weights,
                stage: 128,
                scaled: 1,
                span: 16,
                has_sums: false,
            },
            DType::Block(format) => {
                let text = blocks::description(format);
                let says = |line: &str| text.contains(&format!("#define {line}\n"));
                let span = match (says("SPAN 16"), says("SPAN 32")) {
                    (true, false) => 16,
                    (false, true) => 32,
                    _ => return None,
                };
                Self {
                    weights,
                    stage: 256,
                    scaled: format.block_len(),
                    span,
                    has_sums: says("HAS_MINIMUM 1"),
                }
            }
            _ => return None,
        };
        (form.scaled == 1 || matches!(form.scaled, 32 | 256)).then_some(form)
    }

    fn is_halves(self) -> bool {
        self.scaled == 1
    }

    /// Bytes of a stage of a row of weights.
    fn weight_bytes(self) -> usize {
        self.weights.bytes_of(&[self.stage]).unwrap_or(0)
    }

    /// Copies of 16 bytes for it, wherever it begins: an odd number, which puts the beginnings of eight rows into
    /// different banks.
    fn pieces(self) -> usize {
        let before = if self.is_aligned() { 0 } else { 15 };
        (self.weight_bytes() + before).div_ceil(16) | 1
    }

    fn is_aligned(self) -> bool {
        match self.weights {
            DType::Block(format) => format.block_bytes().is_multiple_of(16),
            _ => true,
        }
    }

    /// Bytes of a stage of all tokens.
    fn token_bytes(self, tokens: usize) -> usize {
        let codes = match self.is_halves() {
            true => return self.stage * size_of::<u16>() * tokens,
            false => self.stage,
        };
        let sums = if self.has_sums {
            self.stage / self.span
        } else {
            0
        };
        (codes + (self.stage / self.scaled + sums) * size_of::<f32>()) * tokens
    }
}

/// Local memory of a group, and how many groups share a unit.
struct Local {
    stages: usize,
    bytes: usize,
    resident: usize,
}

impl Local {
    fn new(form: Form, tokens: usize, limits: &Limits) -> Option<Self> {
        // PART_STEP and, twice, RECEIVED_STEP of the kernel.
        let parts = ROWS * (tokens + 1 + 2 * (tokens + 2)) * size_of::<f32>();
        let stage = ROWS * form.pieces() * 16 + form.token_bytes(tokens);
        let local = |most: usize, resident: usize| {
            let stages = (most.checked_sub(parts)? / stage).min(STAGES);
            let bytes = parts + stages * stage;
            (stages >= 2).then_some(Self {
                stages,
                bytes,
                resident,
            })
        };
        // With less than three stages, nothing is copied while there is a wait.
        let shared = local(SHARED.min(limits.local_bytes / 2), 2).filter(|local| local.stages > 2);
        shared.or_else(|| local(limits.local_bytes, 1))
    }
}

/// Is `x · wᵀ` one of those products? Weights begin at multiples of 16 bytes.
pub(crate) fn accepts(x: &TensorType, w: &TensorType) -> bool {
    let k = w.shape.last().copied().unwrap_or(0);
    let m = x.shape.elements().checked_div(k).unwrap_or(0);
    let is_float = matches!(x.dtype, DType::F32 | DType::F16 | DType::BF16);
    let is_aligned = w.dtype.is_block() || k.is_multiple_of(8);
    ROWS_OF_X.contains(&m) && is_float && is_aligned && Form::of(w.dtype).is_some()
}

/// Has the device the instructions, and local memory for products that are all accepted?
pub(crate) fn suits(device: &Device, s: &Signature) -> bool {
    let has_room = |x: &TensorType, w: &TensorType| {
        let k = w.shape.last().copied().unwrap_or(1);
        let tokens = tokens(x.shape.elements() / k);
        let form = Form::of(w.dtype);
        form.is_some_and(|form| Local::new(form, tokens, device.limits).is_some())
    };
    device.limits.cuda_capability >= HOPPER
        && factors(s).is_some_and(|(x, weights)| weights.iter().all(|w| has_room(x, w)))
}

macro_rules! text {
    ($($name:literal),*) => {
        concat!($(include_str!(concat!("../../../kernels/cuda/", $name))),*)
    };
}

/// Appends the launches of products that are all accepted, of weights of one dtype.
pub(crate) fn emit(linears: &Linears, emitter: &mut Emitter) {
    let w = linears.each[0].w;
    let k = w.ty.shape[1];
    let m = linears.x.ty.shape.elements() / k;
    let Some(form) = Form::of(w.ty.dtype) else {
        return;
    };
    let Some(local) = Local::new(form, tokens(m), emitter.limits) else {
        return;
    };
    let x = rounded([m, k], form, linears, emitter);
    let has_rows = |linear: &&Linear| linear.rows() > 0;
    let all: Vec<Linear> = linears.each.iter().filter(has_rows).copied().collect();
    for each in all.chunks(MATRICES) {
        let kernel = kernel([m, k], form, &local, x, linears, each, emitter);
        emitter.launch(kernel);
    }
}

/// Definitions for a form.
fn define(form: Form, tokens: usize, kernel: &mut Kernel) {
    kernel.define("TOKENS", tokens);
    kernel.define("STAGE", form.stage);
    kernel.define("STAGE_BYTES", form.token_bytes(tokens));
    kernel.define("OF_HALVES", u8::from(form.is_halves()));
    kernel.define("SCALED", form.scaled);
    match form.weights {
        DType::Block(_) => {}
        halves => kernel.define_dtype("OPERAND", halves),
    }
}

/// Appends the launch that rounds the activations, and normalises them before.
fn rounded([m, k]: [usize; 2], form: Form, linears: &Linears, emitter: &mut Emitter) -> Scratch {
    const WARPS: usize = 16;
    let (tokens, stages) = (tokens(m), k.div_ceil(form.stage));
    let memory = emitter.scratch(stages * form.token_bytes(tokens));
    let text = text!("activations.h", "rounded_rows.cu");
    let mut kernel = Kernel::new("rounded_rows", text, (WARPS * 32) as u32);
    define(form, tokens, &mut kernel);
    kernel.define("SPAN", form.span);
    kernel.define("HAS_SUMS", u8::from(form.has_sums));
    kernel.define_dtype("X", linears.x.ty.dtype);
    kernel.read("x", linears.x);
    kernel.scratch("y", DType::U8, memory, true);
    kernel.define("HAS_NORM", u8::from(linears.norm.is_some()));
    let weight = linears.norm.and_then(|norm| norm.weight);
    kernel.define("HAS_NORM_WEIGHT", u8::from(weight.is_some()));
    if let Some(weight) = weight {
        kernel.read("norm", weight);
    }
    if let Some(norm) = linears.norm {
        kernel.float("eps", norm.eps as f32);
    }
    for (name, size) in [("m", m), ("k", k), ("stages", stages)] {
        kernel.word(name, size);
    }
    emitter.launch(kernel.groups(tokens, 1, 1));
    memory
}

/// The kernel's text for weights of this dtype, and whether they are signed bytes.
fn source(weights: DType, linears: &Linears) -> (Kernel, bool) {
    let text = with_gate(text!("async.h", "product_few.cu"), GATE, linears.gate);
    match weights {
        DType::Block(format) => {
            let is_bytes = blocks::has_signed_codes(format);
            let kernel = blocks::kernel("product_few", &text, GROUP as u32, format);
            (kernel, is_bytes)
        }
        halves => {
            let mut kernel = Kernel::new("product_few", text.into_owned(), GROUP as u32);
            kernel.define("MMA", format!("\"{}\"", name(halves)));
            (kernel, false)
        }
    }
}

/// The launch of some of the products, with the operations behind.
fn kernel(
    [m, k]: [usize; 2],
    form: Form,
    local: &Local,
    x: Scratch,
    linears: &Linears,
    each: &[Linear],
    emitter: &Emitter,
) -> Kernel {
    let (mut kernel, is_bytes) = source(form.weights, linears);
    let is_gated = linears.gate.is_some();
    define(form, tokens(m), &mut kernel);
    for (name, value) in [
        ("CLUSTER", CLUSTER),
        ("STAGES", local.stages),
        ("PIECES", form.pieces()),
        ("W_BYTES", form.weight_bytes()),
        ("IS_ALIGNED", usize::from(form.is_aligned())),
        ("IS_BYTES", usize::from(is_bytes)),
        ("MATRICES", each.len()),
        ("IS_GATED", usize::from(is_gated)),
        ("HAS_BIAS", usize::from(each[0].bias.is_some())),
        ("HAS_RESIDUAL", usize::from(linears.other.is_some())),
    ] {
        kernel.define(name, value);
    }
    kernel.residence(GROUP as u32, local.resident as u32);
    kernel.dynamic_local(local.bytes);
    kernel.cluster(CLUSTER as u32);
    // Weights that stay as they are can be read before earlier launches have ended.
    if each.iter().all(|linear| emitter.is_constant(linear.w)) {
        kernel.define("STARTS_EARLY", 1);
    }
    kernel.define_dtype("X", linears.x.ty.dtype);
    kernel.scratch("x", DType::U8, x, false);
    if let Some(other) = linears.other {
        kernel.read("residual", other);
    }
    let (mut rows, mut tiles, mut all_tiles) = (Vec::new(), Vec::new(), 0);
    for (i, linear) in each.iter().enumerate() {
        kernel.read(&format!("w{i}"), linear.w);
        if let Some(bias) = linear.bias {
            kernel.read(&format!("bias{i}"), bias);
        }
        if let Some(y) = linear.y {
            kernel.write(&format!("y{i}"), y);
        }
        rows.push(linear.rows());
        all_tiles += linear.rows().div_ceil(ROWS);
        tiles.push(all_tiles);
    }
    if is_gated {
        all_tiles = rows[0].div_ceil(ROWS / 2);
    }
    kernel.words("n", &rows);
    kernel.words("tiles", &tiles);
    let units = emitter.limits.compute_units * local.resident / CLUSTER;
    // Some units lack neighbours for a cluster: an H200 holds 62 of 66, or 31 of 33. One more would begin when others end.
    let units = units - units.div_ceil(16);
    let clusters = all_tiles.min(units.max(1));
    for (name, size) in [
        ("m", m),
        ("stages", k.div_ceil(form.stage)),
        ("row_bytes", each[0].w.ty.dtype.bytes_of(&[k]).unwrap_or(0)),
        ("all_tiles", all_tiles),
        ("clusters", clusters),
    ] {
        kernel.word(name, size);
    }
    kernel.groups(clusters * CLUSTER, 1, 1)
}
