//! Precompiled kernels, as PTX: for machines without NVRTC, and for a faster start.
//!
//! They are two files, `kernels.ptx.zst` here and in `rustorch-cuda-hopper`, which
//! `scripts/make-ptx.sh` makes. A file is frames of zstd; a frame is unpacked when a kernel in it is
//! asked for. `ptx.rs` has the form of their content. In front of them are the number of frames and of kernels,
//! and then, all numbers little-endian words,
//!
//! * for each frame its length, and the first word of its SHA-256;
//! * for each kernel the first half of its source's SHA-256, its target, its frame, and its length there. Kernels
//!   are in the order of the frames;
//! * the first word of the SHA-256 of all this.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Display;
use std::io::Read;
use std::ops::Range;
use std::sync::{LazyLock, OnceLock};

use rustorch_ir::{DType, OpKind, OpType, Signature, TensorType};
use ruzstd::decoding::StreamingDecoder;
use sha2::{Digest, Sha256};

use crate::ptx::{Decoder, Encoder};

/// Targets that kernels come compiled for, the worst first.
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
    /// All targets, the best first.
    pub const ALL: [Self; 4] = [
        Self::Compute90a,
        Self::Compute90,
        Self::Compute80,
        Self::Compute70,
    ];

    /// Targets that run on a device of a compute capability, the best first. The capability is ten
    /// times the major number plus the minor one.
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

/// The target of PTX, such as `90a`; `None` if it is not PTX.
pub(crate) fn target_of_ptx(image: &[u8]) -> Option<&str> {
    const DIRECTIVE: &[u8] = b"\n.target sm_";
    let mut windows = image.windows(DIRECTIVE.len());
    let (_, name) = image.split_at(windows.position(|w| w == DIRECTIVE)? + DIRECTIVE.len());
    let end = name.iter().position(|c| !c.is_ascii_alphanumeric())?;
    str::from_utf8(&name[..end]).ok()
}

/// The first half of the SHA-256 of a kernel's source.
type Half = [u8; 16];

/// A kernel's source and target.
type Key = (Half, Target);

fn half(source: &str) -> Half {
    let mut half = Half::default();
    half.copy_from_slice(&Sha256::digest(source)[..size_of::<Half>()]);
    half
}

/// Bytes that the kernels of a frame have when it is unpacked, about: some 60 MB of PTX.
const FRAME: usize = 4 << 20;

/// Kernels that follow each other.
struct Frame {
    /// Bytes as in the file; empty if the file ends before the frame does.
    packed: Cow<'static, [u8]>,
    check: u32,
    /// Once it was asked for; none if it is damaged.
    unpacked: OnceLock<Option<Decoder>>,
}

impl Frame {
    /// Its kernels; none, with a warning the first time, if it is damaged.
    fn unpacked(&self) -> Option<&Decoder> {
        let unpack = || {
            let unpacked = self.unpack().map_err(|why| {
                tracing::warn!("some precompiled CUDA kernels are damaged: {why}");
            });
            unpacked.ok()
        };
        self.unpacked.get_or_init(unpack).as_ref()
    }

    fn unpack(&self) -> Result<Decoder, String> {
        if check(&self.packed) != self.check {
            return Err("some of it is not what it was".to_owned());
        }
        let mut unpacked = Vec::new();
        let decoder = StreamingDecoder::new(&*self.packed);
        let mut decoder = decoder.map_err(|e| e.to_string())?;
        decoder
            .read_to_end(&mut unpacked)
            .map_err(|e| e.to_string())?;
        Decoder::new(unpacked).ok_or_else(|| "its lines are not whole".to_owned())
    }
}

/// Compiled kernels by their sources.
#[derive(Default)]
pub struct Pack {
    frames: Vec<Frame>,
    /// The frame that a kernel is in, and where among its kernels.
    index: HashMap<Key, (usize, Range<usize>)>,
}

/// The first word of the SHA-256 of some bytes.
fn check(bytes: &[u8]) -> u32 {
    let [a, b, c, d, ..] = <[u8; 32]>::from(Sha256::digest(bytes));
    u32::from_le_bytes([a, b, c, d])
}

