//! The driver against whatever device there is. CI has PoCL, and sets `RUSTORCH_TEST_OPENCL=1`
//! so that a missing device is a failure there; elsewhere the tests are ignored.

use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustorch_gpu::{Driver, Launch};
use rustorch_opencl::{Buffer, Kernel, OpenCl};
use rustorch_runtime::{Deadline, FailureClass, HostBuffer};
use rustorch_testing::{Suite, tests};

const SOURCE: &str = "
    typedef struct { uint n; } Params;

    __kernel void twice(__global const float* a, __global float* b, Params p) {
        uint i = get_global_id(0);
        if (i < p.n) b[i] = 2.0f * a[i];
    }

    __kernel void add_one(__global float* b, Params p) {
        uint i = get_global_id(0);
        if (i < p.n) b[i] += 1.0f;
    }

    typedef struct { float factor; uint offset; uint n; } Three;

    __kernel void ramp(__global float* b, Three p) {
        uint i = get_global_id(0);
        if (i < p.n) b[i] = p.factor * (i + p.offset);
    }

    __kernel void when(__global volatile uint* told, __global const float* a, __global float* b) {
        while (told[0] == 0) {}
        b[0] = a[0];
    }

    __kernel void places(__global uint* b) {
        uint group = get_group_id(0)
            + get_num_groups(0) * (get_group_id(1) + get_num_groups(1) * get_group_id(2));
        b[group * get_local_size(0) + get_local_id(0)] = group * 1000 + get_local_id(0);
    }
";

const GROUP: u32 = 64;

fn binary(device: &OpenCl) -> &'static [u8] {
    static BINARY: OnceLock<Vec<u8>> = OnceLock::new();
    BINARY.get_or_init(|| device.compile(SOURCE).unwrap())
}

fn kernel(device: &OpenCl, name: &str) -> Kernel {
    device.load(binary(device), name).unwrap()
}

/// Launches over `lanes` work-items at least.
fn launch(device: &OpenCl, kernel: &Kernel, lanes: usize, buffers: &[&Buffer], params: &[u32]) {
    let launch = Launch {
        groups: [u32::try_from(lanes).unwrap().div_ceil(GROUP), 1, 1],
        group: GROUP,
        buffers,
        accesses: &[],
        tiles: &[],
        params,
        dynamic_local: 0,
        begins_early: false,
    };
    // SAFETY: the kernels above stay below their `n`, which is the buffers' length; nothing
    // else uses the buffers.
    unsafe { device.launch(kernel, &launch) }.unwrap();
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (chunks, _) = bytes.as_chunks();
    chunks
        .iter()
        .map(|&chunk| f32::from_ne_bytes(chunk))
        .collect()
}

fn read(device: &OpenCl, buffer: &Buffer, count: usize) -> Vec<f32> {
    let mut bytes = vec![0; 4 * count];
    // SAFETY: the tests make buffers of this size.
    unsafe { device.read(buffer, 0, &mut bytes) }.unwrap();
    floats(&bytes)
}

fn write(device: &OpenCl, buffer: &Buffer, values: &[f32]) {
    // SAFETY: the tests make buffers of this size, and nothing else uses them.
    unsafe { device.write(buffer, 0, &bytes_of(values)) }.unwrap();
}

/// Contents of the host's memory.
fn seen(host: &HostBuffer) -> Vec<f32> {
    // SAFETY: nothing writes to the memory meanwhile.
    floats(unsafe { std::slice::from_raw_parts(host.as_ptr(), host.bytes()) })
}

fn host_of(values: &[f32]) -> HostBuffer {
    HostBuffer::copy_of(&bytes_of(values)).unwrap()
}

fn counting(count: usize) -> Vec<f32> {
    (0..count).map(|i| i as f32).collect()
}

fn doubled(values: &[f32]) -> Vec<f32> {
    values.iter().map(|v| 2.0 * v).collect()
}

fn it_says_what_it_is(device: &OpenCl) {
    let (info, limits) = (device.info(), device.limits());
    assert_eq!(info.device.to_string(), "opencl:0");
    assert!(!info.name.is_empty());
    assert!(
        info.memory_bytes
            .is_some_and(|bytes| bytes >= limits.max_buffer)
    );
    assert!(limits.max_group >= 1 && limits.compute_units >= 1 && limits.local_bytes > 0);
    for key in [
        "platform",
        "language",
        "driver",
        "fp16",
        "fp64",
        "sub-groups",
    ] {
        let value = info.details.iter().find(|(k, _)| k == key);
        assert!(value.is_some_and(|(_, v)| !v.is_empty()), "{key}");
    }
}

