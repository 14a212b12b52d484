use rustorch_ir::ops::*;
use rustorch_ir::{BlockFormat, DType, Graph, Layout, Scalar, TensorType};
use rustorch_reference::Values;
use rustorch_runtime::{FailureClass, RunError};

use crate::{
    STRICT, Tensor, assert_floats, assert_ints, double, eval, eval_all, filled, float, int,
    runtime, try_eval,
};

const NAN: f64 = f64::NAN;
const INF: f64 = f64::INFINITY;

fn complex(values: &[(f64, f64)]) -> Tensor {
    let z = |&(re, im): &(f64, f64)| num_complex::Complex64::new(re, im);
    Tensor {
        ty: TensorType::new([values.len()], DType::Complex128),
        values: Values::Complex(values.iter().map(z).collect()),
    }
}

fn unary(op: UnaryOp, x: Tensor) -> Values {
    eval(Unary { op }, &[x])
}

fn binary(op: BinaryOp, a: Tensor, b: Tensor) -> Values {
    eval(Binary { op }, &[a, b])
}

#[test]
fn functions_of_one_element() {
    let x = || double([4], &[-2.5, 0.5, 3.5, NAN]);
    for (op, expected) in [
        (UnaryOp::Neg, [2.5, -0.5, -3.5, NAN]),
        (UnaryOp::Sign, [-1.0, 1.0, 1.0, 0.0]),
        (UnaryOp::Round, [-2.0, 0.0, 4.0, NAN]),
        (UnaryOp::Trunc, [-2.0, 0.0, 3.0, NAN]),
        (UnaryOp::Floor, [-3.0, 0.0, 3.0, NAN]),
        (UnaryOp::Ceil, [-2.0, 1.0, 4.0, NAN]),
        (UnaryOp::Reciprocal, [-0.4, 2.0, 2.0 / 7.0, NAN]),
        (UnaryOp::Sqrt, [NAN, 0.5f64.sqrt(), 3.5f64.sqrt(), NAN]),
        (
            UnaryOp::Rsqrt,
            [NAN, std::f64::consts::SQRT_2, 1.0 / 3.5f64.sqrt(), NAN],
        ),
        (
            UnaryOp::Erf,
            [
                -0.999593047982555,
                0.5204998778130465,
                0.9999992569016276,
                NAN,
            ],
        ),
        (
            UnaryOp::Exp,
            [
                0.0820849986238988,
                1.6487212707001282,
                33.11545195869231,
                NAN,
            ],
        ),
        (
            UnaryOp::Log,
            [NAN, -std::f64::consts::LN_2, 1.252762968495368, NAN],
        ),
        (
            UnaryOp::Sin,
            [
                -0.5984721441039564,
                0.479425538604203,
                -0.35078322768961984,
                NAN,
            ],
        ),
        (
            UnaryOp::Cos,
            [
                -0.8011436155469337,
                0.8775825618903728,
                -0.9364566872907963,
                NAN,
            ],
        ),
        (
            UnaryOp::Tan,
            [
                0.7470222972386602,
                0.5463024898437905,
                0.3745856401585947,
                NAN,
            ],
        ),
        (
            UnaryOp::Tanh,
            [
                -0.9866142981514303,
                0.46211715726000973,
                0.9981778976111987,
                NAN,
            ],
        ),
    ] {
        assert_floats(&unary(op, x()), &expected);
    }
    assert_ints(&unary(UnaryOp::IsNan, x()), &[0, 0, 0, 1]);
    assert_ints(
        &unary(UnaryOp::Not, int([2], DType::Bool, &[0, 1])),
        &[1, 0],
    );
    assert_ints(
        &unary(UnaryOp::Neg, int([2], DType::I8, &[-128, 5])),
        &[-128, -5],
    );
    assert_ints(
        &unary(UnaryOp::Neg, int([2], DType::U8, &[0, 1])),
        &[0, 255],
    );
    assert_ints(
        &unary(UnaryOp::Abs, int([2], DType::I64, &[-7, i64::MIN])),
        &[7, i64::MIN],
    );
}

