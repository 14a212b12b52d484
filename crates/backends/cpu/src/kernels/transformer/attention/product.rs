//! Products of a few rows with a block of the cache, in registers.

use crate::simd::{Simd, from_fn};

/// Lanes of a vector.
pub(super) const LANES: usize = 16;

/// A row of a left factor: as many of its elements count as the right factor has rows. All have
/// one length, so that their distance is a constant of the instructions.
pub(super) type Left = [f32; 128];

/// 16 columns of a right factor, its rows one after the other.
pub(super) type Panel = [[f32; LANES]];

/// `out = a · panels`, or `out += a · panels` if `add`. The panels have `depth` rows; rows of
/// `out` lie `width` elements apart.
///
/// Each element is one chain of multiply-adds down the panel, however rows are grouped.
#[inline(always)]
pub(super) fn multiply<S: Simd>(
    s: S,
    a: &[Left],
    (panels, depth): (&Panel, usize),
    (out, width): (&mut [f32], usize),
    add: bool,
) {
    // Registers hold so many sums beside the operands of a step.
    if S::TOKENS > 2 {
        by_panels::<S, 8, 2>(s, a, (panels, depth), (out, width), add);
    } else {
        by_panels::<S, 4, 1>(s, a, (panels, depth), (out, width), add);
    }
}

/// Goes through the panels, `P` at a time, and then one.
#[inline(always)]
fn by_panels<S: Simd, const R: usize, const P: usize>(
    s: S,
    a: &[Left],
    (panels, depth): (&Panel, usize),
    (out, width): (&mut [f32], usize),
    add: bool,
) {
    let count = panels.len() / depth;
    let together = count / P * P;
    for first in (0..together).step_by(P) {
        let panels = from_fn(|i| &panels[(first + i) * depth..][..depth]);
        by_rows::<S, R, P>(s, a, panels, (&mut out[first * LANES..], width), add);
    }
    for first in together..count {
        let panels = [&panels[first * depth..][..depth]];
        by_rows::<S, R, 1>(s, a, panels, (&mut out[first * LANES..], width), add);
    }
}

/// Goes through the rows, `R` at a time, and then fewer.
#[inline(always)]
fn by_rows<S: Simd, const R: usize, const P: usize>(
    s: S,
    mut a: &[Left],
    panels: [&Panel; P],
    (mut out, width): (&mut [f32], usize),
    add: bool,
) {
    loop {
        let rows = match a.len() {
            0 => return,
            left if left >= R => block::<S, R, P>(s, a, panels, (out, width), add),
            4.. => block::<S, 4, P>(s, a, panels, (out, width), add),
            2.. => block::<S, 2, P>(s, a, panels, (out, width), add),
            _ => block::<S, 1, P>(s, a, panels, (out, width), add),
        };
        a = &a[rows..];
        if a.is_empty() {
            return;
        }
        out = &mut out[rows * width..];
    }
}

/// The product of the first `R` rows with `P` panels. Returns `R`.
#[inline(always)]
fn block<S: Simd, const R: usize, const P: usize>(
    s: S,
    a: &[Left],
    panels: [&Panel; P],
    (out, width): (&mut [f32], usize),
    add: bool,
) -> usize {
    let (a, _) = a.as_chunks::<R>();
    let a = &a[0];
    let depth = panels[0].len().min(a[0].len());
    let panels = panels.map(|panel| &panel[..depth]);
    let mut sums = [[s.splat_f32(0.0); P]; R];
    for i in 0..depth {
        let mut b = [s.splat_f32(0.0); P];
        for (b, panel) in b.iter_mut().zip(panels) {
            *b = s.load_f32(&panel[i]);
        }
        for (sums, a) in sums.iter_mut().zip(a) {
            let a = s.splat_f32(a[i]);
            for (sum, b) in sums.iter_mut().zip(b) {
                *sum = s.mul_add(*sum, a, b);
            }
        }
    }
    for (r, sums) in sums.into_iter().enumerate() {
        let out = &mut out[r * width..][..P * LANES];
        for (sum, out) in sums.into_iter().zip(out.as_chunks_mut::<LANES>().0) {
            let sum = match add {
                true => s.add_f32(s.load_f32(out), sum),
                false => sum,
            };
            s.store_f32(sum, out);
        }
    }
    R
}
