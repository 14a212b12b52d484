//! Models divided among ranks: the text and logits of one rank, and models that ranks cannot divide.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use rustorch_cpu::Cpu;
use rustorch_gguf::Gguf;
use rustorch_ir::DType;
use rustorch_llm::quantize::{FileType, QuantizeOptions, quantize};
use rustorch_llm::sampler::{SamplerChain, SamplerConfig};
use rustorch_llm::{
    GenerateOptions, LlmError, Model, ModelOptions, RowSplit, Session, SessionOptions, generate,
};
use rustorch_runtime::{Backend, Runtime};
use rustorch_tensor::distributed::CommunicationGroup;
use rustorch_tensor::distributed::comm::{Options, ThreadGroup};
use rustorch_testing::models::{Header, TOKENS, headers_folder};

fn bundled(ty: Option<&str>) -> Gguf {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    let f16 = Gguf::open(models.join("classics-13m-f16.gguf")).unwrap();
    let Some(ty) = ty else { return f16 };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let (ty, options): (FileType, _) = (ty.parse().unwrap(), QuantizeOptions::default());
    quantize(
        &f16,
        &path,
        ty,
        &options,
        &mut |_| ControlFlow::Continue(()),
    )
    .unwrap();
    Gguf::from_bytes(std::fs::read(path).unwrap()).unwrap()
}

fn cpu() -> Runtime {
    Runtime::new([Arc::new(Cpu::new(1)) as Arc<dyn Backend>])
}

/// Runs a program on this number of ranks, each with its part of a model.
fn divided<T: Send>(
    gguf: &Gguf,
    ranks: usize,
    program: impl Fn(Model) -> T + Sync,
) -> Vec<Result<T, LlmError>> {
    let program = &program;
    thread::scope(|scope| {
        let start = |group| {
            scope.spawn(move || {
                let group = CommunicationGroup::new(group);
                let options = ModelOptions {
                    row_split: Some(RowSplit::new(&group)),
                    ..ModelOptions::default()
                };
                Ok(program(Model::load_with(gguf.clone(), &options)?))
            })
        };
        let groups = ThreadGroup::create(ranks, Options::default());
        let threads: Vec<_> = groups.into_iter().map(start).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.collect()
    })
}

fn text(model: Model) -> String {
    let options = SessionOptions {
        context: 128,
        ..SessionOptions::default()
    };
    let mut session = Session::new(&model, &cpu(), options).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    let prompt = tokenizer.encode("Alice was beginning to", Default::default());
    let greedy = SamplerConfig::default().temperature(0.0);
    let limits = GenerateOptions {
        max_tokens: Some(64),
        ..GenerateOptions::default()
    };
    let mut sampler = SamplerChain::new(&greedy).unwrap();
    let go_on = |_| Ok::<_, LlmError>(ControlFlow::Continue(()));
    let generated = generate(&mut session, &prompt, &mut sampler, &limits, go_on).unwrap();
    tokenizer.decode(&generated.ids)
}

#[test]
fn two_ranks_write_the_text_of_one() {
    for ty in [None, Some("Q8_0")] {
        let gguf = bundled(ty);
        let alone = text(Model::load(gguf.clone()).unwrap());
        assert!(alone.len() > 100, "{alone}");
        for divided in divided(&gguf, 2, text) {
            assert_eq!(divided.unwrap(), alone, "{ty:?}");
        }
    }
}

#[test]
fn heads_that_ranks_do_not_divide_are_one_clear_error() {
    for (ranks, said) in [
        (
            3,
            "3 ranks cannot divide layer 0: it has 8 heads; take a number of ranks that divides them",
        ),
        (8, "8 ranks cannot divide layer 0: it has 2 key-value heads"),
    ] {
        for result in divided(&bundled(None), ranks, drop) {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
    // The features between products are 768: each of two ranks has one and a half blocks.
    for result in divided(&bundled(Some("Q4_K_M")), 2, drop) {
        let error = result.unwrap_err().to_string();
        let said = "2 ranks cannot divide its 768 columns, which are in blocks of 256";
        assert!(error.contains(said), "{error}");
    }
}

fn logits(model: Model) -> Vec<f32> {
    let options = SessionOptions {
        context: 64,
        cache_dtype: DType::F32,
        ..SessionOptions::default()
    };
    let mut session = Session::new(&model, &cpu(), options).unwrap();
    let mut rows = Vec::new();
    for tokens in [&TOKENS[..5], &TOKENS[5..6], &TOKENS[6..]] {
        let fed = session.feed_all(tokens, |_, logits| {
            rows.extend_from_slice(logits);
            Ok::<_, LlmError>(())
        });
        fed.unwrap();
    }
    rows
}

/// Every architecture is divided, with the logits of one rank, or says what has no division.
#[test]
fn each_architecture_is_divided_or_says_why_not() {
    let (mut count, mut refused) = (0, Vec::new());
    for header in Header::all(&headers_folder()) {
        let gguf = header.model().unwrap();
        let whole = Model::load(gguf.clone()).unwrap();
        if !whole.spec().makes_texts() {
            continue;
        }
        let results = divided(&gguf, 2, logits);
        let alone = match &results[0] {
            Ok(_) => logits(whole),
            Err(_) => Vec::new(),
        };
        let largest = alone.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        for result in results {
            match result {
                Ok(rows) => {
                    let pairs = rows.iter().zip(&alone);
                    let off = pairs.fold(0.0_f32, |most, (a, b)| most.max((a - b).abs()));
                    let close = rows.len() == alone.len() && off <= 1e-4 * largest;
                    assert!(close, "{}: off by {off} of {largest}", header.name);
                    count += 1;
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(
                        error.contains("--split-mode row: "),
                        "{}: {error}",
                        header.name
                    );
                    refused.push(format!("{}: {error}", header.name));
                }
            }
        }
    }
    println!(
        "{} architectures are divided; not these:\n{}",
        count / 2,
        refused.join("\n")
    );
    assert!(count >= 40, "{count}");
}
