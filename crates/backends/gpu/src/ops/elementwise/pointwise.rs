//! Elementwise operations, one or a chain of them: the kernel is generated.

use std::fmt::Write;

use rustorch_ir::ops::{ActivationKind, BinaryOp, Full, UnaryOp};
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Part, PartOperand, Place, Step};

use super::functions::{expression, rounded};
use super::special;
use crate::dialect::Dialect;
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::{Kernel, name};
use crate::ops::random;
use crate::ops::views::{PARTS, WIDEST};

const fn entry(kind: OpKind) -> KernelEntry<GpuKernel> {
    KernelEntry {
        kind,
        accepts,
        layouts: Layouts::Any,
        launch: GpuKernel::everywhere(emit),
    }
}

pub(crate) const KERNELS: [KernelEntry<GpuKernel>; 11] = [
    entry(OpKind::Full),
    entry(OpKind::Contiguous),
    entry(OpKind::Offload),
    entry(OpKind::Reload),
    entry(OpKind::Cast),
    entry(OpKind::Unary),
    entry(OpKind::Binary),
    entry(OpKind::Compare),
    entry(OpKind::Where),
    entry(OpKind::Activation),
    entry(OpKind::Ternary),
];

/// Work-items of a group.
const GROUP: u32 = 256;

/// Elements that keep every unit of a GPU busy, even if a work-item has several.
const MANY: usize = 1 << 18;

/// Returns whether it is an elementwise operation on scalars.
pub(crate) fn accepts(signature: &Signature) -> bool {
    let mut types = signature.inputs.iter().copied().chain([signature.output()]);
    if types.any(|ty| ty.dtype.is_block()) {
        return false;
    }
    let Some(last) = signature.inputs.last() else {
        return signature.op.kind() == OpKind::Full;
    };
    let operands = vec!["x"; signature.inputs.len()];
    expression(
        signature.op,
        last.dtype,
        signature.output().dtype,
        &operands,
    )
    .is_some()
}

/// Neighbouring elements of a work-item, which are loaded and stored 16 bytes at a time: several
/// where there are many and they can be, else 1.
fn each(step: &Step, indices: &Indices, emitter: &Emitter) -> usize {
    let y = step.output();
    let elements = y.ty.shape.elements();
    let size = y.ty.dtype.size().unwrap_or(WIDEST);
    let each = (WIDEST / size).clamp(1, 8);
    // Random numbers are drawn by fours.
    let is_worth_it = (emitter.dialect == Dialect::Cuda || step.draws()) && elements >= MANY;
    let is_possible = PARTS.contains(&y.ty.dtype)
        && elements.is_multiple_of(each)
        && y.layout.offset.is_multiple_of(each)
        && indices.have_neighbours(step, each);
    if is_worth_it && is_possible { each } else { 1 }
}

/// Is less than single precision enough for the slow functions? It is if all operands and results are halves.
fn is_rough(step: &Step, emitter: &Emitter) -> bool {
    let is_half = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
    let is_slow = |part: &Part| match &part.op {
        Op::Unary(op) => matches!(op.op, UnaryOp::Exp | UnaryOp::Tanh),
        Op::Activation(op) => op.kind != ActivationKind::Relu,
        _ => false,
    };
    let is_single = |dtype: DType| matches!(dtype, DType::F32 | DType::Bool) || is_half(dtype);
    let is_key = |k: usize| {
        let reads = |part: &Part| part.operands.contains(&PartOperand::Input(k));
        let mut parts = step.parts.iter().filter(|part| reads(part));
        parts.all(|part| matches!(part.op, Op::Random(_)))
    };
    let mut read = step.inputs.iter().enumerate();
    emitter.dialect == Dialect::Cuda
        && is_half(step.output().ty.dtype)
        && read.all(|(k, place)| is_half(place.ty.dtype) || is_key(k))
        && step.parts.iter().all(|part| is_single(part.dtype))
        && step.parts.iter().any(is_slow)
}

