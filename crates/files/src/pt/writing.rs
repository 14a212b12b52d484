//! Writing files that `torch.load` reads.

use std::io::{Seek, Write};
use std::path::Path;

use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_runtime::Storage;
use rustorch_tensor::Tensor;

use super::place::Place;
use super::{DEEPEST, Value};
use crate::elements::{self, bytes_of};
use crate::error::{FileError, FileResult};
use crate::pickle::DTYPES;
use crate::source;
use crate::tensors::Tensors;
use crate::zip::{Compression, Writer};

/// The name that PyTorch gives to archives that are not files.
const ROOT: &str = "archive";

/// PyTorch's alignment of storages.
const ALIGNMENT: u64 = 64;

/// Writes a file, as [`write()`].
///
/// # Errors
/// The same errors as [`write()`].
#[track_calls(pt)]
pub fn save(path: impl AsRef<Path>, tensors: &Tensors) -> FileResult<()> {
    source::writing(path.as_ref(), |out| write(out, tensors))
}

/// Writes tensors, without their metadata, as a dictionary that `torch.load` reads, also with
/// `weights_only=True`. Each is contiguous; several names of the same memory share one copy.
///
/// # Errors
/// Fails for block formats, which PyTorch lacks, or if a tensor cannot be computed. Also fails if
/// the system reports an error.
#[track_calls(pt)]
pub fn write(out: &mut (impl Write + Seek), tensors: &Tensors) -> FileResult<()> {
    write_value(out, &tensors.into())
}

/// Writes a file, as [`write_value`].
///
/// # Errors
/// The errors of [`write_value`].
#[track_calls(pt)]
pub fn save_value(path: impl AsRef<Path>, value: &Value) -> FileResult<()> {
    source::writing(path.as_ref(), |out| write_value(out, value))
}

/// Writes a value that `torch.load` reads, also with `weights_only=True`: a checkpoint of states, numbers and texts.
/// Writes tensors as [`write()`] does.
///
/// # Errors
/// Fails for containers nested more than 100 deep. Also fails for a list, dictionary or tensor as a
/// key. Also the errors of [`write()`].
#[track_calls(pt)]
pub fn write_value(out: &mut (impl Write + Seek), value: &Value) -> FileResult<()> {
    let mut pickle = Pickle::new();
    pickle.value(value, Place::Whole, DEEPEST)?;
    let Pickle { storages, .. } = &pickle;
    let bytes = [&pickle.bytes[..], b"."].concat();
    let mut writer = Writer::new(out);
    let mut add =
        |name: &str, bytes: u64, fill: &mut dyn FnMut(&mut dyn Write) -> FileResult<()>| {
            let name = format!("{ROOT}/{name}");
            writer.add(&name, Compression::Stored, bytes, ALIGNMENT, fill)
        };
    let mut text = |name: &str, text: &[u8]| {
        add(name, text.len() as u64, &mut |out| {
            (out.write_all(text)).map_err(FileError::io("write the pickle"))
        })
    };
    text("data.pkl", &bytes)?;
    text("byteorder", b"little")?;
    for (key, (_, name, tensor)) in storages.iter().enumerate() {
        add(&format!("data/{key}"), bytes_of(tensor), &mut |out| {
            elements::write(name, tensor, out)
        })?;
    }
    add("version", 2, &mut |out| {
        (out.write_all(b"3\n")).map_err(FileError::io("write the version"))
    })?;
    writer.finish()
}

/// A pickle that is being written.
struct Pickle<'a> {
    bytes: Vec<u8>,
    /// The storages so far, by their keys, each with the tensor that it is written for, and where that is.
    storages: Vec<(Storage, String, &'a Tensor)>,
}

impl<'a> Pickle<'a> {
    /// Protocol 2.
    fn new() -> Self {
        Self {
            bytes: b"\x80\x02".to_vec(),
            storages: Vec::new(),
        }
    }

    /// A value at a place, which may have others in it `depth` deep.
    fn value(&mut self, value: &'a Value, place: Place<'_>, depth: usize) -> FileResult<()> {
        let Some(depth) = depth.checked_sub(1) else {
            let problem = format!("containers are nested more than {DEEPEST} deep");
            return Err(unwritable(&place, problem, "save a flatter value"));
        };
        match value {
            Value::None => self.bytes.push(b'N'),
            Value::Bool(value) => self.bytes.push(if *value { 0x88 } else { 0x89 }),
            Value::Int(number) => self.number(*number),
            Value::Float(number) => {
                self.bytes.push(b'G');
                self.bytes.extend(number.to_be_bytes());
            }
            Value::Text(text) => self.text(text)?,
            Value::Tensor(tensor) => self.tensor(tensor, &place)?,
            Value::List(list) => {
                self.bytes.extend(b"](");
                self.parts(list, &place, depth)?;
                self.bytes.push(b'e');
            }
            Value::Tuple(list) => {
                self.bytes.push(b'(');
                self.parts(list, &place, depth)?;
                self.bytes.push(b't');
            }
            Value::Dict(entries) => {
                self.bytes.extend(b"}(");
                for (key, value) in entries {
                    self.key(key, &place, depth)?;
                    self.value(value, place.inside(key), depth)?;
                }
                self.bytes.push(b'u');
            }
        }
        Ok(())
    }

