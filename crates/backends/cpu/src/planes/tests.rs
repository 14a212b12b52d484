use half::{bf16, f16};
use num_traits::AsPrimitive;

use super::*;
use crate::simd::{Amx, Bf16};

/// A fixed sequence of values between -1 and 1.
fn values<T: Copy + 'static>(count: usize, seed: u32) -> Vec<T>
where
    f32: AsPrimitive<T>,
{
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next().as_()).collect()
}

/// The product of `a` and `b` by planes, if they can hold it.
fn product<A: Number, B: Number, O: Number, const P: usize, const Q: usize>(
    unit: impl Unit,
    threads: usize,
    [m, k, n]: [usize; 3],
    a: Matrix<A>,
    b: Matrix<B>,
) -> Option<Vec<O>> {
    let mut out = vec![O::zeroed(); m * n];
    let pool = Pool::new(threads);
    let (a, b) = (Batch::one(a), Batch::one(b));
    multiply::<A, B, O, P, Q>(unit, &pool, [m, k, n], &a, &b, &mut out).then_some(out)
}

/// The square root of the mean of the squared errors over that of the squared results.
fn error<A: AsPrimitive<f64>, B: AsPrimitive<f64>, O: AsPrimitive<f64>>(
    [m, k, n]: [usize; 3],
    a: Matrix<A>,
    b: Matrix<B>,
    out: &[O],
) -> f64 {
    let (mut error, mut signal) = (0.0, 0.0);
    for i in 0..m {
        for j in 0..n {
            let term = |l: usize| {
                let a: f64 = a.data[i * a.strides[0] + l * a.strides[1]].as_();
                let b: f64 = b.data[l * b.strides[0] + j * b.strides[1]].as_();
                a * b
            };
            let exact: f64 = (0..k).map(term).sum();
            error += (exact - out[i * n + j].as_()).powi(2);
            signal += exact.powi(2);
        }
    }
    (error / signal).sqrt()
}

/// Less than a tile, tiles, and some more, with several parts along the sums.
const SIZES: [[usize; 3]; 8] = [
    [1, 1, 1],
    [15, 17, 16],
    [33, 31, 64],
    [32, 32, 32],
    [64, 128, 96],
    [65, 129, 31],
    [100, 300, 90],
    [600, 257, 270],
];

fn check<A, B, O, const P: usize, const Q: usize>(limit: f64)
where
    A: Number + AsPrimitive<f64>,
    B: Number + AsPrimitive<f64>,
    O: Number + AsPrimitive<f64> + PartialEq,
    f32: AsPrimitive<A> + AsPrimitive<B>,
{
    if let Some(amx) = Amx::detect() {
        check_unit::<A, B, O, P, Q>(amx, limit);
    }
    // Vectors multiply bf16 alone.
    if let (1, 1, Some(vectors)) = (P, Q, Bf16::detect()) {
        check_unit::<A, B, O, P, Q>(vectors, limit);
    }
}

fn check_unit<A, B, O, const P: usize, const Q: usize>(unit: impl Unit, limit: f64)
where
    A: Number + AsPrimitive<f64>,
    B: Number + AsPrimitive<f64>,
    O: Number + AsPrimitive<f64> + PartialEq,
    f32: AsPrimitive<A> + AsPrimitive<B>,
{
    for [m, k, n] in SIZES {
        let (a, b) = (values::<A>(2 * m * k, 1), values::<B>(2 * k * n, 2));
        // Row-major, column-major, and with every other column.
        let layouts = [[[k, 1], [n, 1]], [[1, m], [1, k]], [[2 * k, 2], [2, 2 * k]]];
        for strides in layouts {
            let a = Matrix {
                data: &a,
                strides: strides[0],
            };
            let b = Matrix {
                data: &b,
                strides: strides[1],
            };
            let sizes = [m, k, n];
            let out = product::<A, B, O, P, Q>(unit, 1, sizes, a, b).unwrap();
            let error = error(sizes, a, b, &out);
            assert!(error < limit, "{sizes:?} {strides:?}: {error:e}");
            let shared = product::<A, B, O, P, Q>(unit, 5, sizes, a, b).unwrap();
            assert!(out == shared, "{sizes:?} depends on the threads");
        }
    }
}

