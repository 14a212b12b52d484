//! Operations that prefer a GPU, on the processor's OpenCL device, which counts as one only where it
//! is asked for; and on a device that poses as a GPU.

use std::sync::Arc;

use rustorch_ir::{DType, Graph, Signature};
use rustorch_reference::Reference;
use rustorch_runtime::{
    Backend, DeviceError, DeviceInfo, DeviceMemory, DeviceType, GpuDevice, Hardware, OpType,
    Program, Routing, Runtime,
};
use rustorch_tensor::{
    AttentionOptions, ComplexOperations, ElementwiseOp, GpuBatchMatrixExecutor, GpuBatchParallelOp,
    GpuContext, GpuConvolution, GpuConvolutionExecutor, GpuLinearAlgebra, GpuMatrixExecutor,
    GpuParallelOp, GpuPooling, GpuPoolingExecutor, GpuReduction, ReductionOp, RusTorchError,
    RusTorchResult, Tensor, backends, gpu_attention, gpu_elementwise_add, gpu_elementwise_div,
    gpu_elementwise_mul, gpu_elementwise_sub, gpu_gelu, gpu_reduce, gpu_relu, gpu_softmax,
    hybrid_operation, infer_operation_type, is_device_error, nn, tensor, with_device, with_runtime,
};

use crate::{Outcome, error};

const OPENCL: DeviceType = DeviceType::OpenCL(0);

/// Calls `f` with an OpenCL device as the current one, if this machine has one; one that was
/// promised has to be there.
fn on_opencl(f: impl FnOnce() -> Outcome) -> Outcome {
    let here = backends(1).iter().any(|b| b.info().device == OPENCL);
    let promised = std::env::var_os("RUSTORCH_TEST_OPENCL").is_some();
    assert!(here || !promised, "an OpenCL device was promised");
    match here {
        true => with_device(OPENCL, f)?,
        false => {
            eprintln!("skipped: no OpenCL device");
            Ok(())
        }
    }
}

/// Each of these is computed by OpenCL, and is what the plain method gives on the processor.
fn assert_same(rows: &[(&str, RusTorchResult<Tensor>, RusTorchResult<Tensor>)]) -> Outcome {
    for (name, ours, plain) in rows {
        let (ours, plain) = (ours.clone()?, plain.clone()?);
        assert_eq!(ours.shape(), plain.shape(), "{name}");
        assert!(ours.allclose(&plain, 1e-5, 1e-6)?, "{name}");
        assert_eq!(ours.eval()?.device(), Some(OPENCL), "{name}");
    }
    Ok(())
}

fn numbers(shape: &[usize]) -> RusTorchResult<Tensor> {
    let count = shape.iter().product::<usize>() as i64;
    let angles = Tensor::arange_with(0, count, 1, DType::F32)?;
    angles.sin()?.reshape(shape)?.eval().cloned()
}

/// Computed by the processor.
fn cpu(f: impl FnOnce() -> RusTorchResult<Tensor>) -> RusTorchResult<Tensor> {
    let only = Runtime::new(
        backends(1)
            .into_iter()
            .filter(|b| b.info().device == DeviceType::Cpu),
    );
    with_runtime(&only, Routing::AUTO, || {
        let computed = with_device(DeviceType::Cpu, f)??;
        computed.to_device(DeviceType::Auto)?.eval().cloned()
    })
}

#[test]
fn products_and_functions_of_elements_run_where_they_are_asked_for() -> Outcome {
    let (a, b) = (numbers(&[4, 5])?, numbers(&[5, 3])?);
    let (p, q) = (numbers(&[2, 3, 4])?, numbers(&[2, 4, 5])?);
    let (v, w) = (numbers(&[5])?, numbers(&[4, 5])?.add(2.0)?.eval()?.clone());
    on_opencl(|| {
        let op = |op| a.gpu_elementwise_op(op, &w);
        assert_same(&[
            ("matmul", a.gpu_matmul(&b), cpu(|| a.matmul(&b))),
            ("bmm", p.gpu_batch_matmul(&q), cpu(|| p.bmm(&q))),
            ("mv", a.gpu_matvec(&v), cpu(|| a.mv(&v))),
            ("add", gpu_elementwise_add(&a, &w), cpu(|| a.add(&w))),
            ("sub", gpu_elementwise_sub(&a, &w), cpu(|| a.sub(&w))),
            ("mul", gpu_elementwise_mul(&a, &w), cpu(|| a.mul(&w))),
            ("div", gpu_elementwise_div(&a, &w), cpu(|| a.div(&w))),
            (
                "pow",
                w.gpu_elementwise_op(ElementwiseOp::Pow, &a),
                cpu(|| w.pow(&a)),
            ),
            ("maximum", op(ElementwiseOp::Maximum), cpu(|| a.maximum(&w))),
            ("minimum", op(ElementwiseOp::Minimum), cpu(|| a.minimum(&w))),
            ("relu", gpu_relu(&a), cpu(|| a.relu())),
            ("gelu", gpu_gelu(&a), cpu(|| a.gelu())),
            ("softmax", gpu_softmax(&a, -1), cpu(|| a.softmax(-1))),
        ])
    })
}

