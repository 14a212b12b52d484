//! Models for diffusion: llama.cpp's logits of whole texts, and the loop that fills masked tokens.

use rustorch_llm::{Diffusion, DiffusionOptions, Model, Session};
use rustorch_runtime::Runtime;
use rustorch_testing::models::{Header, TOKENS, diffusion_folder};

use crate::common::{Devices, cpu, load, nmse, none_of, options};

/// The token that masks others.
const MASK: u32 = 63;

pub(crate) fn diffusion() -> Vec<Header> {
    Header::all(&diffusion_folder())
}

fn check(runtime: &Runtime, bound: f64) {
    let problems = diffusion().into_iter().filter_map(|header| {
        let model = load(&header).unwrap();
        let diffusion = Diffusion::new(&model, runtime).unwrap();
        let found = diffusion.logits(&TOKENS).unwrap();
        let expected = header.logits.concat();
        let error = nmse(&found[found.len() - expected.len()..], &expected);
        (error > bound).then(|| format!("{}: NMSE {error:.1e}", header.name))
    });
    none_of(&problems.collect::<Vec<_>>());
}

pub(crate) fn on_the_cpu() {
    check(&cpu(), 1e-6);
}

pub(crate) fn on_a_device(devices: &Devices) {
    for device in devices {
        check(&Runtime::new([device.clone()]), 1e-5);
    }
}

/// A model that names its mask token.
fn masked(header: &Header, is_shifted: bool) -> Model {
    let mut header = header.clone();
    header.keys.insert("tokenizer.ggml.mask_token_id", MASK);
    header.keys.insert("diffusion.shift_logits", is_shifted);
    load(&header).unwrap()
}

/// The likeliest token of a row but the mask, and its probability.
fn likeliest(row: &[f32]) -> (u32, f64) {
    let all: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
    let ids = (0..row.len()).filter(|id| *id != MASK as usize);
    let id = ids.max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
    (id as u32, f64::from(row[id]).exp() / all)
}

/// The first of two steps fills half of the tokens, those of the largest probabilities.
pub(crate) fn a_step_fills_the_surest_tokens() {
    for header in diffusion() {
        for is_shifted in [false, true] {
            let model = masked(&header, is_shifted);
            let diffusion = Diffusion::new(&model, &cpu()).unwrap();
            let prompt = &TOKENS[..5];
            let options = |steps| DiffusionOptions { tokens: 8, steps };
            let text = [prompt, &[MASK; 8]].concat();
            let logits = diffusion.logits(&text).unwrap();
            let vocab = model.spec().vocab;
            let rows = (5..13).map(|at| {
                let row = at - usize::from(is_shifted);
                likeliest(&logits[row * vocab..][..vocab])
            });
            let rows: Vec<_> = rows.collect();
            let at_once = diffusion.generate(prompt, options(1)).unwrap();
            let expected: Vec<u32> = rows.iter().map(|(id, _)| *id).collect();
            assert_eq!(at_once, expected, "{}", header.name);
            let in_two = diffusion.generate(prompt, options(2)).unwrap();
            let mut order: Vec<usize> = (0..8).collect();
            order.sort_by(|a, b| rows[*b].1.total_cmp(&rows[*a].1));
            for &at in &order[..4] {
                assert_eq!(in_two[at], rows[at].0, "{}", header.name);
            }
            assert!(!in_two.contains(&MASK), "{}", header.name);
        }
    }
}

pub(crate) fn sessions_refuse_it() {
    let header = diffusion().remove(0);
    let model = load(&header).unwrap();
    let error = Session::new(&model, &cpu(), options()).err().unwrap();
    let found = error.to_string();
    assert!(found.contains("the diffusion model \"dream\""), "{found}");
    let diffusion = Diffusion::new(&model, &cpu()).unwrap();
    let none = DiffusionOptions::default();
    let found = diffusion.generate(&TOKENS, none).unwrap_err().to_string();
    assert!(found.contains("mask_token_id"), "{found}");
    assert!(diffusion.logits(&[]).is_err() && diffusion.logits(&[64]).is_err());
}
