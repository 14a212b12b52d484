//! The same packages through coremltools, where that is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustorch_coreml::{Opset, Precision};

use crate::device::{Device, Known};
use crate::{CLAIMED, compare_precisions, conforms, target};

/// A Python that has coremltools: `RUSTORCH_COREMLTOOLS`, or `python3`.
fn python() -> Option<PathBuf> {
    let named = std::env::var_os("RUSTORCH_COREMLTOOLS");
    let python = PathBuf::from(named.unwrap_or_else(|| "python3".into()));
    let imports = ["-c", "import coremltools.libmodelpackage"];
    let found = Command::new(&python).args(imports).output();
    found
        .is_ok_and(|found| found.status.success())
        .then_some(python)
}

#[test]
fn coremltools_takes_the_packages_and_gives_the_same() {
    let Some(python) = python() else {
        assert!(
            std::env::var_os("RUSTORCH_TEST_COREMLTOOLS").is_none(),
            "no coremltools: RUSTORCH_COREMLTOOLS names a Python that has it"
        );
        eprintln!("skipped: no coremltools; RUSTORCH_COREMLTOOLS names a Python that has it");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let device =
        |opset, precision, known| Device::keeping(target(opset, precision), known, folder.path());
    for opset in Opset::ALL {
        conforms(
            device(opset, Precision::F32, Known::AllButTheFirst),
            &CLAIMED,
        );
    }
    compare_precisions(
        &device(Opset::CoreML7, Precision::F32, Known::Nothing),
        &device(Opset::CoreML7, Precision::F16, Known::Nothing),
    );
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/check-coreml.py");
    let checked = Command::new(python)
        .arg(script)
        .arg(folder.path())
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&checked.stdout);
    let errors = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{report}{errors}");
    println!("{report}");
}
