//! The driver against a fake of Metal, which notes the calls.

mod fake;
mod hanging;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustorch_gpu::{Access, Driver, Gpu, Launch};
use rustorch_metal::{Api, Buffer, Kernel, Metal, backends};
use rustorch_runtime::{Backend, DeviceError, FailureClass, HostBuffer, SystemMemory};

use fake::Event::{Barrier, Commit, Dispatch, Wait};
use fake::{Fake, PAGE};

const OUT_OF_MEMORY: FailureClass = FailureClass::OutOfMemory { never_fits: false };

fn driver() -> (Fake, Metal<Fake>) {
    let fake = Fake::new();
    (fake.clone(), Metal::new(fake, 0))
}

fn kernel(metal: &Metal<Fake>) -> Kernel<Fake> {
    metal
        .load(&metal.compile("1024").unwrap(), "add_one")
        .unwrap()
}

/// A buffer of `bytes` whose first word is `word`.
fn buffer(metal: &Metal<Fake>, bytes: usize, word: u32) -> Buffer<Fake> {
    let buffer = metal.alloc(bytes).unwrap();
    // SAFETY: nothing else uses the new buffer.
    unsafe { metal.write(&buffer, 0, &word.to_ne_bytes()) }.unwrap();
    buffer
}

fn read(metal: &Metal<Fake>, buffer: &Buffer<Fake>) -> Result<u32, DeviceError> {
    let mut word = [0; 4];
    // SAFETY: buffers have a word at least.
    unsafe { metal.read(buffer, 0, &mut word) }?;
    Ok(u32::from_ne_bytes(word))
}

/// Access to operands and results.
const READS: Access = Access {
    start: 0,
    end: usize::MAX,
    is_written: false,
};
const WRITES: Access = Access {
    is_written: true,
    ..READS
};

fn launch_as(
    metal: &Metal<Fake>,
    kernel: &Kernel<Fake>,
    group: u32,
    buffers: &[&Buffer<Fake>],
    accesses: &[Access],
    params: &[u32],
) -> Result<(), DeviceError> {
    let launch = Launch {
        groups: [1, 1, 1],
        group,
        buffers,
        accesses,
        tiles: &[],
        params,
        dynamic_local: 0,
        begins_early: false,
    };
    // SAFETY: the fake's kernels use one word of each buffer; nothing else does.
    unsafe { metal.launch(kernel, &launch) }
}

/// `to = from + 1`.
fn add_one(
    metal: &Metal<Fake>,
    kernel: &Kernel<Fake>,
    from: &Buffer<Fake>,
    to: &Buffer<Fake>,
) -> Result<(), DeviceError> {
    launch_as(metal, kernel, 32, &[from, to], &[READS, WRITES], &[])
}

fn class_of<T>(result: Result<T, DeviceError>) -> FailureClass {
    result.err().expect("a failure").class
}

#[test]
fn a_launch_runs_when_it_is_waited_for() {
    let (fake, metal) = driver();
    let kernel = kernel(&metal);
    let (a, b) = (buffer(&metal, 4, 41), buffer(&metal, 4, 0));
    launch_as(&metal, &kernel, 32, &[&a, &b], &[READS, WRITES], &[7, 8]).unwrap();
    assert_eq!(fake.events(), [Dispatch]);
    assert_eq!(fake.script().params, [7, 8]);
    assert_eq!(read(&metal, &b).unwrap(), 42);
    assert_eq!(fake.events(), [Commit(1), Wait]);
    // Nothing is left to be waited for.
    assert_eq!(read(&metal, &b).unwrap(), 42);
    metal.wait().unwrap();
    assert_eq!(fake.events(), []);
}

#[test]
fn what_no_launch_uses_is_not_waited_for() {
    let (fake, metal) = driver();
    let kernel = kernel(&metal);
    let (a, b) = (buffer(&metal, 4, 1), buffer(&metal, 4, 2));
    let other = buffer(&metal, 4, 3);
    add_one(&metal, &kernel, &a, &b).unwrap();
    assert_eq!(read(&metal, &other).unwrap(), 3);
    metal.host(&other).unwrap();
    assert_eq!(fake.events(), [Dispatch]);
    // A buffer that kernels only read is waited for as well: the host may write to it then.
    metal.host(&a).unwrap();
    assert_eq!(fake.events(), [Commit(1), Wait]);
}

