//! The same packages through coremltools, where that is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustorch_coreml::{Opset, Precision, Target};
use rustorch_ir::OpKind;

use crate::device::{Device, Known};
use crate::{CLAIMED, compare_precisions, conforms, exact, random, states, stay_in_blocks, target};

/// A Python that has coremltools.
pub(crate) struct Python(PathBuf);

impl Python {
    /// The Python that `RUSTORCH_COREMLTOOLS` names, or `python3`.
    pub(crate) fn find() -> Result<Self, &'static str> {
        let named = std::env::var_os("RUSTORCH_COREMLTOOLS");
        let python = PathBuf::from(named.unwrap_or_else(|| "python3".into()));
        let imports = ["-c", "import coremltools.libmodelpackage"];
        let found = Command::new(&python).args(imports).output();
        let missing = "no coremltools; RUSTORCH_COREMLTOOLS names a Python that has it";
        match found.is_ok_and(|found| found.status.success()) {
            true => Ok(Self(python)),
            false => Err(missing),
        }
    }
}

pub(crate) fn takes_the_packages_and_gives_the_same(python: &Python) {
    let folder = tempfile::tempdir().unwrap();
    let device =
        |opset, precision, known| Device::keeping(target(opset, precision), known, folder.path());
    for opset in Opset::ALL {
        let programs = device(opset, Precision::F32, Known::AllButTheFirst);
        conforms(programs, &CLAIMED);
    }
    for opset in [Opset::CoreML7, Opset::CoreML8] {
        let table = device(opset, Precision::F32, Known::TheFirst);
        stay_in_blocks(table, OpKind::Embedding, exact());
    }
    compare_precisions(
        &device(Opset::CoreML7, Precision::F32, Known::Nothing),
        &device(Opset::CoreML7, Precision::F16, Known::Nothing),
    );
    let keeping = Target {
        states: true,
        ..target(Opset::CoreML8, Precision::F32)
    };
    states::runs(&Device::keeping(keeping, Known::Nothing, folder.path()));
    random::runs(&device(Opset::CoreML5, Precision::F32, Known::Nothing));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/check-coreml.py");
    let mut command = Command::new(&python.0);
    let checked = command.arg(script).arg(folder.path()).output().unwrap();
    let report = String::from_utf8_lossy(&checked.stdout);
    let errors = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success(), "{report}{errors}");
    println!("{report}");
}
