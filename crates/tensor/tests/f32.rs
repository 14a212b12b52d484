//! The f32 hybrid: nothing is converted, nothing is copied where memory is shared, and what is
//! said of devices is what they did.

#![cfg(feature = "hybrid-f32")]

use std::sync::Arc;

use rustorch_coreml::cache::Cache;
use rustorch_coreml::{CoreMl, Settings};
use rustorch_coreml_emulator::{Call, Emulated};
use rustorch_cpu::Cpu;
use rustorch_ir::{DType, Graph, Signature, TensorType};
use rustorch_metal_emulator::Emulator;
use rustorch_runtime::{
    Backend, DeviceError, DeviceInfo, DeviceMemory, DeviceType, Hardware, HostMemory, Moved,
    OpType, Program, Routing, Runtime, TensorInfo, TransferMethod,
};
use rustorch_tensor::nn::ConvOptions;
use rustorch_tensor::{
    Activity, DeviceState, F32HybridExecutor, F32Operation, F32Report, F32Tensor, F32UnifiedBuffer,
    HybridExecutor, RusTorchResult, Tensor, Trace, backends, is_coreml_available,
    is_metal_available, with_runtime,
};

type Outcome = RusTorchResult<()>;

const CPU: DeviceType = DeviceType::Cpu;
const METAL: DeviceType = DeviceType::Metal(0);
const COREML: DeviceType = DeviceType::CoreML(0);

/// The processor under another device's name, in the host's memory.
struct Posing {
    cpu: Cpu,
    info: DeviceInfo,
    memory: HostMemory,
}

fn posing(device: DeviceType, hardware: Hardware) -> Arc<dyn Backend> {
    let cpu = Cpu::new(1);
    let info = DeviceInfo {
        device,
        hardware,
        ..cpu.info().clone()
    };
    Arc::new(Posing {
        cpu,
        info,
        memory: HostMemory::new(device),
    })
}

impl Backend for Posing {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn supports(&self, signature: &Signature) -> bool {
        self.cpu.supports(signature)
    }

    fn memory(&self) -> &dyn DeviceMemory {
        &self.memory
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        self.cpu.compile(graph)
    }
}

fn processor() -> Arc<dyn Backend> {
    Arc::new(Cpu::new(1))
}

/// A runtime as on a Mac.
fn mac() -> Runtime {
    Runtime::new([
        posing(COREML, Hardware::NeuralEngine),
        posing(METAL, Hardware::Gpu),
        processor(),
    ])
}

/// The Metal device that is emulated on the processor. One that was promised has to be there.
fn emulated() -> Vec<Arc<dyn Backend>> {
    Emulator::for_tests().map_or(Vec::new(), |emulator| {
        rustorch_metal::backends(vec![emulator]).expect("a Metal device")
    })
}

/// The processor beside other devices that work in the host's memory: each one of this machine, the
/// emulated Metal device, and one that poses as Metal.
fn machines() -> Vec<(DeviceType, Runtime)> {
    let mut here = backends(1);
    let is_opencl = |b: &Arc<dyn Backend>| matches!(b.info().device, DeviceType::OpenCL(_));
    let promised = std::env::var_os("RUSTORCH_TEST_OPENCL").is_some();
    assert!(
        here.iter().any(is_opencl) || !promised,
        "an OpenCL device was promised"
    );
    here.retain(|b| {
        let info = b.info();
        info.shares_host_memory && !matches!(info.device, CPU | DeviceType::Reference)
    });
    here.extend(emulated());
    here.push(posing(METAL, Hardware::Gpu));
    here.into_iter()
        .map(|b| (b.info().device, Runtime::new([b, processor()])))
        .collect()
}

fn error<T>(result: RusTorchResult<T>) -> String {
    match result {
        Ok(_) => panic!("an error was expected"),
        Err(e) => e.to_string(),
    }
}

