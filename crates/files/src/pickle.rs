//! The part of Python's pickle format that `torch.save` writes.
//!
//! Source: `Lib/pickletools.py`, which describes every opcode of a small stack machine. Python would import a
//! name and call it. Here a name must be in a closed list ([`Global`]), and calling it makes plain data. No
//! code runs, and any other name is an error.

mod machine;
mod objects;

pub(crate) use machine::unpickle;
pub(crate) use objects::{DTYPES, Global, Id, Object, Pickled, StorageObject, TensorObject};
