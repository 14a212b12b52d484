//! The product of the factors is the matrix.

use num_complex::Complex64;
use rustorch_math::linalg::{Field, Triangle, Vectors};

/// Sizes, among them empty ones and some beyond the blocks that algorithms work in.
const SIZES: [[usize; 2]; 8] = [
    [0, 0],
    [1, 1],
    [3, 3],
    [5, 2],
    [2, 5],
    [0, 3],
    [40, 70],
    [90, 33],
];

trait Number: Field + std::fmt::Debug + PartialEq {
    fn new(re: f64, im: f64) -> Self;
    fn complex(self) -> Complex64;
}

impl Number for f64 {
    fn new(re: f64, _: f64) -> Self {
        re
    }

    fn complex(self) -> Complex64 {
        self.into()
    }
}

impl Number for Complex64 {
    fn new(re: f64, im: f64) -> Self {
        Self::new(re, im)
    }

    fn complex(self) -> Complex64 {
        self
    }
}

/// Numbers between −1 and 1 that follow no pattern ([splitmix64](https://prng.di.unimi.it/splitmix64.c)).
fn numbers(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

fn random<T: Number>(m: usize, n: usize) -> Vec<T> {
    let mut next = numbers((m * 1000 + n) as u64);
    (0..m * n).map(|_| T::new(next(), next())).collect()
}

type Matrix = Vec<Complex64>;

fn wide<T: Number>(a: &[T]) -> Matrix {
    a.iter().map(|x| x.complex()).collect()
}

fn times(a: &[Complex64], b: &[Complex64], [m, k, n]: [usize; 3]) -> Matrix {
    let sum = |i: usize, j: usize| (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum();
    (0..m * n).map(|at| sum(at / n, at % n)).collect()
}

fn adjoint(a: &[Complex64], [m, n]: [usize; 2]) -> Matrix {
    (0..n * m).map(|at| a[at % m * n + at / m].conj()).collect()
}

fn identity(n: usize) -> Matrix {
    (0..n * n)
        .map(|at| f64::from(u8::from(at / n == at % n)).into())
        .collect()
}

fn diagonal(values: &[Complex64], [m, n]: [usize; 2]) -> Matrix {
    let at = |at: usize| match at / n == at % n {
        true => values[at / n],
        false => Complex64::ZERO,
    };
    (0..m * n).map(at).collect()
}

#[track_caller]
fn same(a: &[Complex64], b: &[Complex64]) {
    near(a, b, b.iter().map(|b| b.norm()).fold(0.0, f64::max));
}

/// Equal but for what is small beside numbers of a size.
#[track_caller]
fn near(a: &[Complex64], b: &[Complex64], size: f64) {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).norm());
    for difference in differences {
        // Below the normal numbers steps do not become smaller.
        let allowed = 1e-12 * size + 100.0 * f64::MIN_POSITIVE * f64::EPSILON;
        assert!(
            difference <= allowed,
            "differs by {difference:e} of {size:e}"
        );
    }
}

/// Matrices that are not easy: of rank 2 at most, of equal elements, with columns of zeros, huge, tiny, and with
/// rows of all sizes.
fn hard<T: Number>(m: usize, n: usize) -> Vec<Vec<T>> {
    let easy: Vec<T> = random(m, n);
    let made = |f: &dyn Fn(usize, usize) -> Complex64| -> Vec<T> {
        let element = |at: usize| f(at / n, at % n);
        let elements = (0..m * n).map(element);
        elements.map(|x| T::new(x.re, x.im)).collect()
    };
    let scaled = |scale: f64| made(&|i, j| easy[i * n + j].complex() * scale);
    let [left, right]: [Vec<T>; 2] = [random(m, 2), random(2, n)];
    let product = times(&wide(&left), &wide(&right), [m, 2, n]);
    vec![
        made(&|i, j| product[i * n + j]),
        made(&|_, _| Complex64::ZERO),
        made(&|_, _| 49.0.into()),
        made(&|i, j| easy[i * n + j].complex() * (j % 3) as f64),
        made(&|i, j| f64::from(u8::from(i == j)).into()),
        made(&|i, j| f64::from(u8::from(i + 1 == j)).into()),
        scaled(1e200),
        scaled(1e-200),
        scaled(1e-310),
        made(&|i, j| easy[i * n + j].complex() * 0.1f64.powi(8 * i as i32)),
        made(&|i, j| match (i, j) {
            (0, 0) => 1.0.into(),
            (0, _) | (_, 0) => Complex64::ZERO,
            _ => easy[i * n + j].complex() * 1e-160,
        }),
    ]
}