/// The device of each operation of a report.
fn places(report: &F32Report) -> Vec<(&str, DeviceType)> {
    let rows = report.operations.iter();
    rows.map(|row| (row.op.as_str(), row.device)).collect()
}

#[test]
fn what_is_here_is_available() {
    let tensor = |rank: usize| TensorInfo::new(TensorType::new(vec![2; rank], DType::F32));
    let available = || (is_coreml_available(), is_metal_available());
    let cpu = Runtime::new([processor()]);
    assert_eq!(with_runtime(&cpu, Routing::AUTO, available), (false, false));
    assert_eq!(with_runtime(&mac(), Routing::AUTO, available), (true, true));
    let executor = HybridExecutor::new(mac(), Routing::AUTO);
    assert!(executor.supports_coreml(OpType::Reduction, &tensor(4)));
    assert!(!executor.supports_coreml(OpType::Reduction, &tensor(5)));
}

#[test]
fn other_types_are_refused_with_advice() -> Outcome {
    let double = Tensor::from_slice(&[1.0f64, 2.0], [2])?;
    let problem = error(F32Tensor::try_from(double.clone()));
    for part in ["f64[2]", "to_dtype(DType::F32)", "stays f64"] {
        assert!(problem.contains(part), "{problem}");
    }
    let half = double.to_dtype(DType::F16)?;
    let problem = error(F32Tensor::try_from(half));
    assert!(problem.contains("without loss"), "{problem}");
    assert!(F32Tensor::try_from(Tensor::zeros([2], DType::I64)?).is_err());
    let single = F32Tensor::try_from(double.to_dtype(DType::F32)?)?;
    assert_eq!(single.to_vec()?, [1.0, 2.0]);
    assert_eq!(Tensor::from(single).dtype(), DType::F32);
    Ok(())
}

#[test]
fn results_are_those_of_tensors() -> Outcome {
    let x = F32Tensor::from_vec(vec![1.0, -2.0, 3.0, -4.0], [2, 2])?;
    let same = |a: F32Tensor, b: Tensor| -> Outcome {
        assert_eq!((a.shape(), a.to_vec()?), (b.shape(), b.to_vec::<f32>()?));
        Ok(())
    };
    let t: &Tensor = x.as_ref();
    same((&x + &x)?, t.add(t)?)?;
    same((&x * 0.5)?, t.mul(0.5)?)?;
    same((&x / 3)?, t.div(3)?)?;
    same((-&x)?, t.neg()?)?;
    same(x.matmul(&x)?, t.matmul(t)?)?;
    same(x.softmax(1)?, t.softmax(1)?)?;
    same(x.var(0, 1, false)?, t.var(0, 1, false)?)?;
    same(x.gelu()?, t.gelu()?)?;
    same(F32Tensor::cat(&[&x, &x], 0)?, Tensor::cat(&[t, t], 0)?)?;
    let images = x.reshape([1, 1, 2, 2])?;
    let parameters = ConvOptions::default();
    let convolved = images.conv2d(&images, None, &parameters)?;
    assert_eq!(convolved.item()?, 30.0);
    assert!(x.matmul(&F32Tensor::ones([3])?).is_err());
    Ok(())
}

#[test]
fn a_result_requires_a_gradient_if_an_operand_does() -> Outcome {
    let x = F32Tensor::ones([2, 2])?;
    let mut weight = F32Tensor::ones([2, 2])?;
    assert!(!x.matmul(&weight)?.requires_grad());
    weight.requires_grad_(true);
    let y = x.linear(&weight, None)?;
    assert!(y.requires_grad() && (&x + &y)?.relu()?.sum(None, false)?.requires_grad());
    assert!(!y.detach().requires_grad() && !(&x + 1.0)?.requires_grad());
    assert!(F32Tensor::cat(&[&x, &y], 0)?.requires_grad());
    (&y * 3.0)?.sum(None, false)?.backward()?;
    assert_eq!(weight.grad().expect("a gradient").to_vec()?, [6.0; 4]);
    assert!(x.grad().is_none());
    weight.zero_grad();
    assert!(weight.grad().is_none());
    Ok(())
}