#[test]
fn barriers_are_between_launches_that_depend_on_each_other() {
    let (fake, metal) = driver();
    let kernel = kernel(&metal);
    let [a, b, c, d] = [1, 0, 0, 0].map(|word| buffer(&metal, 4, word));
    let chain = [(&a, &b), (&a, &c), (&b, &d), (&c, &d)];
    for (from, to) in chain {
        add_one(&metal, &kernel, from, to).unwrap();
    }
    let expected = [Dispatch, Dispatch, Barrier, Dispatch, Barrier, Dispatch];
    assert_eq!(fake.events(), expected);
    // A command buffer begins without.
    metal.wait().unwrap();
    add_one(&metal, &kernel, &d, &a).unwrap();
    assert_eq!(fake.events(), [Commit(4), Wait, Dispatch]);
}

#[test]
fn parts_of_a_buffer_are_apart_and_the_same_memory_is_the_same() {
    let (fake, metal) = driver();
    let kernel = kernel(&metal);
    let arena = buffer(&metal, 1024, 0);
    let part = |start: usize, is_written| Access {
        start,
        end: start + 64,
        is_written,
    };
    for (from, to) in [(0, 64), (128, 192), (64, 256)] {
        let accesses = [part(from, false), part(to, true)];
        launch_as(&metal, &kernel, 32, &[&arena, &arena], &accesses, &[]).unwrap();
    }
    assert_eq!(fake.events(), [Dispatch, Dispatch, Barrier, Dispatch]);
    metal.wait().unwrap();
    fake.events();

    let host = HostBuffer::zeroed(256).unwrap();
    let (one, two) = (metal.share(&host).unwrap(), metal.share(&host).unwrap());
    let (one, two) = (one.unwrap(), two.unwrap());
    add_one(&metal, &kernel, &arena, &one).unwrap();
    add_one(&metal, &kernel, &two, &arena).unwrap();
    assert_eq!(fake.events(), [Dispatch, Barrier, Dispatch]);
}

#[test]
fn host_memory_is_used_in_place_from_any_aligned_byte() {
    struct From(Vec<u8>, usize);
    impl AsRef<[u8]> for From {
        fn as_ref(&self) -> &[u8] {
            &self.0[self.1..]
        }
    }
    let (fake, metal) = driver();
    let kernel = kernel(&metal);
    let file = vec![0; 4 * PAGE];
    let first = file.as_ptr().addr();
    // The memory is like a part of a mapped file, 32 bytes into a page.
    let at = first.next_multiple_of(PAGE) - first + 32;
    let host = HostBuffer::borrowed(From(file, at));
    let a = metal.share(&host).unwrap().unwrap();
    let b = buffer(&metal, 4, 5);
    add_one(&metal, &kernel, &a, &b).unwrap();
    assert_eq!(fake.script().bound[0], 32);
    assert_eq!(read(&metal, &b).unwrap(), 1);
    assert!(metal.host(&a).unwrap().unwrap().same_memory(&host));

    for misaligned in [1, 2, 4, 8] {
        let file = vec![0; 1000];
        let start = 16 - file.as_ptr().addr() % 16 + misaligned;
        let host = HostBuffer::borrowed(From(file, start));
        assert!(metal.share(&host).unwrap().is_none(), "{misaligned}");
    }
}

#[test]
fn empty_memory_works() {
    let (_, metal) = driver();
    let kernel = kernel(&metal);
    let empty = metal.share(&HostBuffer::borrowed([])).unwrap().unwrap();
    let none = metal.alloc(0).unwrap();
    launch_as(&metal, &kernel, 32, &[&empty, &none], &[READS, WRITES], &[]).unwrap();
    // SAFETY: no byte lies inside the buffer.
    unsafe { metal.read(&none, 0, &mut []) }.unwrap();
    assert_eq!(metal.host(&empty).unwrap().unwrap().bytes(), 0);
}

#[test]
fn command_buffers_are_committed_by_the_work_in_them() {
    let (fake, metal) = driver();
    let kernel = kernel(&metal);
    let (a, b) = (buffer(&metal, 4, 0), buffer(&metal, 4, 0));
    for _ in 0..500 {
        add_one(&metal, &kernel, &a, &b).unwrap();
    }
    metal.wait().unwrap();
    let sizes = |events: Vec<fake::Event>| -> Vec<usize> {
        let size = |event| match event {
            Commit(size) => Some(size),
            _ => None,
        };
        events.into_iter().filter_map(size).collect()
    };
    let small = sizes(fake.events());
    // The first is short, so that the GPU begins.
    assert!(small[0] < small[1], "{small:?}");
    assert_eq!(small.iter().sum::<usize>(), 500);
    // Work is also what is read: each of these is enough by itself.
    let large = metal.alloc(300 << 20).unwrap();
    for _ in 0..3 {
        add_one(&metal, &kernel, &large, &b).unwrap();
    }
    metal.wait().unwrap();
    assert_eq!(sizes(fake.events()), [1, 1, 1]);
}