#[test]
fn complex_numbers() {
    let z = || complex(&[(3.0, -4.0)]);
    assert_floats(&unary(UnaryOp::Abs, z()), &[5.0]);
    assert_floats(&unary(UnaryOp::Imag, z()), &[-4.0]);
    assert_eq!(unary(UnaryOp::Conj, z()), complex(&[(3.0, 4.0)]).values);
    let w = || complex(&[(1.0, 2.0)]);
    assert_eq!(
        binary(BinaryOp::Mul, z(), w()),
        complex(&[(11.0, 2.0)]).values
    );
    assert_eq!(
        binary(BinaryOp::Div, z(), w()),
        complex(&[(-1.0, -2.0)]).values
    );
    let made = binary(BinaryOp::Complex, double([1], &[3.0]), double([1], &[-4.0]));
    assert_eq!(made, z().values);
}

#[test]
fn functions_of_two_elements() {
    let a = || int([4], DType::I32, &[7, -7, 7, -7]);
    let b = || int([4], DType::I32, &[2, 2, -2, -2]);
    assert_ints(&binary(BinaryOp::FloorDivide, a(), b()), &[3, -4, -4, 3]);
    assert_ints(&binary(BinaryOp::Remainder, a(), b()), &[1, 1, -1, -1]);
    let powers = int([5], DType::I64, &[2, -1, 3, 0, 1]);
    let exponents = int([5], DType::I64, &[-1, -3, 4, 0, -9]);
    assert_ints(
        &binary(BinaryOp::Pow, powers, exponents),
        &[0, -1, 81, 1, 1],
    );
    let hundred = || int([1], DType::I8, &[100]);
    assert_ints(&binary(BinaryOp::Add, hundred(), hundred()), &[-56]);
    assert_ints(&binary(BinaryOp::Mul, hundred(), hundred()), &[16]);

    let a = || double([4], &[7.5, -7.5, 7.5, NAN]);
    let b = || double([4], &[2.0, 2.0, -2.0, 1.0]);
    assert_floats(
        &binary(BinaryOp::FloorDivide, a(), b()),
        &[3.0, -4.0, -4.0, NAN],
    );
    assert_floats(
        &binary(BinaryOp::Remainder, a(), b()),
        &[1.5, 0.5, -0.5, NAN],
    );
    assert_floats(&binary(BinaryOp::Maximum, a(), b()), &[7.5, 2.0, 7.5, NAN]);
    assert_floats(
        &binary(BinaryOp::Minimum, b(), a()),
        &[2.0, -7.5, -2.0, NAN],
    );

    let column = double([2, 1], &[10.0, 20.0]);
    let row = double([3], &[1.0, 2.0, 3.0]);
    let expected = [9.0, 8.0, 7.0, 19.0, 18.0, 17.0];
    assert_floats(&binary(BinaryOp::Sub, column, row), &expected);
}

#[test]
fn comparisons_with_nan_are_false() {
    let (a, b) = (double([3], &[1.0, NAN, 2.0]), double([3], &[1.0, NAN, 3.0]));
    for (op, expected) in [
        (CompareOp::Eq, [1, 0, 0]),
        (CompareOp::Ne, [0, 1, 1]),
        (CompareOp::Lt, [0, 0, 1]),
        (CompareOp::Le, [1, 0, 1]),
        (CompareOp::Gt, [0, 0, 0]),
        (CompareOp::Ge, [1, 0, 0]),
    ] {
        assert_ints(&eval(Compare { op }, &[a.clone(), b.clone()]), &expected);
    }
}

