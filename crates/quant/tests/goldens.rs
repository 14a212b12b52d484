//! Bytes equal to ggml's and values equal to those of the Python package `gguf`, bit for bit.
//! `data/generate.py` made the files and says what they hold.

use rustorch_quant::BlockFormat;
use std::path::Path;

fn data(file: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(file);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn floats(file: &str) -> Vec<f32> {
    let bytes = data(file);
    let (floats, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty(), "{file}");
    floats.iter().copied().map(f32::from_le_bytes).collect()
}

#[test]
fn quantised_bytes_are_ggmls() {
    let x = floats("quantize/inputs.f32");
    for &format in BlockFormat::ALL {
        let expected = data(&format!("quantize/{format}.blocks"));
        let mut blocks = vec![0xAA; format.row_bytes(x.len()).unwrap()];
        format.quantize(&x, &mut blocks).unwrap();
        assert_eq!(blocks.len(), expected.len(), "{format}");
        let size = format.block_bytes();
        for (i, (got, expected)) in blocks.chunks(size).zip(expected.chunks(size)).enumerate() {
            let row = i * format.block_len() / 256;
            assert_eq!(got, expected, "{format} block {i}, of input row {row}");
        }
    }
}

/// Rows of random products and rows of random integers: what few rows are unlikely to meet, such as
/// the last candidate of a search, many do.
fn many() -> Vec<f32> {
    const N: u32 = 1024 * 256;
    let uniform = |counter: u32| {
        let n = counter.wrapping_mul(0x9E37_79B9);
        let n = (n ^ n >> 16).wrapping_mul(0x85EB_CA6B);
        let n = (n ^ n >> 13).wrapping_mul(0xC2B2_AE35);
        (n ^ n >> 16) as i32 as f32 / 2_147_483_648.0
    };
    let value = |i: u32| match i / 256 % 2 {
        0 => uniform(i) * uniform(N + i),
        _ => (uniform(i) * 33.5).trunc(),
    };
    (0..N).map(value).collect()
}

fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, step)
}

#[test]
fn quantised_bytes_of_many_rows_have_ggmls_hashes() {
    let x = many();
    let lines = String::from_utf8(data("quantize/many.txt")).unwrap();
    assert_eq!(lines.lines().count(), BlockFormat::ALL.len());
    for line in lines.lines() {
        let (format, hash) = line.split_once(' ').unwrap();
        let format: BlockFormat = format.parse().unwrap();
        let mut blocks = vec![0; format.row_bytes(x.len()).unwrap()];
        format.quantize(&x, &mut blocks).unwrap();
        assert_eq!(format!("{:016x}", fnv1a(&blocks)), hash, "{format}");
    }
}

#[test]
fn dequantised_values_are_those_of_gguf() {
    // The package has no Q8_1 and no Q8_K, which no file holds.
    let in_files = |format: &&BlockFormat| !matches!(format, BlockFormat::Q8_1 | BlockFormat::Q8K);
    for &format in BlockFormat::ALL.iter().filter(in_files) {
        let expected = floats(&format!("dequantize/{format}.f32"));
        let mut values = vec![f32::NAN; expected.len()];
        format
            .dequantize(&data(&format!("dequantize/{format}.blocks")), &mut values)
            .unwrap();
        for (i, (got, expected)) in values.iter().zip(&expected).enumerate() {
            assert_eq!(
                got.to_bits(),
                expected.to_bits(),
                "{format} value {i}: {got} {expected}"
            );
        }
    }
}

#[test]
fn dequantised_operands_are_scale_times_code() {
    let x = floats("quantize/inputs.f32");
    for format in [BlockFormat::Q8_1, BlockFormat::Q8K] {
        let mut blocks = vec![0; format.row_bytes(x.len()).unwrap()];
        format.quantize(&x, &mut blocks).unwrap();
        let mut values = vec![0.0; x.len()];
        format.dequantize(&blocks, &mut values).unwrap();
        let rows = x
            .chunks(format.block_len())
            .zip(values.chunks(format.block_len()));
        for (x, values) in rows {
            let magnitude = x.iter().fold(0.0_f32, |a, x| a.max(x.abs()));
            // Q8_1's f16 scale underflows and overflows outside of this.
            if magnitude == 0.0 || (1e-2..6e4).contains(&magnitude) {
                for (x, value) in x.iter().zip(values) {
                    assert!(
                        (x - value).abs() <= magnitude * 4.5e-3,
                        "{format}: {x} {value}"
                    );
                }
            }
        }
    }
}
