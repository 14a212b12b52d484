//! Devices: moving tensors, the current one of a thread, choosing one.

use std::sync::Arc;

use crate::{Outcome, error};
use rustorch_ir::{DType, TensorType};
use rustorch_reference::Reference;
use rustorch_runtime::{Backend, DeviceType, GpuDevice, OpType, Routing, Runtime, TensorInfo};
use rustorch_tensor::{
    DeviceManager, GpuContext, HybridExecutor, Tensor, backends, current_device, eval_all, host,
    set_device, tensor, with_device, with_runtime,
};

const CPU: DeviceType = DeviceType::Cpu;
/// A second device that every machine has.
const SECOND: DeviceType = DeviceType::Reference;
const MISSING: DeviceType = DeviceType::Cuda(99);

#[test]
fn what_is_computed_from_a_moved_tensor_is_computed_there() -> Outcome {
    let x = tensor![1.0, 2.0];
    let y = x.add(&x)?.eval()?.clone();
    assert_eq!(y.device(), Some(CPU));
    let moved = y.to_device(SECOND)?;
    assert_eq!(moved.device(), Some(SECOND));
    // Operations, views and mixtures with others go with it.
    let z = moved.mul(&x)?.reshape([2, 1])?.neg()?;
    assert_eq!(z.to_vec::<f32>()?, [-2.0, -8.0]);
    assert_eq!(z.device(), Some(SECOND));
    let back = z.to_device(CPU)?.add(1.0)?;
    assert_eq!(back.to_vec::<f32>()?, [-1.0, -7.0]);
    assert_eq!(back.device(), Some(CPU));
    let free = z.to_device(DeviceType::Auto)?.add(1.0)?;
    assert_eq!(free.eval()?.device(), Some(CPU));
    Ok(())
}

#[test]
fn what_is_not_computed_yet_is_computed_where_it_is_moved_to() -> Outcome {
    let x = tensor![1.0, 2.0];
    let first = x.neg()?;
    let moved = first.to_device(SECOND)?;
    let last = moved.exp()?;
    assert_eq!((moved.device(), last.device()), (None, None));
    eval_all(&[&first, &moved, &last])?;
    let devices = [&first, &moved, &last].map(|t| t.device());
    assert_eq!(devices, [CPU, SECOND, SECOND].map(Some));
    assert_eq!(moved.to_vec::<f32>()?, [-1.0, -2.0]);
    Ok(())
}

#[test]
fn the_current_device_is_the_threads_own() -> Outcome {
    let results = with_device(SECOND, || -> rustorch_tensor::RusTorchResult<_> {
        assert_eq!(current_device(), SECOND);
        let elsewhere = std::thread::spawn(current_device).join();
        assert_eq!(elsewhere.ok(), Some(DeviceType::Auto));
        let made = tensor![1.0, 2.0];
        let random = Tensor::randn([3], DType::F64)?;
        let sum = made.add(1.0)?;
        eval_all(&[&random, &sum])?;
        Ok([made, random, sum])
    })?;
    assert_eq!(current_device(), DeviceType::Auto);
    for tensor in results? {
        assert_eq!(tensor.device(), Some(SECOND));
    }
    Ok(())
}

#[test]
fn a_device_can_be_set_and_unset() -> Outcome {
    let manager = DeviceManager::new();
    let names: Vec<DeviceType> = manager.list().iter().map(|info| info.device).collect();
    assert!(
        names.contains(&CPU) && names.last() == Some(&SECOND),
        "{names:?}"
    );
    set_device(SECOND)?;
    assert_eq!(manager.current(), SECOND);
    assert!(tensor![1.0].neg()?.eval()?.device() == Some(SECOND));
    set_device(DeviceType::Auto)?;
    assert_eq!(manager.current(), DeviceType::Auto);
    let problem = error(set_device(MISSING));
    assert!(
        problem.starts_with("set_device at ") && problem.contains(": cuda:99: "),
        "{problem}"
    );
    assert_eq!(current_device(), DeviceType::Auto);
    Ok(())
}