    fn parts(&mut self, parts: &'a [Value], place: &Place<'_>, depth: usize) -> FileResult<()> {
        let mut numbered = (0..).zip(parts);
        numbered.try_for_each(|(at, part)| self.value(part, Place::At(place, at), depth))
    }

    /// A key of a dictionary, which Python can hash.
    fn key(&mut self, key: &'a Value, place: &Place<'_>, depth: usize) -> FileResult<()> {
        match is_key(key) {
            true => self.value(key, Place::Other(place), depth),
            false => {
                let problem = format!("{} cannot be a key", key.kind());
                let advice = "use a text, a number or a tuple of such";
                Err(unwritable(place, problem, advice))
            }
        }
    }

    fn tensor(&mut self, tensor: &'a Tensor, place: &Place<'_>) -> FileResult<()> {
        let name = place.to_string();
        let storage = tensor.storage().map_err(FileError::tensor(&name))?;
        let known = (self.storages.iter()).position(|(known, ..)| known.same_as(&storage));
        let key = known.unwrap_or(self.storages.len());
        self.entry(&name, key, tensor.dtype(), tensor.shape())?;
        if known.is_none() {
            self.storages.push((storage, name, tensor));
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> FileResult<()> {
        let len = u32::try_from(text.len()).map_err(|_| FileError::Unwritable {
            name: text.to_owned(),
            problem: "the name has more than 4 GiB".to_owned(),
            advice: "choose a shorter one".to_owned(),
        })?;
        self.bytes.push(b'X');
        self.bytes.extend(len.to_le_bytes());
        self.bytes.extend(text.bytes());
        Ok(())
    }

    fn global(&mut self, module: &str, name: &str) {
        self.bytes.extend(format!("c{module}\n{name}\n").bytes());
    }

    /// A number by the shortest of the opcodes that can hold it.
    fn number(&mut self, number: i128) {
        match (u8::try_from(number), i32::try_from(number)) {
            (Ok(small), _) => self.bytes.extend([b'K', small]),
            (_, Ok(number)) => {
                self.bytes.push(b'J');
                self.bytes.extend(number.to_le_bytes());
            }
            _ => {
                let bytes = number.to_le_bytes();
                self.bytes.extend([0x8a, bytes.len() as u8]);
                self.bytes.extend(bytes);
            }
        }
    }

    fn tuple(&mut self, numbers: &[usize]) {
        self.bytes.push(b'(');
        numbers.iter().for_each(|&n| self.number(n as i128));
        self.bytes.push(b't');
    }

    /// `torch._utils._rebuild_tensor_v2`, or `…_v3` for dtypes that have no storages of their own,
    /// with its arguments.
    fn entry(&mut self, name: &str, key: usize, dtype: DType, shape: &[usize]) -> FileResult<()> {
        let known = DTYPES.iter().find(|&&(_, _, known)| known == dtype);
        let &(dtype_name, storage, _) = known.ok_or_else(|| {
            FileError::no_dtype(
                name,
                "PyTorch",
                dtype,
                "convert it to f32, or write a .gguf file",
            )
        })?;
        let count: usize = shape.iter().product();
        let rebuild = match storage {
            Some(_) => "_rebuild_tensor_v2",
            None => "_rebuild_tensor_v3",
        };
        self.global("torch._utils", rebuild);
        self.bytes.extend(b"((");
        self.text("storage")?;
        match storage {
            Some(storage) => self.global("torch", storage),
            None => self.global("torch.storage", "UntypedStorage"),
        }
        self.text(&key.to_string())?;
        self.text("cpu")?;
        let unit = if storage.is_some() {
            1
        } else {
            dtype.size().unwrap_or(1)
        };
        self.number((count * unit) as i128);
        self.bytes.extend(b"tQ");
        self.number(0);
        self.tuple(shape);
        self.tuple(&elements::dense_strides(shape));
        // No gradient is wanted, and there are no hooks.
        self.bytes.push(0x89);
        self.global("collections", "OrderedDict");
        self.bytes.extend(b")R");
        if storage.is_none() {
            self.global("torch", dtype_name);
        }
        self.bytes.extend(b"tR");
        Ok(())
    }
}

/// Can Python hash it?
fn is_key(value: &Value) -> bool {
    match value {
        Value::Tuple(parts) => parts.iter().all(is_key),
        Value::List(_) | Value::Dict(_) | Value::Tensor(_) => false,
        _ => true,
    }
}

fn unwritable(place: &Place<'_>, problem: String, advice: &'static str) -> FileError {
    FileError::UnwritableValue {
        place: place.shown(),
        problem,
        advice,
    }
}