#[test]
fn casts() {
    let cast = |x: &Tensor, dtype| eval(Cast { dtype }, std::slice::from_ref(x));
    let x = double([6], &[300.0, -300.0, NAN, -1.9, 1.9, INF]);
    assert_ints(&cast(&x, DType::I8), &[127, -128, 0, -1, 1, 127]);
    assert_ints(&cast(&x, DType::U8), &[255, 0, 0, 0, 1, 255]);
    assert_ints(&cast(&x, DType::Bool), &[1, 1, 1, 1, 1, 1]);
    let x = int([3], DType::I32, &[-1, 257, 1 << 24 | 1]);
    assert_ints(&cast(&x, DType::U8), &[255, 1, 1]);
    assert_floats(&cast(&x, DType::F32), &[-1.0, 257.0, 16777216.0]);
    let x = double([3], &[0.1, 65520.0, 1e-8]);
    assert_floats(&cast(&x, DType::F16), &[0.0999755859375, INF, 0.0]);
    assert_floats(
        &cast(&x, DType::BF16),
        &[0.10009765625, 65536.0, 1.0011717677116394e-8],
    );
    assert_floats(&cast(&complex(&[(2.5, 1.0)]), DType::F32), &[2.5]);
    assert_eq!(
        cast(&double([1], &[2.5]), DType::Complex128),
        complex(&[(2.5, 0.0)]).values
    );
}

#[test]
fn blocks_are_dequantised() {
    // Q8_0: a half-precision scale, here 0.5, and 32 signed bytes.
    let mut block = vec![0x00, 0x38];
    block.extend((-16i8..16).map(i8::cast_unsigned));
    let table = Tensor {
        ty: TensorType::new([1, 32], DType::Block(BlockFormat::Q8_0)),
        values: Values::Blocks(block),
    };
    let expected: Vec<f64> = (-16..16).map(|q| f64::from(q) / 2.0).collect();
    assert_floats(
        &eval(Cast { dtype: DType::F32 }, std::slice::from_ref(&table)),
        &expected,
    );
    let ids = int([2], DType::I32, &[0, 0]);
    let rows = eval(Embedding { dtype: DType::F16 }, &[table.clone(), ids]);
    assert_floats(&rows, &[expected.clone(), expected].concat());
    let ones = float([1, 32], DType::F32, &[1.0; 32]);
    let bias = float([1], DType::F32, &[0.25]);
    assert_floats(&eval(Linear, &[ones, table, bias]), &[-7.75]);
}

#[test]
fn made_from_nothing() {
    let arange = |start: f64, step: f64, dtype| {
        let (start, step) = (start.into(), step.into());
        eval(
            Arange {
                start,
                step,
                len: 4,
                dtype,
            },
            &[],
        )
    };
    assert_floats(&arange(1.0, -0.5, DType::F32), &[1.0, 0.5, 0.0, -0.5]);
    assert_ints(&arange(253.0, 1.0, DType::U8), &[253, 254, 255, 0]);
    let (shape, value) = ([2].into(), Scalar::Int(-1));
    assert_ints(
        &eval(
            Full {
                shape,
                value,
                dtype: DType::U32,
            },
            &[],
        ),
        &[4294967295; 2],
    );
    // The first words of Philox for key 0, by Random123: 0x6627e8d5, 0xe169c58d.
    let random = |distribution| {
        let shape = [2].into();
        eval(
            Random {
                distribution,
                shape,
                dtype: DType::F64,
            },
            &[int([2], DType::I64, &[0, 0])],
        )
    };
    let scale = 32f64.exp2();
    let uniform = [
        f64::from(0x6627_e8d5u32) / scale,
        f64::from(0xe169_c58du32) / scale,
    ];
    assert_floats(&random(Distribution::Uniform), &uniform);
    let normal = [0.9911376790966604, -0.9246625882436951];
    assert_floats(&random(Distribution::Normal), &normal);
}