/// Appends the kernel of a step.
pub(crate) fn emit(step: &Step, emitter: &mut Emitter) {
    let n = step.output().ty.shape.elements();
    let mut kernel = Kernel::new("pointwise", "", GROUP);
    // Fused or not, each operation rounds its own result.
    let mut body = String::from("SEPARATE_ROUNDING\nKERNEL_BEGIN\n");
    kernel.word("n", n);
    let indices = Indices::new(step, &mut kernel);
    let each = each(step, &indices, emitter);
    let _ = writeln!(
        body,
        "    const uint lane = GROUP_ID(0) * GROUP + LANE, i = lane * {each};"
    );
    if step.draws() {
        body.insert_str(0, random::WORDS);
    }
    if is_rough(step, emitter) {
        body.insert_str(0, include_str!("../../../kernels/cuda/rough.h"));
    }
    if each > 1 {
        if step.output().ty.dtype == DType::BF16 {
            body.insert_str(0, include_str!("../../../kernels/cuda/halves.h"));
        }
        body.insert_str(0, include_str!("../../../kernels/vectors.h"));
    }
    // All loads come first: what is stored may be what is loaded next, for all that compilers
    // know.
    if indices.operands.iter().any(|own| *own != Elements::One) {
        let _ = writeln!(body, "    const uint j = min(i, p.n - {each});");
    }
    indices.load_neighbours(step, each, &mut body);
    for element in 0..each {
        indices.load(step, element, each, &mut body);
    }
    body.push_str("    if (i < p.n) {\n");
    let y = name(step.output().ty.dtype);
    if each > 1 {
        let _ = writeln!(body, "        compute_{y} results[{each}];");
    }
    for element in 0..each {
        body.push_str("        {\n");
        if step.draws() {
            let _ = writeln!(body, "        {}", random::place(element, each));
        }
        for at in 0..step.parts.len() {
            // Parameters are the same for all elements.
            let own = (element == 0).then_some(&mut kernel);
            compute(step, at, element, own, emitter, &mut body);
        }
        let last = step.parts.len() - 1;
        let _ = match each {
            1 => writeln!(body, "        STORE({y}, y, i, t{last});\n        }}"),
            _ => writeln!(body, "        results[{element}] = t{last};\n        }}"),
        };
    }
    if each > 1 {
        let words = each * step.output().ty.dtype.size().unwrap_or(0) / 4;
        let _ = writeln!(body, "        STORE_{words}_WORDS({y}, y, lane, results)");
    }
    body.push_str("    }\n");
    kernel.write("y", step.output());
    body.push_str("KERNEL_END\n");
    kernel.set_text(special::with_definitions(body));
    emitter.launch(kernel.groups(n.div_ceil(each * GROUP as usize), 1, 1));
}

/// Indices of an element's operands.
struct Indices {
    operands: Vec<Elements>,
    /// Dimensions of the strided operands.
    rank: usize,
    /// The last of these dimensions, and the steps of operands along it.
    last: usize,
    last_steps: Vec<usize>,
}

/// Places of an operand's elements.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Elements {
    /// Same places as the result's.
    Linear,
    /// It is one, for all elements of the result.
    One,
    /// By an index for each dimension.
    Strided,
}

impl Elements {
    fn of(strides: &[usize], contiguous: &[usize]) -> Self {
        match strides {
            _ if strides == contiguous => Self::Linear,
            _ if strides.iter().all(|&stride| stride == 0) => Self::One,
            _ => Self::Strided,
        }
    }
}

/// A number to divide others of 32 bits by: their product with 2³² + `factor`, divided by
/// 2³² · 2^`shift` (Granlund and Montgomery 1994, doi 10.1145/178243.178249).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Divisor {
    factor: usize,
    shift: usize,
}

impl Divisor {
    /// A divisor for numbers below 2³².
    fn new(divisor: usize) -> Self {
        let divisor = divisor.max(1) as u64;
        let shift = divisor.next_power_of_two().ilog2();
        let factor = (((1 << shift) - divisor) << 32) / divisor + 1;
        Self {
            factor: factor as usize,
            shift: shift as usize,
        }
    }
}

