//! A device that hangs: by a driver that is made for these tests, in processes of their own.

#![cfg(target_os = "linux")]

mod fake;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libloading::Library;
use rustorch_cpu::Cpu;
use rustorch_gpu::{Driver, Gpu};
use rustorch_ir::ops::{Unary, UnaryOp};
use rustorch_ir::{DType, Graph, TensorType};
use rustorch_opencl::OpenCl;
use rustorch_runtime::{
    Backend, Deadline, DeviceError, DeviceType, FailureClass, HostBuffer, Routing, Runtime, Storage,
};

/// A test by this name in a process in which this call of the driver hangs.
fn hanging(test: &str, call: &str) {
    fake::apart(test, &[("FAKE_HANG", call)]);
}

const SOON: Duration = Duration::from_millis(50);

fn device() -> OpenCl {
    let device = rustorch_opencl::devices().unwrap().remove(0);
    device.set_deadline(Deadline::after(SOON));
    device
}

/// The driver itself: ends what hangs, and counts what was released.
struct Control(Library);

impl Control {
    fn new() -> Self {
        // SAFETY: it is loaded already.
        Self(unsafe { Library::new("libOpenCL.so.1") }.unwrap())
    }

    fn release(&self) {
        // SAFETY: the type is that of the function.
        unsafe { self.0.get::<extern "C" fn()>(b"fake_release").unwrap()() }
    }

    fn releases(&self) -> u32 {
        // SAFETY: as above.
        unsafe {
            self.0
                .get::<extern "C" fn() -> u32>(b"fake_releases")
                .unwrap()()
        }
    }
}

const COUNT: usize = 100;

/// `exp(−x)`, of which the processor computes the last part.
fn graph() -> Graph {
    let mut graph = Graph::new();
    let x = graph.input(TensorType::new([COUNT], DType::F32)).unwrap();
    let y = graph.push(Unary { op: UnaryOp::Neg }, &[x]).unwrap();
    let z = graph.push(Unary { op: UnaryOp::Exp }, &[y]).unwrap();
    graph.pin(z, Some(DeviceType::Cpu));
    graph.output(z);
    graph
}

fn input() -> Storage {
    let values = (0..COUNT).flat_map(|i| (i as f32 / 10.0).to_ne_bytes());
    Storage::from_host(HostBuffer::copy_of(&values.collect::<Vec<u8>>()).unwrap())
}

fn run(runtime: &Runtime, device: DeviceType) -> Vec<u8> {
    let routing = Routing {
        device,
        ..Routing::AUTO
    };
    let outputs = runtime.run(&graph(), &[input()], routing).unwrap();
    let mut bytes = vec![0; 4 * COUNT];
    runtime.read(&outputs[0], 0, &mut bytes).unwrap();
    bytes
}

