//! Quantising: the types, the bytes and the refusals of llama.cpp.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rustorch_gguf::{GgmlType, Gguf, GgufWriter, Metadata};
use rustorch_llm::LlmError;
use rustorch_llm::quantize::{
    FileType, ModelTraits, Progress, QuantizeOptions, Seen, Summary, quantize, tensor_type,
};
use sha2::{Digest, Sha256};

/// A model of `data/tensor-types.txt`; the head of that file explains it.
#[derive(Default)]
struct Expected {
    name: String,
    traits: ModelTraits,
    /// Names with `*` for every layer, dimensions, and whether the tensor is kept.
    tensors: Vec<(String, Vec<u64>, bool)>,
    /// For each file type the tensors whose type is not its base.
    types: Vec<(FileType, HashMap<String, String>)>,
}

fn read_tensor_types() -> Vec<Expected> {
    let mut models: Vec<Expected> = Vec::new();
    let mut current = 0;
    for line in include_str!("data/tensor-types.txt").lines() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next().filter(|first| *first != "#") else {
            continue;
        };
        if first == "model" {
            let name = words.next().unwrap().to_owned();
            models.push(Expected {
                name,
                ..Expected::default()
            });
            continue;
        }
        let model = models.last_mut().unwrap();
        match first {
            "traits" => {
                model.traits.architecture = words.next().unwrap().to_owned();
                for word in words {
                    let (key, value) = word.split_once('=').unwrap();
                    let field = match key {
                        "layers" => &mut model.traits.layers,
                        "heads" => &mut model.traits.heads,
                        "kv_heads" => &mut model.traits.kv_heads,
                        "experts" => &mut model.traits.experts,
                        _ => panic!("{key}"),
                    };
                    *field = value.parse().unwrap();
                }
            }
            "tensor" | "kept" => {
                let name = words.next().unwrap().to_owned();
                let dims = words.map(|dim| dim.parse().unwrap()).collect();
                model.tensors.push((name, dims, first == "kept"));
            }
            "types" => {
                current = model.types.len();
                model
                    .types
                    .extend(words.map(|name| (name.parse().unwrap(), HashMap::new())));
            }
            pattern => {
                let ty = words.next().unwrap();
                let mut layers: Vec<usize> = words.flat_map(layer_range).collect();
                if layers.is_empty() {
                    layers = (0..model.traits.layers).collect();
                }
                for (_, types) in &mut model.types[current..] {
                    types.extend(
                        layers
                            .iter()
                            .map(|layer| (in_layer(pattern, *layer), ty.to_owned())),
                    );
                }
            }
        }
    }
    models
}

fn layer_range(word: &str) -> std::ops::RangeInclusive<usize> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    first.parse().unwrap()..=last.parse().unwrap()
}

fn in_layer(pattern: &str, layer: usize) -> String {
    pattern.replace('*', &layer.to_string())
}

#[test]
fn tensors_get_the_types_of_llama_cpp() {
    let models = read_tensor_types();
    assert_eq!(models.len(), 11);
    for mut model in models {
        // The order of the file: tensors outside of layers, then layer by layer, by name.
        model.tensors.sort();
        let (in_layers, outside): (Vec<_>, Vec<_>) = model
            .tensors
            .iter()
            .partition(|tensor| tensor.0.contains('*'));
        let every_layer = (0..model.traits.layers).flat_map(|layer| {
            in_layers
                .iter()
                .map(move |(name, dims, kept)| (in_layer(name, layer), dims, *kept))
        });
        let tensors: Vec<_> = outside
            .iter()
            .map(|(name, dims, kept)| (name.clone(), dims, *kept))
            .chain(every_layer)
            .collect();
        model
            .traits
            .count_tensors(tensors.iter().map(|(name, ..)| name.as_str()));

        assert_eq!(model.types.len(), 16, "{}", model.name);
        for (file_type, mut expected) in model.types {
            let mut seen = Seen::default();
            for (name, dims, kept) in &tensors {
                let choice = tensor_type(file_type, &model.traits, name, dims, seen);
                assert_eq!(choice.is_none(), *kept, "{} {file_type} {name}", model.name);
                let Some(choice) = choice else { continue };
                seen.count(name);
                let expected = expected
                    .remove(name)
                    .unwrap_or_else(|| file_type.base().to_string());
                assert_eq!(
                    choice.ty.name(),
                    expected.to_uppercase(),
                    "{} {file_type} {name}",
                    model.name
                );
            }
            assert!(
                expected.is_empty(),
                "{} {file_type}: no tensors for {expected:?}",
                model.name
            );
        }
    }
}

