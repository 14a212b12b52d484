//! Operations that users define.

use rustorch_ir::ops::{Composite, Custom, Host, HostFunction, KernelLanguage};
use rustorch_ir::{DType, Op, OpError, TensorType};
use rustorch_macros::track_calls;
use rustorch_runtime::{DeviceType, Routing, Runtime};

use crate::device::devices::{runtime, with_runtime};
use crate::error::RusTorchResult;
use crate::{Tensor, eval_all};

/// The result of [`Tensor::check_kernels`] on a device.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelCheck {
    /// The device.
    pub device: DeviceType,
    /// The largest difference between an element of a result and its definition.
    pub largest_difference: f64,
}

#[track_calls]
impl Tensor {
    /// The `N` results of a user-defined composite operation. It runs on every device: by its own kernel where a
    /// backend has one, else as its parts.
    ///
    /// ```
    /// use rustorch_ir::ops::Composite;
    /// use rustorch_ir::{Graph, OpError, Results, ValueId};
    /// use rustorch_tensor::{Tensor, tensor};
    ///
    /// /// `x · |x|`.
    /// #[derive(PartialEq, Eq, Hash, Debug)]
    /// struct SignedSquare;
    ///
    /// impl Composite for SignedSquare {
    ///     fn name(&self) -> &'static str {
    ///         "signed_square"
    ///     }
    ///
    ///     fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
    ///         let magnitude = g.unary(rustorch_ir::ops::UnaryOp::Abs, inputs[0])?;
    ///         Ok([g.mul(inputs[0], magnitude)?].into_iter().collect())
    ///     }
    /// }
    ///
    /// # fn main() -> rustorch_tensor::RusTorchResult<()> {
    /// let x = tensor![-3.0, 2.0];
    /// let [y] = Tensor::custom(SignedSquare, &[&x])?;
    /// assert_eq!(y.to_vec::<f32>()?, [-9.0, 4.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the operation rejects the operands, or has another number of results than `N`.
    pub fn custom<const N: usize>(
        composite: impl Composite,
        inputs: &[&Self],
    ) -> RusTorchResult<[Self; N]> {
        Self::apply_all(composite.name(), Custom::new(composite), inputs)
    }

    /// The `N` results of a user-defined function on the host. The CPU runs it.
    ///
    /// ```
    /// use rustorch_ir::ops::{HostArray, HostArrayMut, HostFunction};
    /// use rustorch_ir::{DType, OpError, ResultTypes, TensorType};
    /// use rustorch_tensor::{Tensor, tensor};
    ///
    /// /// Numbers as text, and its bytes added up.
    /// #[derive(PartialEq, Eq, Hash, Debug)]
    /// struct Checksum;
    ///
    /// impl HostFunction for Checksum {
    ///     fn name(&self) -> &'static str {
    ///         "checksum"
    ///     }
    ///
    ///     fn infer(&self, _: &[&TensorType]) -> Result<ResultTypes, OpError> {
    ///         Ok([TensorType::new([], DType::I64)].into_iter().collect())
    ///     }
    ///
    ///     fn call(&self, x: &[HostArray], y: &mut [HostArrayMut]) -> Result<(), String> {
    ///         let text = format!("{:?}", x[0].data::<f32>()?);
    ///         y[0].data::<i64>()?[0] = text.bytes().map(i64::from).sum();
    ///         Ok(())
    ///     }
    /// }
    ///
    /// # fn main() -> rustorch_tensor::RusTorchResult<()> {
    /// let [sum] = Tensor::host_function(Checksum, &[&tensor![1.5, 2.0]])?;
    /// assert_eq!(sum.to_vec::<i64>()?, ["[1.5, 2.0]".bytes().map(i64::from).sum::<i64>()]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the function rejects the operands, or has another number of results than `N`.
    pub fn host_function<const N: usize>(
        function: impl HostFunction,
        inputs: &[&Self],
    ) -> RusTorchResult<[Self; N]> {
        Self::apply_all(function.name(), Host::new(function), inputs)
    }

