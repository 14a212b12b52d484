//! Operations of others: kernels on the processor's OpenCL device and on emulated Metal, functions of
//! the host's.

use rustorch_ir::ops::{
    BinaryOp, Composite, CustomKernel, HostArray, HostArrayMut, HostFunction, KernelLanguage,
    UnaryOp,
};
use rustorch_ir::{DType, Graph, OpError, ResultTypes, Results, TensorType, ValueId};
use rustorch_metal_emulator::Emulator;
use rustorch_runtime::{DeviceType, Routing, Runtime};
use rustorch_tensor::{Tensor, backends, tensor, with_runtime};

use crate::{Outcome, error};

/// Change to the text of a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Flaw {
    None,
    /// The third line of the text is wrong.
    Syntax,
    /// Writes one element behind the end.
    Behind,
    /// Writes one element before the first.
    Before,
    /// Writes one element before the first, by pointer.
    Pointer,
    /// Leaves the sign out.
    Wrong,
}

/// `sign(x) · max(|x| − λ, 0)` with λ of `tenths`, and `|x|`.
#[derive(PartialEq, Eq, Hash, Debug)]
struct SoftShrink {
    tenths: u32,
    flaw: Flaw,
}

const TEXT: &str = "FUNCTION float shrink(float x) {
    const float size = fabs(x) - TENTHS / 10.0f;
    return size > 0 ? (x < 0 ? -size : size) : 0;
}

KERNEL_BEGIN
    if (ITEM < p.items) {
        const float x = LOAD(X0, x0, ITEM);
        STORE(Y0, y0, ITEM + OFFSET, shrink(x));
        STORE(Y1, y1, ITEM, fabs(x));
    }
KERNEL_END";

impl Composite for SoftShrink {
    fn name(&self) -> &'static str {
        "soft_shrink"
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let &[x] = inputs else {
            return Err(OpError::new(self.name(), "an operand", inputs.len()));
        };
        let ty = g.ty(x).clone();
        let magnitude = g.unary(UnaryOp::Abs, x)?;
        let lambda = g.constant(f64::from(self.tenths) / 10.0, ty.dtype)?;
        let less = g.sub(magnitude, lambda)?;
        let zero = g.constant(0, ty.dtype)?;
        let rest = g.binary(BinaryOp::Maximum, less, zero)?;
        let sign = g.unary(UnaryOp::Sign, x)?;
        Ok([g.mul(sign, rest)?, magnitude].into_iter().collect())
    }

    fn kernel(
        &self,
        _: KernelLanguage,
        inputs: &[&TensorType],
        outputs: &[TensorType],
    ) -> Option<CustomKernel> {
        let count = outputs[0].shape.elements();
        let text = match self.flaw {
            Flaw::Syntax => TEXT.replace("return size", "return sise"),
            Flaw::Pointer => TEXT.replace("STORE(Y1", "y0[(int)ITEM - 1] = x; STORE(Y1"),
            Flaw::Wrong => TEXT.replace("-size : size", "size : size"),
            _ => TEXT.to_owned(),
        };
        let offset = match self.flaw {
            Flaw::Behind => "1",
            Flaw::Before => "-1",
            _ => "0",
        };
        let kernel = CustomKernel::for_each(text, count)
            .define("TENTHS", self.tenths)
            .define("OFFSET", offset);
        let narrow = [DType::F32, DType::F16, DType::BF16].contains(&inputs[0].dtype);
        narrow.then_some(kernel)
    }
}

fn op(flaw: Flaw) -> SoftShrink {
    SoftShrink { tenths: 5, flaw }
}

/// A runtime of each device here that compiles kernels, beside the processor. One that was promised
/// has to be there.
fn compilers() -> Vec<(DeviceType, Runtime)> {
    let is_cpu = |device| device == DeviceType::Cpu;
    let is_opencl = |device| matches!(device, DeviceType::OpenCL(_));
    let mut here = backends(1);
    here.retain(|b| is_opencl(b.info().device));
    let promised = std::env::var_os("RUSTORCH_TEST_OPENCL").is_some();
    assert!(
        !here.is_empty() || !promised,
        "an OpenCL device was promised"
    );
    if let Some(emulator) = Emulator::for_tests() {
        here.extend(rustorch_metal::backends(vec![emulator]).expect("a Metal device"));
    }
    if here.is_empty() {
        eprintln!("skipped: no OpenCL device, no emulated Metal");
    }
    let runtime = |b: std::sync::Arc<dyn rustorch_runtime::Backend>| {
        let device = b.info().device;
        let mut all = backends(1);
        all.retain(|b| is_cpu(b.info().device));
        all.insert(0, b);
        (device, Runtime::new(all))
    };
    here.into_iter().map(runtime).collect()
}

fn strictly(device: DeviceType) -> Routing {
    Routing {
        device,
        strict: true,
        ..Routing::AUTO
    }
}

