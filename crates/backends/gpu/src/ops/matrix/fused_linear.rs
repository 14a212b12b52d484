//! Products of the same rows, with the norm before them and the operations on their results.

use std::borrow::Cow;

use rustorch_ir::ops::{ActivationKind, Epilogue, FusedLinear};
use rustorch_ir::{DType, Op, OpKind, Signature, TensorType};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};
use smallvec::SmallVec;

use super::product::{Product, is_of_library};
use crate::emit::{Emitter, GpuKernel};
use crate::ops::cuda::{self, matmul, matvec};
use crate::ops::functions::activated;

pub(crate) const KERNELS: [KernelEntry<GpuKernel>; 3] =
    [few(OpKind::FusedLinear), ALONE, many(OpKind::FusedLinear)];

/// Products of many rows with nothing before or behind them: the driver's library makes each faster than one launch of ours
/// makes all.
const ALONE: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::FusedLinear,
    accepts: are_of_library,
    layouts: Layouts::Contiguous,
    launch: GpuKernel {
        emit: emit_alone,
        suits: cuda::has_warpgroups,
    },
};

fn are_of_library(s: &Signature) -> bool {
    let op = description(s.op, s.inputs.len());
    let is_plain = op.is_some_and(|op| op.norm.is_none() && op.epilogue.is_none());
    is_plain && accepts(s, is_of_library)
}

fn emit_alone(step: &Step, emitter: &mut Emitter) {
    let Some(op) = description(&step.last().op, step.inputs.len()) else {
        return;
    };
    let linears = Linears::new(&op, step);
    for each in &linears.each {
        if let Some(y) = each.y {
            Product::of_rows(linears.x, each.w, each.bias, y).emit_on_tensor_cores(emitter);
        }
    }
}

/// The kernel for few rows.
pub(in crate::ops) const fn few(kind: OpKind) -> KernelEntry<GpuKernel> {
    KernelEntry {
        kind,
        accepts: |s| accepts(s, matvec::accepts),
        layouts: Layouts::Aligned,
        launch: GpuKernel {
            emit: |step, emitter| emit(step, emitter, matvec::joins, matvec::emit),
            suits: matvec::suits,
        },
    }
}

/// The kernels for many.
pub(in crate::ops) const fn many(kind: OpKind) -> KernelEntry<GpuKernel> {
    KernelEntry {
        kind,
        accepts: |s| accepts(s, matmul::accepts),
        layouts: Layouts::Aligned,
        launch: GpuKernel {
            emit: |step, emitter| emit(step, emitter, |_, _| false, matmul::emit),
            suits: cuda::has_warpgroups,
        },
    }
}

/// An operation as products with the operations before and after.
fn description(op: &Op, operands: usize) -> Option<FusedLinear> {
    match op {
        Op::FusedLinear(op) => Some(op.clone()),
        Op::Linear(_) => Some(FusedLinear {
            norm: None,
            count: 1,
            bias: operands == 3,
            epilogue: None,
        }),
        _ => None,
    }
}

/// The rows, and all weights that they are multiplied with.
pub(in crate::ops) fn factors<'a>(
    s: &Signature<'a>,
) -> Option<(&'a TensorType, &'a [&'a TensorType])> {
    let op = description(s.op, s.inputs.len())?;
    let weights = op.weight(0)..op.weight(op.count);
    Some((s.inputs[0], &s.inputs[weights]))
}

/// Can all rows be multiplied with all weights, and the epilogue be part of that?
fn accepts(s: &Signature, multiplies: fn(&TensorType, &TensorType) -> bool) -> bool {
    let (Some(op), Some((x, weights))) = (description(s.op, s.inputs.len()), factors(s)) else {
        return false;
    };
    let is_single = s.output().dtype == DType::F32;
    let fits = match op.epilogue {
        None => true,
        Some(Epilogue::Add) => is_single,
        // One launch multiplies with both.
        Some(Epilogue::Gate(_)) => is_single && weights[0].dtype == weights[1].dtype,
    };
    fits && weights.iter().all(|w| multiplies(x, w))
}

/// Products that launches have to make, with the operations before and after.
pub(crate) struct Linears<'a> {
    /// `[…, k]`, contiguous.
    pub(crate) x: &'a Place,
    /// Operation on its rows before.
    pub(crate) norm: Option<Norm<'a>>,
    /// One, or several that share the rows.
    pub(crate) each: SmallVec<[Linear<'a>; 3]>,
    /// Added to the result of one product.
    pub(crate) other: Option<&'a Place>,
    /// The result of two is this of the first times the second.
    pub(crate) gate: Option<ActivationKind>,
}

/// The root-mean-square norm of rows.
#[derive(Clone, Copy)]
pub(crate) struct Norm<'a> {
    /// `[k]`, of the rows' dtype.
    pub(crate) weight: Option<&'a Place>,
    /// Added to the mean square.
    pub(crate) eps: f64,
}