#[test]
fn few_command_buffers_are_in_flight() {
    let (fake, metal) = driver();
    let kernel = kernel(&metal);
    let (a, b) = (buffer(&metal, 4, 0), buffer(&metal, 4, 0));
    for _ in 0..20_000 {
        add_one(&metal, &kernel, &a, &b).unwrap();
    }
    assert!(fake.script().most_in_flight <= 8);
    metal.wait().unwrap();
    assert_eq!(fake.script().in_flight, 0);
}

/// The sizes of command buffers of 2000 launches when each takes so many seconds.
fn sizes_at(seconds: f64) -> (Metal<Fake>, Vec<usize>) {
    let (fake, metal) = driver();
    fake.script().endings.extend(vec![Ok(seconds); 1000]);
    let kernel = kernel(&metal);
    let (a, b) = (buffer(&metal, 4, 0), buffer(&metal, 4, 0));
    for _ in 0..2000 {
        add_one(&metal, &kernel, &a, &b).unwrap();
    }
    metal.wait().unwrap();
    let size = |event: &fake::Event| match event {
        Commit(size) => Some(*size),
        _ => None,
    };
    let sizes = fake.events().iter().filter_map(size).collect();
    (metal, sizes)
}

#[test]
fn slow_command_buffers_become_shorter() {
    let (_, fast) = sizes_at(0.001);
    let (_, slow) = sizes_at(1.0);
    // One launch is the least: it cannot be divided.
    assert_eq!(slow.iter().min(), Some(&1));
    assert!(fast.iter().max() > slow.iter().max(), "{fast:?} {slow:?}");
    assert!(fast.len() < slow.len() / 4);
}

#[test]
fn times_that_cannot_be_leave_command_buffers_as_they_are() {
    // This time is neither too long nor so short that command buffers could grow.
    let (_, usual) = sizes_at(0.1);
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
        assert_eq!(sizes_at(seconds).1, usual, "{seconds}");
    }
}

#[test]
fn limits_that_cannot_be_are_replaced() {
    let fake = Fake::with(|p| {
        p.max_threads_per_threadgroup = 0;
        p.recommended_max_working_set_size = u64::MAX;
        p.max_buffer_length = 0;
    });
    let metal = Metal::new(fake, 0);
    let limits = metal.limits();
    assert!(limits.max_group > 0 && limits.max_buffer > 0, "{limits:?}");
    assert_eq!(metal.info().memory_bytes, Some(limits.memory));
    assert_eq!(read(&metal, &buffer(&metal, 4, 7)).unwrap(), 7);
}

#[test]
fn free_memory_is_what_this_process_and_others_leave() {
    const FREE: u64 = 1 << 20;
    let working_set = Fake::new().properties().recommended_max_working_set_size;
    let host = SystemMemory::now().unwrap().free;
    for (allocated, told) in [
        (0, Some(working_set)),
        (working_set - FREE, Some(FREE)),
        (working_set, None),
        (u64::MAX, None),
    ] {
        let (fake, metal) = driver();
        fake.script().allocated = allocated;
        assert_eq!(metal.free_memory(), told);
        let free = Gpu::new(metal).memory().free().unwrap();
        assert!(
            free <= told.unwrap_or(working_set).min(host + host / 2),
            "{free}"
        );
        assert!(free > 0);
    }
}

/// Memory that tells when it is given back.
struct Told {
    bytes: Vec<u8>,
    is_gone: Arc<AtomicBool>,
}

impl AsRef<[u8]> for Told {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.is_gone.store(true, Ordering::Release);
    }
}

#[test]
fn memory_outlives_the_command_buffers_that_use_it() {
    let (fake, metal) = driver();
    let kernel = kernel(&metal);
    let is_gone = Arc::new(AtomicBool::new(false));
    let told = Told {
        bytes: vec![0; 1 << 16],
        is_gone: is_gone.clone(),
    };
    let a = metal.share(&HostBuffer::borrowed(told)).unwrap().unwrap();
    let b = buffer(&metal, 4, 0);
    add_one(&metal, &kernel, &a, &b).unwrap();
    drop(a);
    let is_gone = || is_gone.load(Ordering::Acquire);
    assert!(!is_gone());
    assert_eq!(fake.script().live_buffers, 2);
    assert_eq!(read(&metal, &b).unwrap(), 1);
    assert!(is_gone());
    assert_eq!(fake.script().live_buffers, 1);
}