#[test]
fn f32_is_as_exact_as_its_sums() {
    check::<f32, f32, f32, 3, 3>(1.5e-7);
}

#[test]
fn weights_of_half_precision_lose_nothing() {
    check::<f32, f16, f32, 3, 2>(1.5e-7);
    check::<f32, bf16, f32, 3, 1>(1.5e-7);
}

#[test]
fn half_precision_is_rounded_once() {
    check::<f16, f16, f16, 2, 2>(2.0_f64.powi(-11));
    check::<bf16, bf16, bf16, 1, 1>(2.0_f64.powi(-8));
    check::<bf16, bf16, f32, 1, 1>(1.5e-7);
}

#[test]
fn batches() {
    if let Some(amx) = Amx::detect() {
        check_batches(amx);
    }
}

fn check_batches(unit: impl Unit) {
    let sizes @ [m, k, n] = [40, 50, 60];
    let (a, b) = (values::<f32>(3 * m * k, 1), values::<f32>(k * n, 2));
    let lead = [3].into();
    let layouts =
        [[3, m, k], [1, k, n]].map(|shape| rustorch_ir::Layout::contiguous(&shape.into()));
    let batches = [
        Batch::new(&a[..], &layouts[0], &lead),
        Batch::new(&b[..], &layouts[1], &lead),
    ];
    let mut out = vec![0.0_f32; 3 * m * n];
    let [left, right] = &batches;
    assert!(multiply::<_, _, _, 3, 3>(
        unit,
        &Pool::new(2),
        sizes,
        left,
        right,
        &mut out
    ));
    for (i, out) in out.chunks(m * n).enumerate() {
        let error = error(sizes, left.get(i), right.get(i), out);
        assert!(error < 1.5e-7, "{i}: {error:e}");
    }
}

#[test]
fn nothing_to_add_up() {
    let empty = |strides| Matrix {
        data: &[0.0; 0],
        strides,
    };
    let (a, b) = (empty([0, 1]), empty([50, 1]));
    if let Some(amx) = Amx::detect() {
        let out = product::<f32, f32, f32, 3, 3>(amx, 2, [40, 0, 50], a, b);
        assert_eq!(out, Some(vec![0.0; 40 * 50]));
    }
    if let Some(vectors) = Bf16::detect() {
        let out = product::<f32, f32, f32, 3, 3>(vectors, 2, [40, 0, 50], a, b);
        assert_eq!(out, Some(vec![0.0; 40 * 50]));
    }
}

#[test]
fn what_planes_cannot_hold_is_refused() {
    if let Some(amx) = Amx::detect() {
        check_refusals(amx);
    }
}

fn check_refusals(unit: impl Unit) {
    let sizes @ [m, k, n] = [50, 70, 60];
    let (a, b) = (values::<f32>(m * k, 1), values::<f32>(k * n, 2));
    let of = |a: &[f32], b: &[f32]| {
        let (a, b) = (
            Matrix {
                data: a,
                strides: [k, 1],
            },
            Matrix {
                data: b,
                strides: [n, 1],
            },
        );
        let out = product::<f32, f32, f32, 3, 3>(unit, 2, sizes, a, b)?;
        Some(error(sizes, a, b, &out))
    };
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, -1e13] {
        for at in [0, 999, m * k - 1] {
            let mut wild = a.clone();
            wild[at] = value;
            assert_eq!(of(&wild, &b), None, "{value} at {at} of the left");
            let mut wild = b.clone();
            wild[at] = value;
            assert_eq!(of(&a, &wild), None, "{value} at {at} of the right");
        }
    }
    let small = |x: &[f32], by: f32| x.iter().map(|x| x * by).collect::<Vec<_>>();
    assert_eq!(of(&small(&a, 1e-13), &b), None);
    assert_eq!(of(&a, &small(&b, 1e-40)), None);
    for by in [1e-11, 1e11] {
        assert!(of(&small(&a, by), &small(&b, by)).unwrap() < 1.5e-7);
    }
    // Zeros are as good as any.
    assert!(of(&small(&a, 0.0), &b).is_some_and(f64::is_nan));
    // A small element among large ones keeps to the bound.
    let mut mixed = a.clone();
    mixed[5] = 1e-39;
    mixed[7] = 1e-30;
    assert!(of(&mixed, &b).unwrap() < 1.5e-7);
}
