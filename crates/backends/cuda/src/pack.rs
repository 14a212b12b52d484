//! Kernels that come compiled, as PTX, for machines without NVRTC.
//!
//! They are one compressed file, `kernels.ptx.zst`, which `scripts/make-ptx.sh` makes. Unpacked
//! it is one kernel after another: the SHA-256 of its source, the length of its PTX as a
//! little-endian word, and its PTX, which says what it was compiled for.

use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;
use std::sync::LazyLock;

use ruzstd::decoding::StreamingDecoder;
use sha2::{Digest, Sha256};

/// What kernels come compiled for, the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Target {
    /// Volta, and all that is newer.
    Compute70,
    /// Ampere, and all that is newer.
    Compute80,
    /// Hopper, and all that is newer.
    Compute90,
    /// Hopper alone, with the instructions that no other has.
    Compute90a,
}

impl Target {
    /// All, the best first.
    pub const ALL: [Self; 4] = [
        Self::Compute90a,
        Self::Compute90,
        Self::Compute80,
        Self::Compute70,
    ];

    /// Those that a device of a compute capability runs, ten times the major number and the
    /// minor one; the best first.
    pub fn of(capability: u32) -> impl Iterator<Item = Self> {
        let runs = move |target: &Self| match target {
            Self::Compute70 => capability >= 70,
            Self::Compute80 => capability >= 80,
            Self::Compute90 => capability >= 90,
            Self::Compute90a => capability == 90,
        };
        Self::ALL.into_iter().filter(runs)
    }

    /// The name that PTX has for it, behind `sm_`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute70 => "70",
            Self::Compute80 => "80",
            Self::Compute90 => "90",
            Self::Compute90a => "90a",
        }
    }

    /// What PTX was compiled for, if that is one of these.
    fn of_ptx(ptx: &[u8]) -> Option<Self> {
        let name = target_of_ptx(ptx)?;
        Self::ALL.into_iter().find(|target| target.name() == name)
    }
}

/// The name of what PTX was compiled for, such as `90a`; `None` if it is no PTX.
pub(crate) fn target_of_ptx(image: &[u8]) -> Option<&str> {
    const DIRECTIVE: &[u8] = b"\n.target sm_";
    let mut windows = image.windows(DIRECTIVE.len());
    let (_, name) = image.split_at(windows.position(|w| w == DIRECTIVE)? + DIRECTIVE.len());
    let end = name.iter().position(|c| !c.is_ascii_alphanumeric())?;
    str::from_utf8(&name[..end]).ok()
}

/// The SHA-256 of a kernel's source, and what it was compiled for.
type Key = ([u8; 32], Target);

/// Bytes before each kernel's PTX.
const HEADER: usize = 32 + 4;

/// Compiled kernels by their sources.
#[derive(Default)]
pub struct Pack {
    bytes: Vec<u8>,
    index: HashMap<Key, Range<usize>>,
}

impl Pack {
    /// The kernels that this program comes with.
    pub fn shipped() -> &'static Self {
        static SHIPPED: LazyLock<Pack> = LazyLock::new(|| {
            let unpacked = Pack::unpack(include_bytes!("../kernels.ptx.zst"));
            unpacked.unwrap_or_else(|why| {
                tracing::error!("the kernels that come compiled are damaged: {why}");
                Pack::default()
            })
        });
        &SHIPPED
    }

    /// The kernels of a file.
    ///
    /// # Errors
    /// It is damaged.
    pub fn unpack(file: &[u8]) -> Result<Self, String> {
        let mut bytes = Vec::new();
        let mut unpacked = StreamingDecoder::new(file).map_err(|e| e.to_string())?;
        unpacked
            .read_to_end(&mut bytes)
            .map_err(|e| e.to_string())?;
        Self::new(bytes)
    }

    /// The kernels of an unpacked file.
    ///
    /// # Errors
    /// It ends too early, or has something that is no PTX.
    pub fn new(bytes: Vec<u8>) -> Result<Self, String> {
        let mut index = HashMap::new();
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let ends = || format!("the kernel at byte {at} has no end");
            let (digest, rest) = rest.split_first_chunk::<32>().ok_or_else(ends)?;
            let (length, rest) = rest.split_first_chunk().ok_or_else(ends)?;
            let length = u32::from_le_bytes(*length) as usize;
            if length > rest.len() {
                return Err(ends());
            }
            let target = Target::of_ptx(&rest[..length]);
            let target = target.ok_or_else(|| format!("the kernel at byte {at} has no target"))?;
            let start = at + HEADER;
            index.insert((*digest, target), start..start + length);
            at = start + length;
        }
        Ok(Self { bytes, index })
    }

    /// Appends a kernel to an unpacked file.
    pub fn append(file: &mut Vec<u8>, source: &str, ptx: &[u8]) {
        file.extend(<[u8; 32]>::from(Sha256::digest(source)));
        file.extend((ptx.len() as u32).to_le_bytes());
        file.extend(ptx);
    }

    /// The PTX of a source for a target.
    pub fn get(&self, source: &str, target: Target) -> Option<&[u8]> {
        let key = (Sha256::digest(source).into(), target);
        self.index.get(&key).map(|range| &self.bytes[range.clone()])
    }

    /// The best PTX of a source for a device of a compute capability.
    pub fn best(&self, source: &str, capability: u32) -> Option<&[u8]> {
        Target::of(capability).find_map(|target| self.get(source, target))
    }

    /// The number of kernels.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Is there no kernel?
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_gets_the_best_it_runs() {
        let kernels = [
            ("a", "70"),
            ("a", "80"),
            ("a", "90"),
            ("a", "90a"),
            ("b", "70"),
            ("c", "90a"),
            ("d", "90"),
        ];
        let mut file = Vec::new();
        let mut ends = vec![0];
        for (source, target) in kernels {
            let ptx = format!("//\n.version 8.4\n.target sm_{target}\n{source}");
            Pack::append(&mut file, source, ptx.as_bytes());
            ends.push(file.len());
        }
        let pack = Pack::new(file.clone()).unwrap();
        assert_eq!(pack.len(), kernels.len());
        for (source, capability, found) in [
            ("a", 70, Some("70")),
            ("a", 75, Some("70")),
            ("a", 89, Some("80")),
            ("a", 90, Some("90a")),
            ("a", 100, Some("90")),
            ("a", 120, Some("90")),
            ("b", 90, Some("70")),
            ("c", 90, Some("90a")),
            ("c", 100, None),
            ("d", 89, None),
            ("d", 90, Some("90")),
            ("e", 90, None),
        ] {
            let ptx = pack.best(source, capability);
            assert!(ptx.is_none_or(|ptx| ptx.ends_with(source.as_bytes())));
            let target = ptx.and_then(target_of_ptx);
            assert_eq!(target, found, "{source} on {capability}");
        }
        for length in 0..file.len() {
            let cut = Pack::new(file[..length].to_vec());
            assert_eq!(cut.is_ok(), ends.contains(&length), "{length} bytes");
        }
    }

    #[test]
    fn the_shipped_file_is_whole() {
        assert!(!Pack::shipped().is_empty());
    }
}