fn compiled_loaded_launched_and_read(device: &OpenCl) {
    let values = counting(1000);
    let a = device.alloc(4000).unwrap();
    let b = device.alloc(4000).unwrap();
    write(device, &a, &values);
    launch(device, &kernel(device, "twice"), 1000, &[&a, &b], &[1000]);
    device.wait().unwrap();
    assert_eq!(read(device, &b, 1000), doubled(&values));
}

fn parts_are_read_and_written(device: &OpenCl) {
    let buffer = device.alloc(40).unwrap();
    write(device, &buffer, &counting(10));
    let mut part = [0; 8];
    // SAFETY: the ranges lie inside the buffer.
    unsafe {
        device.write(&buffer, 12, &bytes_of(&[30.0])).unwrap();
        device.read(&buffer, 8, &mut part).unwrap();
        device.read(&buffer, 40, &mut []).unwrap();
        device.write(&buffer, 40, &[]).unwrap();
    }
    assert_eq!(floats(&part), [2.0, 30.0]);
}

fn parameters_are_one_structure(device: &OpenCl) {
    let b = device.alloc(400).unwrap();
    let params = [0.5f32.to_bits(), 7, 100];
    launch(device, &kernel(device, "ramp"), 100, &[&b], &params);
    let expected: Vec<f32> = (0..100u16).map(|i| 0.5 * f32::from(i + 7)).collect();
    assert_eq!(read(device, &b, 100), expected);
}

fn groups_have_three_dimensions(device: &OpenCl) {
    let groups = [3, 4, 5];
    let count = (60 * GROUP) as usize;
    let b = device.alloc(4 * count).unwrap();
    let launch = Launch {
        groups,
        group: GROUP,
        buffers: &[&b],
        accesses: &[],
        tiles: &[],
        params: &[],
        dynamic_local: 0,
        begins_early: false,
    };
    // SAFETY: the kernel writes one word for each work-item.
    unsafe { device.launch(&kernel(device, "places"), &launch) }.unwrap();
    let words = read(device, &b, count).into_iter().map(f32::to_bits);
    assert!(
        (0..60)
            .flat_map(|g| (0..GROUP).map(move |l| g * 1000 + l))
            .eq(words)
    );
}

fn work_is_done_in_order(device: &OpenCl) {
    let add_one = kernel(device, "add_one");
    let b = device.alloc(4000).unwrap();
    write(device, &b, &counting(1000));
    for _ in 0..100 {
        launch(device, &add_one, 1000, &[&b], &[1000]);
    }
    let expected: Vec<f32> = (100..1100u16).map(f32::from).collect();
    assert_eq!(read(device, &b, 1000), expected);
}

fn a_source_with_a_mistake_is_unsupported(device: &OpenCl) {
    // Drivers that keep kernels themselves find it later.
    let compiled = device.compile("__kernel void f() { no_such_thing(); }");
    let loaded = compiled.and_then(|binary| device.load(&binary, "f"));
    let error = loaded.err().unwrap();
    assert_eq!(error.class, FailureClass::Unsupported, "{error}");
    assert!(error.message.contains("no_such_thing"), "{error}");
}

fn what_is_no_binary_is_unsupported(device: &OpenCl) {
    let cases: [&[u8]; 3] = [b"", b"garbage", &[0; 4096]];
    for garbage in cases {
        let error = device.load(garbage, "twice").err().unwrap();
        assert_eq!(error.class, FailureClass::Unsupported, "{error}");
    }
    for name in ["no_such_kernel", "", "with\0zero"] {
        let error = device.load(binary(device), name).err().unwrap();
        assert_eq!(error.class, FailureClass::Unsupported, "{error}");
    }
}

fn wrong_arguments_are_unsupported(device: &OpenCl) {
    let b = device.alloc(64).unwrap();
    let too_large = u32::try_from(device.limits().max_group).unwrap() + 1;
    for (group, buffers, params) in [
        (GROUP, &[&b, &b] as &[&Buffer], &[0u32] as &[u32]),
        (GROUP, &[&b], &[]),
        (GROUP, &[], &[0]),
        (too_large, &[&b], &[0]),
    ] {
        let launch = Launch {
            groups: [1, 1, 1],
            group,
            buffers,
            accesses: &[],
            tiles: &[],
            params,
            dynamic_local: 0,
            begins_early: false,
        };
        // SAFETY: nothing is written, with an `n` of 0.
        let error = unsafe { device.launch(&kernel(device, "add_one"), &launch) }.unwrap_err();
        assert_eq!(error.class, FailureClass::Unsupported, "{error}");
    }
}

