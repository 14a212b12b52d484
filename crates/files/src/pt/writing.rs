//! Writing files that `torch.load` reads.

use std::io::{Seek, Write};
use std::path::Path;

use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_runtime::Storage;

use crate::elements::{self, bytes_of};
use crate::error::{FileError, FileResult};
use crate::pickle::DTYPES;
use crate::source;
use crate::tensors::Tensors;
use crate::zip::{Compression, Writer};

/// The name that PyTorch gives what it writes elsewhere than to a file.
const ROOT: &str = "archive";

/// Where PyTorch begins storages.
const ALIGNMENT: u64 = 64;

/// Writes a file, as [`write()`].
///
/// # Errors
/// As [`write()`].
#[track_calls(pt)]
pub fn save(path: impl AsRef<Path>, tensors: &Tensors) -> FileResult<()> {
    source::writing(path.as_ref(), |out| write(out, tensors))
}

/// Writes tensors, without their metadata, as a dictionary that `torch.load` reads, also with `weights_only=True`:
/// each contiguous, and once if several names are on the same whole memory.
///
/// # Errors
/// Block formats, which PyTorch does not have; a tensor cannot be computed; what the system refuses.
#[track_calls(pt)]
pub fn write(out: &mut (impl Write + Seek), tensors: &Tensors) -> FileResult<()> {
    let mut pickle = Pickle::new();
    let mut storages: Vec<(Storage, &str)> = Vec::new();
    for (name, tensor) in tensors.iter() {
        let storage = tensor.storage().map_err(FileError::tensor(name))?;
        let known = (storages.iter()).position(|(known, _)| known.same_as(&storage));
        let key = known.unwrap_or(storages.len());
        if known.is_none() {
            storages.push((storage, name));
        }
        pickle.entry(name, key, tensor.dtype(), tensor.shape())?;
    }
    let pickle = pickle.finish();
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
    text("data.pkl", &pickle)?;
    text("byteorder", b"little")?;
    for (key, (_, name)) in storages.iter().enumerate() {
        let tensor = tensors.get(name)?;
        add(&format!("data/{key}"), bytes_of(tensor), &mut |out| {
            elements::write(name, tensor, out)
        })?;
    }
    add("version", 2, &mut |out| {
        (out.write_all(b"3\n")).map_err(FileError::io("write the version"))
    })?;
    writer.finish()
}

/// A pickle of a dictionary that is being written.
struct Pickle {
    bytes: Vec<u8>,
}

impl Pickle {
    /// Protocol 2, an empty dictionary, and a mark behind which its entries come.
    fn new() -> Self {
        Self {
            bytes: b"\x80\x02}(".to_vec(),
        }
    }

    /// All entries into the dictionary, and the end.
    fn finish(mut self) -> Vec<u8> {
        self.bytes.extend(b"u.");
        self.bytes
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
    fn number(&mut self, number: usize) {
        match (u8::try_from(number), i32::try_from(number)) {
            (Ok(small), _) => self.bytes.extend([b'K', small]),
            (_, Ok(number)) => {
                self.bytes.push(b'J');
                self.bytes.extend(number.to_le_bytes());
            }
            _ => {
                // No size has its highest bit set, so that this is positive.
                self.bytes.extend([0x8a, 8]);
                self.bytes.extend((number as u64).to_le_bytes());
            }
        }
    }

    fn tuple(&mut self, numbers: &[usize]) {
        self.bytes.push(b'(');
        numbers.iter().for_each(|&n| self.number(n));
        self.bytes.push(b't');
    }

    /// A name, and `torch._utils._rebuild_tensor_v2`, or `…_v3` for dtypes that have no storages of their own, with
    /// its arguments.
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
        self.text(name)?;
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
        self.number(count * unit);
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