fn factors<T: Number>() {
    for [m, n] in SIZES {
        let a: Vec<T> = random(m, n);
        factors_of(&a, [m, n]);
        // The signs of reflections are LAPACK's in both.
        let mut reflections = a.clone();
        T::reflections(&mut reflections, m, n);
        let (_, r) = T::qr(&a, m, n, false);
        let upper = (0..m.min(n) * n).filter(|at| at / n <= at % n);
        let [got, expected]: [Matrix; 2] =
            [&reflections, &r].map(|x| upper.clone().map(|at| x[at].complex()).collect());
        same(&got, &expected);
    }
    for [m, n] in [
        [0, 2],
        [1, 1],
        [2, 2],
        [3, 3],
        [5, 2],
        [2, 5],
        [20, 24],
        [24, 20],
    ] {
        hard::<T>(m, n).iter().for_each(|a| factors_of(a, [m, n]));
    }
}

fn factors_of<T: Number>(a: &[T], [m, n]: [usize; 2]) {
    let k = m.min(n);
    let whole = wide(a);
    for complete in [false, true] {
        let size = if complete { m } else { k };
        let (q, r) = T::qr(a, m, n, complete);
        same(&times(&wide(&q), &wide(&r), [m, size, n]), &whole);
        let adjoint = adjoint(&wide(&q), [m, size]);
        same(
            &times(&adjoint, &wide(&q), [size, m, size]),
            &identity(size),
        );
        assert!((0..size * n).all(|at| at / n <= at % n || r[at].complex() == Complex64::ZERO));
        assert!((0..k).all(|i| r[i * n + i].complex().im == 0.0));
    }

    let mut reflections = a.to_vec();
    let tau = T::reflections(&mut reflections, m, n);
    let upper = |at: usize| match at / n <= at % n {
        true => reflections[at].complex(),
        false => Complex64::ZERO,
    };
    let r: Matrix = (0..k * n).map(upper).collect();
    if n <= m {
        T::product_of_reflections(&mut reflections, m, n, &tau);
        same(&times(&wide(&reflections), &r, [m, n, n]), &whole);
    }

    let mut lu = a.to_vec();
    let exchanges = T::lu(&mut lu, m, n);
    let lower = |at: usize| match (at / k).cmp(&(at % k)) {
        std::cmp::Ordering::Less => Complex64::ZERO,
        std::cmp::Ordering::Equal => Complex64::ONE,
        std::cmp::Ordering::Greater => lu[at / k * n + at % k].complex(),
    };
    let l: Matrix = (0..m * k).map(lower).collect();
    assert!(l.iter().all(|x| x.norm() < 1.5));
    let upper = |at: usize| match at / n <= at % n {
        true => lu[at].complex(),
        false => Complex64::ZERO,
    };
    let u: Matrix = (0..k * n).map(upper).collect();
    let mut exchanged = whole.clone();
    for (i, &j) in exchanges.iter().enumerate() {
        (0..n).for_each(|column| exchanged.swap(i * n + column, j * n + column));
    }
    same(&times(&l, &u, [m, k, n]), &exchanged);

    for vectors in [Vectors::Reduced, Vectors::Full] {
        let [rows, columns] = match vectors {
            Vectors::Full => [m, n],
            _ => [k, k],
        };
        let svd = T::svd(a, m, n, vectors).unwrap();
        let s: Matrix = svd.s.iter().map(|&s| s.into()).collect();
        let (u, vh) = (wide(&svd.u), wide(&svd.vh));
        let scaled = times(&u, &diagonal(&s, [rows, columns]), [m, rows, columns]);
        same(&times(&scaled, &vh, [m, columns, n]), &whole);
        same(
            &times(&adjoint(&u, [m, rows]), &u, [rows, m, rows]),
            &identity(rows),
        );
        assert!(svd.s.is_sorted_by(|a, b| a >= b));
        let alone: Matrix = T::svd(a, m, n, Vectors::No)
            .unwrap()
            .s
            .iter()
            .map(|&s| s.into())
            .collect();
        same(&alone, &s);
    }
}

/// The Hermitian matrix of a lower triangle.
fn mirrored<T: Number>(a: &[T], n: usize) -> Vec<T> {
    let element = |at: usize| {
        let (i, j) = (at / n, at % n);
        let x = a[i.max(j) * n + i.min(j)].complex();
        match i.cmp(&j) {
            std::cmp::Ordering::Less => T::new(x.re, -x.im),
            std::cmp::Ordering::Equal => T::new(x.re, 0.0),
            std::cmp::Ordering::Greater => T::new(x.re, x.im),
        }
    };
    (0..n * n).map(element).collect()
}

