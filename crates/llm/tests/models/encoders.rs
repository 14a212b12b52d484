//! Embeddings and scores of a small model of every encoder: llama.cpp's, on every device, and however texts come.

use std::collections::BTreeMap;

use rustorch_conformance::Extent;
use rustorch_llm::spec::Pooling;
use rustorch_llm::{Encoder, EncoderOptions, LlmError, Model, Network, Scaling, Session};
use rustorch_runtime::{Routing, Runtime};
use rustorch_testing::models::{Header, TOKENS};

use crate::common::{Devices, cpu, difference, headers, load, nmse, none_of, options};

/// Headers of encoders.
pub(crate) fn encoders() -> Vec<Header> {
    Header::all(&rustorch_testing::models::encoders_folder())
}

/// Vectors as the model gives them: of tokens, or scores.
fn raw(model: &Model) -> EncoderOptions {
    let pooling = match model.spec().pool.pooling {
        Pooling::Rank => Pooling::Rank,
        _ => Pooling::None,
    };
    EncoderOptions {
        pooling: Some(pooling),
        scaling: Scaling::None,
        ..EncoderOptions::default()
    }
}

fn problem(header: &Header, runtime: &Runtime, routing: Routing, bound: f64) -> Option<String> {
    let model = load(header).unwrap();
    let options = EncoderOptions {
        routing,
        ..raw(&model)
    };
    let mut encoder = Encoder::new(&model, runtime, options).unwrap();
    let found = encoder.embed_tokens(&[TOKENS.to_vec()]);
    let expected = header.logits.concat();
    match found {
        Ok(found) => {
            let last = found[0].len() - expected.len();
            let error = nmse(&found[0][last..], &expected);
            (error > bound).then(|| format!("{}: NMSE {error:.1e}", header.name))
        }
        Err(error) => Some(format!("{}: {error}", header.name)),
    }
}

/// llama.cpp's GELU is an approximation by a table in half precision; ours is the function itself, as in the models.
const BOUND: f64 = 2e-6;

pub(crate) fn on_the_cpu() {
    let headers = encoders().into_iter();
    let problems = headers.filter_map(|header| problem(&header, &cpu(), Routing::AUTO, BOUND));
    none_of(&problems.collect::<Vec<_>>());
}

pub(crate) fn on_a_device(devices: &Devices) {
    for device in devices {
        let runtime = Runtime::new([device.clone()]);
        let chosen = Extent::of_tests().choose(encoders(), 4);
        let routing = Routing {
            device: device.info().device,
            ..Routing::AUTO
        };
        let problems = chosen
            .iter()
            .filter_map(|header| problem(header, &runtime, routing, 1e-5));
        none_of(&problems.collect::<Vec<_>>());
    }
}

fn embed(
    model: &Model,
    options: EncoderOptions,
    texts: &[Vec<u32>],
) -> Result<Vec<Vec<f32>>, LlmError> {
    Encoder::new(model, &cpu(), options)?.embed_tokens(texts)
}

/// Texts of several lengths, one of which fills a batch alone.
fn texts() -> Vec<Vec<u32>> {
    let lengths = [3, 40, 8, 1, 17, 9, 5];
    lengths.iter().map(|&n| TOKENS[..n].to_vec()).collect()
}

/// Encoders, and a decoder of each kind of attention.
fn models() -> Vec<Header> {
    let decoders = ["qwen3-dense", "gemma3-dense", "bloom-dense"];
    let of_decoders = headers().into_iter();
    let of_decoders = of_decoders.filter(|header| decoders.contains(&&*header.name));
    encoders().into_iter().chain(of_decoders).collect()
}

/// A text has the same vector alone and beside longer ones.
pub(crate) fn in_batches() {
    let texts = texts();
    let problems = models().into_iter().filter_map(|header| {
        let model = load(&header).unwrap();
        let together = embed(&model, raw(&model), &texts).unwrap();
        let small = EncoderOptions {
            batch: 1,
            ..raw(&model)
        };
        let alone = embed(&model, small, &texts).unwrap();
        let difference = difference(&together.concat(), &alone.concat());
        let problem = || format!("{}: differs by {difference:.1e}", header.name);
        (difference > 1e-5).then(problem)
    });
    none_of(&problems.collect::<Vec<_>>());
}

