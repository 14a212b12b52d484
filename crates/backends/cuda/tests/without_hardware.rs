//! Messages where CUDA cannot be used as it should, and runs without a compiler. A driver made for
//! these tests is used, in processes of their own.

#![cfg(target_os = "linux")]

use std::io::stdout;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use rustorch_gpu::{Driver, Gpu};
use rustorch_ir::ops::UnaryOp;
use rustorch_ir::{DType, Graph, TensorType};
use rustorch_runtime::Backend;
use tempfile::TempDir;

/// The folder of the driver, and of a compiler that is too old.
static FAKE: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    for library in ["libcuda", "libnvrtc"] {
        let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(folder.path().join(library).with_extension("so"))
            .arg(fake.join(library).with_extension("c"))
            .status()
            .expect("a C compiler");
        assert!(compiled.success(), "{library} does not compile");
    }
    folder
});

/// The lines that the test `name` of this file prints with that driver and these variables.
fn lines(name: &str, variables: &[(&str, &str)]) -> Vec<String> {
    lines_with(&FAKE, name, variables)
}

/// Output behind `= `, with the driver of a folder.
fn lines_with(folder: &TempDir, name: &str, variables: &[(&str, &str)]) -> Vec<String> {
    let out = printed(folder, name, variables);
    let lines = out.lines().filter_map(|line| line.split_once("= "));
    lines.map(|(_, line)| line.to_owned()).collect()
}

/// All that it prints.
fn printed(folder: &TempDir, name: &str, variables: &[(&str, &str)]) -> String {
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", folder.path())
        .envs([("RUSTORCH_NVRTC", "none"), ("RUSTORCH_CUBLASLT", "none")])
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let out = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{out}");
    out
}

#[test]
#[ignore = "run by others, in a process of its own"]
fn list_devices() {
    match rustorch_cuda::devices() {
        Ok(devices) => {
            for device in devices {
                let libraries = device.libraries();
                let library = |key: &str| libraries.iter().find(|(k, _)| k == key);
                let [compiler, products] =
                    ["compiler", "dense products"].map(|key| &library(key).unwrap().1);
                println!("= {}: {compiler}; {products}", device.info().device);
            }
        }
        Err(absent) => println!("= {absent}"),
    }
}

#[test]
fn what_is_wrong_is_one_clear_line() {
    for (variables, expected) in [
        (
            &[("FAKE_VERSION", "11080")][..],
            [
                "driver is for CUDA 11.8, and 12.4 is needed",
                "550 or newer",
            ],
        ),
        (
            &[("FAKE_INIT", "100")],
            ["cuInit: STATUS_100", "CUDA_VISIBLE_DEVICES"],
        ),
        (
            &[("FAKE_INIT", "803")],
            ["cuInit: STATUS_803", "restart the system"],
        ),
        (
            &[("FAKE_INIT", "999")],
            ["cuInit: STATUS_999", "nvidia-smi"],
        ),
        (&[], ["has no device", "another device"]),
        (
            &[("FAKE_CAPABILITIES", "61")],
            [
                "cuda:0 (fake 0) has compute capability 6.1, and 7.0 is needed",
                "another device",
            ],
        ),
        (
            &[("FAKE_CAPABILITIES", "90"), ("FAKE_CONTEXT", "2")],
            [
                "cuda:0 (fake 0): cuDevicePrimaryCtxRetain: STATUS_2",
                "another device",
            ],
        ),
    ] {
        let lines = lines("list_devices", variables);
        assert_eq!(lines.len(), 1, "{variables:?}: {lines:?}");
        for part in expected {
            assert!(lines[0].contains(part), "{variables:?}: {lines:?}");
        }
    }
}

#[test]
fn no_driver_is_one_clear_line() {
    // Whatever driver the system has is not found behind these.
    let folder = tempfile::tempdir().unwrap();
    for name in ["libcuda.so", "libcuda.so.1"] {
        std::fs::write(folder.path().join(name), "no library").unwrap();
    }
    let expected = "cuda: NVIDIA's driver is not installed: there is no libcuda; install \
                    NVIDIA's driver, 550 or newer";
    assert_eq!(lines_with(&folder, "list_devices", &[]), [expected]);
}

