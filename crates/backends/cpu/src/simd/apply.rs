//! Functions of elements, compiled for each level.

use num_traits::Float;

use super::{Kernel, Level, Simd};

/// Addition of products: by the instruction that rounds once, at the levels that have it.
#[derive(Clone, Copy)]
pub(crate) struct Arithmetic {
    fused: bool,
}

impl Arithmetic {
    /// The arithmetic of a level. A constant, so that no loop looks at it.
    #[inline(always)]
    pub(crate) fn of<S: Simd>(_: S) -> Self {
        Self { fused: S::FUSED }
    }

    /// `a · b + c`
    #[inline(always)]
    pub(crate) fn mul_add<T: Float>(self, a: T, b: T, c: T) -> T {
        match self.fused {
            true => a.mul_add(b, c),
            false => a * b + c,
        }
    }

    /// `c₀ + c₁ x + c₂ x² + …`
    #[inline(always)]
    pub(crate) fn polynomial<T: Float, const N: usize>(self, x: T, coefficients: [T; N]) -> T {
        let (lower, highest) = (&coefficients[..N - 1], coefficients[N - 1]);
        let terms = lower.iter().rev();
        terms.fold(highest, |sum, &c| self.mul_add(sum, x, c))
    }
}

/// `y[i] = f(x[i])` with the machine's best vector instructions.
pub(crate) fn apply<X: Copy, Y>(x: &[X], y: &mut [Y], f: impl Fn(X) -> Y) {
    apply_function(x, y, |_, x| f(x));
}

/// `y[i] = f(x[i])` with the machine's best vector instructions, of a function that is made of
/// products and sums.
pub(crate) fn apply_function<X: Copy, Y>(x: &[X], y: &mut [Y], f: impl Fn(Arithmetic, X) -> Y) {
    apply_at(Level::current(), x, y, f);
}

/// [`apply_function`] with the vector instructions of a level.
pub(crate) fn apply_at<X: Copy, Y>(
    level: Level,
    x: &[X],
    y: &mut [Y],
    f: impl Fn(Arithmetic, X) -> Y,
) {
    let x = x.iter().copied();
    level.run(Apply { x, y, f });
}

/// `y[i] = f(a[i], b[i])` with the machine's best vector instructions.
pub(crate) fn apply2<A: Copy, B: Copy, Y>(a: &[A], b: &[B], y: &mut [Y], f: impl Fn(A, B) -> Y) {
    apply2_at(Level::current(), a, b, y, |_, a, b| f(a, b));
}

/// `y[i] = f(a[i], b[i])` of a function without vector instructions. So it is not compiled for each level.
pub(crate) fn each2<A: Copy, B: Copy, Y>(a: &[A], b: &[B], y: &mut [Y], f: impl Fn(A, B) -> Y) {
    for ((&a, &b), y) in a.iter().zip(b).zip(y) {
        *y = f(a, b);
    }
}

/// [`apply2`] where `a` or `b` may be one element, which stands for all.
pub(crate) fn apply2_broadcast<T: Copy>(a: &[T], b: &[T], y: &mut [T], f: impl Fn(T, T) -> T) {
    match (a, b) {
        (a, b) if a.len() == b.len() && a.len() == y.len() => apply2(a, b, y, f),
        (&[a], &[b]) => y.fill(f(a, b)),
        (&[a], b) => apply(b, y, move |b| f(a, b)),
        (a, &[b]) => apply(a, y, move |a| f(a, b)),
        (a, b) => apply2(a, b, y, f),
    }
}

/// [`apply3`] where each of `a`, `b` and `c` may be one element, which stands for all.
pub(crate) fn apply3_broadcast<T: Copy>(
    a: &[T],
    b: &[T],
    c: &[T],
    y: &mut [T],
    f: impl Fn(T, T, T) -> T,
) {
    match (a, b, c) {
        (&[a], &[b], &[c]) => y.fill(f(a, b, c)),
        (a, &[b], &[c]) => apply(a, y, move |a| f(a, b, c)),
        _ => by_chunks([a, b, c], y, |[a, b, c], y| apply3(a, b, c, y, &f)),
    }
}

/// `y[i] = f(a[i], b[i], c[i], d[i])` with the machine's best vector instructions, where each of the four may be
/// one element, which stands for all.
pub(crate) fn apply4_broadcast<T: Copy>(
    operands: [&[T]; 4],
    y: &mut [T],
    f: impl Fn(T, T, T, T) -> T,
) {
    match operands {
        [a, b, c, &[d]] if [a, b, c].iter().all(|x| x.len() == y.len()) => {
            apply3(a, b, c, y, move |a, b, c| f(a, b, c, d));
        }
        _ => by_chunks(operands, y, |[a, b, c, d], y| {
            let ends = c.iter().copied().zip(d.iter().copied());
            let x = a.iter().copied().zip(b.iter().copied()).zip(ends);
            let f = |_, ((a, b), (c, d))| f(a, b, c, d);
            Level::current().run(Apply { x, y, f });
        }),
    }
}

