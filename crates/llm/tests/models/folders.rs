//! Folders of encoders as `transformers` saves them: vectors and scores are what it computes.
//! `scripts/hugging-face-encoders.py` made the models; `scripts/minilm-goldens.py` made the vectors of all-MiniLM-L6-v2.

use std::fs;
use std::path::{Path, PathBuf};

use rustorch_files::safetensors;
use rustorch_ir::DType;
use rustorch_llm::spec::Pooling;
use rustorch_llm::{Encoder, EncoderOptions, Model, Scaling, cosine, hugging_face};
use rustorch_tensor::Tensor;
use rustorch_testing::fetched::ModelFile;
use serde_json::Value;

use crate::common::{cpu, difference};

fn data(folder: &str) -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    data.join(folder)
}

/// Texts and rows of numbers of a file.
fn expected(path: &Path) -> (Vec<String>, Vec<Vec<f32>>) {
    let text = fs::read_to_string(path).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    (
        serde_json::from_value(json["texts"].clone()).unwrap(),
        serde_json::from_value(json["rows"].clone()).unwrap(),
    )
}

fn load(folder: &Path) -> Model {
    Model::load(hugging_face::open(folder).unwrap()).unwrap()
}

pub(crate) fn vectors_are_those_of_transformers() {
    let mut count = 0;
    for entry in data("hugging_face_encoders").read_dir().unwrap() {
        let folder = entry.unwrap().path();
        let (texts, rows) = expected(&folder.join("expected.json"));
        let model = load(&folder);
        let is_ranker = folder.to_str().unwrap().ends_with("-ranker");
        let options = EncoderOptions {
            pooling: is_ranker.then_some(Pooling::Rank),
            scaling: Scaling::None,
            ..EncoderOptions::default()
        };
        let mut encoder = Encoder::new(&model, &cpu(), options).unwrap();
        let found = match is_ranker {
            true => encoder.rerank(texts.last().unwrap(), &texts).unwrap(),
            false => encoder.embed(&texts).unwrap().concat(),
        };
        let difference = difference(&found, &rows.concat());
        assert!(difference < 1e-4, "{}: {difference:e}", folder.display());
        count += 1;
    }
    assert_eq!(count, 7);
}

/// Predictions by which encoders are trained have no use.
pub(crate) fn predictions_are_left_out() {
    for (name, tensors) in [
        (
            "bert",
            &["cls.predictions.bias", "cls.seq_relationship.weight"][..],
        ),
        ("roberta", &["lm_head.bias", "lm_head.dense.weight"]),
        ("modernbert", &["decoder.bias"]),
    ] {
        let own = data("hugging_face_encoders").join(name);
        let folder = tempfile::tempdir().unwrap();
        for file in ["config.json", "tokenizer.json"] {
            fs::copy(own.join(file), folder.path().join(file)).unwrap();
        }
        let mut weights = safetensors::load(own.join("model.safetensors")).unwrap();
        let known = weights.len();
        for tensor in tensors {
            weights.insert(*tensor, Tensor::zeros([3], DType::F32).unwrap());
        }
        assert_eq!(weights.len(), known + tensors.len());
        safetensors::save(folder.path().join("model.safetensors"), &weights).unwrap();
        load(folder.path());
    }
}

/// A list of words alone is a vocabulary.
pub(crate) fn a_list_of_words_is_a_vocabulary() {
    let folder = tempfile::tempdir().unwrap();
    let own = data("hugging_face_encoders/bert");
    for name in ["config.json", "model.safetensors"] {
        fs::copy(own.join(name), folder.path().join(name)).unwrap();
    }
    let text = fs::read_to_string(own.join("tokenizer.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    let words = json["model"]["vocab"].as_object().unwrap();
    let mut words: Vec<_> = words.iter().map(|(word, id)| (id.as_u64(), word)).collect();
    words.sort();
    let words: Vec<&str> = words.iter().map(|(_, word)| word.as_str()).collect();
    fs::write(folder.path().join("vocab.txt"), words.join("\n")).unwrap();
    let (texts, _) = expected(&own.join("expected.json"));
    let vectors = |folder: &Path| {
        let model = load(folder);
        let mut encoder = Encoder::new(&model, &cpu(), EncoderOptions::default()).unwrap();
        encoder.embed(&texts).unwrap()
    };
    assert_eq!(vectors(folder.path()), vectors(&own));
}

/// Long texts are cut as `sentence-transformers` cuts them: the last token stays.
pub(crate) fn long_texts_are_cut() {
    let model = load(&data("hugging_face_encoders/bert"));
    let options = EncoderOptions {
        tokens: 6,
        ..EncoderOptions::default()
    };
    let mut encoder = Encoder::new(&model, &cpu(), options).unwrap();
    let long = "the cat sat on the mat";
    let cut = "the cat sat on";
    let vectors = encoder.embed(&[long, cut]).unwrap();
    assert_eq!(vectors[0], vectors[1]);
}

pub(crate) fn modules_that_are_unknown_are_refused() {
    let own = data("hugging_face_encoders/bert");
    for (file, text, expected) in [
        (
            "modules.json",
            r#"[{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}]"#,
            "the module \"Dense\" is not supported",
        ),
        (
            "1_Pooling/config.json",
            r#"{"pooling_mode_max_tokens": true}"#,
            "expected a pooling of mean, cls or lasttoken",
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("1_Pooling")).unwrap();
        for name in [
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "modules.json",
        ] {
            fs::copy(own.join(name), folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join(file), text).unwrap();
        let error = hugging_face::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains(expected) && error.contains(file), "{error}");
    }
}

pub(crate) fn minilm_agrees_with_sentence_transformers(folder: &ModelFile) {
    let (texts, rows) = expected(&data("minilm.json"));
    let model = load(&folder.0);
    let mut encoder = Encoder::new(&model, &cpu(), EncoderOptions::default()).unwrap();
    let found = encoder.embed(&texts).unwrap();
    for ((text, found), expected) in texts.iter().zip(&found).zip(&rows) {
        let cosine = cosine(found, expected);
        assert!(cosine >= 0.99999, "{text}: {cosine}");
    }
    assert_eq!(found.len(), rows.len());
}
