//! A reduction with elementwise operations before and behind it, as one launch: blocks of elements
//! are computed and combined while they are in the nearest caches.

use rustorch_ir::ops::{BinaryOp, ReduceOp};
use rustorch_ir::{DType, Layout, Op, TensorType};
use rustorch_runtime::{Part, PartOperand, Step};
use smallvec::SmallVec;

use crate::element::unknown;
use crate::elementwise::Function;
use crate::fused::{Blocks, Chain, Found, Plan, found};
use crate::kernel::{Args, Misuse};
use crate::reduce::{BLOCK, Elements, Order, Reduction};
use crate::view::View;

/// Plan of a step with a reduction.
pub(crate) struct FusedReduce {
    op: ReduceOp,
    /// Dtype of the reduced elements.
    dtype: DType,
    order: Order,
    prologue: Prologue,
    epilogue: Option<Epilogue>,
}

/// Elements to reduce.
enum Prologue {
    /// An operand of the step.
    Operand(usize),
    /// The squares of an operand of singles.
    Squares(usize),
    /// Results of this plan, in the order of the reduction.
    Plan(Plan),
}

/// Operations on results. The results are the operand behind those of the step.
struct Epilogue {
    plan: Plan,
    /// Layout of the results before them.
    layout: Layout,
    ty: TensorType,
}

impl FusedReduce {
    /// A plan of `step` with these functions of its parts; none is the reduction's.
    pub(crate) fn new(step: &Step, functions: Vec<Option<Function>>) -> Result<Self, Misuse> {
        let missing = || Misuse("not a reduction".to_owned());
        let reduction = step.reduction.as_ref().ok_or_else(missing)?;
        let at = reduction.part;
        let part = &step.parts[at];
        let Op::Reduce(op) = &part.op else {
            return Err(missing());
        };
        let order = Order::new(&step.domain_layout(), &op.dims);
        let (mut before, mut behind) = (Vec::new(), Vec::new());
        for ((index, part), function) in step.parts.iter().enumerate().zip(functions) {
            let Some(function) = function else { continue };
            match function {
                // Either may read it.
                Function::Constant(word) => {
                    before.push((index, part, Function::Constant(word)));
                    behind.push((index, part, Function::Constant(word)));
                }
                function if index < at => before.push((index, part, function)),
                function => behind.push((index, part, function)),
            }
        }
        let prologue = match part.operands[0] {
            PartOperand::Input(operand) => Prologue::Operand(operand),
            PartOperand::Part(last) => match squared(step, last).filter(|_| op.op == ReduceOp::Sum)
            {
                Some(operand) => Prologue::Squares(operand),
                None => Prologue::Plan(prologue(step, before, last, &order)?),
            },
        };
        let has_epilogue = at + 1 < step.parts.len();
        let epilogue = has_epilogue.then(|| Epilogue::new(step, at, behind));
        Ok(Self {
            op: op.op,
            dtype: step.dtype(part.operands[0]),
            order,
            prologue,
            epilogue: epilogue.transpose()?,
        })
    }

    /// Computes the step's result.
    pub(crate) fn run(&self, args: Args) -> Result<(), Misuse> {
        let Args {
            pool,
            op,
            inputs,
            mut output,
            ..
        } = args;
        let elements = match &self.prologue {
            Prologue::Operand(operand) => Elements::View(inputs[*operand]),
            Prologue::Squares(operand) => Elements::Squares(inputs[*operand]),
            Prologue::Plan(plan) => {
                let most = self.order.elements().min(BLOCK);
                Elements::Blocks(Blocks::new(plan, inputs, most).into())
            }
        };
        let reduction = |out: &mut [u8]| {
            Reduction {
                pool,
                op: self.op,
                dtype: self.dtype,
                order: &self.order,
                elements: &elements,
                out,
            }
            .run()
        };
        let Some(epilogue) = &self.epilogue else {
            let to = output.dtype();
            return reduction(output.span(to.size().ok_or_else(|| unknown(to))?));
        };
        // Aligned for any element.
        let bytes = epilogue.ty.bytes();
        let mut words = vec![0u128; bytes.div_ceil(size_of::<u128>())];
        let reduced = &mut bytemuck::cast_slice_mut(&mut words)[..bytes];
        reduction(reduced)?;
        let mut operands: SmallVec<[View; 8]> = inputs.iter().copied().collect();
        // SAFETY: the bytes are as many as the type has, and stay as they are.
        let reduced = unsafe { View::new(reduced.as_ptr(), bytes, &epilogue.layout, &epilogue.ty) };
        operands.push(reduced);
        epilogue.plan.run(Args {
            pool,
            op,
            inputs: &operands,
            output,
            others: SmallVec::new(),
        });
        Ok(())
    }
}

/// The operand whose squares a part computes, of singles and of the step's domain.
fn squared(step: &Step, part: usize) -> Option<usize> {
    let part = &step.parts[part];
    match (&part.op, &part.operands[..]) {
        (Op::Binary(binary), &[PartOperand::Input(a), PartOperand::Input(b)])
            if binary.op == BinaryOp::Mul && part.dtype == DType::F32 =>
        {
            let is_whole = step.inputs[a].ty.shape == *step.domain();
            (is_whole && step.inputs[a] == step.inputs[b]).then_some(a)
        }
        _ => None,
    }
}

/// The chain before a reduction, which part `last` ends, on elements in its order.
fn prologue(
    step: &Step,
    parts: Vec<(usize, &Part, Function)>,
    last: usize,
    order: &Order,
) -> Result<Plan, Misuse> {
    let domain = step.domain();
    let dims = order.dims();
    let shape = Layout::contiguous(domain).permute(&dims).shape;
    let chain = Chain {
        shape: &shape,
        dtype: step.parts[last].dtype,
        // Later parts are left out, since the last part of a chain is its result.
        parts: parts
            .into_iter()
            .filter(|(index, ..)| *index <= last)
            .collect(),
    };
    Plan::of(chain, |operand| {
        let found = found(step, domain, operand)?;
        let layout = found.layout.permute(&dims);
        Ok(Found { layout, ..found })
    })
}

impl Epilogue {
    /// The chain behind the reduction, part `at`.
    fn new(step: &Step, at: usize, parts: Vec<(usize, &Part, Function)>) -> Result<Self, Misuse> {
        let shape = &step.output().ty.shape;
        let ty = TensorType::new(shape.clone(), step.parts[at].dtype);
        let layout = Layout::contiguous(shape);
        let chain = Chain {
            shape,
            dtype: step.output().ty.dtype,
            parts,
        };
        let plan = Plan::of(chain, |operand| match operand {
            PartOperand::Part(part) if part == at => Ok(Found {
                operand: step.inputs.len(),
                layout: layout.clone(),
                dtype: ty.dtype,
            }),
            operand => found(step, shape, operand),
        })?;
        Ok(Self { plan, layout, ty })
    }
}
