//! ONNX's node tests: folders `test_…/model.onnx` with `test_data_set_…/input_….pb`, `output_….pb`.
//!
//! The tolerances are those of ONNX's own runner.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustorch_dispatch::{Output, Value};
use rustorch_onnx::{Info, Model, OnnxError, operators};

use crate::replay::compare::{Elements, Expected, How};
use crate::replay::report::{OpReport, Verdict};
use crate::replay::samples::guarded;

const RTOL: f64 = 1e-3;
const ATOL: f64 = 1e-7;

/// All tests of a folder, by their operators; graphs of several nodes by themselves.
pub(crate) fn replay(folder: &Path, wanted: &[String]) -> Result<Vec<OpReport>> {
    let mut reports: BTreeMap<String, OpReport> = BTreeMap::new();
    for test in folders(folder, "test_")? {
        let path = test.join("model.onnx");
        let op = match &operators(&path)?[..] {
            [op] => op.clone(),
            _ => "graphs of several nodes".to_owned(),
        };
        if !wanted.is_empty() && !wanted.contains(&op) {
            continue;
        }
        let report = reports.entry(op.clone());
        let report = report.or_insert_with(|| OpReport::new(op, "onnx"));
        for data in folders(&test, "test_data_set_")? {
            let name = test.file_name().unwrap_or_default().to_string_lossy();
            report.add(name.into_owned(), guarded(|| verdict(&path, &data)));
        }
    }
    match reports.is_empty() {
        true => bail!("{} has no such tests (test_*/model.onnx)", folder.display()),
        false => Ok(reports.into_values().collect()),
    }
}

/// The folders in `folder` whose names begin so, in order.
fn folders(folder: &Path, prefix: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(prefix) && path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Runs a model on a data set's inputs, and compares the outputs.
fn verdict(model: &Path, data: &Path) -> Result<Verdict> {
    Ok(match compared(model, data)? {
        Ok(Ok(())) => Verdict::Passed,
        Ok(Err(reason)) => Verdict::Failed(reason),
        Err(e) if e.is_unsupported() => Verdict::Missing(e.to_string()),
        Err(e) => Verdict::Failed(e.to_string()),
    })
}

/// The first difference between a model's outputs and a data set's.
fn compared(model: &Path, data: &Path) -> Result<Result<Result<(), String>, OnnxError>> {
    let model = match Model::load(model) {
        Ok(model) => model,
        Err(e) => return Ok(Err(e)),
    };
    let files = |kind: &str, infos: &[Info]| -> Result<Vec<Vec<u8>>> {
        let paths = (0..infos.len()).map(|i| data.join(format!("{kind}_{i}.pb")));
        let read = |path: PathBuf| fs::read(&path).with_context(|| path.display().to_string());
        paths.map(read).collect()
    };
    let inputs = files("input", model.inputs())?;
    let outputs = files("output", model.outputs())?;
    let run = || {
        let expected = values(model.outputs(), &outputs)?;
        let names = model.inputs().iter().map(|info| &info.name);
        let found = model.run(names.zip(values(model.inputs(), &inputs)?))?;
        Ok((expected, found))
    };
    let (expected, found) = match run() {
        Ok(both) => both,
        Err(e) => return Ok(Err(e)),
    };
    let expected = expected.into_iter().map(expectation);
    let expected = Expected::List(
        expected
            .collect::<Result<_, _>>()
            .map_err(anyhow::Error::msg)?,
    );
    let found = found.into_iter().map(|(_, value)| output(value));
    Ok(Ok(
        expected.compare(&Output::List(found.collect()), How::Close)
    ))
}

/// The values in files.
fn values(infos: &[Info], files: &[Vec<u8>]) -> Result<Vec<Value>, OnnxError> {
    let pairs = infos.iter().zip(files);
    pairs.map(|(info, bytes)| info.decode(bytes)).collect()
}

fn output(value: Value) -> Output {
    match value {
        Value::Tensor(tensor) => Output::Tensor(tensor),
        Value::List(parts) => Output::List(parts.into_iter().map(output).collect()),
        other => Output::Value(other),
    }
}

fn expectation(value: Value) -> Result<Expected, String> {
    Ok(match value {
        Value::Tensor(tensor) => {
            let dtype = tensor.dtype();
            let is_exact = !dtype.is_float() && !dtype.is_complex();
            Expected::Tensor {
                dtype,
                shape: tensor.shape().to_vec(),
                elements: Elements::of(&tensor)?,
                truth: None,
                rtol: if is_exact { 0.0 } else { RTOL },
                atol: if is_exact { 0.0 } else { ATOL },
            }
        }
        Value::List(parts) => {
            let parts = parts.into_iter().map(expectation);
            Expected::List(parts.collect::<Result<_, _>>()?)
        }
        other => Expected::Value(other),
    })
}
