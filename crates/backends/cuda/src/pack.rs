//! Kernels that come compiled, as PTX: what a machine without NVRTC has, and sooner ready than what
//! NVRTC compiles.
//!
//! They are two files, `kernels.ptx.zst` here and in `rustorch-cuda-hopper`, which
//! `scripts/make-ptx.sh` makes: frames of zstd, each of which is unpacked when a kernel in it is asked
//! for. In front of them are the number of frames and of kernels, and then, all numbers little-endian
//! words,
//!
//! * for each frame its length, and the first word of its SHA-256;
//! * for each kernel the SHA-256 of its source, what it was compiled for, its frame, where in the
//!   unpacked frame it begins, and its length;
//! * the first word of the SHA-256 of all this.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;
use std::ops::Range;
use std::sync::{LazyLock, OnceLock};

use rustorch_ir::{DType, OpKind, OpType, Signature, TensorType};
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

/// Bytes that frames have when they are unpacked, about.
const FRAME: usize = 8 << 20;

/// Kernels that follow each other.
struct Frame {
    /// As it is in the file; empty if the file ends before it does.
    packed: Cow<'static, [u8]>,
    check: u32,
    /// Once it was asked for; none if it is damaged.
    unpacked: OnceLock<Option<Vec<u8>>>,
}

impl Frame {
    /// Its kernels; none, with a warning the first time, if it is damaged.
    fn unpacked(&self) -> Option<&[u8]> {
        let unpack = || {
            let unpacked = self.unpack().map_err(|why| {
                tracing::warn!("of the kernels that come compiled some are damaged: {why}");
            });
            unpacked.ok()
        };
        self.unpacked.get_or_init(unpack).as_deref()
    }

    fn unpack(&self) -> Result<Vec<u8>, String> {
        if check(&self.packed) != self.check {
            return Err("some of it is not what it was".to_owned());
        }
        let mut unpacked = Vec::new();
        let decoder = StreamingDecoder::new(&*self.packed);
        let mut decoder = decoder.map_err(|e| e.to_string())?;
        let read = decoder.read_to_end(&mut unpacked);
        read.map(|_| unpacked).map_err(|e| e.to_string())
    }
}

/// Compiled kernels by their sources.
#[derive(Default)]
pub struct Pack {
    frames: Vec<Frame>,
    /// The frame that a kernel is in, and where.
    index: HashMap<Key, (usize, Range<usize>)>,
}

/// The first word of the SHA-256 of some bytes.
fn check(bytes: &[u8]) -> u32 {
    let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(bytes));
    u32::from_le_bytes([a, b, c, d])
}

/// What is in front of the frames, from its begin to its end.
struct Reader<'a> {
    file: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let rest = self.file.get(self.at..).unwrap_or_default();
        let taken = rest.first_chunk().ok_or("it ends too early")?;
        self.at += N;
        Ok(*taken)
    }

    fn word(&mut self) -> Result<usize, String> {
        Ok(u32::from_le_bytes(self.take()?) as usize)
    }
}

