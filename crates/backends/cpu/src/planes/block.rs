//! The product of a panel of `a` with a panel of `b`.

use bytemuck::Zeroable;

use super::pack::{Number, Pair, SIDE};
use crate::cache;
use crate::simd::amx::{Bytes, ROWS, Tiles};

/// A result of 32 rows and columns in f32: the left and the right tile of the upper rows, then
/// those of the lower.
#[derive(Clone, Copy, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Sums([Bytes; 4]);

impl Sums {
    pub(crate) const ZERO: Self = Self([[[0; 64]; ROWS]; 4]);
}

/// Adds the product of two panels, of `P` and `Q` planes, to `sums`, whose old contents do not
/// count if it is the `first`. Meanwhile `ahead` is brought nearer.
///
/// Planes `i` and `j` are multiplied where `i + j` is less than the larger number of planes.
pub(crate) fn multiply_block<const P: usize, const Q: usize>(
    tiles: &mut Tiles,
    a: &[Pair],
    b: &[Pair],
    Sums(sums): &mut Sums,
    first: bool,
    ahead: &[Pair],
) {
    if first {
        tiles.zero::<0>();
        tiles.zero::<1>();
        tiles.zero::<2>();
        tiles.zero::<3>();
    } else {
        tiles.load::<0>(&sums[0]);
        tiles.load::<1>(&sums[1]);
        tiles.load::<2>(&sums[2]);
        tiles.load::<3>(&sums[3]);
    }
    let steps = a.as_chunks::<P>().0.iter().zip(b.as_chunks::<Q>().0);
    let ahead: &[u8] = bytemuck::cast_slice(ahead);
    let mut ahead = ahead.chunks(ahead.len().div_ceil(steps.len().max(1)).max(1));
    for (a, b) in steps {
        cache::prefetch_far(ahead.next().unwrap_or_default());
        let mut loaded = Q;
        for (i, Pair([upper, lower])) in a.iter().enumerate() {
            tiles.load::<4>(upper);
            let count = Q.min(P.max(Q) - i);
            for j in 0..count {
                // To and fro: a plane of `b` that has just been used is there for the next of `a`.
                let plane = if i % 2 == 0 { count - 1 - j } else { j };
                let Pair([left, right]) = &b[plane];
                if Q == 1 && plane != loaded {
                    tiles.load_once::<6>(left);
                } else if plane != loaded {
                    tiles.load::<6>(left);
                }
                tiles.dot_bf16::<0, 4, 6>();
                if Q == 1 && plane != loaded {
                    tiles.load_once::<7>(right);
                } else if plane != loaded {
                    tiles.load::<7>(right);
                }
                tiles.dot_bf16::<1, 4, 7>();
                if j == 0 {
                    tiles.load::<5>(lower);
                }
                tiles.dot_bf16::<2, 5, 6>();
                tiles.dot_bf16::<3, 5, 7>();
                loaded = plane;
            }
        }
    }
    tiles.store::<0>(&mut sums[0]);
    tiles.store::<1>(&mut sums[1]);
    tiles.store::<2>(&mut sums[2]);
    tiles.store::<3>(&mut sums[3]);
}

/// Writes as many `rows` and `columns` as are left of a result to `out`, whose rows are `stride`
/// elements apart.
///
/// # Safety
/// The machine has AVX-512 F and BW, and the elements of `out` are writable and nobody else's.
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) unsafe fn write<T: Number>(
    Sums(sums): &Sums,
    out: *mut T,
    stride: usize,
    [rows, columns]: [usize; 2],
) {
    for row in 0..SIDE.min(rows) {
        for half in 0..2 {
            let lanes: &[f32; 16] = bytemuck::cast_ref(&sums[row / ROWS * 2 + half][row % ROWS]);
            let column = half * ROWS;
            // SAFETY: the row and the columns that are written are of the result.
            unsafe {
                let out = out.add(row * stride + column);
                if column + ROWS <= columns {
                    T::store(lanes, &mut *out.cast());
                } else if column < columns {
                    let mut filled = [T::zeroed(); 16];
                    T::store(lanes, &mut filled);
                    out.copy_from_nonoverlapping(filled.as_ptr(), columns - column);
                }
            }
        }
    }
}
