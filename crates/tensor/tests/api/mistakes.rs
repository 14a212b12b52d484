//! Common mistakes of users: the error names the method and the line that called it. It says what was expected, and
//! what was passed.

use rustorch_ir::DType;
use rustorch_runtime::{DeviceType, OpType};
use rustorch_tensor::autograd::jacobian;
use rustorch_tensor::nn::CrossEntropyOptions;
use rustorch_tensor::{
    GpuLinearAlgebra, GpuReduction, NewAxis, RusTorchResult, Tensor, checkpoint, eval_all,
    hybrid_operation, linalg, no_grad, tensor, with_device,
};

use crate::extremes::on_each_device;
use crate::{Outcome, assert_close, error};

#[test]
fn mistakes_of_shapes_and_dtypes_are_told_where_they_are_made() -> Outcome {
    let x = tensor![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
    let (w, ids) = (tensor![[1.0, 2.0], [3.0, 4.0]], tensor![0, 7]);
    let rows: [(RusTorchResult<Tensor>, &str); 22] = [
        (
            x.matmul(&x),
            "matmul: expected equal inner sizes, got f32[2, 3] and f32[2, 3]",
        ),
        (
            &x + &w,
            "add: expected shapes that broadcast, got [2, 3] and [2, 2]",
        ),
        (
            x.reshape((4, 2)),
            "reshape: expected a shape of 6 elements, at most one size -1, got [4, 2]",
        ),
        (
            x.softmax(2),
            "softmax: expected a dimension of a tensor of rank 2, got dim 2",
        ),
        (
            x.sum(5, false),
            "sum: expected a dimension of a tensor of rank 2, got dim 5",
        ),
        (
            x.permute((0, 0)),
            "permute: expected each dimension at most once, got [0, 0]",
        ),
        (
            Tensor::cat(&[&x, &w], 0),
            "cat: expected sizes equal except in dim 0, got f32[2, 3] and f32[2, 2]",
        ),
        (
            Tensor::stack(&[&x, &w], 0),
            "stack: expected tensors of one shape, got f32[2, 3] and f32[2, 2]",
        ),
        (
            x.i(5),
            "index: expected an index of dimension 0, of size 2, got 5",
        ),
        (x.i((0, 0, 0)), "index: expected at most 2 indices, got 3"),
        (
            x.index_select(0, &w),
            "index_select: expected an index tensor of i64 or i32, got f32[2, 2]",
        ),
        (
            x.linear(&w, None),
            "linear: expected x [.., k] and w [n, k], got f32[2, 3] and f32[2, 2]",
        ),
        (
            ids.mean(None, false),
            "mean: expected a floating-point or complex tensor (to_dtype converts), got i64[2]",
        ),
        (
            Tensor::from_vec(vec![1f32; 5], (2, 3)),
            "from_vec: expected 6 elements for f32[2, 3], got 5",
        ),
        (
            x.masked_fill(&w, 0.0),
            "masked_fill: expected a bool condition, got f32[2, 2]",
        ),
        (
            x.expand((4, 3)),
            "expand: expected shapes that broadcast, got [2, 3] and [4, 3]",
        ),
        (
            x.topk(9, 1, true).map(|t| t.0),
            "topk: expected k of at most 3, got 9",
        ),
        (
            x.narrow(0, 1, 4),
            "narrow: expected a part of 2 indices, got 4 from 1 on",
        ),
        (
            x.unsqueeze(0)?.t(),
            "t: expected rank 2 or less, got f32[1, 2, 3]",
        ),
        (
            x.size(2).map(|_| x.clone()),
            "size: expected a dimension of a tensor of rank 2, got dim 2",
        ),
        (
            x.to_vec::<i64>().map(|_| x.clone()),
            "to_vec: expected a tensor of i64 (to_dtype(DType::I64) makes it one), got f32[2, 3]",
        ),
        (
            Tensor::full(2, 300, DType::I8),
            "full: expected a value that i8 holds, got 300",
        ),
    ];
    for (result, expected) in rows {
        // A method that is made of others names itself first.
        let text = error(result);
        assert!(text.ends_with(expected), "{text}");
    }
    Ok(())
}

/// A call with a matrix `[2, 3]` and a vector `[3]`, and how its error ends.
type Mistake = (
    fn(&Tensor, &mut Tensor) -> RusTorchResult<Tensor>,
    &'static str,
);

/// Calls that PyTorch refuses, too.
const REFUSED: &[Mistake] = &[
    (
        |x, _| x.t()?.view(6),
        "expected a shape that needs no copy (reshape makes one), got [6] of f32[3, 2] with strides [1, 3]",
    ),
    (
        |x, v| v.copy()?.add_(x).cloned(),
        "expected an operand that broadcasts to [3], got f32[2, 3]",
    ),
    (
        |_, _| tensor![1, 2].add_(0.5).cloned(),
        "expected a result that i64 holds, got f32",
    ),
    (
        |x, _| x.split([1, 1], 1).map(|parts| parts[0].clone()),
        "split_with_sizes: expected sizes that add up to 3, got [1, 1]",
    ),
    (
        |x, _| x.chunk(0, 0).map(|parts| parts[0].clone()),
        "expected at least one chunk, got 0",
    ),
    (
        |_, _| Tensor::cat(&[] as &[Tensor], 0),
        "expected at least one tensor, got none",
    ),
    (
        |x, _| x.gather(1, x),
        "expected an index tensor of i64 or i32, got f32[2, 3]",
    ),
    (
        |x, _| x.copy()?.index_put_(0, tensor![1.0, 2.0], false).cloned(),
        "expand: expected shapes that broadcast, got [2] and [3]",
    ),
    (
        |x, _| x.i(tensor![true, false, true]),
        "index: expected a mask [2], as the dimensions from 0 on are, got bool[3]",
    ),
    (
        |x, _| x.i((0, 3)),
        "index: expected an index of dimension 1, of size 3, got 3",
    ),
    (
        |x, _| x.i((.., NewAxis, 5)),
        "index: expected an index of dimension 1, of size 3, got 5",
    ),
    (
        |x, _| x.bmm(x),
        "expected operands of rank 3 and 3, got f32[2, 3] and f32[2, 3]",
    ),
    (
        |x, _| Tensor::einsum("ij,ij->ij", &[x, &x.t()?]),
        "expected one size of i in \"ij,ij->ij\", got 2 and 3",
    ),
    (
        |x, _| Tensor::einsum("ijk->i", &[x]),
        "expected a name for each dimension of f32[2, 3], got \"ijk->i\"",
    ),
    (
        |x, _| linalg::inv(x),
        "expected square matrices, got f32[2, 3]",
    ),
    (
        |_, v| v.one_hot(5),
        "expected classes of i64 or i32, got f32[3]",
    ),
    (
        |_, v| v.multinomial(4, false),
        "expected 1 to 3 samples, got 4",
    ),
    (
        |_, _| Tensor::randint(5, 5, 3, DType::I64),
        "expected a range of 1 to 2^63 - 1 integers, got 5..5",
    ),
    (
        |_, _| Tensor::arange_with(0, 5, 0, DType::F32),
        "arange: expected finite bounds and a step other than 0 that leads to the end, got 0 to 5 by 0",
    ),
    (|x, _| x.repeat(2), "expected at least 2 counts, got [2]"),
    (
        |x, _| x.flip((0, 0)),
        "expected each dimension at most once, got [0, 0]",
    ),
    (
        |x, _| x.pad(3, 0.0),
        "expected a pair for each of the last of 2 dimensions, got [3]",
    ),
    (
        |x, _| x.as_strided((3, 3), (3, 1), 0),
        "expected a layout inside the memory, got [3, 3] with strides [3, 1] from 0 on in 6 elements",
    ),
    (
        |_, _| tensor![2, 3].pow(-1),
        "expected a power of integers that is not negative, got a negative number",
    ),
    (
        |x, _| x.gt(1)?.sub(&x.gt(2)?),
        "expected numbers (logical_xor is for booleans), got bool[2, 3]",
    ),
    (
        |x, _| -&x.gt(1)?,
        "expected numbers (logical_not is for booleans), got bool[2, 3]",
    ),
    (|_, v| v.triu(0), "expected rank 2 or more, got f32[3]"),
    (
        |_, v| v.unsqueeze(1)?.expand((3, 4))?.add_(1).cloned(),
        "expected elements that do not overlap in memory (contiguous separates them), got a view f32[3, 4]",
    ),
    (
        |_, v| {
            let leaf = v.detach().requires_grad_(true)?.clone();
            leaf.i(0)?.copy_(&leaf.i(0)?).cloned()
        },
        "expected a tensor that is neither a parameter nor a view of one, outside no_grad, got one that wants a gradient",
    ),
    (
        |_, v| v.narrow(0, 1, 2)?.copy_(&v.narrow(0, 0, 2)?).cloned(),
        "expected operands that show the written elements in the same order, or none of them (copy makes a tensor of its own), got f32[2], which shows some",
    ),
    (
        |_, v| {
            let first = v.i(0)?;
            v.mul_(&first).cloned()
        },
        "expected operands that show the written elements in the same order, or none of them (copy makes a tensor of its own), got f32[], which shows some",
    ),
    (
        |_, _| {
            let mut square = tensor![[1.0, 2.0], [3.0, 4.0]].tanh()?;
            let transposed = square.t()?;
            square.lerp_(&transposed, 0.5).cloned()
        },
        "expected operands that show the written elements in the same order, or none of them (copy makes a tensor of its own), got f32[2, 2], which shows some",
    ),
    (
        |_, v| {
            let tail = v.i(1..)?;
            v.i(..2)?.index_put_(.., &tail, false).cloned()
        },
        "expected operands that show the written elements in the same order, or none of them (copy makes a tensor of its own), got f32[2], which shows some",
    ),
    (
        |_, v| {
            let own = v.clone();
            v.scatter_(0, &tensor![2, 1, 0], &own).cloned()
        },
        "expected operands that show none of the written elements (copy makes a tensor of its own), got f32[3], which shows some",
    ),
    (
        |_, v| {
            let own = v.clone();
            v.index_put_(tensor![2, 1, 0], &own, false).cloned()
        },
        "expected operands that show none of the written elements (copy makes a tensor of its own), got f32[3], which shows some",
    ),
    (
        |_, v| {
            let tail = v.i(1..)?;
            let mut head = v.i(..2)?;
            head += &tail;
            Ok(head)
        },
        "got f32[2], which shows some",
    ),
    (
        |x, _| {
            x.detach().requires_grad_(true)?.mul(2)?.unbind(0)?[0]
                .mul_(2)
                .cloned()
        },
        "expected a view whose gradients go through a write (copy makes a tensor of its own; narrow, select and slice make such a view), got one of several that unbind, split, chunk or a loop over a tensor made",
    ),
    (
        |x, v| {
            let w = v.detach().requires_grad_(true)?;
            x.copy()?.split(1, 0)?[1].i(0)?.copy_(&w).cloned()
        },
        "got one of several that unbind, split, chunk or a loop over a tensor made",
    ),
    (
        |x, _| {
            let y = x.detach().requires_grad_(true)?.mul(2)?;
            let parts = y.chunk(2, 0)?;
            y.i(0)?.zero_()?;
            parts[1].exp()
        },
        "(make the parts again)",
    ),
    (
        |x, _| {
            let y = x.detach().requires_grad_(true)?.mul(2)?;
            no_grad(|| y.view(6))?.zero_().cloned()
        },
        "expected a view that was made where it is written (make it outside no_grad, or write inside), got one made in no_grad, of a tensor that requires a gradient",
    ),
    (
        |_, v| v.clamp(None, None),
        "expected at least one bound, got none",
    ),
    (
        |_, v| v.normal_(0.0, -1.0).cloned(),
        "expected a deviation that is not negative, got -1",
    ),
    (
        |x, _| x.retain_grad().map(|()| x.clone()),
        "expected a tensor that requires a gradient, got f32[2, 3] that requires none",
    ),
];

#[test]
fn mistakes_of_views_writes_and_numbers_say_what_was_expected() {
    for (call, expected) in REFUSED {
        let (x, mut v) = (
            tensor![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
            tensor![1.0, 2.0, 3.0],
        );
        // An operator's error comes with its tensor.
        let result = call(&x, &mut v).and_then(|result| result.to_vec::<f32>());
        let text = error(result);
        assert!(text.ends_with(expected), "{text}");
    }
}

#[test]
fn mistakes_of_values_are_told_with_the_line_that_asked() -> Outcome {
    let x = tensor![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
    let ids = tensor![0, 7];
    let options = CrossEntropyOptions::default();
    let line = line!() + 2;
    let rows = [
        ("index_select", x.index_select(0, &ids)?),
        ("embedding", x.embedding(&ids)?),
        ("cross_entropy", x.cross_entropy(&ids, &options)?),
    ];
    for (i, (method, result)) in rows.into_iter().enumerate() {
        let late = error(result.to_vec::<f32>());
        let place = format!("{method} at {}:{}:", file!(), line as usize + i);
        assert!(late.starts_with(&place) && late.contains('7'), "{late}");
    }
    Ok(())
}

/// A function of a vector of 4 numbers and of an index of 2. Its result for `[1, 2, 3, 4]` and the index `[3, 0]`.
type Indexed = (
    fn(&Tensor, &Tensor) -> RusTorchResult<Tensor>,
    &'static [f32],
);

const INDEXED: [Indexed; 8] = [
    (|x, index| x.index_select(0, index), &[4.0, 1.0]),
    (|x, index| x.gather(0, index), &[4.0, 1.0]),
    (|x, index| x.take(index), &[4.0, 1.0]),
    (
        |x, index| x.unsqueeze(1)?.embedding(index)?.squeeze(1),
        &[4.0, 1.0],
    ),
    (
        |x, index| x.index_add(0, index, &tensor![1.0, 2.0], 1.0),
        &[3.0, 2.0, 3.0, 5.0],
    ),
    (
        |x, index| x.index_copy(0, index, &tensor![8.0, 9.0]),
        &[9.0, 2.0, 3.0, 8.0],
    ),
    (
        |x, index| x.scatter(0, index, tensor![8.0, 9.0]),
        &[9.0, 2.0, 3.0, 8.0],
    ),
    (
        |x, index| x.scatter_add(0, index, tensor![1.0, 2.0]),
        &[3.0, 2.0, 3.0, 5.0],
    ),
];

/// Its tensor reports a mistake that shows only in data. Each tensor that is computed from that one reports it, too.
/// Tensors from before and behind have their values, also those that share its operands.
#[test]
fn a_mistake_in_data_touches_no_other_tensor() -> Outcome {
    on_each_device(|| {
        for (function, right) in INDEXED {
            let (x, ids) = (tensor![1.0, 2.0, 3.0, 4.0], tensor![3i64, 7]);
            x.add(0.0)?.eval()?;
            let before = x.mul(2.0)?.eval()?.clone();
            let pending = before.neg()?;
            let wrong = function(&x, &ids)?;
            let from_it = wrong.exp()?;
            let of_ids = ids.sub(1)?;
            let alike = function(&x, &tensor![3i64, 0])?;
            // A device may find it now, or only when it is read.
            let _ = from_it.eval();
            let behind = x.sqrt()?.eval()?.clone();
            let _ = eval_all(&[&alike, &wrong, &of_ids]);
            for _ in 0..2 {
                assert_close(&before, &[2.0, 4.0, 6.0, 8.0]);
                for mistaken in [&wrong, &from_it] {
                    let text = error(mistaken.to_vec::<f32>());
                    assert!(text.contains("invalid argument"), "{text}");
                }
                assert_close(&alike, right);
                assert_eq!(of_ids.to_vec::<i64>()?, [2, 6]);
                assert_close(&behind, &[1.0, 2.0f32.sqrt(), 3.0f32.sqrt(), 2.0]);
                assert_close(&pending, &[-2.0, -4.0, -6.0, -8.0]);
                assert_close(&x.add(&before)?, &[3.0, 6.0, 9.0, 12.0]);
            }
        }
        Ok(())
    })
}

/// Each result is an error that begins with this and the line behind the one before, the first with `line`.
#[track_caller]
fn assert_told<T>(line: u32, rows: Vec<(&str, RusTorchResult<T>)>) {
    for (i, (begin, result)) in rows.into_iter().enumerate() {
        let text = result.err().map_or_else(String::new, |e| e.to_string());
        let (method, op) = begin.split_once(": ").unwrap_or((begin, "expected"));
        let place = format!("{method} at {}:{}:", file!(), line as usize + i);
        assert!(text.starts_with(&place), "{begin}: {text}");
        let (_, told) = text.split_at(place.len());
        let told = told.trim_start_matches(|c: char| c.is_ascii_digit());
        assert!(told.starts_with(&format!(": {op}")), "{begin}: {text}");
    }
}

#[test]
fn mistakes_are_told_with_the_line_that_made_them() {
    let (x, y) = (tensor![[1.0, 2.0, 3.0]], tensor![[1.0, 2.0]]);
    let square = tensor![[1.0, 2.0], [3.0, 4.0]];
    let mut changed = x.clone();
    let line = line!() + 2;
    let rows = vec![
        ("add", x.add(&y)),
        ("add", &x + &y),
        ("mul", 2.0 * &x * &y),
        ("sub", x.clone() - y.clone()),
        ("i: index", x.i((0, 9))),
        ("mean_all: mean", tensor![1, 2].mean_all()),
        ("new", Tensor::new(vec![vec![1], vec![2, 3]])),
        ("linalg.solve", linalg::solve(&square, &x, true)),
        ("to_device", x.to_device("gpu")),
        ("add_: add", changed.add_(&y).cloned()),
    ];
    assert_told(line, rows);
    let line = line!() + 1;
    changed += &y;
    assert_told(line, vec![("add_assign: add", changed.to_vec::<f32>())]);
    let absent = x.to_device("cuda:99").unwrap_err().to_string();
    let place = format!("to_device at {}:{}:", file!(), line!() - 1);
    assert!(absent.starts_with(&place), "{absent}");
}

#[test]
fn printing_tells_no_line_of_the_library() -> Outcome {
    let x = Tensor::placeholder([2], DType::F32)?;
    let printed = x.to_string();
    assert!(
        printed.starts_with("tensor(<display: eval: expected values: a placeholder"),
        "{printed}"
    );
    // An operation that was recorded before knows its line.
    let (line, late) = (line!(), tensor![1.0, 2.0].index_select(0, &tensor![7])?);
    let place = format!("tensor(<index_select at {}:{line}:", file!());
    assert!(late.to_string().starts_with(&place), "{late}");
    Ok(())
}

/// `main` prints an error that it returns as its line, not as a dump of fields.
#[test]
fn errors_that_nobody_handles_are_lines_too() {
    let x = tensor![[1.0, 2.0, 3.0]];
    let missing = x.to_device(DeviceType::OpenCL(99)).unwrap_err();
    for error in [x.matmul(&x).unwrap_err(), missing] {
        let printed = format!("{error:?}");
        assert_eq!(printed, error.to_string());
        assert!(printed.contains("mistakes.rs:"), "{printed}");
    }
}

#[test]
fn mistakes_in_closures_are_told_with_their_lines() {
    const CPU: DeviceType = DeviceType::Cpu;
    const OP: OpType = OpType::LinearAlgebra;
    let (a, b) = (tensor![[1.0, 2.0, 3.0]], tensor![[1.0, 2.0]]);
    let c = b.clone();
    let line = line!() + 2;
    let rows = vec![
        ("matmul", checkpoint(move |x| x[0].matmul(&c), &[&a])),
        ("matmul", jacobian(|x| x.matmul(&b), &a)),
        ("matmul", with_device(CPU, || a.matmul(&b)).flatten()),
        ("matmul", hybrid_operation(OP, &a, |_| a.matmul(&b))),
        ("gpu_sum: sum", a.gpu_sum(Some(5))),
        ("gpu_var: var", a.gpu_var(Some(5))),
        ("gpu_matmul: matmul", a.gpu_matmul(&b)),
    ];
    assert_told(line, rows);
    // Operations after such a call have the user's line again.
    let line = line!() + 1;
    assert_told(line, vec![("add", a.add(&b))]);
}
