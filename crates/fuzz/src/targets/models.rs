//! GGUF files: as such, as models, as what changes a model, as sessions.

use std::hint::black_box;
use std::sync::{Arc, LazyLock};

use rustorch_cpu::Cpu;
use rustorch_gguf::{Array, GgmlType, Gguf, GgufError, GgufWriter, Metadata};
use rustorch_llm::{AdapterFile, Model, ModelOptions, Session, SessionOptions};
use rustorch_runtime::{Backend, Runtime};
use rustorch_testing::memory::within;
use rustorch_testing::models::{Header, headers_folder};
use rustorch_tokenizer::{EncodeOptions, Tokenizer};

use super::{all_in, repository};

/// Bytes for texts of errors.
const SLACK: usize = 4096;

/// Parses a file, within a few times its size of memory.
fn parse(bytes: &[u8]) -> Result<Gguf, String> {
    let copy = bytes.to_vec();
    within(8 * bytes.len() + SLACK, || Gguf::from_bytes(copy)).map_err(|e| e.to_string())
}

fn written(metadata: Metadata, tensors: &[(&str, &[u64], GgmlType)]) -> Vec<u8> {
    let mut writer = GgufWriter::new(metadata);
    for (name, dims, ty) in tensors {
        writer
            .add_tensor(*name, dims.to_vec(), *ty)
            .expect("a tensor");
    }
    let mut file = Vec::new();
    let filled = writer.write_to(&mut file, |tensor, out| {
        out.write_all(&vec![7; tensor.bytes()])
    });
    filled.expect("there is memory");
    file
}

/// A small file with every kind of content, and a split one's parts.
pub(super) fn files() -> Vec<Vec<u8>> {
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
    let tensors: [(&str, &[u64], GgmlType); 5] = [
        ("a", &[4, 2], GgmlType::F32),
        ("b", &[32], GgmlType::Q4_0),
        ("c", &[], GgmlType::I64),
        ("d", &[256, 1, 1, 1], GgmlType::Iq2Xxs),
        ("e", &[32], GgmlType::Mxfp4),
    ];
    vec![written(metadata, &tensors)]
}

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

/// Every key and every tensor is looked at, and the file is written, and read again unchanged.
pub(super) fn file(bytes: &[u8]) -> Result<(), String> {
    let file = parse(bytes)?;
    for (key, value) in file.metadata.iter() {
        black_box(format!("{value} {value:#}"));
        black_box((
            file.metadata.u32(key).is_ok(),
            file.metadata.i32_array(key).is_ok(),
        ));
    }
    for tensor in file.tensors() {
        assert_eq!(file.data(tensor).len(), tensor.bytes());
        assert_eq!(tensor.shape().iter().product::<usize>(), tensor.elements());
        assert_eq!(file.tensor(&tensor.name), Some(tensor));
        black_box(tensor.ensure_supported().is_ok());
    }
    let written = rewrite(&file).expect("what was read can be written");
    let again = Gguf::from_bytes(written.clone()).expect("what was written can be read");
    assert!(written == rewrite(&again).expect("what was read can be written"));
    Ok(())
}

const ARCHITECTURES: &str = "crates/llm/tests/data/architectures";

/// Small models of each architecture.
pub(super) fn models() -> Vec<Vec<u8>> {
    all_in(ARCHITECTURES, ".gguf")
}

/// Small models of every architecture, without their weights.
pub(super) fn heads() -> Vec<Vec<u8>> {
    let headers = Header::all(&headers_folder()).into_iter();
    headers
        .map(|header| header.head().expect("a file"))
        .collect()
}

/// More bytes than the weights of any of these models have.
const WEIGHTS: usize = 8 << 20;

/// Bytes for a description of the most layers, and for all that they lack.
const MOST: usize = 128 << 20;

/// A model of these keys and tensors is described and loaded; its weights are zero.
pub(super) fn head(bytes: &[u8]) -> Result<(), String> {
    let mut file = bytes.to_vec();
    file.resize(bytes.len() + WEIGHTS, 0);
    let gguf = Gguf::from_bytes(file).map_err(|e| e.to_string())?;
    within(MOST, || Model::load(gguf))
        .map(drop)
        .map_err(|e| e.to_string())
}

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Runtime::new([Arc::new(Cpu::new(1)) as Arc<dyn Backend>]));

fn few() -> SessionOptions {
    SessionOptions {
        context: 8,
        ..SessionOptions::default()
    }
}

/// Small vocabularies of every kind of tokenizer.
pub(super) fn vocabularies() -> Vec<Vec<u8>> {
    let mut files = all_in("crates/tokenizer/tests/fixtures", ".gguf");
    files.extend(all_in("crates/tokenizer/tests/fixtures/kinds", ".gguf"));
    files
}

