//! From a file's pickle and storages to values.

use std::collections::HashMap;

use rustorch_gguf::quoted;
use rustorch_ir::DType;
use rustorch_tensor::Tensor;

use super::place::Place;
use super::{DEEPEST, LEGACY_MAGIC, Value};
use crate::elements::{self, ByteOrder};
use crate::error::{FileError, FileResult};
use crate::pickle::{DTYPES, Global, Id, Object, Pickled, StorageObject, TensorObject, unpickle};
use crate::source::Source;
use crate::zip::Archive;

const PICKLE: &str = "the pickle";

/// Number of bytes of values and of tensors' names for each byte of the pickle. Its parts may occur several
/// times, but a small file must not become large by that.
const VALUES_PER_BYTE: usize = 2 * size_of::<Value>();

/// A tensor's share of that: a little more than its node, shape and strides.
const TENSOR: usize = 1024;

/// The fixed cost of a tensor, besides its name: an entry of a map of such, which has room for as many again.
const ENTRY: usize = 2 * size_of::<(u64, String, Tensor)>();

/// Bytes that an entry may have which is not a storage's, if it is compressed. PyTorch compresses none.
const LARGEST_PACKED: u64 = 4 << 20;

/// Bytes that a tensor may show if its storage has fewer, as an expanded one does.
const LARGEST_EXPANDED: usize = 1 << 30;

/// Reads a zip archive.
pub(super) fn archive(source: &Source) -> FileResult<Value> {
    const DATA: &str = "data.pkl";
    let archive = Archive::read(source, u64::MAX)?;
    let is_pickle = |name: &&str| name.rsplit('/').next() == Some(DATA);
    let Some(pickle) = archive.names().find(is_pickle) else {
        let advice = "save it with torch.save";
        let found = format!("a zip archive without {DATA}");
        return Err(FileError::unsupported("the zip archive", found, advice));
    };
    let root = &pickle[..pickle.len() - DATA.len()];
    let missing = || FileError::damaged("the zip archive", "it has no pickle");
    let read = |name: &str| archive.data_within(name, LARGEST_PACKED);
    let bytes = read(pickle).ok_or_else(missing)??;
    let order = match read(&format!("{root}byteorder")).transpose()? {
        Some(order) if *order == *b"big" => ByteOrder::Big,
        _ => ByteOrder::Little,
    };
    let (pickled, _) = unpickle(PICKLE, &bytes)?;
    let find = |key: &str, bytes: usize| {
        let name = format!("{root}data/{key}");
        archive.data_within(&name, bytes as u64).transpose()
    };
    Reader::new(&pickled, order, bytes.len(), &find).value()
}

/// Reads the format before zip archives: pickles of a magic number, the format's version, the machine, the value and
/// the storages' keys; then for each storage its number of elements in 8 bytes, and these.
pub(super) fn legacy(source: &Source) -> FileResult<Value> {
    let mut at = LEGACY_MAGIC.len();
    let (version, len) = unpickle("the version", &source[at..])?;
    at += len;
    if !matches!(version.objects[version.value], Object::Int(1001)) {
        let found = "another version of the format before zip archives";
        let advice = "save it again with a current PyTorch";
        return Err(FileError::unsupported("the version", found, advice));
    }
    let (machine, len) = unpickle("what machine it was", &source[at..])?;
    at += len;
    let order = byte_order(&machine);
    let begin = at;
    let (value, len) = unpickle(PICKLE, &source[at..])?;
    at += len;
    let (keys, len) = unpickle("the list of storages", &source[at..])?;
    at += len;
    let storages = legacy_storages(source, &value, &keys, at)?;
    let find = |key: &str, _: usize| Ok(storages.get(key).cloned());
    Reader::new(&value, order, at - begin, &find).value()
}

fn byte_order(machine: &Pickled<'_>) -> ByteOrder {
    let objects = &machine.objects;
    let is_little = |&(key, value): &(Id, Id)| {
        matches!(objects[key], Object::Text("little_endian"))
            .then(|| !matches!(objects[value], Object::Bool(false)))
    };
    match &objects[machine.value] {
        Object::Dict(entries) if entries.iter().find_map(is_little) == Some(false) => {
            ByteOrder::Big
        }
        _ => ByteOrder::Little,
    }
}