#[test]
#[ignore = "run by others, in a process of its own"]
fn take_memory() {
    let device = rustorch_cuda::devices().unwrap().remove(0);
    println!("= {}", device.alloc(1 << 30).unwrap_err());
}

#[test]
fn too_little_memory_is_one_clear_line() {
    let lines = lines("take_memory", &[("FAKE_CAPABILITIES", "90")]);
    let expected = "cuda:0: out of memory: 1024 MiB were refused: 64 MiB of 16384 are free";
    assert_eq!(lines, [expected]);
}

#[test]
#[ignore = "run by others, in a process of its own"]
fn wait_twice() {
    let device = rustorch_cuda::devices().unwrap().remove(0);
    for _ in 0..2 {
        let error = device.wait().unwrap_err();
        println!("= {:?}: {error}", error.class);
    }
    println!("= {}", device.alloc(1).unwrap_err());
}

#[test]
fn a_device_that_hangs_is_given_up_and_called_no_more() {
    let variables = [
        ("FAKE_CAPABILITIES", "90"),
        ("FAKE_HANGS", "1"),
        ("RUSTORCH_DEVICE_TIMEOUT", "0.05"),
    ];
    let lines = lines("wait_twice", &variables);
    let nothing = "nothing was done for 50ms (RUSTORCH_DEVICE_TIMEOUT)";
    assert_eq!(lines.len(), 3, "{lines:?}");
    for (line, call) in lines
        .iter()
        .zip(["cuStreamQuery", "cuCtxSetCurrent", "cuCtxSetCurrent"])
    {
        assert!(line.ends_with(&format!("{call}: {nothing}")), "{lines:?}");
    }
    assert!(lines[0].starts_with("Timeout: cuda:0: "), "{lines:?}");
}

#[test]
fn a_device_that_is_too_old_leaves_the_others() {
    let lines = lines("list_devices", &[("FAKE_CAPABILITIES", "61 75 90")]);
    let without = "precompiled kernels; libnvrtc is left out by RUSTORCH_NVRTC=none; \
                   the project's own kernels; libcublasLt is left out by RUSTORCH_CUBLASLT=none";
    assert_eq!(
        lines,
        [format!("cuda:1: {without}"), format!("cuda:2: {without}")]
    );
}

/// A chain of operations that no pack can have foreseen, of elements of `dtype`.
fn chain(dtype: DType) -> Graph {
    use UnaryOp::*;
    let mut graph = Graph::new();
    let mut x = graph.input(TensorType::new([3, 5], dtype)).unwrap();
    for op in [Neg, Abs, Neg, Sign, Abs, Floor, Neg, Ceil, Abs, Sign, Neg] {
        x = graph.unary(op, x).unwrap();
    }
    graph.output(x);
    graph
}

#[test]
#[ignore = "run by others, in a process of its own"]
fn compile_a_chain() {
    tracing_subscriber::fmt().with_writer(stdout).init();
    let device = Gpu::new(rustorch_cuda::devices().unwrap().remove(0));
    let compiled = device.compile(&chain(DType::F32));
    println!("= {:?}", compiled.map(|_| ()).map_err(|e| e.to_string()));
}

#[test]
fn without_a_compiler_chains_run_one_operation_at_a_time() {
    for capability in ["70", "75", "89", "90", "120"] {
        let lines = lines("compile_a_chain", &[("FAKE_CAPABILITIES", capability)]);
        assert_eq!(lines, ["Ok(())"], "on {capability}");
    }
}

#[test]
fn a_compiler_that_is_too_old_is_one_warning() {
    let compiler = FAKE.path().join("libnvrtc.so");
    let variables = [
        ("FAKE_CAPABILITIES", "90 75"),
        ("RUSTORCH_NVRTC", compiler.to_str().unwrap()),
    ];
    let out = printed(&FAKE, "compile_a_chain", &variables);
    assert_eq!(out.matches("WARN").count(), 1, "{out}");
    assert!(out.contains("NVRTC 11.8 is too old; install 12.0"), "{out}");
    assert!(out.contains("= Ok(())"), "{out}");
}