#[test]
fn the_state_is_where_the_elements_are() -> Outcome {
    for (device, runtime) in machines() {
        let alone = match device {
            DeviceType::Metal(id) => DeviceState::Metal(id),
            DeviceType::OpenCL(id) => DeviceState::OpenCL(id),
            other => panic!("{other}"),
        };
        with_runtime(&runtime, Routing::AUTO, || -> Outcome {
            let x = F32Tensor::from_slice(&[1.0, 2.0], [2])?;
            assert_eq!(x.device_state(), DeviceState::Cpu);
            let moved = x.to_device(device)?;
            assert_eq!(moved.device_state(), DeviceState::Synchronized);
            let y = (&moved + 1.0)?;
            assert_eq!(y.device_state(), DeviceState::Pending);
            y.eval()?;
            assert_eq!(y.device_state(), alone, "{device}");
            // The host has seen it now.
            assert_eq!(y.to_vec()?, [2.0, 3.0]);
            assert_eq!(y.device_state(), DeviceState::Synchronized);
            let back = (&y.to_device(CPU)? * 2.0)?;
            back.eval()?;
            assert_eq!(back.device_state(), DeviceState::Cpu);
            Ok(())
        })?;
        assert_eq!(Activity::of(&runtime), Activity::default());
    }
    Ok(())
}

#[test]
fn memory_that_came_back_is_used_again() -> Outcome {
    let buffer = F32UnifiedBuffer::new(mac());
    let ones = [1.0; 1000];
    let first = buffer.from_slice(&ones, [10, 100])?;
    let view = first.narrow(0, 5, 5)?;
    drop(first);
    assert_eq!(buffer.pool().counters().in_use, 4000);
    assert_eq!(view.to_vec()?, [1.0; 500]);
    drop(view);
    let twos = buffer.from_slice(&[2.0; 900], [900])?;
    let counters = buffer.pool().counters();
    assert_eq!((counters.hits, counters.misses), (1, 1));
    assert_eq!((counters.in_use, counters.kept), (4000, 0));
    assert_eq!(twos.to_vec()?, [2.0; 900]);
    let problem = error(buffer.from_slice(&ones, [3]));
    assert!(problem.contains("3 elements"), "{problem}");
    drop(twos);
    buffer.pool().trim();
    assert_eq!(buffer.pool().counters().kept, 0);
    Ok(())
}

#[test]
fn metal_and_core_ml_have_one_memory() -> Outcome {
    let buffer = F32UnifiedBuffer::new(mac());
    let x = buffer.from_slice(&[1.0, 2.0], [2])?;
    let computed = with_runtime(buffer.runtime(), Routing::AUTO, || {
        let y = (&x.to_device(METAL)? * 3.0)?;
        y.eval().cloned()
    })?;
    assert_eq!(buffer.sync().writer(&computed)?, METAL);
    assert_eq!(buffer.sync().readers(&computed)?, [METAL]);
    let moved = buffer.transfer_metal_to_coreml(&computed)?;
    assert_eq!(moved.method, TransferMethod::ZeroCopy);
    assert_eq!(moved.activity, Activity::default());
    assert_eq!(buffer.sync().readers(&computed)?, [CPU, METAL, COREML]);
    let further = with_runtime(buffer.runtime(), Routing::AUTO, || {
        (&computed.to_device(COREML)? + 1.0)?.eval().cloned()
    })?;
    // It is not Metal's to give away.
    let problem = error(buffer.transfer_metal_to_coreml(&further));
    assert!(
        problem.contains("metal:0") && problem.contains("coreml:0"),
        "{problem}"
    );
    assert_eq!(
        buffer
            .sync()
            .transfer(&further, COREML, CPU)?
            .activity
            .copied
            .copies,
        0
    );
    assert_eq!(further.to_vec()?, [4.0, 7.0]);
    assert_eq!(buffer.runtime().memory().routes(), []);

    let elsewhere = F32UnifiedBuffer::new(Runtime::new([processor()]));
    let x = elsewhere.from_slice(&[1.0], [1])?;
    let problem = error(elsewhere.sync().transfer(&x, CPU, COREML));
    assert!(
        problem.contains("coreml:0: not on this machine"),
        "{problem}"
    );
    assert!(elsewhere.transfer_metal_to_coreml(&x).is_err());
    Ok(())
}

