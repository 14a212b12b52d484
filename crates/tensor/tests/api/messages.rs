//! Lines that users of PyTorch and candle write and that cannot be Rust: what the compiler says leads to the line that
//! can be.

use std::fmt::Write;

use rustorch_testing::compiler::assert_said;

/// The lines, in a function with these variables, and a part of what the compiler says of each.
const LINES: [(&str, &[&str]); 41] = [
    // Results
    ("(&x + &y) * 2", &["OthersAfterAQuestionMark"]),
    ("(&x + &y) * (&x - &y)", &["OthersAfterAQuestionMark"]),
    ("x.exp().log()", &["use the `?` operator"]),
    ("x.relu().shape()", &["use the `?` operator"]),
    ("x.matmul(&x.t())", &["expected `&Tensor`, found `&Result<"]),
    ("{ let z: Tensor = &x + &y; z }", &["use the `?` operator"]),
    // Parts
    ("x[0]", &["its parts are `x.i(…)?`", "`x.i(0)?`"]),
    ("x[(0, 1)]", &["its parts are `x.i(…)?`"]),
    ("&x[1..3]", &["its parts are `x.i(…)?`"]),
    ("x[&y]", &["its parts are `x.i(…)?`"]),
    // Arguments
    ("x.sum(1)", &["argument #2 of type `bool` is missing"]),
    ("x.softmax()", &["argument #1", "missing"]),
    ("x.softmax(1.0)", &["is not a dimension, index or size"]),
    ("x.reshape(1.5)", &["is not a list of sizes", "`[2, -1]`"]),
    (
        "x.i(1.5)",
        &["is not an index of a tensor", "`x.i((.., 1..3, &mask))`"],
    ),
    ("x.to_device(0)", &["names no device", "\"cuda:0\""]),
    (
        "x.add(\"1\")",
        &["is not an operand", "`tensor!` makes a tensor"],
    ),
    (
        "Tensor::zeros((2, 3))",
        &["argument #2", "DType` is missing"],
    ),
    ("Tensor::full(2, \"a\", DType::F32)", &["is not a number"]),
    ("Tensor::new(vec![\"a\"])", &["a tensor is not made of"]),
    (
        "tensor!(vec![vec![1.0], vec![2.0]])",
        &["`Tensor::new(data)?` takes vectors of vectors"],
    ),
    // Names
    ("x.shape", &["use parentheses to call the method"]),
    ("{ for row in x { drop(row); } }", &["consider borrowing"]),
    (
        "x.where_(&y, 0.0)",
        &["use associated function syntax instead"],
    ),
    // Types
    ("2f32 * &x", &["an `f64` or an `i64`, no `f32`", "`&x * k`"]),
    (
        "3usize - x",
        &["an `f64` or an `i64`, no `usize`", "`f64::from(k) * &x`"],
    ),
    (
        "{ let k: f32 = x.item()?; k }",
        &["expected `f32`, found `f64`"],
    ),
    (
        "x.dropout(1, true)",
        &["expected `f64`, found integer", "use a float literal"],
    ),
    ("{ if x.gt(0)? {} }", &["expected `bool`, found `Tensor`"]),
    ("x == y", &["`==` cannot be applied"]),
    (
        "x.cross_entropy(&y)",
        &["argument #2", "CrossEntropyOptions", "missing"],
    ),
    ("x.permute(0, 1)", &["unexpected argument #2"]),
    ("x.to_vec()?", &["consider giving", "type"]),
    (
        "{ let v: Vec<f32> = x.to_vec(); v }",
        &["use the `?` operator"],
    ),
    (
        "x.exp()??",
        &["the `?` operator cannot be applied to type", "Tensor"],
    ),
    // References and mutability
    (
        "x.matmul(y)",
        &[
            "expected `&Tensor`, found `Tensor`",
            "consider borrowing here",
        ],
    ),
    (
        "{ let z = (x + y)?; x.add(&z)? }",
        &["borrow of moved value: `x`", "consider cloning"],
    ),
    (
        "{ drop(x); x.exp()? }",
        &["borrow of moved value: `x`", "consider cloning"],
    ),
    ("x.add_(&y)", &["consider changing this to be mutable"]),
    ("{ x += 1; }", &["consider changing this to be mutable"]),
    (
        "std::thread::spawn(|| x.exp())",
        &["use the `move` keyword"],
    ),
];

#[test]
fn lines_that_cannot_be_rust_lead_to_lines_that_can() {
    let mut text =
        "use rustorch_ir::DType; use rustorch_tensor::{RusTorchResult, Tensor, tensor};\n"
            .to_owned();
    for (at, (line, _)) in LINES.iter().enumerate() {
        let function = format!("f{at}(x: Tensor, y: Tensor) -> RusTorchResult<()>");
        writeln!(text, "pub fn {function} {{ let _ = {line}; Ok(()) }}").expect("a text");
    }
    let crates = ["rustorch_ir", "rustorch_tensor"].map(|name| (name, name));
    assert_said(&text, &crates, 2, &LINES);
}