#[test]
fn a_gpu_that_is_missing_says_why() {
    let problem = error(GpuContext::new(GpuDevice::Cuda(99)));
    assert!(problem.starts_with("cuda:99: "), "{problem}");
    let only_cpu = Runtime::new(backends(1).into_iter().filter(|b| b.info().device == CPU));
    let problem = with_runtime(&only_cpu, Routing::AUTO, || error(GpuContext::best()));
    assert!(
        problem.starts_with("gpu: this machine has none"),
        "{problem}"
    );
    let problem = with_runtime(&only_cpu, Routing::AUTO, || error(set_device(SECOND)));
    let expected = ": reference: this machine has no such device; there are cpu";
    assert!(problem.ends_with(expected), "{problem}");
}

#[test]
fn a_missing_device_is_an_error_at_once_that_says_what_there_is() -> Outcome {
    let x = tensor![1.0, 2.0];
    let here = DeviceManager::new().list().into_iter();
    let here: Vec<_> = here.map(|info| info.device.to_string()).collect();
    let problem = error(x.neg()?.to_device(MISSING));
    assert!(problem.contains("cuda:99"), "{problem}");
    assert!(problem.contains(&here.join(", ")), "{problem}");
    Ok(())
}

#[test]
fn the_executor_answers_as_the_planner_does() -> Outcome {
    let executor = HybridExecutor::global();
    assert!(executor.fallback_devices().contains(&SECOND));
    assert_eq!(
        executor.has_gpu_support(),
        rustorch_tensor::is_gpu_available()
    );
    let all = backends(1).into_iter();
    let two = Runtime::new(all.filter(|b| [CPU, SECOND].contains(&b.info().device)));
    let executor = HybridExecutor::new(two, Routing::AUTO);
    assert_eq!(executor.primary_device(), CPU);
    assert_eq!(executor.fallback_devices(), [SECOND]);
    assert!(executor.capability(CPU).is_some_and(|c| c.supports_complex));
    assert!(executor.capability(MISSING).is_none());
    let tensor = TensorInfo::new(TensorType::new([10, 10], DType::F32));
    let select = |op_type| executor.select_device(op_type, &tensor);
    assert_eq!(select(OpType::LinearAlgebra)?, CPU);
    let next = |failed| executor.next_fallback_device(OpType::LinearAlgebra, &tensor, failed);
    assert_eq!((next(CPU), next(SECOND)), (Some(SECOND), None));
    let problem = error(select(OpType::DistributedOps));
    assert!(
        problem.contains("DistributedOps of f32[10, 10]"),
        "{problem}"
    );
    executor.set_route(OpType::LinearAlgebra, SECOND);
    assert_eq!(select(OpType::LinearAlgebra)?, SECOND);
    let x = tensor![[1.0, 2.0], [3.0, 4.0]];
    let product = executor.run(|| x.matmul(&x)?.eval().cloned())?;
    assert_eq!(product.device(), Some(SECOND));
    executor.clear_routes();
    assert_eq!(select(OpType::LinearAlgebra)?, CPU);
    Ok(())
}

#[test]
fn explanations_tell_which_operand_decided() -> Outcome {
    let devices: [Arc<dyn Backend>; 2] = [host(1).remove(0), Arc::new(Reference::new())];
    with_runtime(&Runtime::new(devices), Routing::AUTO, || {
        let (a, b) = (tensor![1.0, 2.0, 3.0], tensor![4.0, 5.0, 6.0]);
        let (there, here) = (a.to_device(SECOND)?, b.to_device(CPU)?);
        let rows = [
            (
                (&there + &here)?,
                "add on reference: pinned to reference, where operand 0 was moved, the first of \
                 several (operand 1 to cpu)",
                SECOND,
            ),
            (
                (&here + &there)?,
                "add on cpu: pinned to cpu, where operand 0 was moved, the first of several \
                 (operand 1 to reference)",
                CPU,
            ),
            // An operand that nobody moved comes along.
            (
                (&b + &there)?,
                "add on reference: pinned to reference",
                SECOND,
            ),
        ];
        for (sum, row, device) in rows {
            let told: Vec<String> = sum.explain()?.iter().map(ToString::to_string).collect();
            assert_eq!(told, [row]);
            assert!(!sum.is_ready());
            assert_eq!(sum.eval()?.device(), Some(device));
            assert_eq!(sum.explain()?, []);
        }
        Ok(())
    })
}
