//! Memory and failures of every WebGPU device.

use std::process::ExitCode;

use rustorch_gpu::Driver;
use rustorch_runtime::FailureClass;
use rustorch_testing::{Suite, tests};
use rustorch_wgpu::Wgpu;

fn bytes_are_read_as_written(devices: &Vec<Wgpu>) {
    for device in devices {
        let buffer = device.alloc(67).unwrap();
        let bytes: Vec<u8> = (0..67).collect();
        // SAFETY: the ranges lie inside the buffer, and nothing else uses it.
        unsafe {
            device.write(&buffer, 0, &bytes).unwrap();
            device.write(&buffer, 5, &[200, 201, 202]).unwrap();
            let mut read = [0; 7];
            device.read(&buffer, 3, &mut read).unwrap();
            assert_eq!(read, [3, 4, 200, 201, 202, 8, 9]);
            let mut last = [0; 3];
            device.read(&buffer, 64, &mut last).unwrap();
            assert_eq!(last, [64, 65, 66]);
        }
    }
}

fn a_text_that_is_no_kernel_is_refused_with_the_reason(devices: &Vec<Wgpu>) {
    for device in devices {
        let text = b"@compute @workgroup_size(1) fn f() { let x: u32 = 1.5; }";
        let Err(error) = device.load(text, "f") else {
            panic!("compiled");
        };
        assert_eq!(error.class, FailureClass::Unsupported);
        assert!(error.message.contains("u32"), "{error}");
        assert!(device.wait().is_ok(), "the device goes on");
    }
}

fn a_kernel_of_too_many_buffers_is_refused(devices: &Vec<Wgpu>) {
    for device in devices {
        let binding = |i| format!("@group(0) @binding({i}) var<storage> b{i}: u32;\n");
        let text: String = (0..100_000).map(binding).collect();
        let Err(error) = device.load(text.as_bytes(), "f") else {
            panic!("compiled");
        };
        assert_eq!(error.class, FailureClass::Unsupported);
        assert!(error.message.contains("100000 buffers"), "{error}");
    }
}

/// The device is opened by itself, since it is lost afterwards.
fn a_lost_device_says_so(_: &Vec<Wgpu>) {
    for device in rustorch_wgpu::devices().unwrap() {
        let buffer = device.alloc(16).unwrap();
        device.destroy();
        // SAFETY: the range lies inside the buffer.
        let read = unsafe { device.read(&buffer, 0, &mut [0; 16]) };
        for error in [
            read.unwrap_err(),
            device.alloc(16).unwrap_err(),
            device.wait().unwrap_err(),
        ] {
            assert_eq!(error.class, FailureClass::Lost, "{error}");
        }
    }
}

fn main() -> ExitCode {
    let tests = tests![
        bytes_are_read_as_written,
        a_text_that_is_no_kernel_is_refused_with_the_reason,
        a_kernel_of_too_many_buffers_is_refused,
        a_lost_device_says_so,
    ];
    Suite::new()
        .on(rustorch_wgpu::devices(), "RUSTORCH_TEST_WEBGPU", tests)
        .run()
}
