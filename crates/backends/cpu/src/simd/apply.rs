//! Functions of elements, compiled for each level.

use num_traits::Float;

use super::{Kernel, Level, Simd};

/// How products are added: by the instruction that rounds once, at the levels that have it.
#[derive(Clone, Copy)]
pub(crate) struct Arithmetic {
    fused: bool,
}

impl Arithmetic {
    /// That of a level. A constant, so that no loop looks at it.
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
    /// Elements for which one is repeated at a time.
    const CHUNK: usize = 256;
    if let (&[b], &[c]) = (b, c) {
        return match a {
            &[a] => y.fill(f(a, b, c)),
            a => apply(a, y, move |a| f(a, b, c)),
        };
    }
    if [a, b, c].iter().all(|x| x.len() == y.len()) {
        return apply3(a, b, c, y, f);
    }
    let repeated = [a, b, c].map(|x| [x[0]; CHUNK]);
    for (at, y) in y.chunks_mut(CHUNK).enumerate() {
        let part = |i: usize| match [a, b, c][i] {
            &[_] => &repeated[i][..y.len()],
            x => &x[at * CHUNK..][..y.len()],
        };
        let [a, b, c] = [part(0), part(1), part(2)];
        apply3(a, b, c, y, &f);
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
