//! Corrupt and hostile files: each class gives one error that says what is wrong and where.

use rustorch_gguf::{Gguf, GgufError};

const F32: u32 = 0;
const U8: u32 = 0;
const U32: u32 = 4;
const STRING: u32 = 8;
const ARRAY: u32 = 9;
const HUGE: u64 = 1 << 60;

/// A file written by hand, right or wrong.
struct Raw(Vec<u8>);

impl Raw {
    fn new(version: u32, tensors: u64, keys: u64) -> Self {
        Raw(b"GGUF".to_vec()).u32(version).u64(tensors).u64(keys)
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    fn u32(self, number: u32) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    fn u64(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    fn text(self, text: &[u8]) -> Self {
        self.u64(text.len() as u64).bytes(text)
    }

    fn u32_key(self, key: &str, value: u32) -> Self {
        self.text(key.as_bytes()).u32(U32).u32(value)
    }

    fn tensor(mut self, name: &str, dims: &[u64], ty: u32, offset: u64) -> Self {
        self = self.text(name.as_bytes()).u32(dims.len() as u32);
        for &dim in dims {
            self = self.u64(dim);
        }
        self.u32(ty).u64(offset)
    }

    /// Padding to the data section and that many bytes of data.
    fn data(mut self, len: usize) -> Self {
        self.0.resize(self.0.len().next_multiple_of(32) + len, 1);
        self
    }

    fn error(self) -> GgufError {
        Gguf::from_bytes(self.0).expect_err("a wrong file was read")
    }
}

fn expect_all(cases: Vec<(&str, Raw, &str)>) {
    for (class, raw, expected) in cases {
        let message = raw.error().to_string();
        assert!(message.contains(expected), "{class}: {message}");
        assert!(
            !message.contains('\n') && message.len() < 400,
            "{class}: {message}"
        );
    }
}

#[test]
fn other_formats_are_recognised() {
    let cases: [(&[u8], &str); 20] = [
        (b"", "the file is empty"),
        (
            b"GG",
            "the header, at byte 0, needs at least 4 bytes but 2 are left",
        ),
        (b"FUGG\0\0\0\x03", "big-endian"),
        (b"GGUF\0\0\0\x03", "big-endian"),
        (b"lmggxxxx", "an old unversioned GGML model"),
        (b"fmgg\x01\0\0\0", "an old GGMF model"),
        (b"tjgg\x03\0\0\0", "an old GGJT model"),
        (
            b"PK\x03\x04....",
            "zip archive, perhaps a PyTorch checkpoint; convert it",
        ),
        (b"\x80\x02}q\0", "a Python pickle"),
        (
            b"\x10\x02\0\0\0\0\0\0{\"__metadata__\"",
            "a safetensors file; convert it",
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            "a git-lfs pointer, not the model it points to; run `git lfs pull`",
        ),
        (
            b"\n <!DOCTYPE html>",
            "a web page; download the .gguf file itself",
        ),
        (b"<html>", "a web page"),
        (b"<?xml version", "an XML document"),
        (b"{\"error\":\"gated\"}", "a JSON document"),
        (b"\x1f\x8b\x08", "a gzip archive; unpack it first"),
        (b"\x28\xb5\x2f\xfd", "a zstd archive"),
        (b"\xfd7zXZ\0", "an xz archive"),
        (b"\x89HDF\r\n", "an HDF5 file"),
        (
            b"\x7fELF\x02",
            "it begins with `\\x7fELF` where `GGUF` should be",
        ),
    ];
    for (bytes, expected) in cases {
        let message = Gguf::from_bytes(bytes.to_vec()).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn versions_other_than_2_and_3_are_refused() {
    expect_all(vec![
        (
            "version 0",
            Raw::new(0, 0, 0),
            "GGUF version 0 is not supported, only 2 and 3 are; the file is damaged",
        ),
        (
            "version 1",
            Raw::new(1, 0, 0),
            "GGUF version 1 is not supported, only 2 and 3 are; convert the model again",
        ),
        (
            "version 4",
            Raw::new(4, 0, 0),
            "GGUF version 4 is not supported, only 2 and 3 are; update this program",
        ),
    ]);
}

#[test]
fn counts_and_lengths_beyond_the_file_are_refused() {
    let array = |ty, count| {
        Raw::new(3, 0, 1)
            .text(b"list")
            .u32(ARRAY)
            .u32(ty)
            .u64(count)
            .bytes(&[0; 40])
    };
    expect_all(vec![
        (
            "keys",
            Raw::new(3, 0, HUGE),
            "the list of 1152921504606846976 keys, at byte 24, needs at least",
        ),
        (
            "tensors",
            Raw::new(3, HUGE, 0),
            "the list of 1152921504606846976 tensors, at byte 24, needs at least",
        ),
        (
            "product overflows",
            Raw::new(3, 0, u64::MAX),
            "but 0 are left; the file is cut short or damaged",
        ),
        (
            "key name",
            Raw::new(3, 0, 1).u64(HUGE).bytes(&[0; 20]),
            "key 1 of 1, at byte 32, needs at least",
        ),
        (
            "string",
            Raw::new(3, 0, 1)
                .text(b"k")
                .u32(STRING)
                .u64(HUGE)
                .bytes(&[0; 9]),
            "the value of key `k`",
        ),
        (
            "bytes",
            array(U8, 41),
            "the value of key `list`, at byte 52, needs at least 41 bytes but 40 are left",
        ),
        (
            "numbers",
            array(U32, 11),
            "needs at least 44 bytes but 40 are left",
        ),
        ("strings", array(STRING, HUGE), "the value of key `list`"),
        (
            "arrays",
            array(ARRAY, 4),
            "needs at least 48 bytes but 40 are left",
        ),
        (
            "array overflows",
            array(U32, u64::MAX),
            "the value of key `list`",
        ),
        (
            "tensor name",
            Raw::new(3, 1, 0).u64(HUGE).bytes(&[0; 40]),
            "tensor 1 of 1, at byte 32",
        ),
    ]);
}

#[test]
fn wrong_metadata_is_refused() {
    let deep = (0..9).fold(Raw::new(3, 0, 1).text(b"deep").u32(ARRAY), |raw, _| {
        raw.u32(ARRAY).u64(1)
    });
    let abyss = (0..100_000).fold(Raw::new(3, 0, 1).text(b"abyss").u32(ARRAY), |raw, _| {
        raw.u32(ARRAY).u64(1)
    });
    let one = |key: &[u8], ty| Raw::new(3, 0, 1).text(key).u32(ty).bytes(&[0; 20]);
    expect_all(vec![
        ("empty key", one(b"", U8), "key ``: a key must have a name"),
        (
            "key not UTF-8",
            one(b"\xff", U8),
            "key 1 of 1, at byte 24, has a name that is not UTF-8",
        ),
        (
            "hostile key",
            one(b"\x1b[2J\n", 99),
            r"key `\u{1b}[2J\n`: unknown value type 99 at byte 37",
        ),
        (
            "long key",
            one(&[b'k'; 5000], 99),
            "kkk…`: unknown value type 99",
        ),
        (
            "value type",
            one(b"k", 13),
            "key `k`: unknown value type 13 at byte 33",
        ),
        (
            "element type",
            Raw::new(3, 0, 1).text(b"k").u32(ARRAY).u32(77).u64(0),
            "key `k`: unknown value type 77 at byte 37",
        ),
        (
            "duplicate",
            Raw::new(3, 0, 2).u32_key("k", 1).u32_key("k", 2),
            "key `k`: appears a second time at byte 41",
        ),
        (
            "nested",
            deep,
            "key `deep`: arrays are nested more than 8 deep",
        ),
        (
            "deeply nested",
            abyss,
            "key `abyss`: arrays are nested more than 8 deep",
        ),
    ]);
}

#[test]
fn wrong_alignments_are_refused() {
    let with = |alignment| Raw::new(3, 0, 1).u32_key("general.alignment", alignment);
    let huge = Raw::new(3, 1, 1)
        .u32_key("general.alignment", 1 << 31)
        .tensor("t", &[1], F32, 0)
        .data(64);
    let text = Raw::new(3, 0, 1)
        .text(b"general.alignment")
        .u32(STRING)
        .text(b"32");
    expect_all(vec![
        (
            "0",
            with(0),
            "general.alignment is 0, but must be a power of two",
        ),
        (
            "24",
            with(24),
            "general.alignment is 24, but must be a power of two",
        ),
        (
            "4",
            with(4),
            "general.alignment is 4, but must be a power of two and at least 8",
        ),
        (
            "huge",
            huge,
            "tensor `t`: its 4 bytes of data at byte 2147483648 reach beyond the end of the file at",
        ),
        (
            "not a number",
            text,
            "key `general.alignment` must be u32 but is string \"32\"",
        ),
    ]);
}

#[test]
fn wrong_tensors_are_refused() {
    let one = |dims: &[u64], ty, offset| Raw::new(3, 1, 0).tensor("w", dims, ty, offset).data(64);
    let two = |name, offset| {
        Raw::new(3, 2, 0)
            .tensor("a", &[9], F32, 0)
            .tensor(name, &[1], F32, offset)
            .data(100)
    };
    let many_dims = Raw::new(3, 1, 0).text(b"w").u32(u32::MAX).data(64);
    expect_all(vec![
        (
            "5 dimensions",
            one(&[1; 5], F32, 0),
            "tensor `w`: it has 5 dimensions, but at most 4 are allowed",
        ),
        (
            "many dimensions",
            many_dims,
            "tensor `w`: it has 4294967295 dimensions",
        ),
        (
            "zero",
            one(&[4, 0], F32, 0),
            "tensor `w`: its dimensions [4, 0] contain a zero",
        ),
        (
            "elements overflow",
            one(&[HUGE, HUGE], F32, 0),
            "are too large for this machine",
        ),
        (
            "bytes overflow",
            one(&[1 << 62], F32, 0),
            "are too large for this machine",
        ),
        (
            "partial block",
            one(&[48], 12, 0),
            "tensor `w`: its rows of 48 elements are not whole Q4_K blocks of 256",
        ),
        (
            "unknown type",
            one(&[1], 1000, 0),
            "tensor `w`: unknown tensor type 1000; ",
        ),
        (
            "withdrawn type",
            one(&[1], 31, 0),
            "tensor `w`: unknown tensor type 31 (Q4_0_4_4, withdrawn from ggml)",
        ),
        (
            "misaligned",
            one(&[1], F32, 4),
            "tensor `w`: its offset 4 is not a multiple of the alignment 32",
        ),
        (
            "out of range",
            one(&[17], F32, 0),
            "tensor `w`: its 68 bytes of data at byte 64 reach beyond the end of the file at 128",
        ),
        (
            "offset beyond",
            one(&[1], F32, 64),
            "tensor `w`: its 4 bytes of data at byte 128 reach beyond",
        ),
        (
            "offset overflows",
            one(&[1], F32, u64::MAX - 31),
            "reach beyond the end of the file",
        ),
        (
            "overlap",
            two("b", 32),
            "tensor `b`: its data at byte 128 overlaps that of tensor `a`",
        ),
        ("same place", two("b", 0), "overlaps that of tensor"),
        (
            "same name",
            two("a", 64),
            "tensor `a`: appears more than once",
        ),
        (
            "name not UTF-8",
            Raw::new(3, 1, 0).text(b"\xff").bytes(&[0; 40]),
            "tensor 1 of 1, at byte 24, has a name that is not UTF-8",
        ),
    ]);
}

#[test]
fn a_part_of_a_split_model_is_not_read_from_memory() {
    let part = Raw::new(3, 0, 1).u32_key("split.count", 3);
    expect_all(vec![(
        "split",
        part,
        "this is one of 3 parts of a split model, which cannot be read from memory",
    )]);
}

#[test]
fn tensors_may_have_gaps_between_them_and_any_order() {
    let raw = Raw::new(3, 2, 0)
        .tensor("a", &[2], F32, 96)
        .tensor("b", &[], F32, 0)
        .data(104);
    let model = Gguf::from_bytes(raw.0).unwrap();
    assert_eq!(model.data(&model.tensors()[0]), [1; 8]);
    assert_eq!(model.tensors()[1].shape(), []);
}

#[test]
fn a_file_cut_at_any_byte_is_refused() {
    let whole = include_bytes!("data/every-type.gguf");
    let model = Gguf::from_static(whole).unwrap();
    let last = model.tensors().last().unwrap();
    let end = model.data(last).as_ptr_range().end as usize - whole.as_ptr() as usize;
    for len in 0..end {
        let message = Gguf::from_static(&whole[..len]).unwrap_err().to_string();
        assert!(message.contains("fetch it again"), "{len}: {message}");
    }
    // The padding after the last tensor is nothing to miss.
    assert_eq!(
        Gguf::from_static(&whole[..end]).unwrap().tensors().len(),
        model.tensors().len()
    );
}
