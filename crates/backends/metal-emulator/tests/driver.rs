//! The Metal driver with kernels that run, on the emulated device: what overlaps runs out of
//! order there, so that a barrier that is missing gives a wrong result.

use std::process::ExitCode;
use std::thread;

use rustorch_gpu::{Access, Driver, Launch};
use rustorch_metal::{Buffer, CommandError, Kernel, Metal};
use rustorch_metal_emulator::Emulator;
use rustorch_runtime::{FailureClass, HostBuffer};
use rustorch_testing::{Suite, tests};

const SOURCE: &str = "
#include <metal_stdlib>
using namespace metal;
typedef struct { uint n; uint from; uint to; } Params;
[[max_total_threads_per_threadgroup(64)]] kernel void \
affine(device const uint* x [[buffer(0)]], device uint* y [[buffer(1)]], \
constant Params& p [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]], \
uint lane [[thread_index_in_threadgroup]]) {
    const uint i = group.x * 64 + lane;
    if (i < p.n) y[p.to + i] = 3 * x[p.from + i] + i;
}
";

const WORDS: usize = 200;

type Device = Metal<Emulator>;

/// A device of a test's own.
fn device() -> Device {
    Metal::new(Emulator::new().unwrap(), 0)
}

fn kernel(device: &Device) -> Kernel<Emulator> {
    let binary = device.compile(SOURCE).unwrap();
    device.load(&binary, "affine").unwrap()
}

/// Computes the words from `to` on of one buffer by those from `from` on of another.
fn affine(
    device: &Device,
    kernel: &Kernel<Emulator>,
    (x, from): (&Buffer<Emulator>, usize),
    (y, to): (&Buffer<Emulator>, usize),
) {
    let access = |at: usize, is_written| Access {
        start: 4 * at,
        end: 4 * (at + WORDS),
        is_written,
    };
    let launch = Launch {
        groups: [WORDS.div_ceil(64) as u32, 1, 1],
        group: 64,
        buffers: &[x, y],
        accesses: &[access(from, false), access(to, true)],
        tiles: &[],
        params: &[WORDS as u32, from as u32, to as u32],
        dynamic_local: 0,
        begins_early: false,
    };
    // SAFETY: the kernel uses `WORDS` words, which the tests' buffers have.
    unsafe { device.launch(kernel, &launch) }.unwrap();
}

fn expected(x: &[u32]) -> Vec<u32> {
    let word = |(i, &x): (usize, &u32)| x.wrapping_mul(3).wrapping_add(i as u32);
    x.iter().enumerate().map(word).collect()
}

fn words(device: &Device, buffer: &Buffer<Emulator>, at: usize) -> Vec<u32> {
    let mut bytes = vec![0; 4 * WORDS];
    // SAFETY: the tests' buffers have these words.
    unsafe { device.read(buffer, 4 * at, &mut bytes) }.unwrap();
    let (words, _) = bytes.as_chunks();
    words.iter().map(|&word| u32::from_ne_bytes(word)).collect()
}

fn zeros(device: &Device, words: usize) -> Buffer<Emulator> {
    let buffer = device.alloc(4 * words).unwrap();
    // SAFETY: nothing else uses the new buffer.
    unsafe { device.write(&buffer, 0, &vec![0; 4 * words]) }.unwrap();
    buffer
}

fn what_depends_on_each_other_is_in_order(_: &Emulator) {
    let device = device();
    let kernel = kernel(&device);
    let arena = zeros(&device, 3 * WORDS);
    let places = [0, WORDS, 2 * WORDS];
    let mut mirror = places.map(|_| vec![0; WORDS]);
    // More than one command buffer's worth, in a pattern that has every hazard.
    for step in 0..300 {
        let (from, to) = (step * 7 % 3, (step * 5 + 1) % 3);
        if from != to {
            affine(
                &device,
                &kernel,
                (&arena, places[from]),
                (&arena, places[to]),
            );
            mirror[to] = expected(&mirror[from]);
        }
    }
    for (at, mirror) in places.into_iter().zip(&mirror) {
        assert_eq!(&words(&device, &arena, at), mirror);
    }
}

fn independent_launches_have_no_barriers(_: &Emulator) {
    let device = device();
    let kernel = kernel(&device);
    let (x, y) = (zeros(&device, WORDS), zeros(&device, 8 * WORDS));
    for part in 0..8 {
        affine(&device, &kernel, (&x, 0), (&y, part * WORDS));
    }
    device.wait().unwrap();
    assert_eq!(device.api().counts(), (8, 0));
}

