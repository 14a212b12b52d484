//! Thousands of files, each a valid one somehow damaged: none makes the reader panic, or hold more than a few times the
//! file's size in memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::ops::Range;

use rustorch_gguf::{Array, GgmlType, Gguf, GgufError, GgufWriter, Metadata, Value};

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

/// Runs `f` and asserts that meanwhile never more than eight times `size` was held.
fn within_bounds<T>(size: usize, f: impl FnOnce() -> T) -> T {
    // For the texts of errors.
    const SLACK: usize = 4096;
    let before = HELD.get();
    PEAK.set(before);
    let result = f();
    let peak = (PEAK.get() - before) as usize;
    assert!(
        peak <= 8 * size + SLACK,
        "{peak} bytes held while reading a file of {size}"
    );
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

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn range(&mut self, end: usize) -> Range<usize> {
        let start = self.below(end);
        start..(start + self.below(24)).min(end)
    }
}

/// A small file with every kind of content.
fn valid_file() -> Vec<u8> {
    let text = |text: &str| text.to_owned();
    let mut metadata = Metadata::new();
    metadata.insert("general.architecture", "llama");
    metadata.insert("general.alignment", 16u32);
    metadata.insert("i8", -1i8);
    metadata.insert("f32", 0.5f32);
    metadata.insert("f64", 0.5f64);
    metadata.insert("u64", u64::MAX);
    metadata.insert("bools", vec![true, false]);
    metadata.insert("tokens", vec![text("a"), text(""), text("ß")]);
    metadata.insert("scores", vec![0.0f32, -1.0]);
    metadata.insert(
        "nested",
        vec![
            Array::U16(vec![1, 2]),
            Array::Array(vec![Array::Bool(vec![])]),
        ],
    );
    metadata.insert("bytes", Array::Bytes(vec![vec![0xff]]));
    let mut writer = GgufWriter::new(metadata);
    for (name, dims, ty) in [
        ("a", vec![4, 2], GgmlType::F32),
        ("b", vec![32], GgmlType::Q4_0),
        ("c", vec![], GgmlType::I64),
        ("d", vec![256, 1, 1, 1], GgmlType::Iq2Xxs),
    ] {
        writer.add_tensor(name, dims, ty).unwrap();
    }
    let mut file = Vec::new();
    writer
        .write_to(&mut file, |tensor, out| {
            out.write_all(&vec![7; tensor.bytes()])
        })
        .unwrap();
    file
}

fn mutate(file: &mut Vec<u8>, random: &mut Random) {
    const NUMBERS: [u64; 12] = [
        0,
        1,
        7,
        12,
        13,
        255,
        1 << 16,
        1 << 31,
        1 << 32,
        1 << 60,
        1 << 63,
        u64::MAX,
    ];
    if file.is_empty() {
        return;
    }
    let at = random.below(file.len());
    match random.below(7) {
        0 => file[at] ^= 1 << random.below(8),
        1 => file[at] = random.next() as u8,
        2 | 3 => {
            let number = random.pick(&NUMBERS).to_le_bytes();
            let width = random.pick(&[1, 2, 4, 8]).min(file.len() - at);
            file[at..at + width].copy_from_slice(&number[..width]);
        }
        4 => file.truncate(at),
        5 => drop(file.drain(random.range(at + 1))),
        _ => {
            let piece = file[random.range(at + 1)].to_vec();
            file.splice(at..at, piece);
        }
    }
}

fn rewrite(model: &Gguf) -> Result<Vec<u8>, GgufError> {
    let mut writer = GgufWriter::new(model.metadata.clone());
    for tensor in model.tensors() {
        writer.add_tensor(&tensor.name, tensor.dims.clone(), tensor.ty)?;
    }
    let mut file = Vec::new();
    writer.write_to(&mut file, |tensor, out| {
        out.write_all(model.data(model.tensor(&tensor.name).unwrap()))
    })?;
    Ok(file)
}