/// Core ML and, where it can be, Metal, both emulated, and the processor; with a folder for what is
/// compiled.
fn emulated_mac() -> (tempfile::TempDir, Arc<CoreMl<Emulated>>, Option<Runtime>) {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::new(Cache::new(folder.path(), 1 << 30));
    let coreml = Arc::new(CoreMl::new(Emulated::new(15), 0, settings).unwrap());
    let metal = emulated().into_iter().next();
    let runtime =
        metal.map(|metal| Runtime::new([coreml.clone() as Arc<dyn Backend>, metal, processor()]));
    (folder, coreml, runtime)
}

#[test]
fn an_allocation_is_metals_and_core_mls_without_a_copy() -> Outcome {
    let (_folder, coreml, Some(runtime)) = emulated_mac() else {
        return Ok(());
    };
    let strictly = |device| Routing {
        device,
        strict: true,
        ..Routing::AUTO
    };
    let buffer = F32UnifiedBuffer::new(runtime.clone());
    // Whole pages, and a part of one.
    for count in [4096 * 64, 1000] {
        let x = buffer.from_slice(&vec![2.0; count], [count])?;
        let tripled = with_runtime(&runtime, strictly(METAL), || (&x * 3.0)?.eval().cloned())?;
        assert_eq!(buffer.sync().writer(&tripled)?, METAL);
        let moved = buffer.transfer_metal_to_coreml(&tripled)?;
        assert_eq!(moved.method, TransferMethod::ZeroCopy);
        assert_eq!(moved.activity, Activity::default());
        let computed = with_runtime(&runtime, strictly(COREML), || {
            tripled.relu()?.eval().cloned()
        })?;
        assert_eq!(buffer.sync().writer(&computed)?, COREML);
        // Core ML's array begins where Metal's buffer does.
        let storage = tripled.as_ref().storage()?;
        let address = storage.host_address().expect("memory of the host's");
        assert!(coreml.api().arrays().contains(&address), "{count}");
        // And back: Metal reads what Core ML wrote.
        let summed = with_runtime(&runtime, strictly(METAL), || {
            (&computed + &tripled)?.eval().cloned()
        })?;
        assert_eq!(summed.to_vec()?, vec![12.0; count]);
    }
    assert_eq!(coreml.api().calls(Call::Predict), 2);
    assert_eq!(coreml.copied(), 0);
    assert_eq!(runtime.memory().routes(), []);
    assert_eq!(Activity::of(&runtime), Activity::default());
    assert_eq!(runtime.fallbacks(), []);
    Ok(())
}

#[test]
fn the_f32_hybrid_runs_on_core_ml_and_metal_without_a_copy() -> Outcome {
    let (_folder, coreml, Some(runtime)) = emulated_mac() else {
        return Ok(());
    };
    let executor = F32HybridExecutor::new(runtime.clone());
    let y = executor.run(network)?;
    let report = executor.execute(&[&y])?;
    let expected_places = [
        ("conv2d", COREML),
        ("relu", COREML),
        ("linear", METAL),
        ("layer_norm", CPU),
        ("matmul", CPU),
        ("softmax", CPU),
    ];
    assert_eq!(places(&report), expected_places);
    assert_eq!(report.activity, Activity::default());
    for (got, expected) in y.to_vec()?.iter().zip(expected()?) {
        assert!((got - expected).abs() < 1e-6, "{got} {expected}");
    }
    assert_eq!(coreml.api().calls(Call::Predict), 1);
    assert_eq!(coreml.copied(), 0);
    assert_eq!(runtime.memory().routes(), []);
    assert_eq!(runtime.fallbacks(), []);
    Ok(())
}

