//! The machine that turns opcodes into objects.

use std::cell::Cell;
use std::collections::HashMap;

use rustorch_gguf::quoted;

use super::objects::{Global, Id, Object, Pickled, StorageObject, TensorObject};
use crate::error::{FileError, FileResult};

/// Number of parts of tuples and lists that may be looked at for each byte. An argument may occur often, but a small
/// file must not become large, or take long, by that.
const LOOKS_PER_BYTE: usize = 4;

/// Reads the pickle that `bytes` begin with, and returns with it how long it is.
///
/// # Errors
/// Fails for an opcode or a name that `torch.save` does not write for tensors and plain data. Also
/// fails for data that contradicts the format.
pub(crate) fn unpickle<'a>(place: &str, bytes: &'a [u8]) -> FileResult<(Pickled<'a>, usize)> {
    let mut machine = Machine {
        place,
        bytes,
        at: 0,
        objects: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
        looks: Cell::new(bytes.len().saturating_mul(LOOKS_PER_BYTE)),
    };
    while !machine.step()? {}
    let value = machine.pop()?;
    let objects = machine.objects;
    Ok((Pickled { objects, value }, machine.at))
}

struct Machine<'a, 'p> {
    place: &'p str,
    bytes: &'a [u8],
    /// The next byte.
    at: usize,
    objects: Vec<Object<'a>>,
    stack: Vec<Id>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
    /// Number of parts of arguments that may still be looked at.
    looks: Cell<usize>,
}