/// The part in front of the frames, from its begin to its end.
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
                    tracing::warn!("ignoring damaged precompiled CUDA kernels: {why}");
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
    /// Fails if the data before the frames are damaged.
    pub fn open(file: impl Into<Cow<'static, [u8]>>) -> Result<Self, String> {
        let file = file.into();
        let mut reader = Reader { file: &file, at: 0 };
        let (frame_count, kernel_count) = (reader.word()?, reader.word()?);
        let mut lengths = Vec::new();
        for _ in 0..frame_count {
            lengths.push((reader.word()?, reader.word()?));
        }
        let mut index = HashMap::new();
        let (mut last, mut start) = (0, 0);
        for _ in 0..kernel_count {
            let half = reader.take()?;
            let target = Target::ALL.get(reader.word()?).copied();
            let (frame, length) = (reader.word()?, reader.word()?);
            let target = target.ok_or("it has kernels for an unknown target")?;
            start = if frame == last { start } else { 0 };
            last = frame;
            index.insert((half, target), (frame, start..start + length));
            start += length;
        }
        let expected = check(&file[..reader.at]) as usize;
        if reader.word()? != expected {
            return Err("its index is not what it was".to_owned());
        }
        let mut at = reader.at;
        // Parts of a static file are borrowed, not copied.
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

    /// A file of kernels: for each the source, the target, and the PTX. Kernels that are most alike
    /// follow each other. `compress` makes a zstd frame.
    ///
    /// # Errors
    /// Fails if `compress` fails, or if a kernel is not PTX.
    pub fn write<E: Display>(
        kernels: &[(&str, Target, &[u8])],
        mut compress: impl FnMut(&[u8]) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, String> {
        let mut frames = vec![Encoder::default()];
        let mut index = Vec::new();
        let word = |n: usize| (n as u32).to_le_bytes();
        for (source, target, ptx) in kernels {
            if frames.last().is_some_and(|frame| frame.len() >= FRAME) {
                frames.push(Encoder::default());
            }
            let number = frames.len() - 1;
            let start = frames[number].len();
            frames[number].add(ptx)?;
            let target = Target::ALL.iter().position(|other| other == target);
            index.extend(half(source));
            for n in [target.unwrap_or(0), number, frames[number].len() - start] {
                index.extend(word(n));
            }
        }
        let mut file = [word(frames.len()), word(kernels.len())].concat();
        let mut packed = Vec::new();
        for frame in frames {
            let frame = compress(&frame.finish()).map_err(|e| e.to_string())?;
            file.extend(word(frame.len()));
            file.extend(check(&frame).to_le_bytes());
            packed.extend(frame);
        }
        file.extend(index);
        file.extend(check(&file).to_le_bytes());
        file.extend(packed);
        Ok(file)
    }

    /// The PTX of a source for a target; none, with a warning, if it is damaged.
    pub fn get(&self, source: &str, target: Target) -> Option<Vec<u8>> {
        self.find(half(source), target)
    }

    fn find(&self, half: Half, target: Target) -> Option<Vec<u8>> {
        let (frame, range) = self.index.get(&(half, target))?;
        self.frames.get(*frame)?.unpacked()?.kernel(range.clone())
    }

    /// The best PTX of a source for a device of a compute capability.
    pub fn best(&self, source: &str, capability: u32) -> Option<Vec<u8>> {
        let half = half(source);
        Target::of(capability).find_map(|target| self.find(half, target))
    }

    /// Returns whether there is a kernel of a source that a device of a compute capability runs.
    pub fn has(&self, source: &str, capability: u32) -> bool {
        let half = half(source);
        Target::of(capability).any(|target| self.index.contains_key(&(half, target)))
    }

    /// Returns whether all kernels that the conformance suite needs for an operation are precompiled. Fused
    /// products are excluded, since they have thousands of forms: only those of models are
    /// precompiled.
    pub fn has_all_of(kind: OpKind) -> bool {
        !matches!(kind, OpKind::FusedLinear | OpKind::FusedExpertLinear)
    }

    /// Returns whether compiled kernels exist for an operation on operands of these dtypes. u16 and u64 are
    /// hardly computed with. They have kernels of moves, casts, and elementwise functions only.
    pub fn has_dtypes_of(signature: &Signature) -> bool {
        let is_rare = |ty: &TensorType| matches!(ty.dtype, DType::U16 | DType::U64);
        let family = signature.op.def().op_type();
        family.is_none_or(|family| family == OpType::Activation) || !signature.types().any(is_rare)
    }

    /// The number of kernels.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns whether there is no kernel.
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
            assert!(
                ptx.as_ref()
                    .is_none_or(|ptx| ptx.ends_with(source.as_bytes()))
            );
            let target = ptx.as_deref().and_then(target_of_ptx);
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
        let packed = Pack::write(&kernels, |frame| Ok::<_, String>(stored(frame)));
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
        let long = "\n".repeat(FRAME / 2);
        let kernels = [
            ("a", Target::Compute70, long),
            ("b", Target::Compute70, "y".to_owned()),
        ];
        let whole = packed(&kernels);
        let last = whole.len() - 1;
        for length in 0..whole.len() - FRAME {
            let cut = Pack::open(whole[..length].to_vec());
            // A pack that still opens has lost no more than the end of its frames.
            assert!(cut.is_err() || cut.is_ok_and(|pack| pack.best("a", 90).is_none()));
        }
        for at in (0..84).chain([last]) {
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
        let sample = pack.index.values().step_by(16);
        for (frame, range) in sample {
            let ptx = pack.frames[*frame]
                .unpacked()
                .unwrap()
                .kernel(range.clone());
            assert!(target_of_ptx(&ptx.unwrap()).is_some());
        }
    }
}