#[test]
fn views_and_moves() {
    let x = || int([2, 3], DType::I64, &[0, 1, 2, 3, 4, 5]);
    let dims = [1, 0].into_iter().collect();
    assert_ints(&eval(Permute { dims }, &[x()]), &[0, 3, 1, 4, 2, 5]);
    let slice = Slice {
        dim: 1,
        start: 0,
        end: 3,
        step: 2,
    };
    assert_ints(&eval(slice, &[x()]), &[0, 2, 3, 5]);
    let shape = [2, 1, 3].into();
    let row = int([3], DType::I64, &[7, 8, 9]);
    assert_ints(&eval(Expand { shape }, &[row]), &[7, 8, 9, 7, 8, 9]);
    let layout = Layout {
        shape: [2, 2].into(),
        strides: [1, 2].into_iter().collect(),
        offset: 1,
    };
    let storage = int([5], DType::I64, &[0, 1, 2, 3, 4]);
    assert_ints(&eval(AsStrided { layout }, &[storage]), &[1, 3, 2, 4]);
    let padding = [(1, 0), (0, 1)].into_iter().collect();
    let pad = Pad {
        padding,
        value: Scalar::Int(9),
    };
    assert_ints(&eval(pad, &[x()]), &[9, 9, 9, 9, 0, 1, 2, 9, 3, 4, 5, 9]);
    let column = int([2, 1], DType::I64, &[8, 9]);
    let joined = eval(Concat { dim: 1 }, &[x(), column]);
    assert_ints(&joined, &[0, 1, 2, 8, 3, 4, 5, 9]);
    let condition = int([3], DType::Bool, &[1, 0, 1]);
    let other = int([2, 1], DType::I64, &[-1, -2]);
    assert_ints(
        &eval(Where, &[condition, x(), other]),
        &[0, -1, 2, 3, -2, 5],
    );
}

