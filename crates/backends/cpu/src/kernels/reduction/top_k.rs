//! The largest or smallest elements of each line, in order, and their places.

use std::collections::BinaryHeap;
use std::ops::{BitXor, Not};

use rustorch_ir::{Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};
use smallvec::SmallVec;

use crate::element::with_type;
use crate::index::{Check, Indices, take};
use crate::kernel::{Args, Misuse};
use crate::launch::Launch;
use crate::lines::map_lines_to;
use crate::reader::Reader;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::TopK,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

/// Cost of an element beside an addition.
const WORK: usize = 16;

/// Elements that are looked at together.
const CHUNK: usize = 16;

/// Number of elements that are kept in order during the search. An insertion moves few then, and is faster than
/// one in a heap.
const FEW: usize = 32;

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(args: Args) -> Result<(), Misuse> {
    let Op::TopK(op) = args.op else {
        return Err(Misuse("not a top_k".to_owned()));
    };
    let Args {
        pool,
        inputs: [x],
        output: mut values,
        mut others,
        ..
    } = args
    else {
        return Err(Misuse("top_k has one operand".to_owned()));
    };
    let [indices] = &mut others[..] else {
        return Err(Misuse("top_k has two results".to_owned()));
    };
    let shape = values.ty.shape.clone();
    with_type!(x.dtype(), reals T => {
        map_lines_to::<T, i64>(pool, x, indices, op.dim, WORK, &|x, y| top(x, op.largest, y));
        Ok(())
    })?;
    // They are of the lines.
    let check = Check::new(x.shape()[op.dim]);
    let picks = Indices::Wide(Reader::of(indices.data(), &Layout::contiguous(&shape)));
    with_type!(x.dtype(), words T => {
        take::<T>(pool, values.data(), &shape, x, op.dim, &picks, &check);
        Ok(())
    })
}

/// A number that stands for an element: the less, the less the element is. NaN is the largest, and
/// zeros of either sign are one.
pub(in crate::kernels) trait Keyed: Copy {
    type Key: Ord + Copy + Default + Not<Output = Self::Key> + BitXor<Output = Self::Key>;
    /// Holds a key and a place of 32 bits.
    type Narrow: Packed<Self::Key>;

    fn key(self) -> Self::Key;
}

macro_rules! keyed {
    ($($type:ty, $key:ty, $narrow:ty: $x:ident => $of:expr;)+) => {$(
        impl Keyed for $type {
            type Key = $key;
            type Narrow = $narrow;

            #[inline(always)]
            fn key(self) -> $key {
                let $x = self;
                $of
            }
        }
    )+};
}

keyed! {
    f64, u64, u128: x => {
        let bits = (x + 0.0).to_bits();
        let ordered = bits ^ ((bits as i64 >> 63) as u64 | 1 << 63);
        if x.is_nan() { u64::MAX } else { ordered }
    };
    f32, u32, u64: x => {
        let bits = (x + 0.0).to_bits();
        let ordered = bits ^ ((bits as i32 >> 31) as u32 | 1 << 31);
        if x.is_nan() { u32::MAX } else { ordered }
    };
    i64, u64, u128: x => x as u64 ^ 1 << 63;
    i32, u32, u64: x => x as u32 ^ 1 << 31;
    i16, u32, u64: x => i32::from(x).key();
    i8, u32, u64: x => i32::from(x).key();
    u8, u32, u64: x => x.into();
    u16, u32, u64: x => x.into();
    u32, u32, u64: x => x;
    u64, u64, u128: x => x;
}

/// A key and, for those that are equal, the place of the element: one number, which is compared
/// fast.
pub(in crate::kernels) trait Packed<K>: Ord + Copy + Send + Sync {
    /// The number without bits.
    const ZERO: Self;
    /// Number of bits of key and place.
    const BITS: u32;

    fn new(key: K, place: usize) -> Self;
    fn key(self) -> K;
    fn place(self) -> i64;
    /// The bits from the one of this number on.
    fn above(self, bit: u32) -> Self;
    /// The lowest of them.
    fn low(self, bits: u32) -> usize;
    /// These bits, followed by `bits` bits of a number.
    fn then(self, number: usize, bits: u32) -> Self;
}

