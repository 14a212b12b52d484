//! The part of Python's pickle format that `torch.save` writes.
//!
//! Source: `Lib/pickletools.py`, which describes every opcode of a small stack machine. Where Python would import a
//! name and call it, here a name is one of a closed list ([`Global`]), and calling it makes plain data: no code is
//! run, and any other name is an error.

mod machine;
mod objects;

pub(crate) use machine::unpickle;
pub(crate) use objects::{DTYPES, Id, Object, Pickled, StorageObject, TensorObject};
