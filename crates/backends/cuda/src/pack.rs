//! Kernels that come compiled, as PTX, for machines without NVRTC.
//!
//! They are one compressed file, `kernels.ptx.zst`, which `scripts/make-ptx.sh` makes. Unpacked
//! it is one kernel after another: the SHA-256 of its source, its [`TARGETS`] number, its length
//! as a little-endian word, and its PTX.

use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;
use std::sync::LazyLock;

use ruzstd::decoding::StreamingDecoder;
use sha2::{Digest, Sha256};

/// The compute capabilities that kernels come compiled for: ten times the major number and the
/// minor one, the best first. What is compiled for 90 runs there alone, since it may use
/// instructions that are Hopper's own; the others' also runs on whatever is newer.
pub const TARGETS: [u8; 3] = [90, 80, 70];

/// The targets whose kernels a device of a compute capability runs, the best first.
pub fn targets(capability: u32) -> impl Iterator<Item = u8> {
    let runs = move |&target: &u8| match target {
        90 => capability == 90,
        other => capability >= u32::from(other),
    };
    TARGETS.into_iter().filter(runs)
}

/// The SHA-256 of a kernel's source, and the target that it is compiled for.
type Key = ([u8; 32], u8);

/// Bytes before each kernel's PTX.
const HEADER: usize = 32 + 1 + 4;

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
    /// It ends too early.
    pub fn new(bytes: Vec<u8>) -> Result<Self, String> {
        let mut index = HashMap::new();
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let ends = || format!("the kernel at byte {at} has no end");
            let (digest, rest) = rest.split_first_chunk::<32>().ok_or_else(ends)?;
            let (target, rest) = rest.split_first().ok_or_else(ends)?;
            let (length, rest) = rest.split_first_chunk().ok_or_else(ends)?;
            let length = u32::from_le_bytes(*length) as usize;
            if length > rest.len() {
                return Err(ends());
            }
            let start = at + HEADER;
            index.insert((*digest, *target), start..start + length);
            at = start + length;
        }
        Ok(Self { bytes, index })
    }

    /// Appends a kernel to an unpacked file.
    pub fn append(file: &mut Vec<u8>, source: &str, target: u8, ptx: &[u8]) {
        file.extend(<[u8; 32]>::from(Sha256::digest(source)));
        file.push(target);
        file.extend((ptx.len() as u32).to_le_bytes());
        file.extend(ptx);
    }

    /// The PTX of a source for a target.
    pub fn get(&self, source: &str, target: u8) -> Option<&[u8]> {
        let key = (Sha256::digest(source).into(), target);
        self.index.get(&key).map(|range| &self.bytes[range.clone()])
    }

    /// The best PTX of a source for a device of a compute capability.
    pub fn best(&self, source: &str, capability: u32) -> Option<&[u8]> {
        targets(capability).find_map(|target| self.get(source, target))
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
        let mut file = Vec::new();
        for (source, target) in [("a", 70), ("a", 80), ("a", 90), ("b", 70), ("c", 90)] {
            Pack::append(
                &mut file,
                source,
                target,
                format!("{source}{target}").as_bytes(),
            );
        }
        let pack = Pack::new(file.clone()).unwrap();
        let best = |source, capability| {
            let ptx = pack.best(source, capability).map(<[u8]>::to_vec);
            ptx.map(|ptx| String::from_utf8(ptx).unwrap())
        };
        for (source, capability, found) in [
            ("a", 70, Some("a70")),
            ("a", 75, Some("a70")),
            ("a", 89, Some("a80")),
            ("a", 90, Some("a90")),
            ("a", 120, Some("a80")),
            ("b", 90, Some("b70")),
            ("c", 90, Some("c90")),
            ("c", 100, None),
            ("d", 90, None),
        ] {
            assert_eq!(
                best(source, capability).as_deref(),
                found,
                "{source} on {capability}"
            );
        }
        for length in 1..file.len() {
            let cut = Pack::new(file[..length].to_vec());
            let whole = (0..5).map(|n| n * (HEADER + 3)).any(|end| end == length);
            assert_eq!(cut.is_ok(), whole, "{length} bytes");
        }
    }

    #[test]
    fn the_shipped_file_is_whole() {
        assert!(!Pack::shipped().is_empty());
    }
}
