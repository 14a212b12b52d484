//! Wrong lengths are errors; no bytes and no values make a conversion panic.

use proptest::prelude::*;
use rustorch_quant::{BlockFormat, Parts, QuantError};

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

/// The error of unpacking two blocks to parts of these lengths.
fn unpacked(format: BlockFormat, codes: usize, groups: [usize; 2]) -> Option<QuantError> {
    let [mut scales, mut minima] = groups.map(|groups| vec![0.0; groups]);
    let parts = Parts {
        codes: &mut vec![0; codes],
        scales: &mut scales,
        minima: &mut minima,
    };
    let bytes = vec![0; 2 * format.block_bytes()];
    format.unpack(&bytes, parts).err()
}

#[test]
fn parts_must_match_bytes() {
    for &format in BlockFormat::ALL {
        let elements = 2 * format.block_len();
        let groups = elements / format.group_len();
        assert_eq!(unpacked(format, elements, [groups; 2]), None);
        let partial = unpacked(format, elements - 1, [groups; 2]);
        assert!(matches!(partial, Some(QuantError::PartialBlock { .. })));
        for given in [[groups + 1, groups], [groups, groups - 1]] {
            let error = unpacked(format, elements, given).unwrap();
            let wrong = given.into_iter().find(|&given| given != groups).unwrap();
            let expected = QuantError::Groups {
                format,
                elements,
                groups,
                given: wrong,
            };
            assert_eq!(error, expected);
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
        unknown.starts_with("unknown block format `Q9_Z`: use one of Q4_0, Q4_1,"),
        "{unknown}"
    );
}

proptest! {
    #[test]
    fn codes_are_those_of_the_format(bytes in proptest::collection::vec(any::<u8>(), 292)) {
        for &format in BlockFormat::ALL {
            let mut codes = vec![0; format.block_len()];
            let groups = format.block_len() / format.group_len();
            let [mut scales, mut minima] = [(); 2].map(|()| vec![0.0; groups]);
            let parts = Parts { codes: &mut codes, scales: &mut scales, minima: &mut minima };
            prop_assert!(format.unpack(&bytes[..format.block_bytes()], parts).is_ok());
            let are_known = codes.iter().all(|&code| format.codes().contains(&(code as i8)));
            prop_assert!(are_known, "{format}");
            prop_assert!(format.has_minima() || minima.iter().all(|&minimum| minimum == 0.0));
        }
    }

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