impl<'a> Machine<'a, '_> {
    /// Runs the next opcode; was it the last?
    fn step(&mut self) -> FileResult<bool> {
        let opcode = self.take(1)?[0];
        match opcode {
            b'.' => return Ok(true),
            // Versions and frames say nothing about the value.
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.pop_mark()?),
            b'2' => {
                let top = self.pop()?;
                self.stack.extend([top, top]);
            }
            b'N' | 0x88 | 0x89 | b'K' | b'M' | b'J' | 0x8a | b'G' => self.number(opcode)?,
            b'X' | 0x8c | 0x8d | b'U' | b'T' => self.text(opcode)?,
            b']' | b'l' | b'a' | b'e' => self.list(opcode)?,
            b')' | b't' | 0x85..=0x87 => self.tuple(opcode)?,
            b'}' | b'd' | b's' | b'u' => self.dict(opcode)?,
            b'q' | b'r' | 0x94 | b'h' | b'j' => self.memo(opcode)?,
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(module, name)?;
            }
            0x93 => {
                let (name, module) = (self.pop_text()?, self.pop_text()?);
                self.global(module, name)?;
            }
            b'Q' => self.storage()?,
            b'R' => self.call()?,
            b'b' => self.build()?,
            other => {
                let found = format!("opcode 0x{other:02x} at byte {} of the pickle", self.at - 1);
                return Err(self.unsupported(found));
            }
        }
        Ok(false)
    }

    fn wrong(&self, problem: impl std::fmt::Display) -> FileError {
        let problem = format!("{problem} at byte {} of the pickle", self.at);
        FileError::damaged(self.place, problem)
    }

    fn unsupported(&self, found: String) -> FileError {
        let advice = "save tensors, numbers, texts, lists, tuples and dictionaries alone, such as a state_dict";
        FileError::unsupported(self.place, found, advice)
    }

    fn take(&mut self, len: usize) -> FileResult<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let Some(taken) = rest.get(..len) else {
            return Err(FileError::Truncated {
                place: self.place.to_owned(),
                offset: self.at as u64,
                needed: len as u64,
                left: rest.len() as u64,
            });
        };
        self.at += len;
        Ok(taken)
    }

    /// A little-endian number.
    fn size(&mut self, width: usize) -> FileResult<u64> {
        let bytes = self.take(width)?;
        Ok(bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
    }

    /// Text up to the end of the line.
    fn line(&mut self) -> FileResult<&'a str> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|&byte| byte == b'\n');
        let line = self.take(end.unwrap_or(rest.len()) + 1)?;
        self.utf8(&line[..line.len() - 1])
    }

    fn utf8(&self, bytes: &'a [u8]) -> FileResult<&'a str> {
        str::from_utf8(bytes).map_err(|_| self.wrong("a text is not UTF-8"))
    }

    fn push(&mut self, object: Object<'a>) {
        self.stack.push(self.objects.len());
        self.objects.push(object);
    }

    fn pop(&mut self) -> FileResult<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack.len() > floor {
            true => Ok(self.stack.pop().unwrap_or_default()),
            false => Err(self.wrong("an object is missing on the stack")),
        }
    }

    /// All from the last mark on.
    fn pop_mark(&mut self) -> FileResult<Vec<Id>> {
        match self.marks.pop() {
            // Nothing below a mark is taken away before it.
            Some(height) => Ok(self.stack.split_off(height)),
            None => Err(self.wrong("a mark is missing on the stack")),
        }
    }

    fn pop_text(&mut self) -> FileResult<&'a str> {
        let id = self.pop()?;
        self.text_of(id)
    }

    /// The object on the top of the stack.
    fn top(&mut self) -> FileResult<&mut Object<'a>> {
        let id = self.pop()?;
        self.stack.push(id);
        Ok(&mut self.objects[id])
    }

    fn number(&mut self, opcode: u8) -> FileResult<()> {
        let object = match opcode {
            b'N' => Object::None,
            0x88 | 0x89 => Object::Bool(opcode == 0x88),
            b'K' => Object::Int(self.size(1)?.into()),
            b'M' => Object::Int(self.size(2)?.into()),
            b'J' => Object::Int((self.size(4)? as u32).cast_signed().into()),
            b'G' => Object::Float(f64::from_bits(self.size(8)?.swap_bytes())),
            _ => {
                let len = self.size(1)? as usize;
                let bytes = self.take(len)?;
                Object::Int(self.long(bytes)?)
            }
        };
        self.push(object);
        Ok(())
    }

    /// A number in two's complement.
    fn long(&self, bytes: &[u8]) -> FileResult<i128> {
        const WIDTH: usize = size_of::<i128>();
        if bytes.len() > WIDTH {
            let found = format!("an integer of {} bytes", bytes.len());
            return Err(self.unsupported(found));
        }
        let is_negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let mut wide = [if is_negative { 0xff } else { 0 }; WIDTH];
        wide[..bytes.len()].copy_from_slice(bytes);
        Ok(i128::from_le_bytes(wide))
    }

    fn text(&mut self, opcode: u8) -> FileResult<()> {
        let width = match opcode {
            0x8c | b'U' => 1,
            0x8d => 8,
            _ => 4,
        };
        let len = self.size(width)?;
        // A length that does not fit is more than the file has.
        let bytes = self.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        let text = self.utf8(bytes)?;
        self.push(Object::Text(text));
        Ok(())
    }

    fn list(&mut self, opcode: u8) -> FileResult<()> {
        let more = match opcode {
            b']' => Vec::new(),
            b'a' => vec![self.pop()?],
            _ => self.pop_mark()?,
        };
        if matches!(opcode, b']' | b'l') {
            self.push(Object::List(more));
            return Ok(());
        }
        match self.top()? {
            Object::List(list) => {
                list.extend(more);
                Ok(())
            }
            _ => Err(self.wrong("no list is there to append to")),
        }
    }

    fn tuple(&mut self, opcode: u8) -> FileResult<()> {
        let parts = match opcode {
            b')' => Vec::new(),
            b't' => self.pop_mark()?,
            _ => {
                let count = usize::from(opcode - 0x84);
                let mut parts = Vec::with_capacity(count);
                for _ in 0..count {
                    parts.push(self.pop()?);
                }
                parts.reverse();
                parts
            }
        };
        self.push(Object::Tuple(parts));
        Ok(())
    }

    fn dict(&mut self, opcode: u8) -> FileResult<()> {
        let parts = match opcode {
            b'}' => Vec::new(),
            b's' => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.pop_mark()?,
        };
        if !parts.len().is_multiple_of(2) {
            return Err(self.wrong("a key is without a value"));
        }
        let more = parts.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        if matches!(opcode, b'}' | b'd') {
            self.push(Object::Dict(more.collect()));
            return Ok(());
        }
        match self.top()? {
            Object::Dict(dict) => {
                dict.extend(more);
                Ok(())
            }
            _ => Err(self.wrong("no dictionary is there to put a key into")),
        }
    }

    fn memo(&mut self, opcode: u8) -> FileResult<()> {
        let key = match opcode {
            b'q' | b'h' => self.size(1)?,
            b'r' | b'j' => self.size(4)?,
            _ => self.memo.len() as u64,
        };
        if matches!(opcode, b'h' | b'j') {
            let Some(&id) = self.memo.get(&key) else {
                return Err(self.wrong(format_args!("there is no object {key} in the memo")));
            };
            self.stack.push(id);
        } else {
            let id = self.pop()?;
            self.stack.push(id);
            self.memo.insert(key, id);
        }
        Ok(())
    }

    fn global(&mut self, module: &str, name: &str) -> FileResult<()> {
        let Some(global) = Global::find(module, name) else {
            let name = quoted(&format!("{module}.{name}"));
            return Err(self.unsupported(format!("the Python object {name}")));
        };
        self.push(Object::Global(global));
        Ok(())
    }

    /// Makes a storage of `('storage', type, key, location, count)`; the location is a device, and nothing here.
    fn storage(&mut self) -> FileResult<()> {
        let id = self.pop()?;
        let parts = self.parts(id)?;
        let (kind, key, count) = match parts[..] {
            [tag, kind, key, _, count] => {
                self.expect_text(tag, "storage")?;
                (kind, key, count)
            }
            // Files of the older format say here whether it is a part of another one.
            [tag, kind, key, _, count, view] => {
                self.expect_text(tag, "storage")?;
                if !matches!(self.objects[view], Object::None) {
                    return Err(self.unsupported("a storage that is a part of another".to_owned()));
                }
                (kind, key, count)
            }
            _ => return Err(self.wrong("this is not a storage")),
        };
        let Object::Global(Global::Storage(dtype)) = self.objects[kind] else {
            return Err(self.wrong("a storage has no type"));
        };
        let storage = StorageObject {
            key: self.text_of(key)?,
            dtype,
            count: self.size_of(count)?,
        };
        self.push(Object::Storage(Box::new(storage)));
        Ok(())
    }

    fn parts(&self, id: Id) -> FileResult<Vec<Id>> {
        match &self.objects[id] {
            Object::Tuple(parts) | Object::List(parts) => {
                let looks = self.looks.get().checked_sub(parts.len());
                let too_often = || self.wrong("the same arguments are used too often");
                self.looks.set(looks.ok_or_else(too_often)?);
                Ok(parts.clone())
            }
            _ => Err(self.wrong("a tuple is missing")),
        }
    }

    fn text_of(&self, id: Id) -> FileResult<&'a str> {
        match self.objects[id] {
            Object::Text(text) => Ok(text),
            _ => Err(self.wrong("a text is missing")),
        }
    }

    fn expect_text(&self, id: Id, expected: &str) -> FileResult<()> {
        match self.text_of(id)? == expected {
            true => Ok(()),
            false => Err(self.wrong(format_args!("`{expected}` is missing"))),
        }
    }

    fn size_of(&self, id: Id) -> FileResult<usize> {
        match self.objects[id] {
            Object::Int(n) => {
                usize::try_from(n).map_err(|_| self.wrong(format_args!("{n} is not a valid size")))
            }
            _ => Err(self.wrong("a size is missing")),
        }
    }

    fn sizes_of(&self, id: Id) -> FileResult<Vec<usize>> {
        let parts = self.parts(id)?;
        parts.into_iter().map(|part| self.size_of(part)).collect()
    }

    /// Calls a name that is known, with a tuple of arguments.
    fn call(&mut self) -> FileResult<()> {
        let (arguments, callee) = (self.pop()?, self.pop()?);
        let Object::Global(global) = self.objects[callee] else {
            return Err(self.wrong("the called object is not a name"));
        };
        let arguments = self.parts(arguments)?;
        match (global, &arguments[..]) {
            (Global::OrderedDict, []) => self.push(Object::Dict(Vec::new())),
            (Global::OrderedDict, [pairs]) => {
                let dict = self.pairs(*pairs)?;
                self.push(Object::Dict(dict));
            }
            (Global::Set, [list]) => {
                let parts = self.parts(*list)?;
                self.push(Object::List(parts));
            }
            (Global::Counter | Global::Size, [given]) => self.stack.push(*given),
            (Global::Device, [kind]) => {
                let kind = self.text_of(*kind)?;
                self.push(Object::Device(kind, None));
            }
            (Global::Device, [kind, number]) => {
                let (kind, number) = (self.text_of(*kind)?, self.size_of(*number)?);
                self.push(Object::Device(kind, Some(number)));
            }
            // Whether it wants a gradient, hooks and attributes are of no concern here.
            (Global::RebuildParameter, [data, _, _] | [data, _, _, _]) => self.stack.push(*data),
            (Global::RebuildTensor(version), _) => {
                let tensor = self.tensor(version, &arguments)?;
                self.push(Object::Tensor(Box::new(tensor)));
            }
            _ => return Err(self.wrong(format_args!("{global:?} has other arguments"))),
        }
        Ok(())
    }

    fn pairs(&self, list: Id) -> FileResult<Vec<(Id, Id)>> {
        let pairs = self.parts(list)?.into_iter().map(|pair| {
            let pair = self.parts(pair)?;
            match pair[..] {
                [key, value] => Ok((key, value)),
                _ => Err(self.wrong("a dictionary has entries that are not pairs")),
            }
        });
        pairs.collect()
    }

    /// A tensor of `(storage, offset, shape, strides[, requires_grad, hooks][, dtype][, metadata])`.
    fn tensor(&self, version: u8, arguments: &[Id]) -> FileResult<TensorObject> {
        let wrong = || self.wrong("a tensor has other arguments");
        let &[storage, offset, shape, strides, ref rest @ ..] = arguments else {
            return Err(wrong());
        };
        let Object::Storage(memory) = &self.objects[storage] else {
            return Err(self.wrong("a tensor has no storage"));
        };
        let (dtype, metadata) = match (version, rest) {
            (1, []) => (memory.dtype, None),
            (2, [_, _]) => (memory.dtype, None),
            (2, [_, _, metadata]) => (memory.dtype, Some(metadata)),
            (3, [_, _, dtype, metadata @ ..]) if metadata.len() <= 1 => {
                let Object::Global(Global::DType(dtype)) = self.objects[*dtype] else {
                    return Err(wrong());
                };
                (Some(dtype), metadata.first())
            }
            _ => return Err(wrong()),
        };
        let is_plain = metadata.is_none_or(|&id| match &self.objects[id] {
            Object::None => true,
            Object::Dict(entries) => entries.is_empty(),
            _ => false,
        });
        if !is_plain {
            let found = "a tensor that is conjugated or negated when it is read".to_owned();
            return Err(self.unsupported(found));
        }
        let (shape, strides) = (self.sizes_of(shape)?, self.sizes_of(strides)?);
        if shape.len() != strides.len() {
            return Err(self.wrong("a tensor lacks one stride for each size"));
        }
        Ok(TensorObject {
            storage,
            dtype: dtype.ok_or_else(wrong)?,
            offset: self.size_of(offset)?,
            shape,
            strides,
        })
    }

    /// Gives an object attributes. Attributes of an `OrderedDict`, such as a module's state, are versions of
    /// modules.
    fn build(&mut self) -> FileResult<()> {
        self.pop()?;
        match self.top()? {
            Object::Dict(_) => Ok(()),
            _ => Err(self.unsupported("an object with attributes".to_owned())),
        }
    }
}