/// The offset of each storage, in the order of the keys from `at` on.
fn legacy_storages<'a>(
    source: &Source,
    value: &Pickled<'_>,
    keys: &Pickled<'a>,
    mut at: usize,
) -> FileResult<HashMap<&'a str, Source>> {
    const COUNT: usize = 8;
    let mut known = HashMap::new();
    for object in &value.objects {
        if let Object::Storage(storage) = object {
            known.insert(storage.key, storage);
        }
    }
    let wrong = || FileError::damaged("the list of storages", "it is not a list of known keys");
    let Object::List(list) = &keys.objects[keys.value] else {
        return Err(wrong());
    };
    let mut storages = HashMap::new();
    for &key in list {
        let Object::Text(key) = keys.objects[key] else {
            return Err(wrong());
        };
        let storage = known.get(key).ok_or_else(wrong)?;
        let bytes = bytes_of(storage)?;
        let count = source.part(place(key), at as u64, COUNT as u64)?;
        if *count != (storage.count as u64).to_le_bytes() {
            let problem = "the number of its elements is not that of the pickle";
            return Err(FileError::damaged(place(key), problem));
        }
        let data = source.part(place(key), (at + COUNT) as u64, bytes as u64)?;
        at += COUNT + bytes;
        storages.insert(key, data);
    }
    Ok(storages)
}

fn place(key: &str) -> String {
    format!("storage {}", quoted(key))
}

fn bytes_of(storage: &StorageObject<'_>) -> FileResult<usize> {
    let size = storage.dtype.and_then(DType::size).unwrap_or(1);
    storage.count.checked_mul(size).ok_or_else(|| {
        let problem = format!("{} elements are too large for memory", storage.count);
        FileError::damaged(place(storage.key), problem)
    })
}

/// The bytes of a storage, by its key and how many they have to be.
type Find<'a> = dyn Fn(&str, usize) -> FileResult<Option<Source>> + 'a;

/// Makes values of objects.
struct Reader<'a> {
    pickled: &'a Pickled<'a>,
    order: ByteOrder,
    find: &'a Find<'a>,
    /// Storages as tensors of one dimension, by the dtypes that they were seen as.
    storages: HashMap<(&'a str, DType), Tensor>,
    /// Tensors that were made: an object that is there several times is one.
    tensors: HashMap<Id, Tensor>,
    /// Number of bytes of values and names that may still be made.
    left: usize,
}

impl<'a> Reader<'a> {
    fn new(pickled: &'a Pickled<'a>, order: ByteOrder, bytes: usize, find: &'a Find<'a>) -> Self {
        Self {
            pickled,
            order,
            find,
            storages: HashMap::new(),
            tensors: HashMap::new(),
            left: bytes.saturating_mul(VALUES_PER_BYTE),
        }
    }

    fn value(&mut self) -> FileResult<Value> {
        self.make(self.pickled.value, Place::Whole, DEEPEST)
    }