#[test]
fn reductions_run_where_they_are_asked_for() -> Outcome {
    let x = numbers(&[3, 4])?;
    on_opencl(|| {
        let plain = |dim: Option<isize>,
                     f: fn(&Tensor, Option<isize>) -> RusTorchResult<Tensor>| {
            cpu(|| f(&x, dim))
        };
        assert_same(&[
            (
                "sum",
                x.gpu_sum(Some(0)),
                plain(Some(0), |x, d| x.sum(d, false)),
            ),
            (
                "sum of all",
                x.gpu_sum(None),
                plain(None, |x, d| x.sum(d, false)),
            ),
            (
                "mean",
                x.gpu_mean(Some(1)),
                plain(Some(1), |x, d| x.mean(d, false)),
            ),
            (
                "max",
                x.gpu_max(Some(1)),
                plain(Some(1), |x, d| x.max(d, false)),
            ),
            ("min", x.gpu_min(None), plain(None, |x, d| x.min(d, false))),
            (
                "std",
                x.gpu_std(Some(1)),
                plain(Some(1), |x, d| x.std(d, 1, false)),
            ),
            (
                "var",
                x.gpu_var(None),
                plain(None, |x, d| x.var(d, 1, false)),
            ),
            (
                "prod",
                gpu_reduce(&x, ReductionOp::Prod, Some(0)),
                plain(Some(0), |x, d| x.prod(d, false)),
            ),
        ])?;
        let problem = error(gpu_reduce(&x, ReductionOp::Sum, Some(2)));
        assert!(problem.contains("sum: "), "{problem}");
        Ok(())
    })
}

#[test]
fn layers_run_where_they_are_asked_for() -> Outcome {
    let (x, weight) = (numbers(&[2, 3, 6, 6])?, numbers(&[4, 3, 3, 3])?);
    let spread = numbers(&[3, 2, 2, 2])?;
    let (mean, var) = (
        numbers(&[3])?,
        numbers(&[3])?.abs()?.add(1.0)?.eval()?.clone(),
    );
    let [q, k, v] = [1, 2, 3].map(|_| numbers(&[2, 2, 4, 8]));
    let (q, k, v) = (q?, k?, v?);
    let (conv, transposed) = (
        nn::ConvOptions::default(),
        nn::ConvTransposeOptions::default(),
    );
    let (max, avg) = (nn::MaxPoolOptions::default(), nn::AvgPoolOptions::default());
    let (norm, attention) = (nn::BatchNormOptions::default(), AttentionOptions::default());
    let images = [
        x.select(0, 0)?.eval()?.clone(),
        x.select(0, 1)?.eval()?.clone(),
    ];
    on_opencl(|| {
        let (m, s) = (Some(&mean), Some(&var));
        assert_same(&[
            (
                "conv2d",
                x.gpu_conv2d(&weight, None, &conv),
                cpu(|| x.conv2d(&weight, None, &conv)),
            ),
            (
                "conv2d of images",
                Tensor::gpu_batch_conv2d(&[&images[0], &images[1]], &weight, None, &conv),
                cpu(|| x.conv2d(&weight, None, &conv)),
            ),
            (
                "conv_transpose2d",
                x.gpu_conv2d_transpose(&spread, None, &transposed),
                cpu(|| x.conv_transpose2d(&spread, None, &transposed)),
            ),
            (
                "max_pool2d",
                x.gpu_max_pool2d([2, 2], &max),
                cpu(|| x.max_pool2d([2, 2], &max)),
            ),
            (
                "avg_pool2d",
                x.gpu_avg_pool2d([2, 2], &avg),
                cpu(|| x.avg_pool2d([2, 2], &avg)),
            ),
            (
                "batch_norm",
                x.gpu_batch_norm(m, s, &norm),
                cpu(|| x.batch_norm(m, s, &norm)),
            ),
            (
                "attention",
                q.gpu_batch_attention(&k, &v, attention),
                cpu(|| q.scaled_dot_product_attention(&k, &v, attention)),
            ),
            (
                "attention by the function",
                gpu_attention(&q, &k, &v, attention),
                cpu(|| q.scaled_dot_product_attention(&k, &v, attention)),
            ),
        ])
    })
}

