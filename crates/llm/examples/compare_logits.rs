//! Compares logits with llama.cpp's, file by file.
//!
//! ```text
//! compare_logits MODELS REFERENCE [PART OF A NAME]
//! ```
//!
//! `REFERENCE` has `tokens.txt`, token ids between spaces. For each `NAME.gguf` of `MODELS` it has `NAME.npy`:
//! llama.cpp's logits of all positions, `f32` `[tokens, vocab]`. Prints each file's normalised mean squared error, or
//! why the file was refused.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use rustorch_gguf::Gguf;
use rustorch_ir::DType;
use rustorch_llm::{LlmError, Model, Session, SessionOptions};
use rustorch_tensor::runtime;

/// Logits of all positions, the tokens fed in batches of this size.
fn logits(path: &Path, tokens: &[u32], batch: usize) -> Result<Vec<f32>, Box<dyn Error>> {
    let model = Model::load(Gguf::open(path)?)?;
    let options = SessionOptions {
        batch,
        context: 256,
        cache_dtype: DType::F32,
        ..SessionOptions::default()
    };
    let mut session = Session::new(&model, &runtime(), options)?;
    let mut found = Vec::new();
    session.feed_all(tokens, |_, rows| {
        found.extend_from_slice(rows);
        Ok::<_, LlmError>(())
    })?;
    Ok(found)
}

/// The numbers of a file of NumPy's, `f32`.
fn npy(path: &Path) -> Result<Vec<f32>, Box<dyn Error>> {
    let bytes = fs::read(path)?;
    let header = bytes.get(8..10).ok_or("no header")?;
    let from = 10 + usize::from(u16::from_le_bytes([header[0], header[1]]));
    let data = bytes.get(from..).ok_or("no data")?;
    let numbers = data.as_chunks().0.iter();
    Ok(numbers.map(|x: &[u8; 4]| f32::from_le_bytes(*x)).collect())
}

fn nmse(found: &[f32], expected: &[f32]) -> f64 {
    if found.len() != expected.len() {
        return f64::INFINITY;
    }
    let square = |x: f64| x * x;
    let pairs = found.iter().zip(expected).filter(|(a, b)| a != b);
    let error: f64 = pairs
        .map(|(&a, &b)| square(f64::from(a) - f64::from(b)))
        .sum();
    let power = expected.iter().filter(|x| x.is_finite() && **x > f32::MIN);
    error / power.map(|&x| square(x.into())).sum::<f64>()
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [models, reference, ..] = &arguments[..] else {
        return Err("expected two folders".into());
    };
    let only = arguments.get(2);
    let tokens = fs::read_to_string(Path::new(reference).join("tokens.txt"))?;
    let tokens = tokens.split_whitespace().map(str::parse);
    let tokens: Vec<u32> = tokens.collect::<Result<_, _>>()?;
    let mut files: Vec<_> = fs::read_dir(models)?.collect::<Result<_, _>>()?;
    files.sort_by_key(fs::DirEntry::path);
    let mut failed = 0;
    for file in files {
        let path = file.path();
        let name = path.file_stem().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        if only.is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let expected = npy(&Path::new(reference).join(format!("{name}.npy")))?;
        for batch in [tokens.len(), 40, 1] {
            match logits(&path, &tokens, batch) {
                Ok(found) => {
                    let error = nmse(&found, &expected);
                    let is_good = error <= 1e-6;
                    failed += usize::from(!is_good);
                    if batch > 40 || !is_good {
                        let verdict = if is_good { "" } else { " FAILED" };
                        println!("{name} {batch} {error:.1e}{verdict}");
                    }
                }
                Err(error) => {
                    println!("{name} {error}");
                    break;
                }
            }
        }
    }
    println!("{failed} failed");
    Ok(ExitCode::from(u8::from(failed > 0)))
}