/// Calls `apply` with operands as long as `y`; an operand of one element is repeated.
fn by_chunks<T: Copy, const N: usize>(
    operands: [&[T]; N],
    y: &mut [T],
    apply: impl Fn([&[T]; N], &mut [T]),
) {
    /// Elements for which one is repeated at a time.
    const CHUNK: usize = 256;
    if operands.iter().all(|x| x.len() == y.len()) {
        return apply(operands, y);
    }
    let repeated = operands.map(|x| [x[0]; CHUNK]);
    for (at, y) in y.chunks_mut(CHUNK).enumerate() {
        let part = |i: usize| match operands[i] {
            &[_] => &repeated[i][..y.len()],
            x => &x[at * CHUNK..][..y.len()],
        };
        apply(std::array::from_fn(part), y);
    }
}

/// Singles in rows: element `j` of row `i` is at `i · far + j · near`, and `near` is 0 or 1.
#[derive(Clone, Copy)]
pub(crate) struct Strided<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) far: usize,
    pub(crate) near: usize,
}

/// `y = f(a, b)` of each element of rows of `width` with the machine's best vector instructions.
pub(crate) fn apply2_rows(
    a: Strided,
    b: Strided,
    width: usize,
    y: &mut [f32],
    f: impl Fn(f32, f32) -> f32,
) {
    Level::current().run(ApplyRows { a, b, width, y, f });
}

struct ApplyRows<'a, F> {
    a: Strided<'a>,
    b: Strided<'a>,
    width: usize,
    y: &'a mut [f32],
    f: F,
}

impl<F: Fn(f32, f32) -> f32> Kernel for ApplyRows<'_, F> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self { width, f, .. } = self;
        for (i, y) in self.y.chunks_exact_mut(width).enumerate() {
            let (a, b) = (
                &self.a.data[i * self.a.far..],
                &self.b.data[i * self.b.far..],
            );
            match (self.a.near, self.b.near) {
                (0, 0) => y.fill(f(a[0], b[0])),
                (0, _) => {
                    let a = a[0];
                    y.iter_mut()
                        .zip(&b[..width])
                        .for_each(|(y, &b)| *y = f(a, b));
                }
                (_, 0) => {
                    let b = b[0];
                    y.iter_mut()
                        .zip(&a[..width])
                        .for_each(|(y, &a)| *y = f(a, b));
                }
                _ => {
                    let x = a[..width].iter().zip(&b[..width]);
                    y.iter_mut().zip(x).for_each(|(y, (&a, &b))| *y = f(a, b));
                }
            }
        }
    }
}

/// `y[i] = f(a[i], b[i])` with the vector instructions of a level, of a function that is made of
/// products and sums.
pub(crate) fn apply2_at<A: Copy, B: Copy, Y>(
    level: Level,
    a: &[A],
    b: &[B],
    y: &mut [Y],
    f: impl Fn(Arithmetic, A, B) -> Y,
) {
    let x = a.iter().copied().zip(b.iter().copied());
    let f = |m, (a, b)| f(m, a, b);
    level.run(Apply { x, y, f });
}

/// `y[i] = f(a[i], b[i], c[i])` with the machine's best vector instructions.
pub(crate) fn apply3<A: Copy, B: Copy, C: Copy, Y>(
    a: &[A],
    b: &[B],
    c: &[C],
    y: &mut [Y],
    f: impl Fn(A, B, C) -> Y,
) {
    let x = a
        .iter()
        .copied()
        .zip(b.iter().copied().zip(c.iter().copied()));
    let f = |_, (a, (b, c))| f(a, b, c);
    Level::current().run(Apply { x, y, f });
}

/// Does `f` hold of all elements?
pub(crate) fn all<X: Copy>(x: &[X], f: impl Fn(X) -> bool) -> bool {
    let mut all = true;
    Level::current().run(All {
        x,
        f,
        all: &mut all,
    });
    all
}

struct All<'a, X, F> {
    x: &'a [X],
    f: F,
    all: &'a mut bool,
}

impl<X: Copy, F: Fn(X) -> bool> Kernel for All<'_, X, F> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        *self.all = self.x.iter().fold(true, |all, &x| all & (self.f)(x));
    }
}

struct Apply<'a, X, Y, F> {
    x: X,
    y: &'a mut [Y],
    f: F,
}

impl<X: Iterator, Y, F: Fn(Arithmetic, X::Item) -> Y> Kernel for Apply<'_, X, Y, F> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let m = Arithmetic::of(s);
        for (y, x) in self.y.iter_mut().zip(self.x) {
            *y = (self.f)(m, x);
        }
    }
}
