//! Processes that end: one while it compiles, one with a full disk. Others are ended by Core ML in
//! place of the process that asked.

mod common;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustorch_coreml::{Helper, Settings, help_with};
use rustorch_coreml_emulator::{Call, Emulated, Fault};
use rustorch_runtime::{Deadline, DeviceType, FailureClass, Routing, Storage};

use common::{COREML, SLOW, device, device_with, floats, graph, run, runtime, settings};

const REFERENCE: DeviceType = DeviceType::Reference;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    match &args[..] {
        [mode, fault, struck, rest @ ..] if mode == "help" => {
            let is_for_it = fault
                .to_string_lossy()
                .starts_with(&*rest[0].to_string_lossy());
            let api = match is_for_it {
                true => api(fault, struck.as_ref()),
                false => Emulated::new(15),
            };
            // Apple's compiler writes more than a pipe holds, and some of it at the very end.
            println!("{}compiling", "compiling\n".repeat(100_000));
            eprintln!("{}the last words\n", "compiling\n".repeat(100_000));
            let status = help_with(&api, rest);
            println!("compiled");
            return status;
        }
        [mode, folder] if mode == "end" => end_while_compiling(folder.as_ref()),
        #[cfg(unix)]
        [mode, folder] if mode == "full" => compute_on_a_full_disk(folder.as_ref()),
        _ => {
            a_process_that_ends_while_it_compiles_breaks_nothing();
            #[cfg(unix)]
            a_full_disk_is_one_line();
            a_helper_compiles_and_loads();
            a_crash_ends_the_helper_alone();
            a_helper_that_hangs_is_ended();
            a_helper_that_cannot_be_started_is_told();
        }
    }
    ExitCode::SUCCESS
}

/// Core ML with a fault that is named, in the first process that does what it is a fault of: that
/// makes the file `struck`.
fn api(fault: &OsString, struck: &Path) -> Emulated {
    let api = Emulated::new(15);
    if fs::File::create_new(struck).is_err() {
        return api;
    }
    let faults = [
        ("compile-abort", Call::Compile, Fault::Abort),
        ("compile-refuse", Call::Compile, Fault::Code(3)),
        ("compile-hang", Call::Compile, Fault::Hang),
        ("load-abort", Call::Load, Fault::Abort),
    ];
    for (name, call, kind) in faults {
        if fault == name {
            api.fail(call, 0, kind);
        }
    }
    api
}

fn this_test() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Ends with the program's compiler still at work.
fn end_while_compiling(folder: &Path) {
    let coreml = device(Emulated::new(15).compiling_slowly(SLOW), folder);
    coreml.api().hold(Call::Compile);
    let runtime = runtime(&coreml);
    let routing = Routing {
        device: COREML,
        ..Routing::AUTO
    };
    let executable = runtime.prepare(graph(), routing);
    let inputs = [192, 108].map(|count| Storage::from_host(floats(count)));
    executable.run(&inputs).unwrap();
    while coreml.api().calls(Call::Compile) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(coreml.api().calls(Call::Predict), 0);
}

/// Names of what is in a folder, of entries that are not finished.
fn unfinished(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains('.')).collect()
}

fn a_process_that_ends_while_it_compiles_breaks_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(this_test());
    let status = command.arg("end").arg(folder.path()).status().unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(unfinished(folder.path()).len(), 1);
    let coreml = device(Emulated::new(15), folder.path());
    let runtime = runtime(&coreml);
    let expected = run(&runtime, REFERENCE);
    assert_eq!(run(&runtime, COREML), expected);
    assert_eq!(coreml.api().calls(Call::Compile), 1);
    assert_eq!(runtime.fallbacks(), []);
    assert!(unfinished(folder.path()).is_empty());
}

/// In a process that can write no file of more than 512 bytes.
#[cfg(unix)]
fn compute_on_a_full_disk(folder: &Path) {
    let coreml = device(Emulated::new(15), folder);
    let runtime = runtime(&coreml);
    let expected = run(&runtime, REFERENCE);
    for _ in 0..3 {
        assert_eq!(run(&runtime, COREML), expected);
    }
    let fallbacks = runtime.fallbacks();
    assert_eq!(fallbacks.len(), 1, "{fallbacks:?}");
    let told = fallbacks[0].to_string();
    assert!(told.contains(&folder.display().to_string()), "{told}");
    assert!(!told.contains('\n'), "{told}");
    assert_eq!(coreml.api().calls(Call::Compile), 0);
}