/// A product: `y = x · wᵀ + bias`.
#[derive(Clone, Copy)]
pub(crate) struct Linear<'a> {
    /// `[n, k]`, or so of each expert.
    pub(crate) w: &'a Place,
    /// `[n]`.
    pub(crate) bias: Option<&'a Place>,
    /// `[…, n]`, contiguous: with its epilogue. If two make one result, the first has it.
    pub(crate) y: Option<&'a Place>,
}

impl Linear<'_> {
    /// Rows of the weights.
    pub(crate) fn rows(&self) -> usize {
        self.w.ty.shape[self.w.ty.rank() - 2]
    }
}

impl<'a> Linears<'a> {
    fn new(op: &FusedLinear, step: &'a Step) -> Self {
        let operand = |i: usize| &step.inputs[i];
        let linear = |i: usize| Linear {
            w: operand(op.weight(i)),
            bias: op.bias(i).map(operand),
            y: step.outputs.get(i),
        };
        Self {
            x: operand(0),
            norm: op.norm.as_ref().map(|prologue| Norm {
                weight: op.norm_weight().map(operand),
                eps: prologue.norm.eps.0,
            }),
            each: (0..op.count).map(linear).collect(),
            other: op.other().map(operand),
            gate: match op.epilogue {
                Some(Epilogue::Gate(kind)) => Some(kind),
                Some(Epilogue::Add) | None => None,
            },
        }
    }

    /// Groups of weights of one dtype, or of two if `joins` allows that.
    fn groups(mut self, joins: fn(DType, DType) -> bool) -> Vec<Self> {
        let dtype = |linear: &Linear| linear.w.ty.dtype;
        let mut groups = Vec::new();
        while let Some(first) = self.each.first().map(dtype) {
            let second = self.each.iter().map(dtype).find(|&other| other != first);
            let second = second.filter(|&second| joins(first, second));
            let (mut each, left): (SmallVec<_>, SmallVec<_>) = (self.each.into_iter())
                .partition(|linear| dtype(linear) == first || Some(dtype(linear)) == second);
            // The kernel has those of the first dtype first.
            each.sort_by_key(|linear| dtype(linear) != first);
            groups.push(Self { each, ..self });
            self.each = left;
        }
        groups
    }
}

/// Replaces the activation in a kernel's text. The text has the SiLU of `x` as its gate, written
/// `silu`.
pub(crate) fn with_gate<'t>(
    text: impl Into<Cow<'t, str>>,
    [silu, x]: [&str; 2],
    gate: Option<ActivationKind>,
) -> Cow<'t, str> {
    let text = text.into();
    match gate {
        None | Some(ActivationKind::Silu) => text,
        Some(other) => text.replace(silu, &activated(other, x)).into(),
    }
}

/// Appends the launches, as `launch` does it for each group of products.
fn emit(
    step: &Step,
    emitter: &mut Emitter,
    joins: fn(DType, DType) -> bool,
    launch: fn(&Linears, &mut Emitter),
) {
    let Some(op) = description(&step.last().op, step.inputs.len()) else {
        return;
    };
    for group in Linears::new(&op, step).groups(joins) {
        launch(&group, emitter);
    }
}
