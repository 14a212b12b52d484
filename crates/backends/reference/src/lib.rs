//! The slow scalar definition of every primitive operation, in double precision.
//!
//! Another backend's results are right if they agree with this one's. The code is therefore as
//! plain as it can be. A graph is interpreted node by node over [`Values`], row-major lists of
//! numbers. Numbers are rounded only by a cast, and when a result is stored. Composite operations
//! are not here: their decomposition is their definition.

mod kernels;
mod matrix;
mod operand;
mod ops;
mod program;
mod values;

use std::rc::Rc;

use rustorch_ir::{Graph, Signature};
use rustorch_runtime::{
    Backend, DeviceError, DeviceInfo, DeviceMemory, DeviceType, FailureClass, Hardware, HostMemory,
    KernelTable, Program,
};

use crate::kernels::Launch;
pub use crate::kernels::Results;
use crate::operand::{Call, Operand};
use crate::program::Interpreter;
pub use crate::values::Values;

/// The definition as a device.
pub struct Reference {
    info: DeviceInfo,
    memory: HostMemory,
    kernels: KernelTable<Launch>,
}

impl Reference {
    /// The device.
    pub fn new() -> Self {
        Self {
            info: DeviceInfo {
                device: DeviceType::Reference,
                hardware: Hardware::Processor,
                shares_host_memory: true,
                name: "scalar definition in double precision".to_owned(),
                memory_bytes: None,
                details: Vec::new(),
            },
            memory: HostMemory::new(DeviceType::Reference),
            kernels: kernels::table(),
        }
    }

    /// Computes the results of a primitive from its operands' elements, without rounding them.
    ///
    /// # Errors
    /// Fails if the operation is a composite, or for a mistake that only the data show.
    pub fn evaluate(
        &self,
        signature: &Signature,
        inputs: &[Rc<Values>],
    ) -> Result<Results, String> {
        let kernel = self.kernels.find(signature);
        let kernel = kernel.ok_or_else(|| format!("{} is not a primitive", signature.op.name()))?;
        let operands = signature.inputs.iter().zip(inputs);
        let operands: Vec<Operand> = operands
            .map(|(ty, values)| Operand {
                ty,
                values: values.clone(),
            })
            .collect();
        let call = Call {
            inputs: &operands,
            outputs: signature.outputs,
        };
        let mut results = (kernel.launch)(signature.op, &call).map_err(|misuse| misuse.0)?;
        drop(operands);
        for (result, ty) in results.iter_mut().zip(signature.outputs) {
            if let Some(own) = Rc::get_mut(result) {
                own.wrap(ty.dtype);
            }
        }
        Ok(results)
    }
}

impl Default for Reference {
    fn default() -> Self {
        Self::new()
    }
}

impl Backend for Reference {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn supports(&self, signature: &Signature) -> bool {
        self.kernels.find(signature).is_some()
    }

    fn memory(&self) -> &dyn DeviceMemory {
        &self.memory
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        let launches = (graph.nodes().iter().enumerate())
            .map(|(index, node)| {
                let kernel = graph.with_signature(node, |s| self.kernels.find(s));
                let message = "only primitives are defined here: decompose it first";
                kernel.map(|k| k.launch).ok_or_else(|| {
                    DeviceError::new(DeviceType::Reference, FailureClass::Unsupported, message)
                        .at(index, node.op.name())
                })
            })
            .collect::<Result<_, DeviceError>>()?;
        Ok(Box::new(Interpreter::new(graph.clone(), launches)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustorch_ir::OpKind;

    #[test]
    fn every_primitive_and_no_composite() {
        let reference = Reference::new();
        for &kind in OpKind::ALL {
            for case in kind.cases() {
                let inputs: Vec<_> = case.inputs.iter().map(|x| &x.ty).collect();
                let outputs = case.op.def().infer(&inputs).unwrap();
                let signature = Signature {
                    op: &case.op,
                    inputs: &inputs,
                    outputs: &outputs,
                };
                let primitive = !case.op.def().is_composite();
                assert_eq!(reference.supports(&signature), primitive, "{:?}", case.op);
            }
        }
    }
}