impl Indices {
    fn new(step: &Step, kernel: &mut Kernel) -> Self {
        let (mut shape, mut strides) = collapse(step);
        let contiguous = contiguous_strides(&shape);
        let elements = |own: &Vec<usize>| Elements::of(own, &contiguous);
        let operands: Vec<Elements> = strides.iter().map(elements).collect();
        let mut rank = shape.len();
        if operands.contains(&Elements::Strided) {
            // Ranks in classes, so that few kernels serve all shapes.
            rank = rank.next_power_of_two().max(2);
            for dimensions in strides.iter_mut().chain([&mut shape]) {
                let missing = rank - dimensions.len();
                dimensions.splice(0..0, std::iter::repeat_n(1, missing));
            }
            kernel.words("shape", &shape);
            let divisors: Vec<Divisor> = shape.iter().map(|&size| Divisor::new(size)).collect();
            let factors: Vec<usize> = divisors.iter().map(|d| d.factor).collect();
            let shifts: Vec<usize> = divisors.iter().map(|d| d.shift).collect();
            kernel.words("factors", &factors);
            kernel.words("shifts", &shifts);
        }
        for (k, (place, strides)) in step.inputs.iter().zip(&strides).enumerate() {
            kernel.read(&format!("x{k}"), place);
            if operands[k] == Elements::Strided {
                kernel.words(&format!("strides{k}"), strides);
            }
        }
        let last = |dimensions: &Vec<usize>| dimensions.last().copied().unwrap_or(1);
        Self {
            last: last(&shape),
            last_steps: strides.iter().map(last).collect(),
            operands,
            rank,
        }
    }

    /// Can work-items have `each` neighbouring elements of the result, which are few pieces of
    /// memory in operands?
    fn have_neighbours(&self, step: &Step, each: usize) -> bool {
        let mut operands = step.inputs.iter().zip(&self.operands).zip(&self.last_steps);
        operands.all(|((place, elements), last_step)| match elements {
            Elements::Linear => {
                PARTS.contains(&place.ty.dtype) && place.layout.offset.is_multiple_of(each)
            }
            Elements::One => true,
            Elements::Strided => *last_step <= 1 && self.last.is_multiple_of(each),
        })
    }

    /// Words of `each` neighbours of an operand, if they are loaded as such.
    fn words(&self, step: &Step, operand: usize, each: usize) -> Option<usize> {
        let bytes = each * step.inputs[operand].ty.dtype.size().unwrap_or(0);
        let are_words = each > 1 && bytes.is_multiple_of(4);
        (are_words && self.operands[operand] == Elements::Linear).then_some(bytes / 4)
    }

    /// Loads `each` neighbours of operands that lie as the result does.
    fn load_neighbours(&self, step: &Step, each: usize, body: &mut String) {
        for k in 0..step.inputs.len() {
            let Some(words) = self.words(step, k, each) else {
                continue;
            };
            let (vector, vectors) = (words.min(4), words.div_ceil(4));
            let _ = writeln!(body, "    uint w{k}[{words}];");
            for at in 0..vectors {
                let _ = writeln!(
                    body,
                    "    LOAD_{vector}_WORDS(w{k} + {}, x{k}, \
                         j / {each} * {vectors} + {at})",
                    4 * at
                );
            }
        }
    }

    fn is_linear(&self) -> bool {
        !self.operands.contains(&Elements::Strided)
    }