/// Text becomes tokens of the vocabulary, each of which has bytes.
pub(super) fn vocabulary(bytes: &[u8]) -> Result<(), String> {
    let file = parse(bytes)?;
    tokenize(&Tokenizer::from_gguf(&file.metadata).map_err(|e| e.to_string())?);
    Ok(())
}

fn tokenize(tokenizer: &Tokenizer) {
    let options = EncodeOptions {
        add_special: true,
        parse_special: true,
    };
    let text = "It was 7 o'clock, <s> é 中\n\n <dna>ACGTACG</dna> <extra_ ﬁ\u{feff}";
    for id in tokenizer.encode(text, options) {
        let bytes = tokenizer.token_bytes(id);
        black_box(bytes.expect("a token of the vocabulary"));
    }
}

/// A model that was taken has a vocabulary, if any, that tokens can be made of, and computes.
pub(super) fn model(bytes: &[u8]) -> Result<(), String> {
    let model = Model::load(parse(bytes)?).map_err(|e| e.to_string())?;
    if let Ok(tokenizer) = model.tokenizer() {
        tokenize(tokenizer);
    }
    let mut session = Session::new(&model, &RUNTIME, few()).map_err(|e| e.to_string())?;
    let mut logits = Vec::new();
    session
        .feed(&[0, 0], &mut logits)
        .map_err(|e| e.to_string())?;
    session.feed(&[0], &mut logits).map_err(|e| e.to_string())
}

fn llama() -> Gguf {
    let path = repository(ARCHITECTURES).join("llama.gguf");
    Gguf::open(path).expect("the model is in the repository")
}

/// An adapter of two weights of the small Llama, and a control vector.
pub(super) fn adapters() -> Vec<Vec<u8>> {
    let mut lora = Metadata::new();
    lora.insert("general.architecture", "llama");
    lora.insert("general.type", "adapter");
    lora.insert("adapter.type", "lora");
    lora.insert("adapter.lora.alpha", 4.0f32);
    let tensors: [(&str, &[u64], GgmlType); 4] = [
        ("blk.0.attn_q.weight.lora_a", &[32, 4], GgmlType::F32),
        ("blk.0.attn_q.weight.lora_b", &[4, 32], GgmlType::F32),
        ("token_embd.weight.lora_a", &[4, 40], GgmlType::F32),
        ("token_embd.weight.lora_b", &[4, 32], GgmlType::F32),
    ];
    let mut vector = Metadata::new();
    vector.insert("general.architecture", "controlvector");
    vec![
        written(lora, &tensors),
        written(vector, &[("direction.1", &[32], GgmlType::F32)]),
    ]
}

/// Uses the file as an adapter: a file of another kind is refused, an adapter changes a model.
pub(super) fn adapter(bytes: &[u8]) -> Result<(), String> {
    static MODEL: LazyLock<Gguf> = LazyLock::new(llama);
    let file = || -> Result<_, String> {
        let name = "adapter.gguf".to_owned();
        let (gguf, scale) = (parse(bytes)?, 1.0);
        Ok(vec![AdapterFile { name, gguf, scale }])
    };
    let load = |options: &ModelOptions| {
        Model::load_with(MODEL.clone(), options).map_err(|e| e.to_string())
    };
    let as_lora = load(&ModelOptions {
        loras: file()?,
        ..ModelOptions::default()
    });
    let as_vector = load(&ModelOptions {
        control_vectors: file()?,
        ..ModelOptions::default()
    });
    match (as_lora, as_vector) {
        (Ok(_), _) | (_, Ok(_)) => Ok(()),
        (Err(lora), Err(vector)) => Err(format!("{lora}; {vector}")),
    }
}

static LLAMA: LazyLock<Model> = LazyLock::new(|| Model::load(llama()).expect("a sound model"));

/// A session of the small Llama.
pub(super) fn sessions() -> Vec<Vec<u8>> {
    let path = tempfile::NamedTempFile::new()
        .expect("a file")
        .into_temp_path();
    let mut session = Session::new(&LLAMA, &RUNTIME, few()).expect("a session");
    let fed = session.feed(&[0, 1, 2], &mut Vec::new());
    fed.expect("three tokens fit");
    session.save(&path).expect("the file can be written");
    vec![std::fs::read(&path).expect("the file can be read")]
}

/// Continues from the restored session.
pub(super) fn session(bytes: &[u8]) -> Result<(), String> {
    let path = tempfile::NamedTempFile::new()
        .expect("a file")
        .into_temp_path();
    std::fs::write(&path, bytes).expect("the file can be written");
    let mut session = Session::new(&LLAMA, &RUNTIME, few()).expect("a session");
    let restored = session.restore(&path);
    restored.map_err(|e| e.to_string().replace(&path.display().to_string(), "FILE"))?;
    let fed = session.feed(&[0], &mut Vec::new());
    fed.map_err(|e| e.to_string())
}