#[test]
fn a_driver_that_is_dropped_waits() {
    let (fake, metal) = driver();
    let kernel = kernel(&metal);
    let (a, b) = (buffer(&metal, 4, 0), buffer(&metal, 4, 0));
    add_one(&metal, &kernel, &a, &b).unwrap();
    drop((a, b, metal));
    assert_eq!(fake.events(), [Dispatch, Commit(1), Wait]);
    assert_eq!(fake.script().live_buffers, 0);
}

#[test]
fn after_a_loss_every_call_says_so() {
    for code in [1, 3, 4, 7, 11, 12, 99] {
        let (fake, metal) = driver();
        let kernel = kernel(&metal);
        let (a, b) = (buffer(&metal, 4, 0), buffer(&metal, 4, 0));
        fake.fail_with(code);
        add_one(&metal, &kernel, &a, &b).unwrap();
        let error = metal.wait().unwrap_err();
        assert_eq!(error.class, FailureClass::Lost, "{error}");
        assert!(error.message.contains(&format!("({code})")), "{error}");
        let host = HostBuffer::zeroed(4).unwrap();
        for class in [
            class_of(metal.alloc(4)),
            class_of(metal.share(&host)),
            class_of(metal.host(&a)),
            class_of(read(&metal, &b)),
            class_of(metal.compile("")),
            class_of(metal.load(b"1024", "f")),
            class_of(add_one(&metal, &kernel, &a, &b)),
            class_of(metal.wait()),
        ] {
            assert_eq!(class, FailureClass::Lost);
        }
        assert_eq!(fake.script().in_flight, 0);
    }
}

#[test]
fn memory_that_ran_out_is_told_once() {
    let (fake, metal) = driver();
    let kernel = kernel(&metal);
    let (a, b) = (buffer(&metal, 4, 1), buffer(&metal, 4, 0));
    fake.fail_with(8);
    add_one(&metal, &kernel, &a, &b).unwrap();
    assert_eq!(class_of(metal.wait()), OUT_OF_MEMORY);
    metal.wait().unwrap();
    add_one(&metal, &kernel, &a, &b).unwrap();
    assert_eq!(read(&metal, &b).unwrap(), 2);
}

#[test]
fn a_failure_is_told_to_whom_it_concerns() {
    let (fake, metal) = driver();
    let kernel = kernel(&metal);
    let [a, b, c] = [0; 3].map(|word| buffer(&metal, 4, word));
    fake.fail_with(8);
    add_one(&metal, &kernel, &a, &b).unwrap();
    // Another thread waits first, for its own launch in the same command buffer.
    thread::scope(|scope| {
        let with = scope.spawn(|| {
            add_one(&metal, &kernel, &a, &c).unwrap();
            metal.wait()
        });
        assert_eq!(class_of(with.join().unwrap()), OUT_OF_MEMORY);
        let without = scope.spawn(|| metal.wait());
        without.join().unwrap().unwrap();
    });
    assert_eq!(class_of(metal.wait()), OUT_OF_MEMORY);
    // A thread that fetches results of a failed command buffer gets the error as well.
    fake.fail_with(8);
    add_one(&metal, &kernel, &a, &b).unwrap();
    assert_eq!(class_of(read(&metal, &b)), OUT_OF_MEMORY);
    assert_eq!(class_of(metal.wait()), OUT_OF_MEMORY);
}

#[test]
fn a_resource_of_the_drivers_own_that_is_wrong_is_shown() {
    let (fake, metal) = driver();
    let kernel = kernel(&metal);
    let (a, b) = (buffer(&metal, 4, 0), buffer(&metal, 4, 0));
    fake.fail_with(9);
    add_one(&metal, &kernel, &a, &b).unwrap();
    assert_eq!(class_of(metal.wait()), FailureClass::Caller);
}

