//! A device that hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustorch_cpu::Cpu;
use rustorch_gpu::{Driver, Gpu};
use rustorch_ir::ops::{Unary, UnaryOp};
use rustorch_ir::{DType, Graph, TensorType};
use rustorch_metal::Metal;
use rustorch_runtime::{
    Backend, Deadline, DeviceType, FailureClass, HostBuffer, Routing, Runtime, Storage,
};

use crate::fake::Fake;
use crate::{add_one, buffer, class_of, driver, kernel, read};

const SOON: Duration = Duration::from_millis(50);

/// Memory that says when it is given back.
struct Lent(Vec<u128>, &'static AtomicBool);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        let words = &self.0[..];
        // SAFETY: any initialised memory is bytes.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Release);
    }
}

#[test]
fn what_a_command_buffer_that_hangs_uses_is_kept() {
    static IS_GONE: AtomicBool = AtomicBool::new(false);
    let (fake, metal) = driver();
    let kernel = kernel(&metal);
    let (host, result) = (
        HostBuffer::borrowed(Lent(vec![41], &IS_GONE)),
        HostBuffer::zeroed(4).unwrap(),
    );
    let a = metal.share(&host).unwrap().unwrap();
    let (b, other) = (metal.share(&result).unwrap().unwrap(), buffer(&metal, 4, 7));
    add_one(&metal, &kernel, &a, &b).unwrap();
    fake.script().hangs = true;
    let error = metal.wait().unwrap_err();
    assert_eq!(error.class, FailureClass::Timeout, "{error}");
    for part in ["command buffer", "300s", "RUSTORCH_DEVICE_TIMEOUT"] {
        assert!(error.message.contains(part), "{error}");
    }
    for class in [
        class_of(metal.alloc(4)),
        class_of(metal.share(&host)),
        class_of(read(&metal, &b)),
        class_of(read(&metal, &other)),
        class_of(metal.load(b"1024", "f")),
        class_of(add_one(&metal, &kernel, &a, &b)),
        class_of(metal.wait()),
    ] {
        assert_eq!(class, FailureClass::Timeout);
    }
    drop((a, b, other, host, metal));
    // The two that it uses are there, and the memory that they are in.
    assert_eq!(fake.script().live_buffers, 2);
    assert!(!IS_GONE.load(Ordering::Acquire));
    fake.go_on();
    let mut word = [0; 4];
    // SAFETY: nothing writes to it any more.
    unsafe { rustorch_runtime::DeviceBuffer::read(&result, 0, &mut word) }.unwrap();
    assert_eq!(u32::from_ne_bytes(word), 42);
}

#[test]
fn a_read_that_never_returns() {
    let (fake, metal) = driver();
    let kernel = kernel(&metal);
    let (a, b) = (buffer(&metal, 4, 1), buffer(&metal, 4, 0));
    add_one(&metal, &kernel, &a, &b).unwrap();
    fake.script().hangs = true;
    assert_eq!(class_of(read(&metal, &b)), FailureClass::Timeout);
    fake.go_on();
}

#[test]
fn a_compilation_that_never_returns() {
    let (fake, metal) = driver();
    metal.set_deadline(Deadline::after(SOON));
    fake.script().compiler_hangs = true;
    let error = metal.load(b"1024", "f").err().unwrap();
    assert_eq!(error.class, FailureClass::Timeout, "{error}");
    assert!(
        error
            .message
            .contains("compiler: nothing was done for 50ms")
    );
    fake.go_on();
    assert_eq!(class_of(metal.load(b"1024", "f")), FailureClass::Timeout);
}

/// `−x` on a device, or on what comes after it.
fn negated(runtime: &Runtime, device: DeviceType) -> Vec<u8> {
    const COUNT: usize = 100;
    let mut graph = Graph::new();
    let x = graph.input(TensorType::new([COUNT], DType::F32)).unwrap();
    let y = graph.push(Unary { op: UnaryOp::Neg }, &[x]).unwrap();
    graph.output(y);
    let values = (0..COUNT).flat_map(|i| (i as f32).to_ne_bytes());
    let input = HostBuffer::copy_of(&values.collect::<Vec<u8>>()).unwrap();
    let routing = Routing {
        device,
        ..Routing::AUTO
    };
    let outputs = runtime.run(&graph, &[Storage::from_host(input)], routing);
    let mut bytes = vec![0; 4 * COUNT];
    runtime.read(&outputs.unwrap()[0], 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn the_work_goes_on_elsewhere() {
    let cpu = || Arc::new(Cpu::new(1)) as Arc<dyn Backend>;
    let expected = negated(&Runtime::new([cpu()]), DeviceType::Cpu);
    for (hangs, compiler_hangs) in [(true, false), (false, true)] {
        let fake = Fake::new();
        fake.script().takes_any_source = true;
        (fake.script().hangs, fake.script().compiler_hangs) = (hangs, compiler_hangs);
        let metal = Metal::new(fake.clone(), 0);
        metal.set_deadline(Deadline::after(SOON));
        let runtime = Runtime::new([Arc::new(Gpu::new(metal)) as Arc<dyn Backend>, cpu()]);
        let device = DeviceType::Metal(0);
        assert_eq!(negated(&runtime, device), expected);
        assert_eq!(negated(&runtime, device), expected);
        let fallbacks = runtime.fallbacks();
        assert_eq!(fallbacks.len(), 1, "{fallbacks:?}");
        assert_eq!(fallbacks[0].error.class, FailureClass::Timeout);
        assert_eq!(fallbacks[0].to, Some(DeviceType::Cpu));
        assert!(runtime.is_lost(device));
        drop(runtime);
        fake.go_on();
    }
}
