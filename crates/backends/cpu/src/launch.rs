//! Launches of operations.

mod foreach;

use rustorch_ir::{Signature, TensorType};
use rustorch_runtime::{
    DeviceError, DeviceType, FailureClass, KernelTable, Part, PartOperand, Step,
};
use smallvec::SmallVec;

use crate::elementwise::Function;
use crate::fused::{Groups, Plan};
use crate::fused_reduce::FusedReduce;
use crate::kernel::{Args, Misuse};
use foreach::Number;

/// Launch of an operation's kernel.
#[derive(Clone, Copy)]
pub(crate) enum Launch {
    /// By a function that does all of it.
    Whole(fn(Args) -> Result<(), Misuse>),
    /// Launch by blocks of elements.
    Elementwise {
        /// Function of the elements.
        function: fn(&Signature) -> Result<Function, Misuse>,
        /// Check of the operands before; an operation with a check is not fused.
        check: Option<Check>,
    },
    /// Elementwise operations on several groups of tensors.
    Foreach,
    /// A number of each of several groups of tensors.
    ForeachReduce,
}

impl Launch {
    /// Returns whether it can be one of several operations of a launch.
    pub(crate) fn fuses(&self) -> bool {
        matches!(self, Self::Elementwise { check: None, .. })
    }
}

/// A search for mistakes in operands.
pub(crate) type Check = fn(&Args) -> Result<(), Misuse>;

/// A step, ready to be launched.
pub(crate) enum Prepared {
    /// An operation by itself.
    Whole(fn(Args) -> Result<(), Misuse>),
    /// Elementwise operations.
    Elementwise {
        /// Plan of the computation.
        plan: Plan,
        /// Check before it.
        check: Option<Check>,
    },
    /// A reduction among elementwise operations.
    Reduce(Box<FusedReduce>),
    /// Elementwise operations on several groups of tensors.
    Foreach(Box<Groups>),
    /// A number of each of several groups of tensors.
    ForeachReduce(Vec<Number>),
}

pub(crate) fn unsupported(part: &Part, why: String) -> DeviceError {
    DeviceError::new(DeviceType::Cpu, FailureClass::Unsupported, why).at(part.node, part.op.name())
}

impl Prepared {
    /// Prepares `step` with kernels from the table.
    pub(crate) fn new(step: &Step, kernels: &KernelTable<Launch>) -> Result<Self, DeviceError> {
        let reduced = step
            .reduction
            .as_ref()
            .map_or(0, |reduction| reduction.part);
        let shape = |at: usize| match at < reduced {
            true => step.domain(),
            false => &step.output().ty.shape,
        };
        let results: SmallVec<[TensorType; 4]> = (step.parts.iter().enumerate())
            .map(|(at, part)| TensorType::new(shape(at).clone(), part.dtype))
            .collect();
        let is_fused = step.parts.len() > 1;
        let mut functions = Vec::with_capacity(step.parts.len());
        let mut needed = None;
        let several: SmallVec<[TensorType; 4]>;
        // Each of several parts has one result. A single operation may have more.
        let outputs = match step.parts.len() {
            1 => {
                several = step.outputs.iter().map(|place| place.ty.clone()).collect();
                vec![&several[..]]
            }
            _ => results.chunks(1).collect(),
        };
        for (part, outputs) in step.parts.iter().zip(outputs) {
            let inputs: SmallVec<[&TensorType; 4]> = (part.operands.iter())
                .map(|operand| match *operand {
                    PartOperand::Input(i) => &step.inputs[i].ty,
                    PartOperand::Part(i) => &results[i],
                })
                .collect();
            let signature = Signature {
                op: &part.op,
                inputs: &inputs,
                outputs,
            };
            let kernel = kernels
                .find(&signature)
                .ok_or_else(|| unsupported(part, "no kernel".to_owned()))?;
            match kernel.launch {
                Launch::Whole(_) if is_fused => functions.push(None),
                Launch::Whole(launch) => return Ok(Self::Whole(launch)),
                Launch::Foreach => return foreach::updates(part, kernels),
                Launch::ForeachReduce => return foreach::numbers(step, kernels),
                Launch::Elementwise { function, check } => {
                    let function = function(&signature).map_err(|why| unsupported(part, why.0))?;
                    functions.push(Some(function));
                    needed = check;
                }
            }
        }
        let prepared = match step.reduction {
            Some(_) => FusedReduce::new(step, functions).map(|fused| Self::Reduce(fused.into())),
            None => {
                let functions = functions.into_iter().flatten().collect();
                let check = needed;
                Plan::new(step, functions).map(|plan| Self::Elementwise { plan, check })
            }
        };
        prepared.map_err(|why| unsupported(step.last(), why.0))
    }

    /// Runs the step.
    pub(crate) fn launch(&self, args: Args) -> Result<(), Misuse> {
        match self {
            Self::Whole(launch) => launch(args),
            Self::Elementwise { plan, check } => {
                check.map_or(Ok(()), |check| check(&args))?;
                plan.run(args);
                Ok(())
            }
            Self::Reduce(fused) => fused.run(args),
            Self::Foreach(groups) => groups.run(args),
            Self::ForeachReduce(numbers) => foreach::run(numbers, args),
        }
    }
}