#[test]
fn a_kernel_runs_where_its_language_is_and_gives_what_its_parts_give() -> Outcome {
    for (device, runtime) in compilers() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let x = Tensor::arange_with(-300, 301, 1, DType::F32)?.mul(0.01)?;
            // Operands are given without gaps, whatever they were.
            let x = x.to_dtype(dtype)?.unsqueeze(0)?.expand([3, 601])?;
            with_runtime(&runtime, Routing::AUTO, || -> Outcome {
                let checks = Tensor::check_kernels::<2>(op(Flaw::None), &[&x])?;
                let devices: Vec<DeviceType> = checks.iter().map(|check| check.device).collect();
                assert_eq!(devices, [device], "{dtype}");
                Ok(())
            })?;
        }
        let x = tensor![-2.0, -0.25, 0.25, 2.0];
        with_runtime(&runtime, strictly(device), || -> Outcome {
            let [shrunk, size] = Tensor::custom(op(Flaw::None), &[&x])?;
            assert_eq!(shrunk.to_vec::<f32>()?, [-1.5, 0.0, 0.0, 1.5]);
            assert_eq!(size.to_vec::<f32>()?, [2.0, 0.25, 0.25, 2.0]);
            assert_eq!(shrunk.device(), Some(device));
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn what_is_wrong_with_a_kernel_is_found() -> Outcome {
    for (device, runtime) in compilers() {
        let x = tensor![-2.0, -0.25, 0.25, 2.0];
        with_runtime(&runtime, Routing::AUTO, || {
            let problem = |flaw| error(Tensor::check_kernels::<2>(op(flaw), &[&x]));
            let syntax = problem(Flaw::Syntax);
            let line =
                syntax.contains("soft_shrink:3:") || syntax.contains("soft_shrink\", line 3");
            assert!(line && syntax.contains("sise"), "{syntax}");
            for flaw in [Flaw::Behind, Flaw::Before, Flaw::Pointer] {
                let outside = problem(flaw);
                let expected = "its kernel writes outside of its results";
                assert!(outside.contains(expected), "{outside}");
            }
            let wrong = problem(Flaw::Wrong);
            let expected = "check_kernels: soft_shrink: expected -1.5 for element 0, as its parts give, got 1.5 from";
            assert!(wrong.starts_with(expected), "{wrong}");
            assert!(wrong.ends_with(&device.to_string()), "{wrong}");
        });
    }
    Ok(())
}

#[test]
fn a_kernel_that_does_not_compile_fails_over_to_its_parts() -> Outcome {
    for (device, runtime) in compilers() {
        let x = tensor![-2.0, 2.0];
        let routing = Routing {
            device,
            ..Routing::AUTO
        };
        with_runtime(&runtime, routing, || -> Outcome {
            let [shrunk, _] = Tensor::custom(op(Flaw::Syntax), &[&x])?;
            assert_eq!(shrunk.to_vec::<f32>()?, [-1.5, 1.5]);
            Ok(())
        })?;
        let told = runtime.fallbacks();
        assert!(!told.is_empty(), "{device}");
        assert!(told[0].to_string().contains("soft_shrink"), "{}", told[0]);
        // Without a kernel for the operation, the device itself runs its parts.
        let x = Tensor::arange_with(0, 3, 1, DType::I32)?;
        with_runtime(&runtime, strictly(device), || -> Outcome {
            let [y, _] = Tensor::custom(
                SoftShrink {
                    tenths: 10,
                    flaw: Flaw::None,
                },
                &[&x],
            )?;
            assert_eq!(y.to_vec::<i32>()?, [0, 0, 1]);
            assert_eq!(y.device(), Some(device));
            Ok(())
        })?;
    }
    Ok(())
}

/// The index of the first element that is equal to the one behind it.
#[derive(PartialEq, Eq, Hash, Debug)]
struct FirstPair;

impl HostFunction for FirstPair {
    fn name(&self) -> &'static str {
        "first_pair"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        match inputs {
            [x] if x.dtype == DType::F32 => {
                Ok([TensorType::new([], DType::I64)].into_iter().collect())
            }
            _ => Err(OpError::new(self.name(), "a tensor of f32", inputs.len())),
        }
    }

    fn call(&self, inputs: &[HostArray], outputs: &mut [HostArrayMut]) -> Result<(), String> {
        let pairs = inputs[0].data::<f32>()?.windows(2);
        let found = pairs.enumerate().find(|(_, pair)| pair[0] == pair[1]);
        let (at, _) = found.ok_or("no two neighbours are equal")?;
        outputs[0].data::<i64>()?[0] = at as i64;
        Ok(())
    }
}

#[test]
fn a_function_of_the_host_is_run_by_the_processor() -> Outcome {
    let find = |x: &Tensor| -> rustorch_tensor::RusTorchResult<Tensor> {
        let [found] = Tensor::host_function(FirstPair, &[x])?;
        found.add(1)
    };
    let x = tensor![[1.0, 2.0], [2.0, 3.0]];
    // A view is given without gaps; the elements behind each other are 1, 2, 2, 3 either way.
    assert_eq!(find(&x.t()?)?.to_vec::<i64>()?, [2]);
    for (device, runtime) in compilers() {
        let routing = Routing {
            device,
            ..Routing::AUTO
        };
        let found = with_runtime(&runtime, routing, || find(&x.mul(2.0)?)?.to_vec::<i64>());
        assert_eq!(found?, [2], "{device}");
    }
    let problem = error(find(&tensor![1.0, 2.0])?.to_vec::<i64>());
    assert!(problem.contains("no two neighbours are equal"), "{problem}");
    assert!(problem.contains("first_pair"), "{problem}");
    assert_eq!(
        error(find(&tensor![1, 2])),
        "host_function: first_pair: expected a tensor of f32, got 1"
    );
    Ok(())
}