#[test]
fn memory_is_refused_by_class() {
    let (fake, metal) = driver();
    fake.script().refuses_buffers = true;
    assert_eq!(class_of(metal.alloc(4)), OUT_OF_MEMORY);
    assert!(
        metal
            .share(&HostBuffer::zeroed(4).unwrap())
            .unwrap()
            .is_none()
    );
    let too_large = metal.limits().max_buffer as usize + 1;
    let never = FailureClass::OutOfMemory { never_fits: true };
    assert_eq!(class_of(metal.alloc(too_large)), never);
    assert_eq!(class_of(metal.alloc(usize::MAX)), never);

    fake.script().refuses_buffers = false;
    let (a, b) = (buffer(&metal, 4, 0), buffer(&metal, 4, 0));
    fake.script().refuses_commands = true;
    let launched = add_one(&metal, &kernel(&metal), &a, &b);
    assert_eq!(class_of(launched), OUT_OF_MEMORY);
}

#[test]
fn what_is_refused_is_asked_for_again_when_the_gpu_is_done() {
    let (fake, metal) = driver();
    let kernel = kernel(&metal);
    let (a, b) = (buffer(&metal, 4, 0), buffer(&metal, 4, 0));
    add_one(&metal, &kernel, &a, &b).unwrap();
    fake.script().refuses_buffers = true;
    assert_eq!(class_of(metal.alloc(4)), OUT_OF_MEMORY);
    assert_eq!(fake.events(), [Dispatch, Commit(1), Wait]);
}

#[test]
fn a_source_is_compiled_once_and_its_mistakes_are_unsupported() {
    let (fake, metal) = driver();
    kernel(&metal);
    assert_eq!(fake.script().compiled, 1);
    let error = metal.load(b"garbage", "f").err().unwrap();
    assert_eq!(error.class, FailureClass::Unsupported);
    assert_eq!(error.message, "f: f:1:2: error: no number");
    assert_eq!(
        class_of(metal.load(&[0xff], "f")),
        FailureClass::Unsupported
    );
}

#[test]
fn what_metal_would_end_the_program_for_is_unsupported() {
    let (fake, metal) = driver();
    let few = metal.load(b"256", "few").unwrap();
    let b = buffer(&metal, 4, 0);
    let refused = |group, count: usize, words: usize| {
        let (buffers, accesses) = (vec![&b; count], vec![READS; count]);
        class_of(launch_as(
            &metal,
            &few,
            group,
            &buffers,
            &accesses,
            &vec![0; words],
        ))
    };
    for class in [
        refused(257, 1, 0),
        refused(32, 31, 1),
        refused(32, 32, 0),
        refused(32, 1, 1025),
    ] {
        assert_eq!(class, FailureClass::Unsupported);
    }
    assert_eq!(fake.events(), []);
    let (buffers, accesses) = ([&b; 30], [READS; 30]);
    launch_as(&metal, &few, 256, &buffers, &accesses, &[0; 1024]).unwrap();
}

#[test]
fn threads_launch_at_once() {
    let (_, metal) = driver();
    let kernel = kernel(&metal);
    thread::scope(|scope| {
        for start in 0..8 {
            let (metal, kernel) = (&metal, &kernel);
            scope.spawn(move || {
                let b = buffer(metal, 4, start);
                for _ in 0..300 {
                    add_one(metal, kernel, &b, &b).unwrap();
                }
                metal.wait().unwrap();
                assert_eq!(read(metal, &b).unwrap(), start + 300);
            });
        }
    });
}

#[test]
fn it_says_what_it_is() {
    let (_, metal) = driver();
    let (info, limits) = (metal.info(), metal.limits());
    assert_eq!(info.device.to_string(), "metal:0");
    assert!(info.shares_host_memory && !limits.has_f64 && !limits.is_processor);
    for key in ["family", "system"] {
        assert!(info.details.iter().any(|(k, v)| k == key && !v.is_empty()));
    }
}

#[test]
fn gpus_that_are_not_apples_are_left_out() {
    let old = || Fake::with(|p| p.apple_family = 0);
    let found = backends(vec![old(), Fake::new(), Fake::new()]).unwrap();
    let names = found.iter().map(|b| b.info().device.to_string());
    assert_eq!(names.collect::<Vec<_>>(), ["metal:0", "metal:1"]);
    let absent = backends(vec![old()]).err().unwrap();
    assert!(absent.reason.contains("fake") && absent.cure.contains("M1"));
    let absent = backends(Vec::<Fake>::new()).err().unwrap();
    assert!(absent.reason.contains("no Metal device"));
}

#[cfg(not(target_os = "macos"))]
#[test]
fn elsewhere_than_on_a_mac_there_are_none() {
    let absent = rustorch_metal::devices().err().unwrap();
    assert_eq!(absent.device, "metal");
    assert!(absent.reason.contains("Macs only") && !absent.cure.is_empty());
}
