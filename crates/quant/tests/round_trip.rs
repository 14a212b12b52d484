//! Error bounds of a round trip, on the data and with the limits of llama.cpp's
//! tests/test-quantize-fns.cpp.

use rustorch_quant::BlockFormat;

const N: usize = 4096;

/// The root of the summed squared errors over the count, which is how llama.cpp's limits are meant.
fn round_trip_error(format: BlockFormat, x: &[f32]) -> f32 {
    let mut blocks = vec![0; format.row_bytes(x.len()).unwrap()];
    format.quantize(x, &mut blocks).unwrap();
    let mut back = vec![0.0; x.len()];
    format.dequantize(&blocks, &mut back).unwrap();
    let squares: f32 = x.iter().zip(&back).map(|(x, y)| (x - y) * (x - y)).sum();
    squares.sqrt() / x.len() as f32
}

#[test]
fn error_is_within_llama_cpps_limits() {
    for offset in [0.0, 1.0] {
        let x: Vec<f32> = (0..N)
            .map(|i| 0.1 + 2.0 * (i as f32 + offset).cos())
            .collect();
        for &format in BlockFormat::ALL {
            let limit = match format {
                BlockFormat::Q2K => 0.0075,
                BlockFormat::Q3K => 0.0040,
                BlockFormat::Mxfp4 => 0.0030,
                _ => 0.002,
            };
            let error = round_trip_error(format, &x);
            assert!(error < limit, "{format}: {error} is not below {limit}");
        }
    }
}

#[test]
fn more_bits_give_less_error() {
    let x: Vec<f32> = (0..N)
        .map(|i| (i as f32 * 0.7).sin() * (i as f32 * 0.013).cos())
        .collect();
    use BlockFormat::*;
    for pair in [Q2K, Q3K, Q4K, Q5K, Q6K, Q8K].windows(2) {
        let [fewer, more] = [pair[0], pair[1]].map(|format| round_trip_error(format, &x));
        assert!(more < fewer, "{}: {fewer}, {}: {more}", pair[0], pair[1]);
    }
}