fn bundled(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../models")
        .join(file)
}

/// Quantises without reports, into a file of its own folder.
fn to_file(
    input: &Gguf,
    file_type: FileType,
    options: &QuantizeOptions,
) -> Result<(Vec<u8>, Summary), LlmError> {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.gguf");
    let result = quantize(input, &output, file_type, options, &mut |_| {
        ControlFlow::Continue(())
    });
    assert_eq!(output.exists(), result.is_ok());
    Ok((std::fs::read(&output).unwrap_or_default(), result?))
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[test]
fn what_is_stopped_leaves_nothing() {
    let f16 = Gguf::open(bundled("classics-13m-f16.gguf")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut stop = |progress: Progress<'_>| match progress.index {
        2 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let result = quantize(
        &f16,
        &folder.path().join("out.gguf"),
        FileType::Q8_0,
        &QuantizeOptions::default(),
        &mut stop,
    );
    assert!(matches!(result, Err(LlmError::Stopped(_))));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn the_bundled_model_is_reproduced() {
    let f16 = Gguf::open(bundled("classics-13m-f16.gguf")).unwrap();
    let path = bundled("classics-13m-Q4_K_M.gguf");
    let expected = Gguf::open(&path).unwrap();
    let mut targets = Vec::new();
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.gguf");
    let mut record = |progress: Progress<'_>| {
        assert_eq!(progress.index, targets.len());
        let ty = progress
            .choice
            .map_or(progress.tensor.ty, |choice| choice.ty);
        targets.push((progress.tensor.name.clone(), ty));
        ControlFlow::Continue(())
    };
    let summary = quantize(
        &f16,
        &output,
        FileType::Q4KM,
        &QuantizeOptions::default(),
        &mut record,
    )
    .unwrap();
    let tensors: Vec<_> = expected
        .tensors()
        .iter()
        .map(|tensor| (tensor.name.clone(), tensor.ty))
        .collect();
    assert_eq!(targets, tensors);
    assert_eq!(summary.tensors, tensors.len());
    assert_eq!(summary.fallbacks, 0);
    assert!(
        std::fs::read(&output).unwrap() == std::fs::read(&path).unwrap(),
        "the bytes differ"
    );
}

/// The files that llama.cpp 0.5.0's `llama-quantize` makes of the bundled model.
#[test]
fn other_file_types_have_the_bytes_of_llama_cpp() {
    let f16 = Gguf::open(bundled("classics-13m-f16.gguf")).unwrap();
    let files = [
        (
            FileType::BF16,
            "88170eb16315ce63a42406dcce9a15e0de1b066103d04d51332a2c5541c781c5",
        ),
        (
            FileType::Q8_0,
            "21861a94dc67871e18c01c166d209a64b0f98d61cbc617cc68603581f94031eb",
        ),
        (
            FileType::Q5KM,
            "09cd686bd28580b0a5346a6fffbc5c074a16e7dbad44e331591bfccb09ee6428",
        ),
        (
            FileType::Q6K,
            "d92fad30d2ec8ee83711c1a25a865e752c7f0039362bea41807d17ae80862c60",
        ),
    ];
    for (file_type, hash) in files {
        let (bytes, _) = to_file(&f16, file_type, &QuantizeOptions::default()).unwrap();
        assert_eq!(sha256(&bytes), hash, "{file_type}");
    }
}

#[test]
fn a_quantised_model_is_quantised_again_only_on_request() {
    let quantised = Gguf::open(bundled("classics-13m-Q4_K_M.gguf")).unwrap();
    let mut options = QuantizeOptions::default();
    let error = to_file(&quantised, FileType::Q8_0, &options).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("tensor `token_embd.weight` is Q6_K already"),
        "{error}"
    );
    // Nothing changes its type: there is nothing to lose.
    let (bytes, _) = to_file(&quantised, FileType::Q4KM, &options).unwrap();
    assert!(bytes == std::fs::read(bundled("classics-13m-Q4_K_M.gguf")).unwrap());

    options.allow_requantize = true;
    let (bytes, _) = to_file(&quantised, FileType::Q8_0, &options).unwrap();
    assert_eq!(
        sha256(&bytes),
        "be1547f508a84666effeab7ea505306eabd08a98b6fe0dc512298a644e35ba2a"
    );
}

/// A model of one layer whose matrices have rows of `row` elements of type `ty`.
fn small(row: u64, ty: GgmlType) -> Gguf {
    let mut metadata = Metadata::new();
    metadata.insert("general.file_type", 0u32);
    metadata.insert("general.architecture", "llama");
    metadata.insert("llama.block_count", 1u32);
    metadata.insert("llama.attention.head_count", vec![8i32]);
    let mut writer = GgufWriter::new(metadata);
    writer
        .add_tensor("blk.0.ffn_up.weight", [row, 2], ty)
        .unwrap();
    writer
        .add_tensor("blk.0.attn_v.weight", [row, 2], ty)
        .unwrap();
    writer
        .add_tensor("token_embd.weight", [row, 3], ty)
        .unwrap();
    writer
        .add_tensor("output_norm.weight", [row], GgmlType::F32)
        .unwrap();
    let mut bytes = Vec::new();
    writer
        .write_to(&mut bytes, |tensor, out| {
            out.write_all(&vec![0; tensor.bytes()])
        })
        .unwrap();
    Gguf::from_bytes(bytes).unwrap()
}

#[test]
fn keys_and_tensors_are_in_the_order_of_llama_cpp() {
    let (bytes, _) = to_file(
        &small(256, GgmlType::F32),
        FileType::Q4KM,
        &QuantizeOptions::default(),
    )
    .unwrap();
    let model = Gguf::from_bytes(bytes).unwrap();
    let keys: Vec<&str> = model.metadata.iter().map(|(key, _)| key).collect();
    let expected = [
        "general.architecture",
        "llama.block_count",
        "llama.attention.head_count",
        "general.quantization_version",
        "general.file_type",
    ];
    assert_eq!(keys, expected);
    assert_eq!(model.metadata.u32("general.file_type").unwrap(), 15);
    let tensors: Vec<_> = model
        .tensors()
        .iter()
        .map(|tensor| (tensor.name.as_str(), tensor.ty))
        .collect();
    let expected = [
        ("output_norm.weight", GgmlType::F32),
        ("token_embd.weight", GgmlType::Q6K),
        ("blk.0.attn_v.weight", GgmlType::Q6K),
        ("blk.0.ffn_up.weight", GgmlType::Q4K),
    ];
    assert_eq!(tensors, expected);
}

#[test]
fn fallbacks_are_counted() {
    let options = QuantizeOptions::default();
    let (_, summary) = to_file(&small(96, GgmlType::F16), FileType::Q4KM, &options).unwrap();
    let f16 = 7 * 96 * 2;
    let norm = 96 * 4;
    // Rows of 96 become Q8_0 in the embedding, by intention, and in attn_v; Q5_0 in ffn_up.
    let expected = Summary {
        tensors: 4,
        fallbacks: 2,
        input_bytes: f16 + norm,
        output_bytes: (3 + 2) * 3 * 34 + 2 * 3 * 22 + norm,
    };
    assert_eq!(summary, expected);
}

#[test]
fn what_cannot_be_done_is_refused() {
    let options = QuantizeOptions::default();
    let refuse =
        |model: &Gguf, file_type| to_file(model, file_type, &options).unwrap_err().to_string();

    let message = refuse(&small(256, GgmlType::F32), FileType::Q2KS);
    assert!(
        message.starts_with("Q2_K_S needs an importance matrix"),
        "{message}"
    );
    let message = refuse(&small(256, GgmlType::I32), FileType::Q8_0);
    assert!(
        message.starts_with("tensor `token_embd.weight`: type I32 cannot be converted"),
        "{message}"
    );
    let message = refuse(&small(256, GgmlType::Iq4Xs), FileType::Q8_0);
    assert!(
        message.starts_with("tensor `token_embd.weight` is IQ4_XS already"),
        "{message}"
    );
    let mut model = small(256, GgmlType::F32);
    model.metadata.remove("llama.block_count");
    let message = refuse(&model, FileType::Q8_0);
    assert!(message.starts_with("key `llama.block_count`"), "{message}");
}