#[test]
fn writers_and_readers_take_turns() -> Outcome {
    for (device, runtime) in machines() {
        let buffer = F32UnifiedBuffer::new(runtime.clone());
        let state = buffer.from_slice(&[0.0; 4], [4])?;
        let other = buffer.from_slice(&[5.0; 4], [4])?;
        let told = |t: &F32Tensor| -> RusTorchResult<_> {
            Ok((buffer.sync().writer(t)?, buffer.sync().readers(t)?))
        };
        assert_eq!(told(&state)?, (CPU, vec![CPU]));
        let write = |by: DeviceType, value: f32, at: i32| {
            let routing = Routing {
                device: by,
                ..Routing::AUTO
            };
            with_runtime(&runtime, routing, || -> Outcome {
                let start = Tensor::from_slice(&[at], [1])?;
                let source = Tensor::from_slice(&[value], [1])?;
                state.as_ref().update_slice_(&source, 0, &start)?.eval()?;
                Ok(())
            })
        };
        write(device, 1.0, 0)?;
        assert_eq!(told(&state)?, (device, vec![device]));
        assert_eq!(buffer.synchronize_all()?, 1);
        assert_eq!(told(&state)?, (device, vec![CPU, device]));
        assert_eq!(buffer.synchronize_all()?, 0);
        write(CPU, 2.0, 1)?;
        assert_eq!(buffer.sync().writer(&state)?, CPU);
        write(device, 3.0, 2)?;
        assert_eq!(state.to_vec()?, [1.0, 2.0, 3.0, 0.0]);
        assert_eq!(other.to_vec()?, [5.0; 4]);
        // A tensor that was made elsewhere takes part once it is adopted.
        let made = with_runtime(&runtime, Routing::AUTO, || &state.to_device(device)? * 2.0)?;
        buffer.sync().adopt(&made)?;
        assert_eq!(told(&made)?.1, [device]);
        assert_eq!(buffer.synchronize_all()?, 1);
        assert_eq!(made.to_vec()?, [2.0, 4.0, 6.0, 0.0]);
        assert_eq!(runtime.memory().routes(), [], "{device}");
    }
    Ok(())
}

/// A small network: convolution, activation, product, norm, softmax.
fn network() -> RusTorchResult<F32Tensor> {
    let ramp = |shape: &[usize]| -> RusTorchResult<F32Tensor> {
        let n: usize = shape.iter().product();
        let values = (0..n).map(|i| (i % 17) as f32 / 16.0 - 0.5).collect();
        F32Tensor::from_vec(values, shape)
    };
    let images = ramp(&[2, 3, 16, 16])?;
    let convolved = images.conv2d(&ramp(&[8, 3, 5, 5])?, None, &ConvOptions::default())?;
    let features = convolved.relu()?.reshape([2, 8 * 12 * 12])?;
    let hidden = features.linear(&ramp(&[64, 8 * 12 * 12])?, None)?;
    let normed = hidden.layer_norm([64], None, None, 1e-5)?;
    normed.matmul(&ramp(&[64, 10])?)?.softmax(1)
}

fn expected() -> RusTorchResult<Vec<f32>> {
    with_runtime(&Runtime::new([processor()]), Routing::AUTO, || {
        network()?.to_vec()
    })
}

