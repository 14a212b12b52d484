//! Any bytes are a GGUF file or an error. What was read can be looked at, and written and read again unchanged.

#![no_main]

use std::hint::black_box;

use libfuzzer_sys::fuzz_target;
use rustorch_gguf::{Gguf, GgufError, GgufWriter};

fn rewrite(model: &Gguf) -> Result<Vec<u8>, GgufError> {
    let mut writer = GgufWriter::new(model.metadata.clone());
    for tensor in model.tensors() {
        writer.add_tensor(&tensor.name, tensor.dims.clone(), tensor.ty)?;
    }
    let mut file = Vec::new();
    let mut tensors = model.tensors().iter();
    writer.write_to(&mut file, |_, out| {
        let tensor = tensors.next().expect("as many tensors as were added");
        out.write_all(model.data(tensor))
    })?;
    Ok(file)
}

fuzz_target!(|bytes: &[u8]| {
    let model = match Gguf::from_bytes(bytes.to_vec()) {
        Ok(model) => model,
        Err(error) => {
            assert!(!error.to_string().contains('\n'));
            return;
        }
    };
    for (_, value) in model.metadata.iter() {
        black_box(value.to_string());
    }
    for tensor in model.tensors() {
        assert_eq!(model.data(tensor).len(), tensor.bytes());
        assert_eq!(model.tensor(&tensor.name), Some(tensor));
    }
    let written = rewrite(&model).expect("what was read can be written");
    let again = Gguf::from_bytes(written.clone()).expect("what was written can be read");
    assert!(written == rewrite(&again).expect("what was read can be written"));
});
