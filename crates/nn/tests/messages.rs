//! Mistakes with modules that the compiler finds: its message leads to the cure.

use std::fmt::Write;

use rustorch_testing::compiler::assert_said;

/// Items that the lines use: a layer that is a module, and one whose derive was forgotten.
const ITEMS: &str = "
use rustorch::nn::{self, Buffer, Forward, Linear, Module, ReLU, Training};
use rustorch::optim::{AdamW, AdamWOptions, SGD, SGDOptions};
use rustorch::train::TrainStep;
use rustorch_tensor::{RusTorchResult, Tensor};
#[derive(Module)] pub struct Layer { pub linear: Linear }
pub struct Forgotten { pub linear: Linear }
#[derive(Module)] pub struct NoForward { pub linear: Linear }
";

/// Items, and parts of what the compiler says of each.
const WRONG: &[(&str, &[&str])] = &[
    (
        "#[derive(Module)] pub struct A { pub linear: Linear, pub width: usize }",
        &[
            "`usize` is not a part of a module",
            "`#[module(skip)]`",
            "pub width: usize",
        ],
    ),
    (
        "#[derive(Module)] pub struct B { pub rate: f64 }",
        &["`f64` is not a part of a module", "`#[module(skip)]`"],
    ),
    (
        "#[derive(Module)] pub struct C { pub name: String, pub linear: Linear }",
        &["`String` is not a part of a module", "`#[module(skip)]`"],
    ),
    (
        "#[derive(Module)] pub struct D { pub block: Forgotten }",
        &[
            "`Forgotten` is not a part of a module",
            "`#[derive(Module)]`",
        ],
    ),
    (
        "#[derive(Module)] pub struct E { pub blocks: Vec<Forgotten> }",
        &[
            "`Forgotten` is not a part of a module",
            "`#[derive(Module)]`",
        ],
    ),
    (
        "#[derive(Module)] pub struct F(Linear, bool);",
        &["`bool` is not a part of a module", "`#[module(skip)]`"],
    ),
    (
        "#[derive(Module)] pub enum G { A(Linear) }",
        &["only a structure is a module"],
    ),
    (
        "#[derive(Module)] pub struct H { #[module(skipped)] pub width: usize }",
        &["expected `skip`"],
    ),
    (
        "pub fn i(net: &Forgotten) { net.parameters(); }",
        &["no method named `parameters`", "`Module`"],
    ),
    (
        "pub fn j(net: NoForward) { let _ = nn::sequential![net, ReLU]; }",
        &[
            "`NoForward` has no `forward` of one tensor",
            "impl Forward for NoForward",
        ],
    ),
    (
        "pub fn k(net: Forgotten) { let _ = nn::sequential![net]; }",
        &["`Forgotten` has no `forward` of one tensor"],
    ),
    (
        "pub fn l(net: &Layer) -> RusTorchResult<SGD> { SGD::new(net, SGDOptions::default()) }",
        &["is not a list of parameters", "`net.named_parameters()`"],
    ),
    (
        "pub fn m(x: &Tensor, l: &Linear) -> RusTorchResult<()> { let y = l.forward(x); y.relu(); Ok(()) }",
        &["use the `?` operator"],
    ),
    (
        "pub fn n(x: Tensor, l: &Linear) -> RusTorchResult<Tensor> { l.forward(x) }",
        &[
            "expected `&Tensor`, found `Tensor`",
            "consider borrowing here",
        ],
    ),
    (
        "pub fn o(l: &Linear, x: &Tensor) -> Tensor { l.forward(x)? }",
        &["this function should return `Result` or `Option`"],
    ),
    (
        "pub fn p(s: &mut TrainStep<Layer, SGDOptions>, x: Tensor) { let _ = s.step(&[x]); }",
        &[
            "expected `&Tensor`, found `Tensor`",
            "consider borrowing here",
        ],
    ),
    (
        "pub fn q(net: Layer) -> RusTorchResult<()> { AdamW::new(net.parameters(), SGDOptions::default())?; Ok(()) }",
        &["expected `AdamWOptions`, found `SGDOptions`"],
    ),
    (
        "pub fn r() -> RusTorchResult<Linear> { Linear::new(2.0, 3) }",
        &["expected `usize`, found floating-point number"],
    ),
    (
        "pub fn s() { let _ = AdamWOptions::default().lr(\"0.1\"); }",
        &["the trait `From<&str>` is not implemented for `f64`"],
    ),
];

#[test]
fn mistakes_with_modules_lead_to_their_cure() {
    let mut text = ITEMS.to_owned();
    for (line, _) in WRONG {
        writeln!(text, "{line}").expect("a text");
    }
    let first = ITEMS.lines().count() + 1;
    let crates = [
        ("rustorch", "rustorch_nn"),
        ("rustorch_tensor", "rustorch_tensor"),
    ];
    assert_said(&text, &crates, first, WRONG);
}