#[test]
fn operations_go_where_the_rules_say() -> Outcome {
    let executor = F32HybridExecutor::new(mac());
    let y = executor.run(network)?;
    let report = executor.execute(&[&y])?;
    let expected_places = [
        ("conv2d", COREML),
        ("relu", COREML),
        ("linear", METAL),
        ("layer_norm", CPU),
        // 640 elements.
        ("matmul", CPU),
        ("softmax", CPU),
    ];
    assert_eq!(places(&report), expected_places);
    assert_eq!(report.activity, Activity::default());
    assert!(
        report.to_string().contains("0 conversions, 0 copies"),
        "{report}"
    );
    assert_eq!(y.to_vec()?, expected()?);
    let selector = executor.selector();
    let rows = [
        (F32Operation::MatMul, &[100, 101][..], METAL),
        (F32Operation::MatMul, &[100, 100], CPU),
        (F32Operation::Conv2d, &[1, 3, 8, 8], COREML),
        (F32Operation::Activation, &[1], COREML),
        (F32Operation::Reduction, &[1 << 20], CPU),
        (F32Operation::Normalization, &[64, 64], CPU),
    ];
    for (operation, shape, device) in rows {
        assert_eq!(selector.select(operation, shape)?, device, "{operation:?}");
    }
    assert_eq!(
        selector.next(F32Operation::Activation, [1], COREML),
        Some(METAL)
    );
    assert_eq!(selector.next(F32Operation::Activation, [1], CPU), None);
    assert!(executor.execute(&[&y])?.operations.is_empty());
    Ok(())
}

#[test]
fn each_machine_runs_it_without_a_conversion_or_a_copy() -> Outcome {
    for (device, runtime) in machines() {
        let executor = F32HybridExecutor::new(runtime);
        let y = executor.run(network)?;
        let report = executor.execute(&[&y])?;
        for op in ["conv2d", "linear"] {
            assert!(places(&report).contains(&(op, device)), "{report}");
        }
        assert!(places(&report).contains(&("softmax", CPU)), "{report}");
        assert_eq!(report.activity, Activity::default(), "{device}");
        for (got, expected) in y.to_vec()?.iter().zip(expected()?) {
            assert!((got - expected).abs() < 1e-6, "{got} {expected}");
        }
    }
    Ok(())
}

#[test]
fn a_conversion_is_seen() -> Outcome {
    let executor = F32HybridExecutor::new(mac());
    let half = Tensor::from_slice(&[1.0f32], [1])?.to_dtype(DType::F16)?;
    let y = F32Tensor::try_from(half.to_dtype(DType::F32)?)?;
    let report = executor.execute(&[&y])?;
    assert_eq!(report.activity.conversions, 2);
    Ok(())
}

#[test]
fn a_converting_run_really_converts() -> Outcome {
    let runtime = mac();
    with_runtime(&runtime, Routing::F32_HYBRID, || -> Outcome {
        let x = Tensor::placeholder([64, 256], DType::F32)?;
        let weight = Tensor::full([256, 256], 1.0 / 3.0, DType::F32)?;
        // Metal, then the CPU, then Core ML.
        let y = x.matmul(weight.eval()?)?.softmax(1)?.relu()?;
        let trace = Trace::new(&[&x], &[&y])?;
        let input = Tensor::full([64, 256], 0.1, DType::F32)?.storage()?;
        let run = |trace: &Trace| -> RusTorchResult<(Vec<f32>, Activity)> {
            let before = Activity::of(&runtime);
            let y = trace.run(std::slice::from_ref(&input))?.remove(0);
            let activity = Activity::of(&runtime).since(before);
            Ok((
                Tensor::from_storage(y, [64, 256], DType::F32)?.to_vec()?,
                activity,
            ))
        };
        let converting = trace.converting(DType::F16)?;
        let (straight, none) = run(&trace)?;
        let (converted, some) = run(&converting)?;
        assert_eq!(none, Activity::default());
        let copied = Moved::default();
        assert_eq!(
            some,
            Activity {
                conversions: 4,
                copied
            }
        );
        for (a, b) in straight.iter().zip(converted) {
            assert!((a - b).abs() < 1e-4, "{a} {b}");
        }
        let bytes = |trace: &Trace| trace.executable().working_bytes();
        assert!(bytes(&converting) > bytes(&trace), "{:?}", bytes(&trace));
        assert!(error(trace.converting(DType::I32)).contains("floating-point"));
        Ok(())
    })
}
