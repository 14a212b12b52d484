//! Any bytes are a file of tensors of a format, which the first byte chooses, or an error. What was read can be looked
//! at, and written as safetensors and read again, where these have its dtypes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rustorch_files::{Format, Source, raw, read, safetensors};

const FORMATS: [Format; 5] = [
    Format::Safetensors,
    Format::Npy,
    Format::Npz,
    Format::PyTorch,
    Format::Gguf,
];

/// Elements of a tensor that is looked at: one may show a small storage often.
const LARGEST: usize = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, file)) = bytes.split_first() else {
        return;
    };
    let format = FORMATS[usize::from(first) % FORMATS.len()];
    let tensors = match read(&Source::from(file.to_vec()), format) {
        Ok(tensors) => tensors,
        Err(error) => {
            assert!(!error.to_string().contains('\n'));
            return;
        }
    };
    if tensors.iter().any(|(_, tensor)| tensor.numel() > LARGEST) {
        return;
    }
    for (_, tensor) in tensors.iter() {
        raw::write(&mut Vec::new(), tensor).expect("what was read can be looked at");
    }
    let mut written = Vec::new();
    if safetensors::write(&mut written, &tensors).is_ok() {
        let again = safetensors::read(&written.into()).expect("what was written can be read");
        assert_eq!(again.len(), tensors.len());
    }
});