/// A run on the device gives what the processor alone gives, for a failure of class `timeout` in
/// `call`; then the device is left alone.
fn goes_on_elsewhere(call: &str) {
    let cpu = || Arc::new(Cpu::new(1)) as Arc<dyn Backend>;
    let expected = run(&Runtime::new([cpu()]), DeviceType::Cpu);
    let runtime = Runtime::new([Arc::new(Gpu::new(device())) as Arc<dyn Backend>, cpu()]);
    let name = DeviceType::OpenCL(0);
    assert_eq!(run(&runtime, name), expected);
    let control = Control::new();
    let before = control.releases();
    assert_eq!(run(&runtime, name), expected);
    let fallbacks = runtime.fallbacks();
    let [fallback] = &fallbacks[..] else {
        panic!("{fallbacks:?}");
    };
    let error = &fallback.error;
    assert_eq!((error.device, error.class), (name, FailureClass::Timeout));
    for part in [call, "nothing was done for 50ms", "RUSTORCH_DEVICE_TIMEOUT"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(runtime.is_lost(name));
    assert_eq!(
        runtime.memory().faults().to_string(),
        "opencl:0: timeout × 1"
    );
    // A call that ends too late still finds all its objects.
    control.release();
    drop(runtime);
    assert_eq!(control.releases(), before);
}

#[test]
#[ignore = "run by others, in a process of its own"]
fn hung_marker() {
    goes_on_elsewhere("clEnqueueMarker");
}

#[test]
fn a_wait_that_never_returns() {
    hanging("hung_marker", "marker");
}

#[test]
#[ignore = "run by others, in a process of its own"]
fn hung_build() {
    goes_on_elsewhere("clBuildProgram");
}

#[test]
fn a_compilation_that_never_returns() {
    hanging("hung_build", "build");
}

#[test]
#[ignore = "run by others, in a process of its own"]
fn hung_intermediate() {
    goes_on_elsewhere("clEnqueueReadBuffer");
}

#[test]
fn an_intermediate_result_that_never_comes() {
    hanging("hung_intermediate", "read");
}

#[test]
#[ignore = "run by others, in a process of its own"]
fn hung_operand() {
    goes_on_elsewhere("clEnqueueWriteBuffer");
}

#[test]
fn an_operand_that_never_arrives() {
    hanging("hung_operand", "write");
}

fn class_of<T>(result: Result<T, DeviceError>) -> FailureClass {
    result.err().expect("a failure").class
}

#[test]
#[ignore = "run by others, in a process of its own"]
fn hung_read() {
    let device = device();
    let buffer = device.alloc(COUNT).unwrap();
    // SAFETY: the buffer has these bytes, and nothing else uses it.
    unsafe { device.write(&buffer, 0, &[3; COUNT]) }.unwrap();
    let mut to = [7; COUNT];
    // SAFETY: as above.
    let read = unsafe { device.read(&buffer, 0, &mut to) };
    assert_eq!(class_of(read), FailureClass::Timeout);
    let host = HostBuffer::zeroed(COUNT).unwrap();
    let again = [
        class_of(device.alloc(4)),
        class_of(device.compile("")),
        class_of(device.load(b"void f(int a)", "f")),
        class_of(device.wait()),
        // SAFETY: as above.
        class_of(unsafe { device.write(&buffer, 0, &[4]) }),
        // SAFETY: as above.
        class_of(unsafe { device.upload(&buffer, &host) }),
    ];
    assert_eq!(again, [FailureClass::Timeout; 6]);
    // The caller's memory is his again: the copy that comes late goes elsewhere.
    Control::new().release();
    assert_eq!(to, [7; COUNT]);
}

#[test]
fn a_read_that_never_returns() {
    hanging("hung_read", "read");
}

/// Memory that says when it is given back.
struct Lent(Vec<u8>, &'static AtomicBool);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Release);
    }
}

#[test]
#[ignore = "run by others, in a process of its own"]
fn hung_upload() {
    static IS_GONE: AtomicBool = AtomicBool::new(false);
    let gpu = Gpu::new(device());
    let host = HostBuffer::borrowed(Lent(vec![5; COUNT], &IS_GONE));
    assert_eq!(class_of(gpu.memory().adopt(&host)), FailureClass::Timeout);
    drop((host, gpu));
    Control::new().release();
    assert!(!IS_GONE.load(Ordering::Acquire));
}

#[test]
fn what_is_uploaded_is_kept_for_a_device_that_hangs() {
    hanging("hung_upload", "write");
}

#[test]
#[ignore = "run by others, in a process of its own"]
fn sound() {
    let device = device();
    device.set_deadline(Deadline::of_environment().unwrap());
    let buffer = device.alloc(COUNT).unwrap();
    let mut to = [0; COUNT];
    // SAFETY: the buffer has these bytes, and nothing else uses it.
    unsafe {
        device.write(&buffer, 0, &[3; COUNT]).unwrap();
        device.read(&buffer, 0, &mut to).unwrap();
    }
    assert_eq!(to, [3; COUNT]);
    device.wait().unwrap();
    drop((buffer, device));
    // The events of three calls, the buffer, the queue and its context.
    assert_eq!(Control::new().releases(), 6);
}

#[test]
fn what_does_not_hang_is_released_with_a_limit_and_without() {
    for limit in ["", "1000", "none"] {
        fake::apart("sound", &[("RUSTORCH_DEVICE_TIMEOUT", limit)]);
    }
}
