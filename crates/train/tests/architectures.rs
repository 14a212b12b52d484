//! Training of every architecture: the network that is trained computes llama.cpp's logits, gradients reach all
//! parameters of a new model. The small models are those of `crates/llm`.

use rustorch_ir::DType;
use rustorch_llm::{Model, architectures};
use rustorch_nn::nn::Module;
use rustorch_runtime::{Routing, Runtime};
use rustorch_tensor::{Tensor, host, with_runtime};
use rustorch_testing::models::{Header, TOKENS, headers_folder};
use rustorch_train::{Decoder, Precision};

fn with_cpu<R>(f: impl FnOnce() -> R) -> R {
    with_runtime(&Runtime::new(host(1)), Routing::AUTO, f)
}

fn headers() -> Vec<Header> {
    Header::all(&headers_folder())
}

/// Two sequences: the tokens that headers have logits of, and these backwards.
fn tokens() -> Tensor {
    let ids = TOKENS.map(|id| id as i32);
    let backwards = ids.iter().rev().copied();
    let both: Vec<i32> = ids.iter().copied().chain(backwards).collect();
    Tensor::from_vec(both, [2, TOKENS.len()]).unwrap()
}

/// The mean squared error, divided by the mean square, of logits that are not hidden.
fn nmse(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let pairs = found.iter().zip(expected).filter(|(_, b)| **b > -1e30);
    let (error, power) = pairs.fold((0.0, 0.0), |(error, power), (&a, &b)| {
        let difference = f64::from(a) - f64::from(b);
        (
            error + difference * difference,
            power + f64::from(b).powi(2),
        )
    });
    error / power
}

#[test]
fn logits_are_those_of_llama_cpp() {
    let problems = with_cpu(|| {
        let problem = |header: &Header| {
            let model = Model::load(header.model().unwrap()).unwrap();
            let decoder = Decoder::load(&model).unwrap();
            let logits = match decoder.forward(&tokens()) {
                Ok(logits) => logits.select(0, 0).unwrap(),
                Err(error) => return Some(format!("{}: {error}", header.name)),
            };
            let found: Vec<f32> = logits.flatten(0, -1).unwrap().to_vec().unwrap();
            let expected = header.logits.concat();
            let error = nmse(&found[found.len() - expected.len()..], &expected);
            (error.is_nan() || error > 1e-6).then(|| format!("{}: {error:.1e}", header.name))
        };
        headers().iter().filter_map(problem).collect::<Vec<_>>()
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Keys of a new model, of the sizes of a header.
fn new(header: &Header, seed: u64) -> Decoder {
    let mut keys = header.keys.clone();
    let architecture = keys.str("general.architecture").unwrap().to_owned();
    let table = header
        .tensors
        .iter()
        .find(|(name, _)| name == "token_embd.weight");
    let vocab = table.map_or(64, |(_, dims)| dims[1] as u32);
    keys.insert(format!("{architecture}.vocab_size"), vocab);
    Decoder::new(&keys, seed).unwrap()
}

#[test]
fn gradients_reach_all_parameters_of_each_architecture() {
    let mut names = architectures();
    let headers = headers().into_iter().filter(|header| {
        let architecture = header.keys.str("general.architecture").unwrap();
        let place = names.iter().position(|name| *name == architecture);
        place.map(|place| names.remove(place)).is_some()
    });
    let problems = with_cpu(|| {
        let problem = |header: Header| {
            let decoder = new(&header, 7);
            let targets = tokens().roll(-1, 1).unwrap().to_dtype(DType::I64).unwrap();
            let loss = decoder.loss(&tokens(), &targets, Precision::F32);
            if let Err(error) = loss.and_then(|loss| loss.backward()) {
                return Some(format!("{}: {error}", header.name));
            }
            let is_finite = |gradient: Tensor| {
                let numbers: Vec<f32> = gradient.flatten(0, -1).unwrap().to_vec().unwrap();
                numbers.iter().all(|number| number.is_finite())
            };
            let named = decoder.named_parameters().into_iter();
            let without = named.filter(|(_, tensor)| !tensor.grad().is_some_and(is_finite));
            let without: Vec<String> = without.map(|(name, _)| name).collect();
            (!without.is_empty()).then(|| format!("{}: no gradient of {without:?}", header.name))
        };
        headers.filter_map(problem).collect::<Vec<_>>()
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