/// Vectors of texts follow from those of their tokens.
pub(crate) fn pooling() {
    let texts = texts();
    for header in models() {
        let model = load(&header).unwrap();
        let with = |pooling, scaling| {
            let options = EncoderOptions {
                pooling: Some(pooling),
                scaling,
                ..EncoderOptions::default()
            };
            embed(&model, options, &texts).unwrap()
        };
        let tokens = with(Pooling::None, Scaling::None);
        let options = EncoderOptions::default();
        let width = Encoder::new(&model, &cpu(), options).unwrap().width();
        let mean = |rows: &[f32]| {
            let count = (rows.len() / width) as f32;
            let at = |i| rows.iter().skip(i).step_by(width).sum::<f32>() / count;
            (0..width).map(at).collect::<Vec<f32>>()
        };
        let expected: [Vec<Vec<f32>>; 3] = [
            tokens.iter().map(|rows| mean(rows)).collect(),
            tokens.iter().map(|rows| rows[..width].to_vec()).collect(),
            tokens
                .iter()
                .map(|rows| rows[rows.len() - width..].to_vec())
                .collect(),
        ];
        for (pooling, expected) in [Pooling::Mean, Pooling::Cls, Pooling::Last]
            .into_iter()
            .zip(expected)
        {
            let found = with(pooling, Scaling::None);
            let difference = difference(&found.concat(), &expected.concat());
            assert!(
                difference < 1e-5,
                "{} {pooling:?}: {difference:e}",
                header.name
            );
        }
        for row in with(Pooling::Mean, Scaling::Norm(2)) {
            let size: f32 = row.iter().map(|x| x * x).sum();
            assert!((size - 1.0).abs() < 1e-5, "{}: {size}", header.name);
        }
    }
}

/// A product that is there counts.
pub(crate) fn dense_products() {
    let all = encoders();
    let header = all.iter().find(|header| header.name.starts_with("gemma"));
    let header = header.unwrap();
    let mut without = header.clone();
    without
        .tensors
        .retain(|(name, _)| !name.starts_with("dense_"));
    let vectors = |header: &Header| {
        let model = load(header).unwrap();
        let options = EncoderOptions {
            scaling: Scaling::None,
            ..EncoderOptions::default()
        };
        embed(&model, options, &texts()).unwrap()
    };
    let (with, without) = (vectors(header), vectors(&without));
    let weights = |name: &str| {
        let file = header.model().unwrap();
        rustorch_testing::models::weights(file.tensor(name).unwrap())
    };
    let product = |x: &[f32], weights: &[f32]| -> Vec<f32> {
        let rows = weights.chunks_exact(x.len());
        rows.map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum())
            .collect()
    };
    let (second, third) = (weights("dense_2.weight"), weights("dense_3.weight"));
    for (with, without) in with.iter().zip(&without) {
        let expected = product(&product(without, &second), &third);
        assert!(difference(with, &expected) < 1e-4);
    }
}

pub(crate) fn what_a_model_lacks_is_one_error() {
    for header in encoders() {
        let model = load(&header).unwrap();
        let refused = Session::new(&model, &cpu(), options()).err().unwrap();
        let architecture = &model.spec().architecture;
        let expected = format!(
            "generation with the encoder {architecture:?} is not supported; `rustorch-cli embed` makes embeddings of \
             texts with it"
        );
        assert_eq!(refused.to_string(), expected);
        let untrained = Network::new(model.spec().clone(), &BTreeMap::new(), BTreeMap::new());
        let untrained = untrained.err().unwrap().to_string();
        assert!(
            untrained.starts_with(&format!("training of the encoder {architecture:?}")),
            "{untrained}"
        );
        let rank = EncoderOptions {
            pooling: Some(Pooling::Rank),
            ..EncoderOptions::default()
        };
        let has_scores = model.spec().pool.pooling == Pooling::Rank;
        let made = Encoder::new(&model, &cpu(), rank);
        assert_eq!(made.is_ok(), has_scores, "{}", header.name);
        let error = |texts: &[Vec<u32>]| embed(&model, raw(&model), texts).unwrap_err().to_string();
        assert_eq!(
            error(&[vec![1], vec![]]),
            "a text has no tokens; leave out empty texts"
        );
        let long = error(&[vec![1; 129]]);
        assert_eq!(long, "a text of 129 tokens is longer than the model's 128");
        let outside = error(&[vec![64]]);
        assert_eq!(
            outside,
            "token id 64 is outside the vocabulary of 64 tokens"
        );
        assert!(embed(&model, raw(&model), &[]).unwrap().is_empty());
    }
}
