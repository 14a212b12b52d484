//! The file of a machine's measurements.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use rustorch_ir::ErrorKind;
use rustorch_ir::{DType, OpKind};
use rustorch_runtime::{Backend, Bound, Calibration, Costs, Curve, DeviceType, OpCost, Runtime};

use crate::GPU;
use crate::fake::{Fake, cpu};

const CPU: DeviceType = DeviceType::Cpu;

fn driver(version: &str) -> Arc<dyn Backend> {
    Fake::gpu(GPU).with_detail("driver", version).backend()
}

fn costs(seconds: f64) -> Costs {
    let curve = |points| Curve::try_from(points).unwrap();
    Costs {
        sync: Duration::from_micros(5),
        launch: Duration::from_nanos(250),
        upload: curve(vec![(4096.0, seconds)]),
        download: curve(vec![]),
        operations: vec![OpCost {
            op: OpKind::Matmul,
            example: "Matmul(Matmul)".to_owned(),
            dtype: DType::F32,
            bound: Bound::Macs,
            curve: curve(vec![(1e3, seconds), (1e6, 3.0 * seconds)]),
        }],
    }
}

fn runtime() -> Runtime {
    Runtime::new([cpu(), driver("1.0")])
}

fn calibration() -> Calibration {
    Calibration::new(&runtime(), [(CPU, costs(1e-6)), (GPU, costs(2e-6))])
}

/// Why it is not valid for devices.
fn problem(calibration: &Calibration, runtime: &Runtime) -> String {
    let refused = runtime.set_calibration(calibration);
    assert!(runtime.costs(CPU).is_none(), "nothing changes");
    refused.unwrap_err().to_string()
}

#[test]
fn a_file_tells_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new").join("calibration.json");
    assert!(Calibration::load(&path).unwrap().is_none());
    let written = calibration();
    written.save(&path).unwrap();
    let read = Calibration::load(&path).unwrap().unwrap();
    assert_eq!(read, written);
    let files = fs::read_dir(path.parent().unwrap()).unwrap();
    assert_eq!(files.count(), 1, "nothing unfinished is left");
    let runtime = runtime();
    runtime.set_calibration(&read).unwrap();
    assert_eq!(*runtime.costs(GPU).unwrap(), costs(2e-6));
}

#[test]
fn what_is_damaged_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("calibration.json");
    calibration().save(&path).unwrap();
    let whole = fs::read_to_string(&path).unwrap();
    let damaged = [
        whole[..whole.len() / 2].to_owned(),
        String::new(),
        "[]".to_owned(),
        whole.replace("matmul", "no_such_operation"),
        whole.replace("\"bound\":\"macs\"", "\"bound\":\"miles\""),
        // Quoted text of the file stays on the same line.
        whole.replace("\"bound\":\"macs\"", "\"bound\":\"a\\nb\\u001b[1m\""),
        // Times below zero; points in no order.
        whole.replace("0.00025", "-1"),
        whole.replace("2.5e-7", "-1"),
        whole.replace("1000000.0", "10.0"),
    ];
    for text in damaged.into_iter().filter(|text| *text != whole) {
        fs::write(&path, &text).unwrap();
        let error = Calibration::load(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Format, "{text}");
        let line = error.to_string();
        assert!(
            line.contains("calibration.json: damaged") && line.contains("calibrate"),
            "{line}"
        );
        assert!(!line.contains(char::is_control), "{line}");
    }
}

#[test]
fn a_folder_that_takes_no_files_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = calibration().save(&file.join("calibration.json"));
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("calibration.json"), "{error}");
}

#[test]
fn what_a_damaged_file_names_stays_on_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("calibration.json");
    calibration().save(&path).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"driver\"", r#""dri\nver""#)).unwrap();
    let damaged = Calibration::load(&path).unwrap().unwrap();
    let line = problem(&damaged, &Runtime::new([cpu(), driver("1.0")]));
    assert!(line.contains(r"and is now without dri\nver; "), "{line}");
}

#[test]
fn another_driver_or_machine_makes_it_invalid() {
    let calibration = calibration();
    let newer = Runtime::new([cpu(), driver("1.1")]);
    let line = problem(&calibration, &newer);
    assert!(
        line.starts_with("opencl:0 was driver 1.0 and is now driver 1.1; "),
        "{line}"
    );
    let unknown = Runtime::new([cpu(), Fake::gpu(GPU).backend()]);
    let line = problem(&calibration, &unknown);
    assert!(line.contains("and is now without driver"), "{line}");
    let other = Fake::new(CPU, rustorch_runtime::Hardware::Processor).backend();
    let line = problem(&calibration, &Runtime::new([other]));
    assert!(line.contains("and is now a made-up cpu; "), "{line}");
    // A detail that depends on the memory free just now is not a difference.
    let smaller = Fake::gpu(GPU).with_detail("driver", "1.0");
    let smaller = smaller.with_detail(rustorch_runtime::LARGEST_BUFFER, "1 MiB");
    let smaller = Runtime::new([cpu(), smaller.backend()]);
    assert!(smaller.set_calibration(&calibration).is_ok());
    // A device that is absent now, or was then, is not a contradiction.
    assert!(Runtime::new([cpu()]).set_calibration(&calibration).is_ok());
    let more = [
        cpu(),
        driver("1.0"),
        Fake::gpu(DeviceType::Cuda(0)).backend(),
    ];
    assert!(Runtime::new(more).set_calibration(&calibration).is_ok());
}

#[test]
fn another_version_makes_it_invalid() {
    let text = serde_json::to_string(&calibration()).unwrap();
    for (now, other) in [
        (concat!("\"", env!("CARGO_PKG_VERSION"), "\""), "\"0.0.0\""),
        ("\"format\":1", "\"format\":2"),
    ] {
        let other: Calibration = serde_json::from_str(&text.replace(now, other)).unwrap();
        let line = problem(&other, &runtime());
        assert!(line.starts_with("made by version "), "{line}");
    }
}

#[test]
fn what_is_new_goes_before_what_is_older() {
    let mut new = Calibration::new(&runtime(), [(GPU, costs(9e-6))]);
    new.complete(calibration());
    let devices: Vec<_> = new.devices().map(|(d, c)| (d, c.clone())).collect();
    assert_eq!(devices, [(GPU, costs(9e-6)), (CPU, costs(1e-6))]);
}
