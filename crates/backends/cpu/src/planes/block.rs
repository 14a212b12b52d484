//! The product of a panel of `a` with a panel of `b`.

use std::arch::x86_64::*;
use std::mem::transmute;

use bytemuck::Zeroable;

use super::pack::{Number, Pair, SIDE};
use crate::cache;
use crate::simd::amx::{Bytes, ROWS, Tiles};
use crate::simd::{Amx, Avx512, Bf16, from_fn};

/// A result of 32 rows and columns in f32: the left and the right tile of the upper rows, then
/// those of the lower.
#[derive(Clone, Copy, Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Sums([Bytes; 4]);

impl Sums {
    pub(crate) const ZERO: Self = Self([[[0; 64]; ROWS]; 4]);
}

/// A unit that multiplies panels.
pub(crate) trait Unit: Copy + Sync {
    /// State of a thread for it.
    type Tiles;

    /// The machine's vector unit.
    fn vectors(self) -> Avx512;

    /// Gives them to this thread, until the result is dropped.
    ///
    /// # Safety
    /// The thread has no others at the same time.
    unsafe fn tiles(self) -> Self::Tiles;

    /// Adds the product of two panels, of `P` and `Q` planes, to `sums`. If it is the `first`,
    /// their old contents do not count. Meanwhile `ahead` may be brought nearer.
    ///
    /// Planes `i` and `j` are multiplied where `i + j` is less than the larger number of planes.
    fn multiply<const P: usize, const Q: usize>(
        self,
        tiles: &mut Self::Tiles,
        panels: [&[Pair]; 2],
        sums: &mut Sums,
        first: bool,
        ahead: &[Pair],
    );
}

impl Unit for Amx {
    type Tiles = Tiles;

    fn vectors(self) -> Avx512 {
        self.vectors()
    }

    unsafe fn tiles(self) -> Tiles {
        // SAFETY: promised by the caller.
        unsafe { self.tiles() }
    }

    fn multiply<const P: usize, const Q: usize>(
        self,
        tiles: &mut Tiles,
        [a, b]: [&[Pair]; 2],
        sums: &mut Sums,
        first: bool,
        ahead: &[Pair],
    ) {
        multiply_tiles::<P, Q>(tiles, a, b, sums, first, ahead);
    }
}

impl Unit for Bf16 {
    type Tiles = ();

    fn vectors(self) -> Avx512 {
        self.vectors()
    }

    unsafe fn tiles(self) {}

    fn multiply<const P: usize, const Q: usize>(
        self,
        (): &mut (),
        [a, b]: [&[Pair]; 2],
        sums: &mut Sums,
        first: bool,
        _: &[Pair],
    ) {
        // SAFETY: `self` proves that the machine has the instructions.
        unsafe { multiply_vectors::<P, Q>(a, b, sums, first) };
    }
}

/// [`Unit::multiply`] by tiles.
fn multiply_tiles<const P: usize, const Q: usize>(
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

/// [`Unit::multiply`] by vectors: a word of `a` meets a row of `b`'s tiles.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn multiply_vectors<const P: usize, const Q: usize>(
    a: &[Pair],
    b: &[Pair],
    Sums(sums): &mut Sums,
    first: bool,
) {
    /// Rows whose sums are in registers.
    const R: usize = 8;
    for start in (0..SIDE).step_by(R) {
        let (half, row) = (start / ROWS, start % ROWS);
        let mut lanes = [[_mm512_setzero_ps(); 2]; R];
        if !first {
            for (i, lanes) in lanes.iter_mut().enumerate() {
                for (j, lanes) in lanes.iter_mut().enumerate() {
                    let sums = &sums[2 * half + j][row + i];
                    // SAFETY: the reference is to all bytes.
                    *lanes = unsafe { _mm512_loadu_ps(sums.as_ptr().cast()) };
                }
            }
        }
        let steps = a.as_chunks::<P>().0.iter().zip(b.as_chunks::<Q>().0);
        for (a, b) in steps {
            for (i, Pair(a)) in a.iter().enumerate() {
                let words: [&[i32; ROWS]; R] = from_fn(|i| bytemuck::cast_ref(&a[half][row + i]));
                for Pair([left, right]) in &b[..Q.min(P.max(Q) - i)] {
                    for (k, columns) in left.iter().zip(right).enumerate() {
                        // SAFETY: the references are to all bytes.
                        let columns = [columns.0, columns.1]
                            .map(|row| unsafe { bf16(_mm512_loadu_si512(row.as_ptr().cast())) });
                        for (lanes, words) in lanes.iter_mut().zip(&words) {
                            let word = bf16(_mm512_set1_epi32(words[k]));
                            for (lanes, columns) in lanes.iter_mut().zip(columns) {
                                *lanes = _mm512_dpbf16_ps(*lanes, word, columns);
                            }
                        }
                    }
                }
            }
        }
        for (i, lanes) in lanes.into_iter().enumerate() {
            for (j, lanes) in lanes.into_iter().enumerate() {
                let sums = &mut sums[2 * half + j][row + i];
                // SAFETY: the reference is to all bytes.
                unsafe { _mm512_storeu_ps(sums.as_mut_ptr().cast(), lanes) };
            }
        }
    }
}

/// The lanes as pairs of bf16.
#[inline]
#[target_feature(enable = "avx512f")]
fn bf16(lanes: __m512i) -> __m512bh {
    // SAFETY: both are any 64 bytes.
    unsafe { transmute(lanes) }
}

/// Writes as many `rows` and `columns` as are left of a result to `out`, whose rows are `stride`
/// elements apart.
///
/// # Safety
/// The machine has AVX-512 F and BW. The elements of `out` are writable, and no other thread uses
/// them.
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