    /// Loads the operands of one of `each` elements as `v0_ELEMENT`, `v1_ELEMENT` and so on; behind
    /// the last ones, those of the last.
    fn load(&self, step: &Step, element: usize, each: usize, body: &mut String) {
        // Neighbours are in one row of the last dimension.
        let last = self.rank - 1;
        if element == 0 && !self.is_linear() {
            let mut rest = "j".to_owned();
            for d in (1..self.rank).rev() {
                let _ = writeln!(
                    body,
                    "    const uint rest{d} = (uint)(((ulong)MUL_HIGH({rest}, p.factors[{d}]) \
                         + {rest}) >> p.shifts[{d}]);\n    \
                         const uint at{d} = {rest} - rest{d} * p.shape[{d}];"
                );
                rest = format!("rest{d}");
            }
            let _ = writeln!(body, "    const uint at0 = {rest};");
        }
        for (k, place) in step.inputs.iter().enumerate() {
            let index = match self.operands[k] {
                Elements::Linear => format!("j + {element}"),
                Elements::One => "0".to_owned(),
                Elements::Strided => {
                    let term = |d| match d == last {
                        true => format!("(at{d} + {element}) * p.strides{k}[{d}]"),
                        false => format!("at{d} * p.strides{k}[{d}]"),
                    };
                    let terms: Vec<String> = (0..self.rank).map(term).collect();
                    terms.join(" + ")
                }
            };
            let x = name(place.ty.dtype);
            let value = match self.words(step, k, each) {
                Some(_) => format!("PART({x}, w{k}, {element})"),
                None => format!("LOAD({x}, x{k}, {index})"),
            };
            let _ = writeln!(body, "    const compute_{x} v{k}_{element} = {value};");
        }
    }
}

/// Declares the constant `t0`, `t1` and so on of part `at`: its value for an element, rounded unless
/// the part is the last.
pub(in crate::ops) fn compute(
    step: &Step,
    at: usize,
    element: usize,
    kernel: Option<&mut Kernel>,
    emitter: &mut Emitter,
    body: &mut String,
) {
    let part = &step.parts[at];
    let value = value(step, at, part, element, kernel, emitter, body);
    let value = match at + 1 == step.parts.len() {
        true => value,
        false => rounded(part.dtype, value),
    };
    let t = name(part.dtype);
    let _ = writeln!(body, "        const compute_{t} t{at} = {value};");
}

/// The expression of part `at` for an element, in terms of the operands and of `t0`, `t1` and so
/// on. Its parameters are added to the kernel, if that is given.
fn value(
    step: &Step,
    at: usize,
    part: &Part,
    element: usize,
    kernel: Option<&mut Kernel>,
    emitter: &mut Emitter,
    body: &mut String,
) -> String {
    if let Op::Full(full) = &part.op {
        return constant(at, full, kernel);
    }
    let names: Vec<String> = (part.operands.iter())
        .map(|operand| match operand {
            PartOperand::Input(k) => format!("v{k}_{element}"),
            PartOperand::Part(k) => format!("t{k}"),
        })
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if let (Op::Random(op), &[seed, offset]) = (&part.op, &names[..]) {
        return random::expression(op, [seed, offset]);
    }
    // A condition comes before the operands that it chooses from.
    let from = part.operands.last().map_or(part.dtype, |o| step.dtype(*o));
    if divides_integers(&part.op, from) {
        if let Some(kernel) = kernel {
            let message = "integer division by zero".to_owned();
            let code = emitter.mistake(step, at, message);
            kernel.status(&format!("status{at}"), code);
        }
        let divisor = names[1];
        let _ = writeln!(
            body,
            "        if ({divisor} == 0) REPORT(status{at}, p.status{at}_code);"
        );
    }
    // `accepts` has asked for it before.
    expression(&part.op, from, part.dtype, &names).unwrap_or_default()
}

pub(in crate::ops) fn divides_integers(op: &Op, dtype: DType) -> bool {
    let divides = |op: BinaryOp| matches!(op, BinaryOp::FloorDivide | BinaryOp::Remainder);
    matches!(op, Op::Binary(b) if divides(b.op)) && !dtype.is_float()
}

