//! The slow scalar definition of every primitive operation, in double precision.
//!
//! What another backend computes is right if it agrees with this one. The code is therefore
//! as plain as it can be: a graph is interpreted node by node over [`Values`], row-major
//! lists of numbers that are rounded only where the graph says so, by a cast, and where a
//! result is stored. Composite operations are not here: their decomposition is their
//! definition.

mod kernels;
mod matrix;
mod operand;
mod ops;
mod program;
mod values;

use rustorch_ir::{Graph, Signature};
use rustorch_runtime::{
    Backend, DeviceError, DeviceInfo, DeviceMemory, DeviceType, FailureClass, Hardware, HostMemory,
    KernelTable, Program,
};

use crate::kernels::Launch;
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
