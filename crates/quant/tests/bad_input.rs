//! Wrong lengths are errors; no bytes and no values make a conversion panic.

use proptest::prelude::*;
use rustorch_quant::{BlockFormat, QuantError};

#[test]
fn values_must_fill_blocks() {
    for &format in BlockFormat::ALL {
        let elements = format.block_len() + 1;
        let mut bytes = vec![0; 2 * format.block_bytes()];
        let error = QuantError::PartialBlock { format, elements };
        assert_eq!(
            format.dequantize(&bytes, &mut vec![0.0; elements]),
            Err(error.clone())
        );
        assert_eq!(
            format.quantize(&vec![0.0; elements], &mut bytes),
            Err(error)
        );
    }
}

#[test]
fn bytes_must_match_values() {
    for &format in BlockFormat::ALL {
        let elements = 2 * format.block_len();
        let expected = 2 * format.block_bytes();
        for bytes in [
            0,
            expected - 1,
            expected + 1,
            expected + format.block_bytes(),
        ] {
            let error = QuantError::BufferLength {
                format,
                elements,
                expected,
                bytes,
            };
            let mut buffer = vec![0; bytes];
            assert_eq!(
                format.dequantize(&buffer, &mut vec![0.0; elements]),
                Err(error.clone())
            );
            assert_eq!(
                format.quantize(&vec![0.0; elements], &mut buffer),
                Err(error)
            );
        }
    }
}

#[test]
fn no_values_are_no_bytes() {
    for &format in BlockFormat::ALL {
        assert_eq!(format.row_bytes(0), Some(0));
        assert_eq!(format.quantize(&[], &mut []), Ok(()));
        assert_eq!(format.dequantize(&[], &mut []), Ok(()));
    }
}

#[test]
fn errors_say_what_to_do() {
    let partial = BlockFormat::Q4K
        .dequantize(&[], &mut [0.0; 100])
        .unwrap_err();
    let text = "100 values do not fill whole Q4_K blocks: pass a multiple of 256";
    assert_eq!(partial.to_string(), text);
    let length = BlockFormat::Q8_0
        .quantize(&[0.0; 64], &mut [0; 60])
        .unwrap_err();
    let text = "64 values in Q8_0 take 68 bytes, not 60: pass matching lengths";
    assert_eq!(length.to_string(), text);
    let unknown = "Q9_Z".parse::<BlockFormat>().unwrap_err().to_string();
    assert!(
        unknown.starts_with("`Q9_Z` is no block format: use one of Q4_0, Q4_1,"),
        "{unknown}"
    );
}

proptest! {
    #[test]
    fn any_bytes_dequantise(bytes in proptest::collection::vec(any::<u8>(), 292), at in 0..4_usize) {
        for &format in BlockFormat::ALL {
            let block = &bytes[..format.block_bytes()];
            let mut values = vec![0.0; format.block_len()];
            prop_assert!(format.dequantize(block, &mut values).is_ok());
            // The same bytes at another alignment are the same values.
            let shifted = [&[0; 3][..at.min(3)], block].concat();
            let mut again = vec![0.0; format.block_len()];
            prop_assert!(format.dequantize(&shifted[at.min(3)..], &mut again).is_ok());
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&values), bits(&again));
        }
    }

    #[test]
    fn any_values_quantise(bits in proptest::collection::vec(any::<u32>(), 256)) {
        let values: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        for &format in BlockFormat::ALL {
            let mut bytes = vec![0; format.row_bytes(values.len()).unwrap()];
            prop_assert!(format.quantize(&values, &mut bytes).is_ok());
        }
    }
}