macro_rules! packed {
    ($($type:ty, $key:ty, $place:ty;)+) => {$(
        impl Packed<$key> for $type {
            const ZERO: Self = 0;
            const BITS: u32 = <$key>::BITS + <$place>::BITS;

            #[inline(always)]
            fn new(key: $key, place: usize) -> Self {
                Self::from(key) << <$place>::BITS | Self::from(place as $place)
            }

            #[inline(always)]
            fn key(self) -> $key {
                (self >> <$place>::BITS) as $key
            }

            #[inline(always)]
            fn place(self) -> i64 {
                self as $place as i64
            }

            #[inline(always)]
            fn above(self, bit: u32) -> Self {
                self.checked_shr(bit).unwrap_or(0)
            }

            #[inline(always)]
            fn low(self, bits: u32) -> usize {
                self as usize & ((1 << bits) - 1)
            }

            #[inline(always)]
            fn then(self, number: usize, bits: u32) -> Self {
                (self << bits) | number as Self
            }
        }
    )+};
}

packed! {
    u64, u32, u32;
    u128, u32, u64;
    u128, u64, u64;
}

/// The places in `x` of the `best.len()` best elements.
fn top<T: Keyed>(x: &[T], largest: bool, best: &mut [i64])
where
    u128: Packed<T::Key>,
{
    match u32::try_from(x.len()) {
        Ok(_) => top_by::<T, T::Narrow>(x, largest, best),
        Err(_) => top_by::<T, u128>(x, largest, best),
    }
}

fn top_by<T: Keyed, P: Packed<T::Key>>(x: &[T], largest: bool, best: &mut [i64]) {
    let none = T::Key::default();
    let flipped = if largest { !none } else { none };
    // The best has the least.
    let key = |x: T| x.key() ^ flipped;
    let k = best.len();
    let pack = |(place, &x): (usize, &T)| P::new(key(x), place);
    if 2 * k >= x.len() {
        let mut all: Vec<P> = x.iter().enumerate().map(pack).collect();
        all.sort_unstable();
        write(&all, best);
    } else if k <= FEW {
        let mut few: SmallVec<[P; FEW]> = x[..k].iter().enumerate().map(pack).collect();
        few.sort_unstable();
        let Some(worst) = few.last().map(|worst| worst.key()) else {
            return;
        };
        better(&x[k..], worst, key, |place, x| {
            let candidate = pack((k + place, &x));
            let mut at = k - 1;
            while at > 0 && candidate < few[at - 1] {
                few[at] = few[at - 1];
                at -= 1;
            }
            few[at] = candidate;
            few[k - 1].key()
        });
        write(&few, best);
    } else {
        // The best so far, of which the worst is on top.
        let mut heap: BinaryHeap<P> = x[..k].iter().enumerate().map(pack).collect();
        let Some(worst) = heap.peek().map(|worst| worst.key()) else {
            return;
        };
        better(&x[k..], worst, key, |place, x| {
            let candidate = pack((k + place, &x));
            if let Some(mut worst) = heap.peek_mut() {
                *worst = candidate;
            }
            heap.peek().map_or(worst, |worst| worst.key())
        });
        write(&heap.into_sorted_vec(), best);
    }
}

/// Writes the places of elements in order.
fn write<K, P: Packed<K>>(sorted: &[P], best: &mut [i64]) {
    for (best, packed) in best.iter_mut().zip(sorted) {
        *best = packed.place();
    }
}

/// Offers each element whose key is less than that of the worst so far, with its place. `offer` takes it in and
/// returns the key of the worst from then on. Among equal ones the first is better, so a later one is not
/// offered.
#[inline(always)]
fn better<T: Copy, K: Ord + Copy>(
    x: &[T],
    mut worst: K,
    key: impl Fn(T) -> K,
    mut offer: impl FnMut(usize, T) -> K,
) {
    for (i, chunk) in x.chunks(CHUNK).enumerate() {
        if !chunk.iter().fold(false, |any, &x| any | (key(x) < worst)) {
            continue;
        }
        for (place, &x) in (i * CHUNK..).zip(chunk) {
            if key(x) < worst {
                worst = offer(place, x);
            }
        }
    }
}