    /// Fails if there are too many bytes with these.
    fn spend(&mut self, bytes: usize) -> FileResult<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => {
                let problem = "the same containers, texts or tensors occur too often, or one \
                    contains itself";
                return Err(FileError::damaged(PICKLE, problem));
            }
        }
        Ok(())
    }

    /// The value of an object at a place, which may have others in it `depth` deep.
    fn make(&mut self, id: Id, place: Place<'_>, depth: usize) -> FileResult<Value> {
        let Some(depth) = depth.checked_sub(1) else {
            let problem = "containers are nested too deeply, or one contains itself";
            return Err(FileError::damaged(PICKLE, problem));
        };
        self.spend(size_of::<Value>())?;
        let pickled = self.pickled;
        Ok(match &pickled.objects[id] {
            Object::None => Value::None,
            Object::Bool(value) => Value::Bool(*value),
            Object::Int(value) => Value::Int(*value),
            Object::Float(value) => Value::Float(*value),
            Object::Text(text) => {
                self.spend(text.len())?;
                Value::Text((*text).to_owned())
            }
            Object::List(list) => Value::List(self.list(list, place, depth)?),
            Object::Tuple(list) => Value::Tuple(self.list(list, place, depth)?),
            Object::Dict(entries) => Value::Dict(self.dict(entries, place, depth)?),
            Object::Tensor(tensor) => {
                self.spend(place.bytes() + ENTRY)?;
                let known = self.tensors.get(&id).cloned();
                Value::Tensor(match known {
                    Some(known) => known,
                    None => {
                        self.spend(TENSOR)?;
                        let made = self.tensor(tensor, &place.to_string())?;
                        self.tensors.insert(id, made.clone());
                        made
                    }
                })
            }
            Object::Storage(_) => {
                let advice = "save the tensor that it belongs to";
                return Err(FileError::unsupported(PICKLE, "a storage alone", advice));
            }
            Object::Device(kind, number) => {
                let number = number.map(|number| format!(":{number}"));
                let device = format!("{kind}{}", number.unwrap_or_default());
                self.spend(device.len())?;
                Value::Text(device)
            }
            Object::Global(Global::DType(dtype)) => {
                let known = DTYPES.iter().find(|(_, _, known)| known == dtype);
                let name = known.map_or("", |(name, ..)| name);
                Value::Text(format!("torch.{name}"))
            }
            Object::Global(global) => {
                let found = format!("{global:?} alone");
                let advice = "save its name as a text";
                return Err(FileError::unsupported(PICKLE, found, advice));
            }
        })
    }

    fn list(&mut self, list: &[Id], place: Place<'_>, depth: usize) -> FileResult<Vec<Value>> {
        let numbered = (0..).zip(list);
        let values = numbered.map(|(at, &id)| self.make(id, Place::At(&place, at), depth));
        values.collect()
    }

    fn dict(
        &mut self,
        entries: &[(Id, Id)],
        place: Place<'_>,
        depth: usize,
    ) -> FileResult<Vec<(Value, Value)>> {
        let mut values = Vec::new();
        for &(key, value) in entries {
            let key = self.make(key, place, depth)?;
            let value = self.make(value, place.inside(&key), depth)?;
            values.push((key, value));
        }
        Ok(values)
    }

    fn tensor(&mut self, tensor: &TensorObject, name: &str) -> FileResult<Tensor> {
        let pickled = self.pickled;
        let Object::Storage(storage) = &pickled.objects[tensor.storage] else {
            return Err(FileError::damaged(PICKLE, "a tensor has no storage"));
        };
        elements::check_rank(name, &tensor.shape)?;
        let shown = tensor.dtype.bytes_of(&tensor.shape);
        let limit = bytes_of(storage)?.max(LARGEST_EXPANDED);
        if shown.is_none_or(|bytes| bytes > limit) {
            let problem = format!(
                "its shape {:?} shows more than the {limit} bytes that it may",
                tensor.shape
            );
            return Err(FileError::damaged(
                format!("tensor {}", quoted(name)),
                problem,
            ));
        }
        let memory = self.storage(storage, tensor.dtype)?;
        let offset = memory.storage_offset().checked_add(tensor.offset);
        let offset = offset.unwrap_or(usize::MAX);
        let seen = memory.as_strided(&tensor.shape, &tensor.strides, offset);
        seen.map_err(FileError::tensor(name))
    }

    /// A storage, seen as elements of a dtype.
    fn storage(&mut self, storage: &StorageObject<'a>, dtype: DType) -> FileResult<Tensor> {
        let key = (storage.key, dtype);
        if let Some(known) = self.storages.get(&key) {
            return Ok(known.clone());
        }
        let place = place(storage.key);
        let bytes = bytes_of(storage)?;
        let Some(data) = (self.find)(storage.key, bytes)? else {
            return Err(FileError::damaged(place, "its bytes are not in the file"));
        };
        let data = data.part(&place, 0, bytes as u64)?;
        let size = dtype.size().unwrap_or(1);
        if !bytes.is_multiple_of(size) {
            let problem = format!("its {bytes} bytes are not whole elements of {dtype}");
            return Err(FileError::damaged(place, problem));
        }
        let data = elements::native(storage.key, data, dtype, self.order)?;
        let tensor = elements::tensor(storage.key, &data, dtype, &[bytes / size])?;
        self.storages.insert(key, tensor.clone());
        Ok(tensor)
    }
}
