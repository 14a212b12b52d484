//! Operations on several groups of tensors, ready to be launched.

use rustorch_ir::{Graph, Layout, Node, Op, Shape, TensorType, ValueId};
use rustorch_runtime::{DeviceError, KernelTable, Part, PartOperand, Place, Reduction, Step};
use smallvec::SmallVec;

use crate::element::unknown;
use crate::elementwise::Function;
use crate::fused::Groups;
use crate::kernel::{Args, Misuse};
use crate::launch::{Launch, Prepared, unsupported};
use crate::view::{Target, View};

/// A step that gives the number of a group, with the operands that it has of all.
pub(crate) struct Number {
    step: Step,
    operands: Vec<usize>,
    prepared: Prepared,
}

/// The functions of a body's elementwise nodes.
fn functions(
    body: &Graph,
    part: &Part,
    kernels: &KernelTable<Launch>,
) -> Result<Vec<Function>, DeviceError> {
    let is_elementwise = |node: &&Node| !matches!(node.op, Op::Assign(_));
    let function = |node: &Node| {
        body.with_signature(node, |s| {
            match kernels.find(s).map(|kernel| kernel.launch) {
                Some(Launch::Elementwise { function, .. }) => {
                    function(s).map_err(|why| unsupported(part, why.0))
                }
                _ => Err(unsupported(part, "no kernel".to_owned())),
            }
        })
    };
    body.nodes()
        .iter()
        .filter(is_elementwise)
        .map(function)
        .collect()
}

/// Prepares elementwise operations on several groups.
pub(crate) fn updates(part: &Part, kernels: &KernelTable<Launch>) -> Result<Prepared, DeviceError> {
    let Op::Foreach(each) = &part.op else {
        return Err(unsupported(part, "no foreach".to_owned()));
    };
    let functions = functions(&each.body, part, kernels)?;
    let groups = Groups::new(each, functions).map_err(|why| unsupported(part, why.0))?;
    Ok(Prepared::Foreach(groups.into()))
}

/// Prepares the reduction of each group as its own step.
pub(crate) fn numbers(step: &Step, kernels: &KernelTable<Launch>) -> Result<Prepared, DeviceError> {
    let part = step.last();
    let no_reduction = || unsupported(part, "no reduction".to_owned());
    let Op::ForeachReduce(op) = &part.op else {
        return Err(no_reduction());
    };
    let (each, (at, reduce)) = (&op.each, op.reduction().ok_or_else(no_reduction)?);
    let body = &each.body;
    let inputs = body.inputs().len();
    let operand = |value: &ValueId| match value.index().checked_sub(inputs) {
        Some(node) => PartOperand::Part(node),
        None => PartOperand::Input(value.index()),
    };
    let number = |group: usize| {
        let operands: Vec<usize> = (0..inputs)
            .map(|input| each.operand(group, input))
            .collect();
        let tensor = (0..inputs).find(|&input| !each.is_number(input));
        let shape = tensor.map_or_else(Shape::default, |input| {
            step.inputs[operands[input]].ty.shape.clone()
        });
        let parts = body.nodes().iter().enumerate().map(|(node, of_body)| Part {
            node: part.node,
            op: match node == at {
                true => {
                    let dims = (0..shape.len()).collect();
                    let reduce = reduce.clone();
                    rustorch_ir::ops::Reduce { dims, ..reduce }.into()
                }
                false => of_body.op.clone(),
            },
            operands: of_body.inputs.iter().map(operand).collect(),
            dtype: of_body.output().dtype,
        });
        let one = Shape::default();
        let step = Step {
            parts: parts.collect(),
            inputs: operands.iter().map(|&at| step.inputs[at].clone()).collect(),
            outputs: [Place {
                slot: step.output().slot,
                layout: Layout::contiguous(&one),
                ty: TensorType::new(one, step.output().ty.dtype),
            }]
            .into_iter()
            .collect(),
            reduction: Some(Reduction { part: at, shape }),
        };
        Ok(Number {
            prepared: Prepared::new(&step, kernels)?,
            step,
            operands,
        })
    };
    let numbers = (0..each.count)
        .map(number)
        .collect::<Result<_, DeviceError>>()?;
    Ok(Prepared::ForeachReduce(numbers))
}

/// Computes each number.
pub(crate) fn run(numbers: &[Number], args: Args) -> Result<(), Misuse> {
    let Args {
        pool,
        inputs,
        mut output,
        ..
    } = args;
    let dtype = output.dtype();
    let size = dtype.size().ok_or_else(|| unknown(dtype))?;
    for (number, bytes) in numbers.iter().zip(output.span(size).chunks_mut(size)) {
        let views: SmallVec<[View; 8]> = number.operands.iter().map(|&at| inputs[at]).collect();
        let place = number.step.output();
        // SAFETY: the bytes are those of one element, and nothing else uses them.
        let output =
            unsafe { Target::new(bytes.as_mut_ptr(), bytes.len(), &place.layout, &place.ty) };
        number.prepared.launch(Args {
            pool,
            op: &number.step.last().op,
            inputs: &views,
            output,
            others: SmallVec::new(),
        })?;
    }
    Ok(())
}
