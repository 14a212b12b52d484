//! Thousands of files, each a valid one somehow damaged: none makes a reader panic, or hold more in memory than what
//! follows from the file's size.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use std::io::Cursor;
use std::ops::Range;

use ::safetensors::SafeTensors;
use rustorch_files::npz::Compression;
use rustorch_files::{Format, Source, Tensors, npz, read, save};
use rustorch_ir::DType;

use crate::{bytes, golden, on_cpu, tensors};

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counting what this thread holds.
struct Counting;

fn count(change: isize) {
    let held = HELD.get() + change;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

// SAFETY: every call is passed on unchanged to the system's allocator; counting touches two numbers of this thread that
// need neither allocation nor destruction.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `f` and asserts that meanwhile never more than `most` bytes were held.
fn within_bounds<T>(most: usize, f: impl FnOnce() -> T) -> T {
    let before = HELD.get();
    PEAK.set(before);
    let result = f();
    let peak = (PEAK.get() - before) as usize;
    assert!(peak <= most, "{peak} bytes held, of {most}");
    result
}

/// SplitMix64 (Steele, Lea, Flood 2014): a small generator, the same numbers in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn range(&mut self, end: usize) -> Range<usize> {
        let start = self.below(end);
        start..(start + self.below(24)).min(end)
    }
}

fn mutate(file: &mut Vec<u8>, random: &mut Random) {
    const NUMBERS: [u64; 9] = [0, 1, 7, 255, 1 << 16, 1 << 31, 1 << 32, 1 << 63, u64::MAX];
    if file.is_empty() {
        return;
    }
    let at = random.below(file.len());
    match random.below(8) {
        0 => file[at] ^= 1 << random.below(8),
        1 => file[at] = random.next() as u8,
        2 | 3 => {
            let number = NUMBERS[random.below(NUMBERS.len())].to_le_bytes();
            let width = [1, 2, 4, 8][random.below(4)].min(file.len() - at);
            file[at..at + width].copy_from_slice(&number[..width]);
        }
        4 => file.truncate(at),
        5 => drop(file.drain(random.range(at + 1))),
        // Digits, for formats that are text.
        6 => file[at] = b"0123456789,:[]{}'\""[random.below(18)],
        _ => {
            let piece = file[random.range(at + 1)].to_vec();
            file.splice(at..at, piece);
        }
    }
}

/// A format's file, and the same by who defined it.
fn corpus() -> Vec<(Format, Vec<u8>)> {
    let folder = tempfile::tempdir().unwrap();
    let few = tensors([DType::F32, DType::I64, DType::Bool]);
    let written = |name: &str, format: Format, tensors: &Tensors| {
        let path = folder.path().join(name);
        save(&path, tensors).unwrap();
        (format, fs::read(path).unwrap())
    };
    let of = |name: &str, format: Format| (format, fs::read(golden(name)).unwrap());
    let mut deflated = Cursor::new(Vec::new());
    npz::write(&mut deflated, &few, Compression::Deflated).unwrap();
    let one: Tensors = few.get("f32").unwrap().clone().into();
    let matrices: Tensors = [("a", one.only().unwrap().clone())].into_iter().collect();
    vec![
        written("a.safetensors", Format::Safetensors, &few),
        written("a.npy", Format::Npy, &one),
        written("a.npz", Format::Npz, &few),
        written("a.pt", Format::PyTorch, &few),
        written("a.gguf", Format::Gguf, &matrices),
        (Format::Npz, deflated.into_inner()),
        of("fortran.npy", Format::Npy),
        of("zip64.npz", Format::Npz),
        of("views.pt", Format::PyTorch),
        of("legacy.pt", Format::PyTorch),
    ]
}

#[test]
fn no_damage_makes_a_reader_panic_or_hold_too_much() {
    // What objects of a pickle, or names of tensors, take beside their bytes in the file.
    const FACTOR: usize = 64;
    const SLACK: usize = 256 << 10;
    let rounds = match std::env::var_os("RUSTORCH_TEST_FULL") {
        Some(_) => 20_000,
        None => 1500,
    };
    on_cpu(|_| {
        let mut random = Random(3);
        for (format, valid) in corpus() {
            assert!(read(&valid.clone().into(), format).is_ok(), "{format:?}");
            let mut taken = 0;
            for _ in 0..rounds {
                let mut file = valid.clone();
                for _ in 0..=random.below(3) {
                    mutate(&mut file, &mut random);
                }
                let most = FACTOR * file.len() + SLACK;
                let source = Source::from(file);
                match within_bounds(most, || read(&source, format)) {
                    Ok(tensors) => {
                        taken += 1;
                        let is_theirs = || SafeTensors::deserialize(&source).is_ok();
                        assert!(format != Format::Safetensors || is_theirs());
                        use_tensors(&tensors);
                    }
                    Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
                }
            }
            // Both ways out must have been taken, or the test tests nothing.
            let both = rounds / 100..rounds;
            assert!(
                both.contains(&taken),
                "{format:?}: {taken} of {rounds} were read"
            );
        }
    });
}

/// Whatever a program does with tensors, of those that are no larger than a file that shows an element often.
fn use_tensors(tensors: &Tensors) {
    const LARGE: usize = 1 << 20;
    for (name, tensor) in tensors.iter().filter(|(_, t)| t.numel() < LARGE) {
        let expected = tensor.dtype().bytes_of(tensor.shape()).unwrap();
        assert_eq!(bytes(tensor).len(), expected, "{name}");
    }
}