fn parts_of_pages_are_used_in_place(_: &Emulator) {
    let device = device();
    let kernel = kernel(&device);
    let values: Vec<u8> = (0..WORDS as u32).flat_map(u32::to_ne_bytes).collect();
    let host = HostBuffer::copy_of(&values).unwrap();
    let x = device.share(&host).unwrap().unwrap();
    let y = zeros(&device, WORDS);
    affine(&device, &kernel, (&x, 0), (&y, 0));
    // The same memory through another buffer is written to after that is read.
    let again = device.share(&host).unwrap().unwrap();
    affine(&device, &kernel, (&y, 0), (&again, 0));
    let counting: Vec<u32> = (0..WORDS as u32).collect();
    let (first, second) = (expected(&counting), expected(&expected(&counting)));
    assert_eq!(words(&device, &y, 0), first);
    assert_eq!(words(&device, &x, 0), second);
    assert!(device.host(&again).unwrap().unwrap().same_memory(&host));
}

fn a_command_buffer_that_fails_does_nothing_and_is_told(_: &Emulator) {
    let device = device();
    let kernel = kernel(&device);
    let (x, y) = (zeros(&device, WORDS), zeros(&device, WORDS));
    for (code, class) in [
        (8, FailureClass::OutOfMemory { never_fits: false }),
        (2, FailureClass::Timeout),
    ] {
        let message = "on command".to_owned();
        device.api().fail_next(CommandError { code, message });
        affine(&device, &kernel, (&x, 0), (&y, 0));
        let error = device.wait().unwrap_err();
        assert_eq!(error.class, class, "{error}");
    }
    assert_eq!(device.wait().unwrap_err().class, FailureClass::Timeout);
}

fn threads_launch_at_once(_: &Emulator) {
    let device = device();
    let (device, kernel) = (&device, &kernel(&device));
    thread::scope(|scope| {
        for rounds in 1..5 {
            scope.spawn(move || {
                let (x, y) = (zeros(device, WORDS), zeros(device, WORDS));
                let mut mirror = vec![0; WORDS];
                for _ in 0..rounds {
                    affine(device, kernel, (&x, 0), (&y, 0));
                    affine(device, kernel, (&y, 0), (&x, 0));
                    mirror = expected(&expected(&mirror));
                }
                assert_eq!(words(device, &x, 0), mirror);
            });
        }
    });
}

/// Compiles a kernel with this body.
fn compiled(body: &str) -> Result<(), String> {
    let source = format!(
        "#include <metal_stdlib>\nusing namespace metal;\n\
         [[max_total_threads_per_threadgroup(64)]] kernel void f(device float* x [[buffer(0)]], \
         uint i [[thread_index_in_threadgroup]]) {{\n{body}\n}}\n"
    );
    let device = device();
    let binary = device.compile(&source).map_err(|e| e.to_string())?;
    device
        .load(&binary, "f")
        .map(drop)
        .map_err(|e| e.to_string())
}

fn source_that_metal_refuses_is_refused(_: &Emulator) {
    compiled("x[i] = exp(x[i]);").unwrap();
    for (wrong, why) in [
        ("double y = 0; x[i] = (float)y;", "poisoned"),
        ("x[i] = x[i] * 0.1;", "double"),
        ("x[i] = erf(x[i]);", "erf"),
        ("float* y = x; x[i] = y[0];", "address space"),
        ("threadgroup float* y = x; x[i] = y[0];", "device float *"),
        ("float unused = x[i];", "unused"),
        ("goto end; end: x[i] = 0;", "poisoned"),
        ("throw 1;", "poisoned"),
        ("const float* y = &x[i];", "address space"),
    ] {
        let Err(message) = compiled(wrong) else {
            panic!("{wrong} was compiled");
        };
        assert!(message.contains(why), "{wrong}: {message}");
    }
}

fn main() -> ExitCode {
    let device = Emulator::new();
    let tests = tests![
        what_depends_on_each_other_is_in_order,
        independent_launches_have_no_barriers,
        parts_of_pages_are_used_in_place,
        a_command_buffer_that_fails_does_nothing_and_is_told,
        threads_launch_at_once,
        source_that_metal_refuses_is_refused,
    ];
    Suite::new().on(device, "RUSTORCH_TEST_METAL", tests).run()
}
