//! Mistakes with modules that the compiler finds: its message leads to the cure.

use std::fmt::Write;

use rustorch_testing::compiler::assert_said;

/// Items that the lines use: a layer that is a module, and one whose derive was forgotten.
const ITEMS: &str = "
use rustorch::nn::{self, Buffer, Forward, Linear, Module, ReLU, Training};
use rustorch::optim::lr_scheduler::{LrScheduler, ReduceLROnPlateau, StepLR};
use rustorch::optim::{AdamW, AdamWOptions, SGD, SGDOptions};
use rustorch::train::TrainStep;
use rustorch_tensor::{RusTorchResult, Tensor, no_grad};
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
    (
        "#[derive(Clone, Module)] pub struct T { pub fc: Linear }",
        &["derive_module_writes_clone_so_remove_clone_from_your_derives"],
    ),
    (
        "pub struct U { pub fc: Linear } impl Forward for U { fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> { self.fc.forward(x) } }",
        &["`U` is not a module", "`#[derive(Module)]`"],
    ),
    (
        "#[derive(Module)] pub struct V { pub fc: Linear } impl Forward for V { fn forward(&self, x: Tensor) -> RusTorchResult<Tensor> { self.fc.forward(&x) } }",
        &["change the parameter type to match the trait"],
    ),
    (
        "#[derive(Module)] pub struct W { pub fc: std::sync::Arc<Linear> }",
        &["is not a part of a module", "`nn::share`"],
    ),
    (
        "#[derive(Module)] pub struct X { pub fc: std::collections::HashMap<String, Linear> }",
        &["is not a part of a module", "`IndexMap`"],
    ),
    (
        "#[derive(Module)] pub struct Y { pub fc: RusTorchResult<Linear> }",
        &["`Result<rustorch_nn::nn::Linear, RusTorchError>` is not a part of a module"],
    ),
    (
        "pub fn z(l: &Layer, x: &Tensor) -> RusTorchResult<Tensor> { l.linear.forward(x).relu() }",
        &["use the `?` operator"],
    ),
    (
        "pub fn aa(loss: &Tensor) { loss.backward()?; }",
        &["this function should return `Result` or `Option`"],
    ),
    (
        "pub fn ab(l: Layer, o: SGD) -> usize { let _step = TrainStep::new(l, o, |l: &Layer, b: &[Tensor]| l.linear.forward(&b[0])); l.parameters().len() }",
        &["borrow of moved value: `l`"],
    ),
    (
        "pub fn ac(o: SGD) -> RusTorchResult<()> { o.step() }",
        &["consider changing this to be mutable"],
    ),
    (
        "pub fn ad(l: &Layer) { for p in l.parameters() { p -= 1.0; } }",
        &["consider changing this to be mutable", "for mut p in"],
    ),
    (
        "pub fn ae(w: &Tensor) -> RusTorchResult<Tensor> { w.grad().mul(0.1) }",
        &[
            "no method named `mul` found for enum `Option<T>`",
            "`Option::expect`",
        ],
    ),
    (
        "pub fn af() { let _ = nn::sequential![Linear::new(2, 3), ReLU]; }",
        &["`?` takes the layer out of it", "`Linear::new(2, 3)?`"],
    ),
    (
        "pub fn ag(l: &Layer) { let _ = SGD::new(l.parameters(), 0.01); }",
        &["expected `SGDOptions`, found floating-point number"],
    ),
    (
        "pub fn ah(o: SGD) { let _ = LrScheduler::new(o, StepLR::new(3)); }",
        &["consider mutably borrowing here"],
    ),
    (
        "pub fn ai(mut s: LrScheduler<StepLR>) { let _ = s.step(); }",
        &["argument #1", "missing"],
    ),
    (
        "pub fn aj(s: &mut TrainStep<Layer, SGDOptions>, x: &Tensor, y: &Tensor) { let _ = s.step(x, y); }",
        &["unexpected argument #2"],
    ),
    (
        "pub fn ak(mut w: Tensor) { no_grad(w -= 1.0); }",
        &["wrap the `()` in a closure with no arguments"],
    ),
    (
        "pub fn al(l: &Layer) { no_grad(|| { for mut p in l.parameters() { p.zero_()?; } }); }",
        &["in a closure that returns `Result` or `Option`"],
    ),
    (
        "pub fn am() -> Layer { Layer { linear: Linear::new(2, 3) } }",
        &["expected `Linear`, found `Result<Linear"],
    ),
    (
        "pub fn an(l: &Layer, x: &Tensor) -> RusTorchResult<Tensor> { l(x) }",
        &["expected function, found `&Layer`"],
    ),
    (
        "pub fn ao(loss: &Tensor) -> f32 { loss.item() as f32 }",
        &["non-primitive cast: `Result<f64"],
    ),
    (
        "pub fn ap(w: &Tensor) { println!(\"{}\", w.grad()); }",
        &[
            "`Option<rustorch_tensor::Tensor>` cannot be formatted",
            "`{:?}`",
        ],
    ),
    (
        "pub fn aq(l: &mut Layer) { let _ = l.load_state_dict(\"m.pt\", true); }",
        &["expected `&Tensors`, found `&str`"],
    ),
    (
        "pub fn ar(l: &mut Layer) { l.train(); }",
        &["argument #1 of type `bool` is missing"],
    ),
    (
        "pub fn at(s: &mut ReduceLROnPlateau, o: &mut SGD) { let _ = s.step(o); }",
        &["argument #2 of type `f64` is missing"],
    ),
    (
        "pub fn au(l: nn::LSTM) { let _ = nn::sequential![l]; }",
        &["`LSTM` has no `forward` of one tensor"],
    ),
    (
        "pub fn av(x: &Tensor) -> RusTorchResult<Tensor> { x.clone()? }",
        &["the `?` operator cannot be applied to type"],
    ),
    (
        "pub fn aw() { let _ = nn::Conv2d::new(3, 8, 3); }",
        &["argument #4", "ConvOptions", "missing"],
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