    /// Runs the kernels of a composite operation and compares them with its definition, within PyTorch's tolerances for
    /// the dtype. It uses every device of the current [`runtime`](crate::runtime()) that has a kernel for such
    /// operands. It finds writes outside the results: all writes by `STORE`, and writes by pointer up to 4096 bytes
    /// away. It does not find reads outside the operands. The list is empty if no device has a kernel.
    ///
    /// # Errors
    /// Fails if the operation rejects the operands, or has another number of results than `N`. Also
    /// fails for a kernel that does not compile; the error names the line. Also fails for a kernel
    /// that fails, writes outside its results, or gives another result; the error names the
    /// element.
    pub fn check_kernels<const N: usize>(
        composite: impl Composite,
        inputs: &[&Self],
    ) -> RusTorchResult<Vec<KernelCheck>> {
        let name = composite.name();
        let op = Custom::new(composite);
        let types: Vec<&TensorType> = inputs.iter().map(|x| x.ty()).collect();
        let results = Op::from(op.clone()).infer(&types)?;
        let runtime = runtime();
        let defined: [Self; N] = results_on(&runtime, DeviceType::Cpu, name, op.clone(), inputs)?;
        let mut checks = Vec::new();
        for device in runtime.devices().map(|info| info.device) {
            let kernel = language(device).and_then(|l| op.kernel(l, &types, &results));
            if kernel.is_none() || runtime.is_lost(device) {
                continue;
            }
            let guarded = op.clone().guarded();
            let computed: [Self; N] = results_on(&runtime, device, name, guarded, inputs)?;
            let mut largest = 0.0f64;
            for (computed, defined) in computed.iter().zip(&defined) {
                largest = largest.max(difference(name, device, computed, defined)?);
            }
            let largest_difference = largest;
            checks.push(KernelCheck {
                device,
                largest_difference,
            });
        }
        Ok(checks)
    }
}

/// The language of a device's kernels.
fn language(device: DeviceType) -> Option<KernelLanguage> {
    match device {
        DeviceType::OpenCL(_) => Some(KernelLanguage::OpenCl),
        DeviceType::Metal(_) => Some(KernelLanguage::Metal),
        DeviceType::Cuda(_) => Some(KernelLanguage::Cuda),
        _ => None,
    }
}

/// An operation's results, computed by one device and no other.
fn results_on<const N: usize>(
    runtime: &Runtime,
    device: DeviceType,
    name: &'static str,
    op: Custom,
    inputs: &[&Tensor],
) -> RusTorchResult<[Tensor; N]> {
    let routing = Routing {
        device,
        strict: true,
        ..Routing::AUTO
    };
    with_runtime(runtime, routing, || {
        let unpinned = inputs.iter().map(|x| x.to_device(DeviceType::Auto));
        let unpinned: Vec<Tensor> = unpinned.collect::<RusTorchResult<_>>()?;
        let results = Tensor::apply_all(name, op, &unpinned.iter().collect::<Vec<_>>())?;
        eval_all(&results.each_ref())?;
        Ok(results)
    })
}

/// The largest difference between elements, which are as near as PyTorch's `assert_close` wants them.
fn difference(
    name: &'static str,
    device: DeviceType,
    computed: &Tensor,
    defined: &Tensor,
) -> RusTorchResult<f64> {
    let [rtol, atol] = match computed.dtype() {
        DType::F16 => [1e-3, 1e-5],
        DType::BF16 => [1.6e-2, 1e-5],
        DType::F32 | DType::Complex64 => [1.3e-6, 1e-5],
        DType::F64 | DType::Complex128 => [1e-7, 1e-7],
        _ => [0.0, 0.0],
    };
    let wide = |x: &Tensor| x.cast(name, wide_of(x.dtype()))?.reshape([-1]);
    let (x, y) = (wide(computed)?, wide(defined)?);
    let close = x.isclose(&y, rtol, atol, true)?.to_vec::<bool>()?;
    if let Some(at) = close.iter().position(|close| !close) {
        let element = |x: &Tensor| -> RusTorchResult<String> {
            let element = x.select(0, at)?;
            let number = element.item().map(|number| number.to_string());
            Ok(number.unwrap_or_else(|_| element.to_string()))
        };
        let expected = format_args!("{} for element {at}, as its parts give", element(&y)?);
        let got = format_args!("{} from its kernel on {device}", element(&x)?);
        return Err(OpError::new(name, expected, got).into());
    }
    // Infinities and NaN that are the same differ by NaN.
    let differences = x.sub(&y)?.abs()?.nan_to_num(0.0, None, None)?;
    let differences = differences.cast(name, DType::F64)?.to_vec::<f64>()?;
    Ok(differences.into_iter().fold(0.0, f64::max))
}

/// A type in which differences of a dtype are exact.
fn wide_of(dtype: DType) -> DType {
    match dtype {
        dtype if dtype.is_complex() => DType::Complex128,
        dtype if dtype.is_float() => DType::F64,
        _ => DType::I64,
    }
}