/// Whatever a program does with a model: look at every key and every tensor.
fn use_model(model: &Gguf) {
    for (key, value) in model.metadata.iter() {
        black_box(format!("{value} {value:#}"));
        black_box((
            model.metadata.u32(key).is_ok(),
            model.metadata.i32_array(key).is_ok(),
        ));
    }
    for tensor in model.tensors() {
        assert_eq!(model.data(tensor).len(), tensor.bytes());
        assert_eq!(tensor.shape().iter().product::<usize>(), tensor.elements());
        black_box(
            (
                model
                    .data_shared(tensor)
                    .iter()
                    .map(|&byte| u64::from(byte))
                    .sum::<u64>(),
                tensor.ensure_supported(),
            )
                .0,
        );
    }
    let written = rewrite(model).unwrap();
    assert!(written == rewrite(&Gguf::from_bytes(written.clone()).unwrap()).unwrap());
}

#[test]
fn no_damage_makes_the_reader_panic_or_hold_too_much() {
    let valid = valid_file();
    let mut random = Random(2);
    let mut read = 0;
    for _ in 0..20_000 {
        let mut file = valid.clone();
        for _ in 0..=random.below(4) {
            mutate(&mut file, &mut random);
        }
        let size = file.len();
        match within_bounds(size, || Gguf::from_bytes(file)) {
            Ok(model) => {
                read += 1;
                use_model(&model);
            }
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        }
    }
    // Both ways out must have been taken, or the test tests nothing.
    assert!((1000..19_000).contains(&read), "{read} files were read");
}

/// Files that hold as many things as their size allows, so that what describes a thing in memory weighs most.
#[test]
fn files_that_are_all_description_stay_within_bounds() {
    const COUNT: usize = 50_000;
    let mut keys = Metadata::new();
    for number in 0..COUNT {
        keys.insert(format!("{number:x}"), true);
    }
    let mut strings = Metadata::new();
    strings.insert("s", vec![String::new(); COUNT]);
    let mut bytes = Metadata::new();
    let mut list = vec![Vec::new(); COUNT];
    list.push(vec![0xff]);
    bytes.insert("b", Array::Bytes(list));
    let mut arrays = Metadata::new();
    arrays.insert("a", vec![Array::U8(vec![]); COUNT]);
    let mut tensors = GgufWriter::default();
    tensors.metadata.insert("general.alignment", 8u32);
    for number in 0..COUNT {
        tensors
            .add_tensor(format!("{number:x}"), [], GgmlType::I8)
            .unwrap();
    }
    let writers = [keys, strings, bytes, arrays]
        .map(GgufWriter::new)
        .into_iter()
        .chain([tensors]);
    for writer in writers {
        let mut file = Vec::new();
        writer
            .write_to(&mut file, |_, out| out.write_all(&[0]))
            .unwrap();
        let size = file.len();
        let model = within_bounds(size, || Gguf::from_bytes(file)).unwrap();
        assert_eq!(
            (model.metadata.len(), model.tensors().len()),
            (writer.metadata.len(), writer.tensors().len())
        );
    }
}

/// Counts that just fit into the file, though nothing of what they announce is there.
#[test]
fn announced_counts_stay_within_bounds() {
    const SIZE: usize = 1 << 20;
    let with_counts = |tensors: u64, keys: u64| {
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.extend(tensors.to_le_bytes());
        file.extend(keys.to_le_bytes());
        file.resize(SIZE, 0xff);
        file
    };
    for count in [
        1 << 10,
        1 << 14,
        1 << 15,
        SIZE as u64 / 24 - 1,
        SIZE as u64 / 14 - 2,
    ] {
        for (tensors, keys) in [(count, 0), (0, count), (count, count)] {
            let file = with_counts(tensors, keys);
            assert!(within_bounds(SIZE, || Gguf::from_bytes(file)).is_err());
        }
    }
}

#[test]
fn the_undamaged_file_is_read() {
    let model = Gguf::from_bytes(valid_file()).unwrap();
    assert_eq!(
        model.metadata.get("bytes"),
        Some(&Value::Array(Array::Bytes(vec![vec![0xff]])))
    );
    use_model(&model);
}
