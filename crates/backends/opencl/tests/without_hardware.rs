//! Drivers' figures of memory, limits and times, and their use. A driver made for these tests reports
//! them, in processes of their own.

#![cfg(target_os = "linux")]

mod fake;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustorch_gpu::{Driver, Gpu};
use rustorch_ir::ops::{Unary, UnaryOp};
use rustorch_ir::{DType, Graph, TensorType};
use rustorch_runtime::{
    Backend, DeviceType, Event, HostBuffer, Observer, Routing, Runtime, Storage,
};

const MEMORY: &str = "FAKE_101f";
const BUFFER: &str = "FAKE_1010";
const EXTENSIONS: (&str, &str) = ("FAKE_1030", "cl_khr_fp16 cl_amd_device_attribute_query");
const FREE_KIB: &str = "FAKE_4039";

/// Output of [`list_device`] behind `= `, with these answers.
fn told(answers: &[(&str, &str)]) -> String {
    let out = fake::apart("list_device", answers);
    let line = out.lines().find_map(|line| line.split_once("= "));
    line.expect("a line of the device").1.to_owned()
}

#[test]
#[ignore = "run by others, in a process of its own"]
fn list_device() {
    let device = rustorch_opencl::devices().unwrap().remove(0);
    let (limits, told) = (*device.limits(), device.free_memory());
    let backend = Gpu::new(device);
    assert_eq!(backend.info().memory_bytes, Some(limits.memory));
    let pools = Runtime::new([Arc::new(backend) as _]).memory().pools();
    let mib = |bytes: u64| bytes >> 20;
    println!(
        "= told {:?}, free {:?} of {}, buffers {}, groups {}, units {}, local {}",
        told.map(mib),
        pools[0].free.map(mib),
        mib(limits.memory),
        mib(limits.max_buffer),
        limits.max_group,
        limits.compute_units,
        limits.local_bytes >> 10,
    );
}

const REST: &str = "buffers 1024, groups 256, units 32, local 64";

#[test]
fn what_other_programs_hold_counts_where_the_driver_tells() {
    let free = told(&[EXTENSIONS, (FREE_KIB, "512000")]);
    assert_eq!(
        free,
        format!("told Some(500), free Some(500) of 4096, {REST}")
    );
    // Without the extension the question is not asked, and without an answer it is none.
    let unknown = format!("told None, free Some(4096) of 4096, {REST}");
    assert_eq!(told(&[(FREE_KIB, "512000")]), unknown);
    assert_eq!(told(&[EXTENSIONS]), unknown);
}

#[test]
fn free_memory_that_cannot_be_is_not_believed() {
    for nonsense in ["0", "4194305", "18446744073709551615"] {
        let line = told(&[EXTENSIONS, (FREE_KIB, nonsense)]);
        assert!(
            line.contains("free Some(4096) of 4096"),
            "{nonsense}: {line}"
        );
    }
}

#[test]
fn limits_that_cannot_be_are_replaced() {
    for nonsense in ["0", "18446744073709551615"] {
        let line = told(&[
            (MEMORY, nonsense),
            (BUFFER, nonsense),
            ("FAKE_1002", nonsense),
            ("FAKE_1023", nonsense),
        ]);
        let safe = "free Some(512) of 512, buffers 128, groups 256, units 8, local 32";
        assert!(line.ends_with(safe), "{nonsense}: {line}");
    }
    let line = told(&[("FAKE_1004", "0")]);
    assert!(line.contains("groups 64"), "{line}");
}

/// The launches that are told of, with their times.
#[derive(Default)]
struct Seen(Mutex<Vec<(String, Duration)>>);

impl Observer for Seen {
    fn saw(&self, event: Event<'_>) {
        if let Event::Launched(launched) = event {
            let seen = launched.iter();
            let seen = seen.map(|(launch, _, time)| (launch.name.to_string(), time));
            self.0.lock().unwrap().extend(seen);
        }
    }
}

/// A launch that is looked at.
#[test]
#[ignore = "run by others, in a process of its own"]
fn look_at_launches() {
    let mut graph = Graph::new();
    let x = graph.input(TensorType::new([4, 4], DType::F32)).unwrap();
    let y = graph.push(Unary { op: UnaryOp::Neg }, &[x]).unwrap();
    graph.output(y);
    let device = rustorch_opencl::devices().unwrap().remove(0);
    let runtime = Runtime::new([Arc::new(Gpu::new(device)) as _]);
    let seen = Arc::new(Seen::default());
    runtime.add_observer(seen.clone());
    let routing = Routing {
        device: DeviceType::OpenCL(0),
        strict: true,
        ..Routing::AUTO
    };
    let input = Storage::from_host(HostBuffer::zeroed(4 * 16).unwrap());
    runtime.run(&graph, &[input], routing).unwrap();
    assert!(runtime.fallbacks().is_empty());
    for (name, time) in seen.0.lock().unwrap().iter() {
        println!("= {name} {}", *time == Duration::from_micros(1));
    }
}

#[test]
fn a_driver_that_tells_no_times_has_segments_timed() {
    let launches = |answers: &[(&str, &str)]| {
        let out = fake::apart("look_at_launches", answers);
        let told = out.lines().filter_map(|line| line.split_once("= "));
        told.map(|(_, launch)| launch.to_owned())
            .collect::<Vec<_>>()
    };
    // The driver's times are microseconds.
    assert_eq!(launches(&[]), ["neg true"]);
    for what in ["queue", "event"] {
        assert_eq!(launches(&[("FAKE_UNTIMED", what)]), ["neg false"], "{what}");
    }
}