#[test]
fn complex_numbers_run_where_they_are_asked_for() -> Outcome {
    let x = Tensor::complex(&numbers(&[6])?, &numbers(&[6])?.add(1.0)?)?;
    let x = x.eval()?.clone();
    on_opencl(|| {
        assert_same(&[
            ("multiply", x.complex_multiply(&x), cpu(|| x.mul(&x))),
            ("conjugate", x.complex_conjugate(), cpu(|| x.conj())),
        ])
    })?;
    assert_eq!(
        error(tensor![1.0, 2.0].complex_conjugate()),
        "complex_conjugate: expected complex numbers, got f32[2]"
    );
    Ok(())
}

#[test]
fn executors_are_bound_to_their_device() -> Outcome {
    on_opencl(|| {
        let gpu = GpuDevice::OpenCL(0);
        let (a, b) = (numbers(&[4, 5])?, numbers(&[5, 3])?);
        let (p, q) = (numbers(&[2, 3, 4])?, numbers(&[2, 4, 5])?);
        let (x, weight) = (numbers(&[1, 3, 6, 6])?, numbers(&[4, 3, 3, 3])?);
        let spread = numbers(&[3, 2, 2, 2])?;
        let (conv, transposed) = (
            nn::ConvOptions::default(),
            nn::ConvTransposeOptions::default(),
        );
        let (max, avg) = (nn::MaxPoolOptions::default(), nn::AvgPoolOptions::default());
        let matrices = GpuMatrixExecutor::new(gpu)?;
        let batches = GpuBatchMatrixExecutor::new(gpu)?;
        let convolutions = GpuConvolutionExecutor::new(gpu)?;
        let pools = GpuPoolingExecutor::new(gpu)?;
        assert_eq!(matrices.device(), OPENCL);
        // Wherever the operands are, and whatever the thread's current device is.
        let a = a.to_device(DeviceType::Cpu)?;
        let rows = with_device(DeviceType::Cpu, || {
            [
                matrices.matmul(&a, &b),
                matrices.matvec(&a, &Tensor::ones([5], DType::F32)?),
                batches.batch_matmul(&p, &q),
                convolutions.conv2d(&x, &weight, &conv),
                convolutions.conv2d_transpose(&x, &spread, &transposed),
                pools.max_pool2d(&x, [2, 2], &max),
                pools.avg_pool2d(&x, [2, 2], &avg),
            ]
            .map(Ok)
            .into_iter()
            .collect::<RusTorchResult<Vec<_>>>()
        })??;
        let plain = [
            cpu(|| a.matmul(&b)),
            cpu(|| a.sum(1, false)),
            cpu(|| p.bmm(&q)),
            cpu(|| x.conv2d(&weight, None, &conv)),
            cpu(|| x.conv_transpose2d(&spread, None, &transposed)),
            cpu(|| x.max_pool2d([2, 2], &max)),
            cpu(|| x.avg_pool2d([2, 2], &avg)),
        ];
        let rows = rows.into_iter().zip(plain);
        let rows: Vec<_> = rows
            .map(|(ours, plain)| ("executor", ours, plain))
            .collect();
        assert_same(&rows)
    })?;
    let problem = error(GpuMatrixExecutor::new(GpuDevice::Cuda(99)));
    assert!(problem.starts_with("cuda:99: "), "{problem}");
    Ok(())
}

/// The reference as a graphics processor.
struct Gpu(Reference, DeviceInfo);

impl Backend for Gpu {
    fn info(&self) -> &DeviceInfo {
        &self.1
    }

    fn supports(&self, signature: &Signature) -> bool {
        self.0.supports(signature)
    }