fn eigenvalues<T: Number>(a: &[T], n: usize, hermitian: bool) {
    let whole = wide(a);
    let size = whole.iter().map(|x| x.norm()).fold(0.0, f64::max);
    let residual = |values: &[Complex64], vectors: &[Complex64]| {
        let scaled = times(vectors, &diagonal(values, [n, n]), [n, n, n]);
        near(&times(&whole, vectors, [n, n, n]), &scaled, size);
    };
    if hermitian {
        let eigen = T::eigh(a, n, true).unwrap();
        let values: Matrix = eigen.values.iter().map(|&w| w.into()).collect();
        let v = wide(&eigen.vectors);
        residual(&values, &v);
        same(&times(&adjoint(&v, [n, n]), &v, [n, n, n]), &identity(n));
        assert!(eigen.values.is_sorted());
        let alone = T::eigh(a, n, false).unwrap().values;
        let alone: Matrix = alone.iter().map(|&w| w.into()).collect();
        near(&alone, &values, size);
    }
    let eigen = T::eig(a, n, true).unwrap();
    residual(&eigen.values, &eigen.vectors);
    let lengths = times(&adjoint(&eigen.vectors, [n, n]), &eigen.vectors, [n, n, n]);
    assert!((0..n).all(|i| (lengths[i * n + i].re - 1.0).abs() < 1e-12));
}

fn squares<T: Number>() {
    for n in [0, 1, 2, 5, 60] {
        let a: Vec<T> = random(n, n);
        let whole = wide(&a);
        let adjoint_of = adjoint(&whole, [n, n]);

        let definite: Vec<T> = (times(&whole, &adjoint_of, [n, n, n]).iter().enumerate())
            .map(|(at, x)| T::new(x.re + f64::from(u8::from(at / n == at % n)), x.im))
            .collect();
        let mut l = definite.clone();
        assert_eq!(T::cholesky(&mut l, n), None);
        let l = wide(&l);
        same(
            &times(&l, &adjoint(&l, [n, n]), [n, n, n]),
            &wide(&definite),
        );

        eigenvalues::<T>(&definite, n, true);
        eigenvalues::<T>(&a, n, false);

        for (upper, unit) in [(false, false), (false, true), (true, false), (true, true)] {
            let part = |at: usize| match (at / n, at % n) {
                (i, j) if i == j && unit => T::new(1.0, 0.0),
                (i, j) if i == j => T::new(4.0 + a[at].complex().re, 1.0),
                (i, j) if (i < j) == upper => T::new(a[at].complex().re / 8.0, 0.0),
                _ => T::new(0.0, 0.0),
            };
            let triangle: Vec<T> = (0..n * n).map(part).collect();
            let b: Vec<T> = random(n, 3);
            let mut x = b.clone();
            T::solve_triangular(&triangle, Triangle { upper, unit }, &mut x, n, 3);
            same(&times(&wide(&triangle), &wide(&x), [n, n, 3]), &wide(&b));
        }

        for hermitian in [false, true] {
            let turned = |x: Complex64| if hermitian { x.conj() } else { x };
            let mirrored = |at: usize| match (at / n).cmp(&(at % n)) {
                std::cmp::Ordering::Less => turned(whole[at % n * n + at / n]),
                std::cmp::Ordering::Equal if hermitian => whole[at].re.into(),
                _ => whole[at],
            };
            let symmetric: Matrix = (0..n * n).map(mirrored).collect();
            let mut factors = a.clone();
            let found = T::ldl(&mut factors, n, hermitian);
            assert_eq!((found.pivots.len(), found.zero), (n, None));
            let b: Vec<T> = random(n, 3);
            let mut x = b.clone();
            let solved = T::ldl_solve(factors, &found.pivots, hermitian, &mut x, [n, 3]);
            assert!(solved.is_some());
            same(&times(&symmetric, &wide(&x), [n, n, 3]), &wide(&b));
        }

        // The exponential of the opposite is the inverse.
        for scale in [0.01, 1.0, 3.0] {
            let by = |factor: f64| -> Matrix {
                let scaled = a.iter().map(|x| x.complex() * factor);
                let mut x: Vec<T> = scaled.map(|x| T::new(x.re, x.im)).collect();
                T::exponential(&mut x, n);
                wide(&x)
            };
            let factor = scale / (n.max(1) as f64).sqrt();
            same(&times(&by(factor), &by(-factor), [n, n, n]), &identity(n));
        }
    }
}