#[test]
fn indexing() {
    let x = || double([2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let index = |values: &[i64]| int([values.len()], DType::I32, values);
    let selected = eval(IndexSelect { dim: 1 }, &[x(), index(&[2, 0, 2])]);
    assert_floats(&selected, &[2.0, 0.0, 2.0, 5.0, 3.0, 5.0]);
    let along = |dim, values: &[i64]| (dim, int([2, 2], DType::I64, values));
    let (dim, index) = along(0, &[1, 0, 0, 1]);
    assert_floats(&eval(Gather { dim }, &[x(), index]), &[3.0, 1.0, 0.0, 4.0]);
    let source = || double([2, 2], &[10.0, 20.0, 30.0, 40.0]);
    let (dim, index) = along(1, &[2, 2, 0, 1]);
    let scatter = |mode| eval(Scatter { dim, mode }, &[x(), index.clone(), source()]);
    assert_floats(
        &scatter(ScatterMode::Set),
        &[0.0, 1.0, 20.0, 30.0, 40.0, 5.0],
    );
    assert_floats(
        &scatter(ScatterMode::Add),
        &[0.0, 1.0, 32.0, 33.0, 44.0, 5.0],
    );
}

#[test]
fn reductions_and_selections() {
    let x = || double([2, 3], &[3.0, 1.0, 2.0, -1.0, NAN, 5.0]);
    let reduce = |op, dims: &[usize], x| {
        let (dims, keepdim) = (dims.into(), false);
        eval(Reduce { op, dims, keepdim }, &[x])
    };
    assert_floats(&reduce(ReduceOp::Sum, &[0], x()), &[2.0, NAN, 7.0]);
    assert_floats(&reduce(ReduceOp::Max, &[1], x()), &[3.0, NAN]);
    assert_floats(&reduce(ReduceOp::Min, &[0], x()), &[-1.0, NAN, 2.0]);
    assert_floats(
        &reduce(
            ReduceOp::Prod,
            &[0, 1],
            double([2, 2], &[1.0, 2.0, 3.0, 4.0]),
        ),
        &[24.0],
    );
    assert_floats(
        &reduce(ReduceOp::Sum, &[1], double([2, 0], &[])),
        &[0.0, 0.0],
    );
    assert_ints(
        &reduce(ReduceOp::Sum, &[0], int([3], DType::I8, &[100, 100, 1])),
        &[201],
    );
    assert_ints(
        &reduce(ReduceOp::Max, &[0], int([3], DType::Bool, &[0, 1, 0])),
        &[1],
    );

    let arg = |largest, dim, values: &[f64], indices: &[i64]| {
        let op = |values| ArgReduce {
            largest,
            dim,
            values,
        };
        assert_ints(&eval(op(false), &[x()]), indices);
        let results = eval_all(op(true), &[x()]);
        assert_floats(&results[0], values);
        assert_ints(&results[1], indices);
    };
    arg(true, 1, &[3.0, NAN], &[0, 1]);
    arg(false, 1, &[1.0, NAN], &[1, 1]);
    arg(true, 0, &[3.0, NAN, 5.0], &[0, 1, 1]);
    let ties = eval(
        ArgReduce {
            largest: true,
            dim: 0,
            values: false,
        },
        &[double([3], &[1.0, 4.0, 4.0])],
    );
    assert_ints(&ties, &[1]);

    let top = |largest, dim, k, values: &[f64], indices: &[i64]| {
        let results = eval_all(TopK { k, dim, largest }, &[x()]);
        assert_floats(&results[0], values);
        assert_ints(&results[1], indices);
    };
    top(true, 1, 2, &[3.0, 2.0, NAN, 5.0], &[0, 2, 1, 2]);
    top(
        false,
        1,
        3,
        &[1.0, 2.0, 3.0, -1.0, 5.0, NAN],
        &[1, 2, 0, 0, 2, 1],
    );
    top(true, 0, 1, &[3.0, NAN, 5.0], &[0, 1, 1]);

    let sums = eval(
        Scan {
            op: ScanOp::Sum,
            dim: 1,
        },
        &[int([2, 3], DType::I8, &[100, 100, 1, -1, 0, 5])],
    );
    assert_ints(&sums, &[100, 200, 201, -1, -1, 4]);
    let sums = eval(
        Scan {
            op: ScanOp::Sum,
            dim: 0,
        },
        &[double([2, 2], &[1.0, 2.0, 3.0, 4.0])],
    );
    assert_floats(&sums, &[1.0, 2.0, 4.0, 6.0]);
}

#[test]
fn running_extremes_products_and_log_sums() {
    let scan = |op, x: &[f64]| eval(Scan { op, dim: 0 }, &[double([x.len()], x)]);
    let x = [2.0, 1.0, 3.0, NAN, 9.0];
    assert_floats(&scan(ScanOp::Max, &x), &[2.0, 2.0, 3.0, NAN, NAN]);
    assert_floats(&scan(ScanOp::Min, &x), &[2.0, 1.0, 1.0, NAN, NAN]);
    assert_floats(&scan(ScanOp::Prod, &x[..3]), &[2.0, 2.0, 6.0]);
    let sums = [0.0, 2f64.ln(), 1e3];
    assert_floats(&scan(ScanOp::LogSumExp, &[0.0, 0.0, 1e3]), &sums);
    assert_floats(
        &scan(ScanOp::LogSumExp, &[-INF, 1.0, INF]),
        &[-INF, 1.0, INF],
    );
}

#[test]
fn bits_divisors_and_neighbours() {
    let a = || int([4], DType::I8, &[-100, 3, -1, 12]);
    let b = || int([4], DType::I8, &[1, 7, 8, -2]);
    assert_ints(&binary(BinaryOp::ShiftLeft, a(), b()), &[56, -128, 0, 0]);
    assert_ints(&binary(BinaryOp::ShiftRight, a(), b()), &[-50, 0, -1, 0]);
    assert_ints(&binary(BinaryOp::Gcd, a(), b()), &[1, 1, 1, 2]);
    let towards =
        |a: f64, b: f64| binary(BinaryOp::NextAfter, double([1], &[a]), double([1], &[b]));
    assert_floats(&towards(1.0, 2.0), &[1.0 + f64::EPSILON]);
    assert_floats(&towards(0.0, -1.0), &[-5e-324]);
    assert_floats(&towards(3.0, NAN), &[NAN]);
}

#[test]
fn matrix_products_broadcast_their_batches() {
    let a = filled([2, 1, 2, 3], |i| i - 4.0);
    let b = filled([2, 3, 2], |i| i - 3.0);
    let expected = [
        13.0, 4.0, 4.0, 4.0, -41.0, -50.0, 4.0, 4.0, -5.0, 4.0, -14.0, 4.0, 49.0, 58.0, 94.0, 112.0,
    ];
    assert_floats(&eval(Matmul, &[a, b]), &expected);
    let row = int([1, 2], DType::U8, &[16, 1]);
    let column = int([2, 1], DType::U8, &[16, 3]);
    assert_ints(&eval(Matmul, &[row, column]), &[3]);
}

#[test]
fn convolutions() {
    let x = || filled([1, 2, 4, 5], |i| i);
    let grouped = Conv2d {
        stride: [2, 1],
        padding: [1, 0],
        dilation: [1, 2],
        groups: 2,
    };
    let w = filled([2, 1, 2, 3], |i| i - 5.0);
    let bias = || double([2], &[0.5, -1.0]);
    let expected = [-1.5, -111.5, -199.5, 333.0, 649.0, 225.0];
    assert_floats(&eval(grouped, &[x(), w, bias()]), &expected);
    let dilated = Conv2d {
        stride: [1, 2],
        padding: [0, 1],
        dilation: [2, 1],
        groups: 1,
    };
    let w = filled([2, 2, 2, 2], |i| i - 7.0);
    let expected = [
        -80.0, -260.0, -316.0, -140.0, -400.0, -456.0, 400.0, 796.0, 868.0, 500.0, 976.0, 1048.0,
    ];
    assert_floats(&eval(dilated, &[x(), w]), &expected);

    let x = || filled([1, 2, 2, 3], |i| i);
    let grouped = ConvTranspose2d {
        stride: [2, 2],
        padding: [1, 0],
        output_padding: [1, 0],
        dilation: [1, 1],
        groups: 2,
    };
    let w = filled([2, 1, 2, 2], |i| i - 3.0);
    let expected = [
        0.5, 0.5, -0.5, 0.5, -1.5, 0.5, -8.5, -5.5, -11.5, -7.5, -14.5, -9.5, -2.5, 0.5, -3.5, 0.5,
        -4.5, 0.5, 17.0, 23.0, 20.0, 27.0, 23.0, 31.0, 8.0, 17.0, 9.0, 19.0, 10.0, 21.0, 26.0,
        35.0, 29.0, 39.0, 32.0, 43.0,
    ];
    assert_floats(&eval(grouped, &[x(), w, bias()]), &expected);
    let dilated = ConvTranspose2d {
        dilation: [2, 1],
        ..ConvTranspose2d::default()
    };
    let w = filled([2, 2, 2, 2], |i| i - 3.0);
    let expected = [
        30.0, 68.0, 74.0, 44.0, 36.0, 86.0, 92.0, 56.0, 42.0, 96.0, 110.0, 64.0, 60.0, 138.0,
        152.0, 88.0, 54.0, 124.0, 146.0, 84.0, 84.0, 190.0, 212.0, 120.0, 66.0, 152.0, 182.0,
        104.0, 108.0, 242.0, 272.0, 152.0,
    ];
    assert_floats(&eval(dilated, &[x(), w]), &expected);
}

#[test]
fn pooling_counts_its_padding() {
    let op = |kind| Pool2d {
        kind,
        kernel: [2, 2],
        stride: [2, 2],
        padding: [1, 1],
        dilation: [1, 1],
        indices: None,
    };
    let pool = |kind, x: &[f64]| eval(op(kind), &[double([1, 1, 2, 3], x)]);
    let x = [-1.0, -2.0, -3.0, 4.0, 5.0, 6.0];
    assert_floats(&pool(PoolKind::Max, &x), &[-1.0, -2.0, 4.0, 6.0]);
    assert_floats(&pool(PoolKind::Average, &x), &[-0.25, -1.25, 1.0, 2.75]);
    let x = [-1.0, NAN, -3.0, 4.0, 5.0, 6.0];
    assert_floats(&pool(PoolKind::Max, &x), &[-1.0, NAN, 4.0, 6.0]);
}

#[test]
fn pooling_tells_where_maxima_are() {
    let places = |x: &[f64], padding, indices| {
        let op = Pool2d {
            kind: PoolKind::Max,
            kernel: [2, 3],
            stride: [1, 1],
            padding,
            dilation: [1, 1],
            indices: Some(indices),
        };
        eval_all(op, &[double([1, 2, 2, 4], x)])
    };
    let pool = |x: &[f64]| places(x, [0, 0], PoolIndices::Plane);
    let x = [
        1.0, 7.0, 7.0, 0.0, 7.0, 2.0, 3.0, 9.0, -INF, -INF, -INF, -INF, NAN, -INF, NAN, 5.0,
    ];
    let results = pool(&x);
    assert_floats(&results[0], &[7.0, 9.0, NAN, NAN]);
    assert_ints(&results[1], &[1, 7, 6, 6]);
    let nothing = pool(&[-INF; 16]);
    assert_floats(&nothing[0], &[-INF; 4]);
    assert_ints(&nothing[1], &[0, 1, 0, 1]);
    let in_windows = places(&x, [0, 0], PoolIndices::Window);
    assert_ints(&in_windows[1], &[1, 5, 5, 4]);
    // Windows that begin in the padding: their elements there count.
    let in_windows = places(&x, [1, 0], PoolIndices::Window);
    assert_ints(&in_windows[1], &[4, 3, 1, 5, 0, 2, 3, 3, 5, 4, 2, 1]);
    // Windows in which there is nothing but padding.
    let op = Pool2d {
        kind: PoolKind::Max,
        kernel: [2, 2],
        stride: [1, 1],
        padding: [1, 1],
        dilation: [2, 2],
        indices: Some(PoolIndices::Plane),
    };
    let results = eval_all(op, &[double([1, 1, 1, 1], &[4.0])]);
    assert_floats(&results[0], &[-INF]);
    assert_ints(&results[1], &[0]);
}

#[test]
fn states_are_updated_in_place() {
    let state = float([2, 3], DType::F16, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let source = double([2, 1], &[0.1, 65520.0]);
    let start = int([1], DType::I32, &[1]);
    let updated = eval(UpdateSlice { dim: 1 }, &[state, source, start]);
    assert_floats(&updated, &[0.0, 0.0999755859375, 2.0, 3.0, INF, 5.0]);
}

#[test]
fn mistakes_say_what_and_where() {
    let refused = |result: Result<Values, RunError>, text: &str| match result {
        Err(RunError::Device(e)) => {
            assert_eq!(e.class, FailureClass::Caller);
            assert_eq!(e.node, Some(0));
            assert_eq!(e.to_string(), text);
        }
        other => panic!("{other:?}"),
    };
    let x = || double([2, 3], &[0.0; 6]);
    refused(
        try_eval(
            IndexSelect { dim: 1 },
            &[x(), int([2], DType::I64, &[0, 3])],
        ),
        "reference: invalid argument in index_select: element 1 of the index is 3: dimension 1 of \
         f64[2, 3] has indices 0 up to, but without, 3",
    );
    let (a, b) = (int([2], DType::I8, &[1, 2]), int([2], DType::I8, &[1, 0]));
    refused(
        try_eval(
            Binary {
                op: BinaryOp::FloorDivide,
            },
            &[a, b],
        ),
        "reference: invalid argument in binary: element 1 is 2 divided by 0",
    );
    let start = int([1], DType::I32, &[2]);
    refused(
        try_eval(
            UpdateSlice { dim: 1 },
            &[x(), double([2, 2], &[0.0; 4]), start],
        ),
        "reference: invalid argument in update_slice: 2 indices from 2 on do not fit dimension 1 \
         of f64[2, 3]: start at 0 to 1",
    );
}

#[test]
fn what_cannot_fit_is_an_error() {
    let mut graph = Graph::new();
    let huge = graph.full([1 << 40, 1 << 18].into(), 1, DType::I8).unwrap();
    // A part of a constant alone is a smaller constant.
    let op = UnaryOp::Neg;
    let negative = graph.push(Unary { op }, &[huge]).unwrap();
    let part = graph.slice(negative, 0, 0, 1).unwrap();
    let part = graph.slice(part, 1, 0, 1).unwrap();
    graph.output(part);
    let error = runtime().run(&graph, &[], STRICT).unwrap_err();
    let class = FailureClass::OutOfMemory { never_fits: false };
    assert!(
        matches!(&error, RunError::Device(e) if e.class == class),
        "{error}"
    );
}