fn host_memory_is_used_in_place(device: &OpenCl) {
    let host = host_of(&counting(20_000));
    let Some(buffer) = device.share(&host).unwrap() else {
        assert!(!device.info().shares_host_memory);
        return;
    };
    let add_one = kernel(device, "add_one");
    launch(device, &add_one, 20_000, &[&buffer], &[20_000]);
    // The host sees what the device wrote,
    let back = device.host(&buffer).unwrap().unwrap();
    assert!(back.same_memory(&host));
    assert_eq!(seen(&host)[..3], [1.0, 2.0, 3.0]);
    // the device what the host wrote,
    // SAFETY: the buffer is the host's until the next launch.
    unsafe { host.as_ptr().cast::<f32>().write(70.0) };
    launch(device, &add_one, 20_000, &[&buffer], &[20_000]);
    assert_eq!(read(device, &buffer, 3), [71.0, 3.0, 4.0]);
    // and the host what was copied to the device.
    write(device, &buffer, &[5.0]);
    device.host(&buffer).unwrap();
    assert_eq!(seen(&host)[..3], [5.0, 3.0, 4.0]);
}

fn memory_of_its_own_is_seen_by_the_host(device: &OpenCl) {
    let buffer = device.alloc(4000).unwrap();
    let params = [1f32.to_bits(), 0, 1000];
    launch(device, &kernel(device, "ramp"), 1000, &[&buffer], &params);
    match device.host(&buffer).unwrap() {
        Some(host) => assert_eq!(seen(host), counting(1000)),
        None => assert!(!device.info().shares_host_memory),
    }
}

fn borrowed_memory_is_read_by_both_sides(device: &OpenCl) {
    let values = counting(5000);
    let host = HostBuffer::borrowed(bytes_of(&values));
    let Some(a) = device.share(&host).unwrap() else {
        return;
    };
    let b = device.alloc(20_000).unwrap();
    let twice = kernel(device, "twice");
    for _ in 0..2 {
        assert!(device.host(&a).unwrap().unwrap().same_memory(&host));
        launch(device, &twice, 5000, &[&a, &b], &[5000]);
        assert_eq!(seen(&host), values);
        assert_eq!(read(device, &b, 5000), doubled(&values));
    }
}

fn misaligned_memory_is_not_shared(device: &OpenCl) {
    struct Shifted(Vec<u8>);
    impl AsRef<[u8]> for Shifted {
        fn as_ref(&self) -> &[u8] {
            &self.0[1..]
        }
    }
    let host = HostBuffer::borrowed(Shifted(vec![0; 4097]));
    assert!(device.share(&host).unwrap().is_none());
}

fn empty_memory_works(device: &OpenCl) {
    let hosts = [HostBuffer::uninit(0).unwrap(), HostBuffer::borrowed([])];
    let shared = hosts.iter().filter_map(|host| device.share(host).unwrap());
    let add_one = kernel(device, "add_one");
    for empty in shared.chain([device.alloc(0).unwrap()]) {
        launch(device, &add_one, 1, &[&empty], &[0]);
        if let Some(host) = device.host(&empty).unwrap() {
            assert_eq!(host.bytes(), 0);
        }
        assert!(read(device, &empty, 0).is_empty());
    }
    device.wait().unwrap();
}

fn what_is_too_large_never_fits(device: &OpenCl) {
    let too_large = usize::try_from(device.limits().max_buffer).unwrap() + 1;
    for bytes in [too_large, usize::MAX] {
        let error = device.alloc(bytes).unwrap_err();
        let class = FailureClass::OutOfMemory { never_fits: true };
        assert_eq!(error.class, class, "{error}");
    }
}

/// Memory that is overwritten when it is given back.
struct Spoiled {
    bytes: Vec<u8>,
    gone: &'static AtomicBool,
}

