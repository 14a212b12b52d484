//! The capabilities of a device, queried operation by operation.

use rustorch_ir::order::sort_by_key;
use rustorch_ir::{DType, OpKind, OpType, Role, Signature, TensorType};

use crate::{Backend, DeviceType};

/// A query about a tensor, before a device is chosen for an operation on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorInfo {
    /// Its shape and element type.
    pub ty: TensorType,
    /// Whether it is for a user-defined kernel.
    pub custom_kernel: bool,
}

impl TensorInfo {
    /// A tensor for an ordinary operation.
    pub fn new(ty: TensorType) -> Self {
        let custom_kernel = false;
        Self { ty, custom_kernel }
    }
}

/// Support of an operation: the share of its examples that a device has kernels for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    /// Kernels for all examples, whatever their dtypes.
    Full,
    /// Kernels for some examples.
    Partial,
    /// No kernels: it is composed of others if possible, or runs on other devices.
    None,
}

/// A capability of a device.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceCapability {
    /// The device.
    pub device: DeviceType,
    /// Whether it computes with half precision.
    pub supports_f16: bool,
    /// Whether it computes with single precision.
    pub supports_f32: bool,
    /// Whether it computes with double precision.
    pub supports_f64: bool,
    /// Whether it computes with complex numbers.
    pub supports_complex: bool,
    /// Whether it communicates with other devices.
    pub supports_distributed: bool,
    /// Gigabytes (10⁹ bytes) of memory for tensors, if known.
    pub memory_gb: Option<f64>,
    /// The families that it has kernels for.
    pub operations: Vec<OpType>,
    /// Its kernels, operation by operation; views need none and are not listed.
    pub kernels: Vec<(OpKind, Support)>,
    /// Operand types of its kernels: scalars, then blocks.
    pub dtypes: Vec<DType>,
}

impl DeviceCapability {
    /// Queries a device for each operation's examples.
    pub fn ask(backend: &dyn Backend) -> Self {
        let info = backend.info();
        let mut found = Self {
            device: info.device,
            supports_f16: false,
            supports_f32: false,
            supports_f64: false,
            supports_complex: false,
            supports_distributed: false,
            memory_gb: info.memory_bytes.map(|bytes| bytes as f64 / 1e9),
            operations: Vec::new(),
            kernels: Vec::new(),
            dtypes: Vec::new(),
        };
        for &kind in OpKind::ALL {
            found.ask_for(kind, backend);
        }
        sort_by_key(&mut found.dtypes, |dtype| {
            (dtype.is_block(), dtype.to_string())
        });
        sort_by_key(&mut found.operations, |operation| *operation);
        found
    }

    fn ask_for(&mut self, kind: OpKind, backend: &dyn Backend) {
        let (mut asked, mut answered) = (0, 0);
        for case in kind.cases() {
            let inputs: Vec<&TensorType> = case.inputs.iter().map(|operand| &operand.ty).collect();
            let def = case.op.def();
            let launched = def.role() != Role::View;
            let Some(outputs) = def.infer(&inputs).ok().filter(|_| launched) else {
                continue;
            };
            asked += 1;
            let signature = Signature {
                op: &case.op,
                inputs: &inputs,
                outputs: &outputs,
            };
            if backend.supports(&signature) {
                answered += 1;
                self.note(&signature);
            }
        }
        let support = match answered {
            _ if asked == 0 => return,
            0 => Support::None,
            n if n < asked => Support::Partial,
            _ => Support::Full,
        };
        self.kernels.push((kind, support));
    }

    fn note(&mut self, signature: &Signature) {
        let op_type = OpType::of(signature);
        for dtype in signature.inputs.iter().map(|ty| ty.dtype) {
            if !self.dtypes.contains(&dtype) {
                self.dtypes.push(dtype);
            }
            // Moving elements is not computing with them.
            if op_type.is_some() {
                self.supports_f16 |= dtype == DType::F16;
                self.supports_f32 |= dtype == DType::F32;
                self.supports_f64 |= dtype == DType::F64;
                self.supports_complex |= dtype.is_complex();
            }
        }
        self.supports_distributed |= op_type == Some(OpType::DistributedOps);
        if let Some(op_type) = op_type.filter(|t| !self.operations.contains(t)) {
            self.operations.push(op_type);
        }
    }

    /// Returns whether it has kernels of this family for elements of this type.
    pub fn supports(&self, op_type: OpType, dtype: DType) -> bool {
        self.operations.contains(&op_type) && self.dtypes.contains(&dtype)
    }

    /// The operations with this much support.
    pub fn with_support(&self, support: Support) -> impl Iterator<Item = OpKind> + '_ {
        let these = self.kernels.iter().filter(move |(_, s)| *s == support);
        these.map(|(kind, _)| *kind)
    }
}