#[cfg(unix)]
fn a_full_disk_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" full \"$1\""])
        .arg(this_test())
        .arg(folder.path())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    assert!(unfinished(folder.path()).is_empty());
}

/// The device's settings with a helper that has this fault once.
fn helped(folder: &Path, fault: &str) -> Settings {
    let args = ["help".into(), fault.into(), struck(folder, fault).into()];
    Settings {
        helper: Some(Helper::new(this_test(), args)),
        ..settings(&folder.join("cache"))
    }
}

fn struck(folder: &Path, fault: &str) -> PathBuf {
    folder.join(fault)
}

fn a_helper_compiles_and_loads() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let coreml = device_with(Emulated::new(15), helped(folder.path(), "none"));
        let runtime = runtime(&coreml);
        let expected = run(&runtime, REFERENCE);
        assert_eq!(run(&runtime, COREML), expected);
        let calls = [Call::Compile, Call::Load].map(|call| coreml.api().calls(call));
        assert_eq!(calls, [0, 1]);
        assert_eq!(runtime.fallbacks(), []);
    }
    // A program that was loaded once is loaded without a helper.
    let coreml = device_with(Emulated::new(15), helped(folder.path(), "load-abort"));
    run(&runtime(&coreml), COREML);
    assert_eq!(coreml.api().calls(Call::Predict), 1);
    assert!(!struck(folder.path(), "load-abort").exists());
}

fn a_crash_ends_the_helper_alone() {
    for (fault, why) in [
        (
            "compile-abort",
            "its process ended on this model (signal: 6",
        ),
        ("load-abort", "): the last words"),
        ("compile-refuse", "injected (3)"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let coreml = device_with(Emulated::new(15), helped(folder.path(), fault));
        let runtime = runtime(&coreml);
        let expected = run(&runtime, REFERENCE);
        assert_eq!(run(&runtime, COREML), expected, "{fault}");
        let fallbacks = runtime.fallbacks();
        assert_eq!(fallbacks.len(), 1, "{fault}: {fallbacks:?}");
        assert_eq!(fallbacks[0].error.class, FailureClass::Unsupported);
        let told = fallbacks[0].to_string();
        assert!(
            told.contains(why) && !told.contains('\n'),
            "{fault}: {told}"
        );
        let calls = [Call::Compile, Call::Load].map(|call| coreml.api().calls(call));
        // The rest of the graph still runs on the device.
        assert_eq!(calls, [0, 1], "{fault}");
        assert!(
            unfinished(&folder.path().join("cache")).is_empty(),
            "{fault}"
        );
    }
}

fn a_helper_that_hangs_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        deadline: Deadline::after(Duration::from_millis(300)),
        ..helped(folder.path(), "compile-hang")
    };
    let coreml = device_with(Emulated::new(15), settings);
    let runtime = runtime(&coreml);
    let expected = run(&runtime, REFERENCE);
    assert_eq!(run(&runtime, COREML), expected);
    assert_eq!(runtime.fallbacks()[0].error.class, FailureClass::Timeout);
    // Its end lets the cache go: another process can make the entry.
    let other = device(Emulated::new(15), &folder.path().join("cache"));
    assert_eq!(run(&common::runtime(&other), COREML), expected);
    assert_eq!(other.api().calls(Call::Predict), 1);
}

fn a_helper_that_cannot_be_started_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        helper: Some(Helper::new("/no/such/program", [])),
        ..settings(folder.path())
    };
    let coreml = device_with(Emulated::new(15), settings);
    let runtime = runtime(&coreml);
    let expected = run(&runtime, REFERENCE);
    assert_eq!(run(&runtime, COREML), expected);
    let told = runtime.fallbacks()[0].to_string();
    assert!(
        told.contains("/no/such/program cannot be started"),
        "{told}"
    );
}
