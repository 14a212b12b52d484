//! From a package to a loaded model, by way of the cache.

use std::fs;
use std::io;
use std::path::PathBuf;

use rustorch_ir::Graph;
use rustorch_runtime::{Deadline, HostBuffer};

use crate::api::{Api, ComputeUnits, ModelError};
use crate::cache::{Cache, CacheError, Entry, Key};
use crate::helper::Helper;
use crate::opset::Target;
use crate::package::Package;

/// Number of a constant's pieces in its outline; the next constant is their length.
const PIECES: usize = 4;
const PIECE_BYTES: usize = 64;

/// Why there is no model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    /// Nothing can be cached, whatever the model is.
    #[error(transparent)]
    Cache(CacheError),
    /// Core ML rejects the model.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Compiles and loads packages.
#[derive(Debug)]
pub(crate) struct Loader {
    pub(crate) cache: Cache,
    pub(crate) units: ComputeUnits,
    pub(crate) deadline: Deadline,
    /// Process that does first the work that may end a process.
    pub(crate) helper: Option<Helper>,
}

/// A loaded model, and a guard that keeps the compiled one.
pub(crate) struct Model<M> {
    pub(crate) model: M,
    entry: Entry,
}

impl<M> Model<M> {
    /// The folder of the compiled model.
    pub(crate) fn compiled(&self) -> PathBuf {
        compiled(&self.entry)
    }
}

fn compiled(entry: &Entry) -> PathBuf {
    entry.path().join("model.mlmodelc")
}

impl Loader {
    /// The model of a package, which is found again by its `outline`. One that is in the cache, and
    /// that Core ML does not take, is damaged or from elsewhere: it is compiled once more.
    pub(crate) fn load<A: Api>(
        &self,
        api: &A,
        package: &Package,
        outline: &Key,
    ) -> Result<Model<A::Model>, LoadError> {
        let key = package.key_for(&api.properties().system);
        let (entry, is_new) = self.entry(api, package, &key)?;
        let loaded = match self.open(api, entry) {
            Err(e) if !is_new && !e.is_out_of_memory && self.cache.remove(&key) => {
                let (entry, _) = self.entry(api, package, &key)?;
                self.open(api, entry)
            }
            loaded => loaded,
        }?;
        self.cache.note(outline, &key);
        Ok(loaded)
    }

    /// The compiled package; was it not there before?
    fn entry<A: Api>(
        &self,
        api: &A,
        package: &Package,
        key: &Key,
    ) -> Result<(Entry, bool), LoadError> {
        let (mut is_new, mut refused) = (false, None);
        let made = self.cache.get_or_make(key, |content| {
            is_new = true;
            let (source, to) = (
                content.join("model.mlpackage"),
                content.join("model.mlmodelc"),
            );
            package.write(&source)?;
            let compiled = match &self.helper {
                Some(helper) => helper.compile(&source, &to, self.deadline),
                None => api.compile(&source, &to),
            };
            compiled.map_err(|e| {
                refused = Some(e);
                io::Error::other("not compiled")
            })?;
            fs::remove_dir_all(&source)
        });
        match made {
            Ok(entry) => Ok((entry, is_new)),
            Err(e) => Err(refused.map_or(LoadError::Cache(e), LoadError::Model)),
        }
    }

    /// Loads a compiled model, for the first time in its own process.
    fn open<A: Api>(&self, api: &A, entry: Entry) -> Result<Model<A::Model>, ModelError> {
        let path = compiled(&entry);
        if let Some(helper) = &self.helper {
            let note = format!("loaded-{}", self.units);
            if !entry.has_note(&note) {
                helper.load(&path, self.units, self.deadline)?;
                entry.note(&note);
            }
        }
        let model = api.load(&path, self.units)?;
        Ok(Model { model, entry })
    }
}

/// Quick key of a graph's program with these constants, known before the program is written. Only
/// some pieces of the constants are looked at. If those are the same and the rest is not, the
/// program is compiled after all.
pub(crate) fn outline(
    system: &str,
    target: Target,
    graph: &Graph,
    constants: &[Option<HostBuffer>],
) -> Key {
    let version = env!("CARGO_PKG_VERSION");
    let mut parts = vec![format!("{version} {system} {target:?}\n{graph}").into_bytes()];
    for memory in constants {
        let mut part = Vec::new();
        if let Some(memory) = memory {
            part.extend(memory.bytes().to_le_bytes());
            // SAFETY: nobody writes to a constant, which is there as long as it is held.
            let bytes = unsafe { std::slice::from_raw_parts(memory.as_ptr(), memory.bytes()) };
            let last = bytes.len().saturating_sub(PIECE_BYTES);
            for piece in 0..PIECES {
                let start = last / (PIECES - 1) * piece;
                part.extend(bytes[start..].iter().take(PIECE_BYTES));
            }
        }
        parts.push(part);
    }
    Key::of(parts.iter().map(Vec::as_slice))
}
