//! Packages that are kept for inspection.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::package::Package;

/// Names the folder.
const VARIABLE: &str = "RUSTORCH_COREML_DUMP";

/// A folder to which every package is written before Core ML sees it.
#[derive(Debug)]
pub(crate) struct Dump {
    folder: PathBuf,
    /// Was a warning about the folder given?
    is_told: AtomicBool,
}

/// The folder that the user names, if one is named.
pub(crate) fn folder_of_user() -> Option<PathBuf> {
    let folder = std::env::var_os(VARIABLE)?;
    (!folder.is_empty()).then(|| folder.into())
}

impl Dump {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            is_told: AtomicBool::new(false),
        }
    }

    /// Writes a package under the beginning of its hash, unless it is there. A folder that cannot be
    /// written is one warning, and changes nothing else.
    pub(crate) fn keep(&self, package: &Package) {
        let name = format!("{}.mlpackage", &package.key_for("").name()[..16]);
        let kept = self.write(package, &self.folder.join(name));
        if let Err(e) = kept
            && !self.is_told.swap(true, Ordering::Relaxed)
        {
            let folder = self.folder.display();
            tracing::warn!("{VARIABLE}={folder}: {e}; packages are not written there");
        }
    }

    fn write(&self, package: &Package, path: &Path) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        match package.write(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            written => written,
        }
    }
}