impl AsRef<[u8]> for Spoiled {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Spoiled {
    fn drop(&mut self) {
        self.bytes.fill(0xff);
        self.gone.store(true, Ordering::Release);
    }
}

fn memory_outlives_the_work_that_was_queued(device: &OpenCl) {
    static GONE: AtomicBool = AtomicBool::new(false);
    const COUNT: usize = 1 << 18;
    let values = counting(COUNT);
    let bytes = bytes_of(&values);
    let host = HostBuffer::borrowed(Spoiled { bytes, gone: &GONE });
    let Some(a) = device.share(&host).unwrap() else {
        return;
    };
    drop(host);
    let (b, slow) = (
        device.alloc(4 * COUNT).unwrap(),
        device.alloc(4 * COUNT).unwrap(),
    );
    write(device, &slow, &values);
    let (twice, add_one) = (kernel(device, "twice"), kernel(device, "add_one"));
    let n = u32::try_from(COUNT).unwrap();
    for _ in 0..50 {
        launch(device, &add_one, COUNT, &[&slow], &[n]);
    }
    launch(device, &twice, COUNT, &[&a, &b], &[n]);
    drop(a);
    assert_eq!(read(device, &b, COUNT), doubled(&values));
    // Nothing holds the memory now; the driver may need a moment to say so.
    assert!(sleep_until(|| GONE.load(Ordering::Acquire)));
}

/// Sleeps until it is so, or for ten seconds.
fn sleep_until(is_so: impl Fn() -> bool) -> bool {
    let nap = |_| thread::sleep(Duration::from_millis(10));
    (0..1000).take_while(|_| !is_so()).for_each(nap);
    is_so()
}

/// A kernel that goes on until the host tells it something, and then writes.
fn a_kernel_that_hangs_harms_nobody_when_it_ends(_: &OpenCl) {
    static GONE: AtomicBool = AtomicBool::new(false);
    let device = rustorch_opencl::devices().unwrap().remove(0);
    let (told, result) = (host_of(&[1.0]), host_of(&[0.0]));
    let bytes = bytes_of(&[7.0]);
    let lent = HostBuffer::borrowed(Spoiled { bytes, gone: &GONE });
    let shared = [&told, &lent, &result].map(|host| device.share(host).unwrap());
    let [Some(flag), Some(a), Some(b)] = shared else {
        return;
    };
    let when = kernel(&device, "when");
    let go = |device: &OpenCl| {
        let launch = Launch {
            groups: [1, 1, 1],
            group: 1,
            buffers: &[&flag, &a, &b],
            accesses: &[],
            tiles: &[],
            params: &[],
            dynamic_local: 0,
            begins_early: false,
        };
        // SAFETY: the kernel uses one word of each.
        unsafe { device.launch(&when, &launch) }.unwrap();
        device.wait()
    };
    // Now it is compiled, too.
    go(&device).unwrap();
    write(&device, &b, &[0.0]);
    write(&device, &flag, &[0.0]);
    device.set_deadline(Deadline::after(Duration::from_millis(50)));
    let error = go(&device).unwrap_err();
    assert_eq!(error.class, FailureClass::Timeout, "{error}");
    assert_eq!(device.alloc(4).unwrap_err(), error);
    drop((flag, a, b, when, lent, device));
    assert!(!GONE.load(Ordering::Acquire), "the kernel still reads it");
    // SAFETY: the memory is alive, and the device sees what is written to it.
    unsafe { told.as_ptr().cast::<u32>().write_volatile(1) };
    assert!(sleep_until(|| seen(&result) == [7.0]));
    assert!(!GONE.load(Ordering::Acquire));
}

fn threads_launch_at_once(device: &OpenCl) {
    let (twice, add_one) = (kernel(device, "twice"), kernel(device, "add_one"));
    let weights = host_of(&counting(3000));
    let weights = device.share(&weights).unwrap().unwrap_or_else(|| {
        let copy = device.alloc(12_000).unwrap();
        write(device, &copy, &counting(3000));
        copy
    });
    thread::scope(|scope| {
        for thread in 1..=8u16 {
            let (twice, add_one, weights) = (&twice, &add_one, &weights);
            scope.spawn(move || {
                let count = 300 * usize::from(thread);
                let n = u32::from(thread) * 300;
                let b = device.alloc(4 * count).unwrap();
                for round in 1..=20u16 {
                    launch(device, twice, count, &[weights, &b], &[n]);
                    for _ in 0..round {
                        launch(device, add_one, count, &[&b], &[n]);
                    }
                    let expected = (0..count).map(|i| 2.0 * i as f32 + f32::from(round));
                    assert!(expected.eq(read(device, &b, count)), "thread {thread}");
                }
            });
        }
    });
}

fn main() -> ExitCode {
    let devices = rustorch_opencl::devices();
    let device = devices.map(|mut devices| devices.remove(0));
    let tests = tests![
        it_says_what_it_is,
        compiled_loaded_launched_and_read,
        parts_are_read_and_written,
        parameters_are_one_structure,
        groups_have_three_dimensions,
        work_is_done_in_order,
        a_source_with_a_mistake_is_unsupported,
        what_is_no_binary_is_unsupported,
        wrong_arguments_are_unsupported,
        host_memory_is_used_in_place,
        memory_of_its_own_is_seen_by_the_host,
        borrowed_memory_is_read_by_both_sides,
        misaligned_memory_is_not_shared,
        empty_memory_works,
        what_is_too_large_never_fits,
        memory_outlives_the_work_that_was_queued,
        a_kernel_that_hangs_harms_nobody_when_it_ends,
        threads_launch_at_once,
    ];
    Suite::new().on(device, "RUSTORCH_TEST_OPENCL", tests).run()
}