    fn memory(&self) -> &dyn DeviceMemory {
        self.0.memory()
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        self.0.compile(graph)
    }
}

/// The processor and a graphics processor.
fn two() -> Runtime {
    let reference = Reference::new();
    let info = DeviceInfo {
        device: DeviceType::Cuda(0),
        hardware: Hardware::Gpu,
        ..reference.info().clone()
    };
    let mut all = backends(1);
    all.retain(|b| b.info().device == DeviceType::Cpu);
    all.insert(0, Arc::new(Gpu(reference, info)));
    Runtime::new(all)
}

#[test]
fn a_gpu_is_preferred_whatever_the_size_unless_another_device_was_asked_for() -> Outcome {
    let runtime = two();
    with_runtime(&runtime, Routing::AUTO, || {
        let place = |x: RusTorchResult<Tensor>| Ok::<_, RusTorchError>(x?.eval()?.device());
        let x = tensor![1.0, -2.0];
        assert_eq!(place(x.relu())?, Some(DeviceType::Cpu));
        assert_eq!(place(gpu_relu(&x))?, Some(DeviceType::Cuda(0)));
        let moved = x.to_device(DeviceType::Cpu)?;
        assert_eq!(place(gpu_relu(&moved))?, Some(DeviceType::Cpu));
        let set = with_device(DeviceType::Cpu, || place(gpu_relu(&x)))?;
        assert_eq!(set?, Some(DeviceType::Cpu));
        assert_eq!(rustorch_tensor::current_device(), DeviceType::Auto);
        let best = GpuMatrixExecutor::best()?;
        assert_eq!(best.device(), DeviceType::Cuda(0));
        let context = GpuContext::best()?;
        assert_eq!(context.stream_count(), 1);
        let before = context.memory_pool_size();
        let kept = Tensor::ones([1000], DType::F32)?.neg()?.eval()?.clone();
        assert_eq!(kept.device(), Some(DeviceType::Cuda(0)));
        let shares = context.info().shares_host_memory;
        assert!(shares || context.memory_pool_size() >= before + 4000);
        Ok(())
    })
}

#[test]
fn a_closure_goes_from_device_to_device() -> Outcome {
    let runtime = two();
    let x = Tensor::ones([600, 600], DType::F32)?;
    with_runtime(&runtime, Routing::AUTO, || {
        let mut tried = Vec::new();
        let sum = hybrid_operation(OpType::LinearAlgebra, &x, |device| {
            tried.push(device);
            match device {
                DeviceType::Cuda(_) => Err(RusTorchError::OutOfMemory {
                    op: "mine",
                    bytes: 1,
                }),
                _ => x.matmul(&x)?.to_vec::<f32>(),
            }
        })?;
        assert_eq!((sum.len(), sum[0]), (360_000, 600.0));
        assert_eq!(tried, [DeviceType::Cuda(0), DeviceType::Cpu]);

        // The caller's mistake is not tried again, and all devices' failure is the last one's.
        let mut calls = 0;
        let mistake = hybrid_operation(OpType::Reduction, &x, |_| {
            calls += 1;
            x.sum(7, false)
        });
        assert!(error(mistake).contains("sum: "));
        assert_eq!(calls, 1);
        let failed: RusTorchResult<()> = hybrid_operation(OpType::Reduction, &x, |device| {
            Err(RusTorchError::OutOfMemory {
                op: "mine",
                bytes: usize::from(device == DeviceType::Cpu),
            })
        });
        let failed = failed.expect_err("all failed");
        assert!(is_device_error(&failed), "{failed}");
        Ok(())
    })
}

#[test]
fn operations_tell_their_family() -> Outcome {
    let x = tensor![[1.0, 2.0], [3.0, 4.0]];
    let rows = [
        (x.clone(), None),
        (x.matmul(&x)?, Some(OpType::LinearAlgebra)),
        (x.relu()?, Some(OpType::Activation)),
        (x.sum(0, false)?, Some(OpType::Reduction)),
        (x.softmax(0)?, Some(OpType::Normalization)),
        (Tensor::complex(&x, &x)?.conj()?, Some(OpType::ComplexMath)),
    ];
    for (result, family) in rows {
        assert_eq!(
            infer_operation_type(&result),
            family,
            "{:?}",
            result.shape()
        );
    }
    Ok(())
}