/// Eigenvalues of matrices that are not easy, among them those without enough vectors.
fn eigenvalues_of_hard<T: Number>() {
    for n in [1, 2, 5, 22] {
        for a in hard::<T>(n, n) {
            eigenvalues(&mirrored(&a, n), n, true);
            eigenvalues(&a, n, false);
        }
    }
}

#[test]
fn factors_of_real_matrices() {
    factors::<f64>();
    squares::<f64>();
    eigenvalues_of_hard::<f64>();
}

#[test]
fn factors_of_complex_matrices() {
    factors::<Complex64>();
    squares::<Complex64>();
    eigenvalues_of_hard::<Complex64>();
}

#[test]
fn a_singular_triangle_gives_infinity() {
    let triangle = |upper| Triangle { upper, unit: false };
    // x₁ = 4 / 2, x₀ = (1 − 1 · 2) / 0.
    let mut b = [1.0, 4.0];
    f64::solve_triangular(&[0.0, 1.0, 0.0, 2.0], triangle(true), &mut b, 2, 1);
    assert_eq!(b, [f64::NEG_INFINITY, 2.0]);
    let mut b = [4.0, 1.0];
    f64::solve_triangular(&[2.0, 0.0, 1.0, 0.0], triangle(false), &mut b, 2, 1);
    assert_eq!(b, [2.0, f64::NEG_INFINITY]);
}

#[test]
fn what_is_not_finite_spreads() {
    for x in [f64::NAN, f64::INFINITY] {
        let (q, r) = f64::qr(&[1.0, 2.0, x, 4.0], 2, 2, false);
        assert!(q.iter().all(|x| x.is_nan()) && r[3].is_nan());
        let mut a = [0.0, 1.0, x, 1.0];
        f64::lu(&mut a, 2, 2);
        assert!(!(a[0] * a[3]).is_finite());
    }
}

#[test]
fn what_has_no_factors_is_told() {
    let mut a = [4.0, 9.0, 2.0, -1.0];
    assert_eq!(f64::cholesky(&mut a, 2), Some(2));
    assert_eq!(f64::ldl(&mut [0.0; 4], 2, false).zero, Some(0));
    for pivots in [[3, 1], [0, 1], [1, -2]] {
        let solved = f64::ldl_solve(vec![1.0; 4], &pivots, false, &mut [1.0; 2], [2, 1]);
        assert!(solved.is_none(), "{pivots:?}");
    }
    let a = [1.0, f64::NAN, 0.0, 1.0];
    assert!(f64::svd(&a, 2, 2, Vectors::No).is_err());
    assert!(f64::eig(&a, 2, false).is_err());
    assert!(
        f64::eigh(&a, 2, false).is_ok(),
        "only the lower triangle is read"
    );
    let mut a = a;
    f64::exponential(&mut a, 2);
    assert!(a.iter().all(|x| x.is_nan()));
}

#[test]
fn known_values() {
    // A rotation's eigenvalues are conjugates, the one above the axis first.
    let eigen = f64::eig(&[0.0, -1.0, 1.0, 0.0], 2, false).unwrap();
    same(&eigen.values, &[Complex64::I, -Complex64::I]);
    let mut a = [0.0, -1.0, 1.0, 0.0];
    f64::exponential(&mut a, 2);
    let (sin, cos) = 1f64.sin_cos();
    same(&wide(&a), &wide(&[cos, -sin, sin, cos]));
    // LAPACK's pivots: a block of 2 × 2 where the diagonal is small, the last row taking part in it.
    let mut a = [0.0, 0.0, 0.0, 1.0, 5.0, 0.0, 3.0, 2.0, 0.0];
    assert_eq!(f64::ldl(&mut a, 3, false).pivots, [-3, -3, 3]);
    let third = 1.0 / 3.0;
    let factors = [
        0.0,
        0.0,
        0.0,
        3.0,
        0.0,
        0.0,
        2.0 * third,
        third,
        5.0 - 4.0 * third,
    ];
    same(&wide(&a), &wide(&factors));
    // LAPACK's sign: against that of the column's first element.
    let (_, r) = f64::qr(&[3.0, 0.0, 4.0, 1.0], 2, 2, false);
    assert!((r[0] + 5.0).abs() < 1e-14);
}
