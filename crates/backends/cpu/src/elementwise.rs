//! Elementwise functions that can be chained in any order: they see blocks of elements as bytes.

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use rustorch_ir::ops::BinaryOp;

use crate::element::Element;
use crate::simd::{from_fn, map};

/// Functions of elementwise operations.
pub(crate) enum Function {
    /// The operand itself.
    Identity,
    /// A constant element.
    Constant(Word),
    /// A function of its operands' elements.
    Loop(Loop),
}

/// An element of any type: its bytes come first.
pub(crate) type Word = [u32; 4];

/// A loop over a block of an operand.
pub(crate) type Loop1<X, Y = X> = fn(&[X], &mut [Y]);

/// A loop over blocks of two operands.
pub(crate) type Loop2<X, Y = X> = fn(&[X], &[X], &mut [Y]);

/// A loop over blocks of three operands.
pub(crate) type Loop3<X> = fn(&[X], &[X], &[X], &mut [X]);

/// A loop over blocks of operands of any types.
type AnyLoop = dyn Fn(&[&[u8]], &mut [u8]) + Send + Sync;

/// A function of elements as a loop over blocks.
pub(crate) struct Loop {
    run: Box<AnyLoop>,
    /// Cost of an element, an addition's being 1.
    pub(crate) work: usize,
    /// May an operand be one element, which stands for all?
    pub(crate) broadcasts: bool,
    /// The operation, if it is one of the four on singles.
    pub(crate) arithmetic: Option<BinaryOp>,
}

impl Loop {
    /// Applies `f` to blocks of operands, each of which may also be one element.
    pub(crate) fn broadcasting<T: Element<Compute = T>, const N: usize>(
        work: usize,
        f: impl Fn([&[T]; N], &mut [T]) + Send + Sync + 'static,
    ) -> Self {
        Self {
            broadcasts: true,
            ..Self::of(work, f)
        }
    }

    /// `f` of blocks of `N` operands of one type.
    fn of<X: Pod, Y: Pod, const N: usize>(
        work: usize,
        f: impl Fn([&[X]; N], &mut [Y]) + Send + Sync + 'static,
    ) -> Self {
        Self::of_bytes(work, move |operands: [&[u8]; N], y| {
            f(map(operands, cast_slice), cast_slice_mut(y));
        })
    }

    /// `f` of the bytes of blocks of `N` operands.
    fn of_bytes<const N: usize>(
        work: usize,
        f: impl Fn([&[u8]; N], &mut [u8]) + Send + Sync + 'static,
    ) -> Self {
        let run = move |operands: &[&[u8]], y: &mut [u8]| {
            f(from_fn(|i| operands[i]), y);
        };
        Self {
            run: Box::new(run),
            work,
            broadcasts: false,
            arithmetic: None,
        }
    }

    /// Computes the elements of a block from those of the operands, which are as many.
    pub(crate) fn run(&self, operands: &[&[u8]], out: &mut [u8]) {
        (self.run)(operands, out);
    }
}

/// Elements that are converted together to be computed with.
const CHUNK: usize = 256;

/// Number of elements that a function gets at a time.
const fn chunk<X: Element, Y: Element>() -> usize {
    if X::CONVERTED || Y::CONVERTED {
        CHUNK
    } else {
        usize::MAX
    }
}

impl Function {
    /// `value` everywhere.
    pub(crate) fn constant<T: Pod>(value: T) -> Self {
        let mut word = Word::zeroed();
        bytemuck::bytes_of_mut(&mut word)[..size_of::<T>()]
            .copy_from_slice(bytemuck::bytes_of(&value));
        Self::Constant(word)
    }

    /// `y = f(x)`, of an element costing `work`.
    pub(crate) fn unary<X: Element, Y: Element>(
        work: usize,
        f: Loop1<X::Compute, Y::Compute>,
    ) -> Self {
        Self::of(work, move |[x]: [&[X]; 1], y: &mut [Y]| {
            let mut wide = [X::Compute::zeroed(); CHUNK];
            let mut results = [Y::Compute::zeroed(); CHUNK];
            let chunk = chunk::<X, Y>();
            for (x, y) in x.chunks(chunk).zip(y.chunks_mut(chunk)) {
                let x = X::widen(x, &mut wide);
                Y::write(y, &mut results, |y| f(x, y));
            }
        })
    }

    /// `y = f(a, b)`, of an element costing `work`.
    pub(crate) fn binary<X: Element, Y: Element>(
        work: usize,
        f: Loop2<X::Compute, Y::Compute>,
    ) -> Self {
        Self::of(work, move |[a, b]: [&[X]; 2], y: &mut [Y]| {
            let mut wide = [[X::Compute::zeroed(); CHUNK]; 2];
            let mut results = [Y::Compute::zeroed(); CHUNK];
            let chunk = chunk::<X, Y>();
            let operands = a.chunks(chunk).zip(b.chunks(chunk));
            for ((a, b), y) in operands.zip(y.chunks_mut(chunk)) {
                let [wide_a, wide_b] = &mut wide;
                let (a, b) = (X::widen(a, wide_a), X::widen(b, wide_b));
                Y::write(y, &mut results, |y| f(a, b, y));
            }
        })
    }

    /// Applies `f` to blocks of operands, each of which may also be one element.
    pub(crate) fn broadcasting<T: Element<Compute = T>, const N: usize>(
        work: usize,
        f: impl Fn([&[T]; N], &mut [T]) + Send + Sync + 'static,
    ) -> Self {
        Self::Loop(Loop::broadcasting(work, f))
    }

    /// One of the four operations on singles, of operands that may also be one element.
    pub(crate) fn arithmetic(op: BinaryOp, f: Loop2<f32>) -> Self {
        Self::Loop(Loop {
            arithmetic: Some(op),
            ..Loop::broadcasting(1, move |[a, b], y: &mut [f32]| f(a, b, y))
        })
    }

    /// `y = f(a, b, c)`, of an element costing `work`.
    pub(crate) fn ternary<X: Element>(work: usize, f: Loop3<X::Compute>) -> Self {
        Self::of(work, move |operands: [&[X]; 3], y: &mut [X]| {
            let mut wide = [[X::Compute::zeroed(); CHUNK]; 3];
            let mut results = [X::Compute::zeroed(); CHUNK];
            let chunk = chunk::<X, X>();
            for (at, y) in y.chunks_mut(chunk).enumerate() {
                let start = at * chunk.min(CHUNK);
                let [a, b, c] = map(operands, |x| &x[start..start + y.len()]);
                let [wide_a, wide_b, wide_c] = &mut wide;
                let (a, b) = (X::widen(a, wide_a), X::widen(b, wide_b));
                let c = X::widen(c, wide_c);
                X::write(y, &mut results, |y| f(a, b, c, y));
            }
        })
    }

    /// `f` of blocks of `N` operands of one type.
    pub(crate) fn of<X: Pod, Y: Pod, const N: usize>(
        work: usize,
        f: impl Fn([&[X]; N], &mut [Y]) + Send + Sync + 'static,
    ) -> Self {
        Self::Loop(Loop::of(work, f))
    }

    /// `f` of the bytes of blocks of `N` operands.
    pub(crate) fn of_bytes<const N: usize>(
        work: usize,
        f: impl Fn([&[u8]; N], &mut [u8]) + Send + Sync + 'static,
    ) -> Self {
        Self::Loop(Loop::of_bytes(work, f))
    }
}