impl Pack {
    /// The kernels that this program comes with; none if the variable `RUSTORCH_PTX` is `none`.
    pub fn shipped() -> &'static Self {
        static SHIPPED: LazyLock<Pack> = LazyLock::new(|| {
            if std::env::var_os("RUSTORCH_PTX").is_some_and(|chosen| chosen == "none") {
                return Pack::default();
            }
            let of_all: &'static [u8] = include_bytes!("../kernels.ptx.zst");
            let packs = [of_all, rustorch_cuda_hopper::KERNELS].map(|file| {
                Pack::open(file).unwrap_or_else(|why| {
                    tracing::warn!("kernels that come compiled are damaged and not used: {why}");
                    Pack::default()
                })
            });
            packs.into_iter().fold(Pack::default(), Pack::and)
        });
        &SHIPPED
    }

    /// These kernels and others.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        let before = self.frames.len();
        self.frames.extend(others.frames);
        let moved = others.index.into_iter();
        self.index
            .extend(moved.map(|(key, (frame, range))| (key, (before + frame, range))));
        self
    }

    /// The kernels of a file.
    ///
    /// # Errors
    /// What is in front of its frames is damaged.
    pub fn open(file: impl Into<Cow<'static, [u8]>>) -> Result<Self, String> {
        let file = file.into();
        let mut reader = Reader { file: &file, at: 0 };
        let (frame_count, kernel_count) = (reader.word()?, reader.word()?);
        let mut lengths = Vec::new();
        for _ in 0..frame_count {
            lengths.push((reader.word()?, reader.word()?));
        }
        let mut index = HashMap::new();
        for _ in 0..kernel_count {
            let digest = reader.take()?;
            let target = Target::ALL.get(reader.word()?).copied();
            let frame = reader.word()?;
            let (start, length) = (reader.word()?, reader.word()?);
            let target = target.ok_or("it has kernels for an unknown target")?;
            index.insert((digest, target), (frame, start..start + length));
        }
        let expected = check(&file[..reader.at]) as usize;
        if reader.word()? != expected {
            return Err("its index is not what it was".to_owned());
        }
        let mut at = reader.at;
        // What a file that is never freed has is not copied.
        let part = |range: Range<usize>| -> Cow<'static, [u8]> {
            match &file {
                Cow::Borrowed(file) => file.get(range).unwrap_or_default().into(),
                Cow::Owned(file) => file.get(range).unwrap_or_default().to_vec().into(),
            }
        };
        let frame = |(length, check): (usize, usize)| {
            at += length;
            Frame {
                packed: part(at - length..at),
                check: check as u32,
                unpacked: OnceLock::new(),
            }
        };
        let frames = lengths.into_iter().map(frame).collect();
        Ok(Self { frames, index })
    }

    /// A file of kernels: of each the source, what it was compiled for, and the PTX. Those that
    /// are like each other best follow each other. `compress` makes a zstd frame.
    ///
    /// # Errors
    /// Those of `compress`.
    pub fn write<E>(
        kernels: &[(&str, Target, &[u8])],
        mut compress: impl FnMut(&[u8]) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        let mut unpacked = vec![Vec::new()];
        let mut index = Vec::new();
        let word = |n: usize| (n as u32).to_le_bytes();
        for (source, target, ptx) in kernels {
            if unpacked.last().is_some_and(|frame| frame.len() >= FRAME) {
                unpacked.push(Vec::new());
            }
            let number = unpacked.len() - 1;
            let frame = &mut unpacked[number];
            let target = Target::ALL.iter().position(|other| other == target);
            index.extend(<[u8; 32]>::from(Sha256::digest(source)));
            for n in [target.unwrap_or(0), number, frame.len(), ptx.len()] {
                index.extend(word(n));
            }
            frame.extend(*ptx);
        }
        let mut file = [word(unpacked.len()), word(kernels.len())].concat();
        let mut frames = Vec::new();
        for frame in unpacked {
            let packed = compress(&frame)?;
            file.extend(word(packed.len()));
            file.extend(check(&packed).to_le_bytes());
            frames.extend(packed);
        }
        file.extend(index);
        file.extend(check(&file).to_le_bytes());
        file.extend(frames);
        Ok(file)
    }

    /// The PTX of a source for a target; none, with a warning, if it is damaged.
    pub fn get(&self, source: &str, target: Target) -> Option<&[u8]> {
        self.find(Sha256::digest(source).into(), target)
    }

    fn find(&self, digest: [u8; 32], target: Target) -> Option<&[u8]> {
        let (frame, range) = self.index.get(&(digest, target))?;
        self.frames.get(*frame)?.unpacked()?.get(range.clone())
    }

    /// The best PTX of a source for a device of a compute capability.
    pub fn best(&self, source: &str, capability: u32) -> Option<&[u8]> {
        let digest = Sha256::digest(source).into();
        Target::of(capability).find_map(|target| self.find(digest, target))
    }

    /// Is there a kernel of a source that a device of a compute capability runs?
    pub fn has(&self, source: &str, capability: u32) -> bool {
        let digest = Sha256::digest(source).into();
        Target::of(capability).any(|target| self.index.contains_key(&(digest, target)))
    }

    /// Do kernels come compiled of all that the conformance suite asks for of an operation? Not of
    /// fused products, of which there are thousands of forms: only those that models have.
    pub fn has_all_of(kind: OpKind) -> bool {
        kind != OpKind::FusedLinear
    }

    /// Do kernels come compiled for an operation on operands of these dtypes? Integers that are
    /// hardly computed with, u16 and u64, have those of what moves and casts elements, and of
    /// elementwise functions.
    pub fn has_dtypes_of(signature: &Signature) -> bool {
        let is_rare = |ty: &TensorType| matches!(ty.dtype, DType::U16 | DType::U64);
        let family = signature.op.def().op_type();
        family.is_none_or(|family| family == OpType::Activation) || !signature.types().any(is_rare)
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
        let ptx = kernels.map(|(source, target)| {
            let target = Target::ALL.into_iter().find(|t| t.name() == target);
            let target = target.unwrap();
            let name = target.name();
            (
                source,
                target,
                format!("//\n.version 8.4\n.target sm_{name}\n{source}"),
            )
        });
        let pack = Pack::open(packed(&ptx)).unwrap();
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
            assert_eq!(pack.has(source, capability), found.is_some());
        }
    }

    /// A file of kernels, in frames that are not compressed.
    fn packed(kernels: &[(&str, Target, String)]) -> Vec<u8> {
        let kernels: Vec<_> = kernels
            .iter()
            .map(|(source, target, ptx)| (*source, *target, ptx.as_bytes()))
            .collect();
        let packed = Pack::write(&kernels, |frame| Ok::<_, ()>(stored(frame)));
        packed.unwrap()
    }

    /// A zstd frame of raw blocks (RFC 8878, 3.1.1).
    fn stored(bytes: &[u8]) -> Vec<u8> {
        const MOST: usize = 1 << 17;
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
        frame.extend((bytes.len() as u32).to_le_bytes());
        let blocks: Vec<&[u8]> = bytes.chunks(MOST).collect();
        for (at, block) in blocks.iter().enumerate() {
            let is_last = u32::from(at + 1 == blocks.len());
            let header = is_last | (block.len() as u32) << 3;
            frame.extend(&header.to_le_bytes()[..3]);
            frame.extend(*block);
        }
        frame
    }

    #[test]
    fn what_is_damaged_is_not_used() {
        // Two frames.
        let long = "x".repeat(FRAME);
        let kernels = [
            ("a", Target::Compute70, long),
            ("b", Target::Compute70, "y".to_owned()),
        ];
        let whole = packed(&kernels);
        let last = whole.len() - 1;
        for length in 0..whole.len() - FRAME {
            let cut = Pack::open(whole[..length].to_vec());
            // What is cut off is the end of the frames at most.
            assert!(cut.is_err() || cut.is_ok_and(|pack| pack.best("a", 90).is_none()));
        }
        for at in (0..100).chain([last]) {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            let pack = Pack::open(damaged).unwrap_or_default();
            assert_eq!(pack.best("b", 90), None, "byte {at}");
            let is_there = pack.best("a", 90).is_some();
            assert_eq!(is_there, at == last, "byte {at}");
        }
    }

    #[test]
    fn the_shipped_file_is_whole() {
        let pack = Pack::shipped();
        assert!(!pack.is_empty());
        assert!(pack.frames.iter().all(|frame| frame.unpacked().is_some()));
    }
}
