//! The GPT-2 whose training is measured learns as PyTorch's does: of `scripts/gpt2-goldens.py`, a tiny one, or that in the
//! folder `RUSTORCH_GPT2`.

use std::env;
use std::path::PathBuf;

use rustorch_bench::Gpt2;
use rustorch_files::Tensors;
use rustorch_nn::nn::Module;
use rustorch_nn::optim::{AdamW, AdamWOptions};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A model of these weights and their sizes, with heads of 64 numbers, or two.
fn with(weights: &Tensors) -> Outcome<Gpt2> {
    let [vocabulary, width] = weights.get("wte.weight")?.shape()[..] else {
        panic!("[vocabulary, width]");
    };
    let layers = (0..).take_while(|i| weights.get(&format!("h.{i}.ln_1.weight")).is_ok());
    let length = weights.get("wpe.weight")?.shape()[0];
    let heads = (width / 64).max(2);
    let mut model = Gpt2::new(layers.count(), width, heads, vocabulary, length)?;
    model.load_state_dict(weights, true)?;
    Ok(model)
}

#[test]
fn ten_steps_are_pytorchs() -> Outcome<()> {
    let bundled = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goldens/gpt2"));
    let folder = env::var_os("RUSTORCH_GPT2").map_or_else(bundled, PathBuf::from);
    let load = |name: &str| rustorch_files::load(folder.join(name).with_extension("safetensors"));
    let model = with(&load("weights")?)?;
    let gradients = load("gradients")?;
    let steps = load("steps")?;
    let lr = steps.get("lr")?.item()?;
    let options = AdamWOptions::default()
        .lr(lr)
        .betas((0.9, 0.95))
        .weight_decay(0.1);
    let mut adam = AdamW::new(model.named_parameters(), options)?;
    let losses = steps.get("losses")?.to_vec::<f64>()?;
    for (step, &expected) in losses.iter().enumerate() {
        adam.zero_grad();
        let loss = model.loss(steps.get("tokens")?)?;
        loss.backward()?;
        let loss = loss.item()?;
        println!("step {step}: loss {loss:.6}, PyTorch's {expected:.6}");
        assert!((loss - expected).abs() < 1e-3, "step {step}");
        for (name, parameter) in model.named_parameters().iter().filter(|_| step == 0) {
            let gradient = parameter
                .grad()
                .ok_or_else(|| format!("no gradient of {name}"))?;
            let expected = gradients.get(name)?;
            let size = expected.norm(2.0, .., false)?.item()?;
            let far = gradient.sub(expected)?.norm(2.0, .., false)?.item()?;
            assert!(far <= 1e-2 * size, "{name}: {far} of {size}");
        }
        adam.step()?;
    }
    Ok(())
}