/// A number as parameters, so that another one does not need another kernel. They are added to
/// the kernel, if that is given.
pub(in crate::ops) fn constant(at: usize, full: &Full, kernel: Option<&mut Kernel>) -> String {
    let k = format!("k{at}");
    let (re, im) = (full.value.as_f64(), full.value.imag());
    let words = |bits: u64| [bits as u32 as usize, (bits >> 32) as usize];
    if let Some(kernel) = kernel {
        let i = format!("i{at}_");
        match full.dtype {
            DType::F32 => kernel.float(&k, re as f32),
            DType::F16 => kernel.float(&k, half::f16::from_f64(re).to_f32()),
            DType::BF16 => kernel.float(&k, half::bf16::from_f64(re).to_f32()),
            DType::F64 => kernel.words(&k, &words(re.to_bits())),
            DType::Complex64 => {
                kernel.float(&k, re as f32);
                kernel.float(&i, im as f32);
            }
            DType::Complex128 => {
                kernel.words(&k, &words(re.to_bits()));
                kernel.words(&i, &words(im.to_bits()));
            }
            DType::I64 => kernel.words(&k, &words(full.value.as_i64() as u64)),
            DType::U64 => kernel.words(&k, &words(full.value.as_u64())),
            d if d.is_float8() => kernel.word(&k, full.value.to_bytes(d)[0].into()),
            DType::Bool => kernel.word(&k, usize::from(full.value.as_i64() != 0)),
            _ => kernel.word(&k, full.value.as_i64() as u32 as usize),
        }
    }
    let double = |name: &str| format!("F64_OF_BITS((ulong)p.{name}[0] | (ulong)p.{name}[1] << 32)");
    match full.dtype {
        DType::F64 => double(&k),
        DType::Complex64 => format!("make_complex64(p.{k}, p.i{at}_)"),
        DType::Complex128 => {
            format!(
                "make_complex128({}, {})",
                double(&k),
                double(&format!("i{at}_"))
            )
        }
        DType::I64 | DType::U64 => {
            let t = if full.dtype == DType::U64 {
                "ulong"
            } else {
                "long"
            };
            format!("(({t})((ulong)p.{k}[0] | (ulong)p.{k}[1] << 32))")
        }
        dtype => format!("((compute_{})p.{k})", name(dtype)),
    }
}

/// The output's shape and each operand's strides in it. Neighbouring dimensions are made one
/// wherever all operands step through them alike.
fn collapse(step: &Step) -> (Vec<usize>, Vec<Vec<usize>>) {
    let whole = &step.output().ty.shape;
    let layouts: Vec<_> = (step.inputs.iter())
        .map(|place: &Place| place.layout.broadcast_to(whole))
        .collect();
    let mut shape: Vec<usize> = Vec::new();
    let mut strides: Vec<Vec<usize>> = vec![Vec::new(); layouts.len()];
    for (d, &size) in whole.iter().enumerate() {
        if size == 1 {
            continue;
        }
        let joins = !shape.is_empty()
            && (strides.iter().zip(&layouts))
                .all(|(own, l)| own.last().is_some_and(|&s| s == l.strides[d] * size));
        match shape.last_mut() {
            Some(last) if joins => {
                *last *= size;
                for (own, l) in strides.iter_mut().zip(&layouts) {
                    own.pop();
                    own.push(l.strides[d]);
                }
            }
            _ => {
                shape.push(size);
                for (own, l) in strides.iter_mut().zip(&layouts) {
                    own.push(l.strides[d]);
                }
            }
        }
    }
    // A single element: any step is as good.
    if shape.is_empty() {
        shape.push(1);
        strides.iter_mut().for_each(|own| own.push(1));
    }
    (shape, strides)
}

fn contiguous_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d];
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_exact() {
        let ends = [1, 2, 3, 1000, u64::from(u32::MAX) / 2, u64::from(u32::MAX)];
        let divisors = (1..200)
            .chain(ends)
            .chain([1 << 31, (1 << 31) + 1, 641, 6_700_417]);
        for divisor in divisors {
            let Divisor { factor, shift } = Divisor::new(divisor as usize);
            let near = (0..50).map(|i| (divisor * (i * i + 1)).saturating_sub(i % 3));
            for n in near.chain(ends).filter(|&n| n <= u64::from(u32::MAX)) {
                let quotient = (((n * factor as u64) >> 32) + n) >> shift;
                assert_eq!(quotient, n / divisor, "{n} / {divisor}");
            }
        }
    }
}
