//! The sums of windows, many at a time.

use std::ops::Range;

use crate::kernel::SharedMut;
use crate::simd::{Kernel, Simd, from_fn};

/// Results that are computed together, at most.
pub(super) const ROWS: usize = 8;

/// Lanes that are computed together, at most, and so read past the last window.
pub(super) const LANES: usize = 8 * 16;

/// Products that are added up one after the other, at most: those of 32 channels in windows of 3 by 3. Longer sums add
/// up sums of such chains: each addition rounds, later ones more.
const CHAIN: usize = 288;

/// Number of channels that are computed together, of `outputs`.
pub(super) struct Together<'a> {
    pub(super) outputs: usize,
    pub(super) answer: &'a mut usize,
}

impl Kernel for Together<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        *self.answer = match (S::SUMS, self.outputs) {
            (_, outputs @ 0..=2) => outputs.max(1),
            (24.., 5..) => ROWS,
            _ => 4,
        };
    }
}

/// Windows, and some channels of the result.
pub(super) struct Tiles<'a> {
    /// Elements that windows see, with room for lanes past the last one.
    pub(super) image: &'a [f32],
    /// Offsets in it of the first window's elements.
    pub(super) offsets: &'a [usize],
    /// From one row of windows to the next.
    pub(super) width: usize,
    /// Windows in a row.
    pub(super) across: usize,
    /// The places of windows that are computed, without those behind a row.
    pub(super) places: Range<usize>,
    /// Channels that are computed together.
    pub(super) together: usize,
    /// The weights of a group of channels beside each other, again and again.
    pub(super) weights: &'a [f32],
    /// The channels.
    pub(super) outputs: Range<usize>,
    /// One for each of all channels.
    pub(super) bias: Option<&'a [f32]>,
    /// The results.
    pub(super) out: &'a SharedMut<'a, f32>,
    /// Starts of the results of each row of windows, in the first of all channels.
    pub(super) rows: &'a [usize],
    /// From one result of a row to the next.
    pub(super) step: usize,
    /// From one channel to the next.
    pub(super) pixels: usize,
}

impl Kernel for Tiles<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match (S::SUMS, self.together) {
            (24.., 1) => self.blocks::<S, 1, 8>(s),
            (24.., 2) => self.blocks::<S, 2, 8>(s),
            (24.., 4) => self.blocks::<S, 4, 6>(s),
            (24.., _) => self.blocks::<S, ROWS, 3>(s),
            (_, 1) => self.blocks::<S, 1, 3>(s),
            (_, 2) => self.blocks::<S, 2, 2>(s),
            _ => self.blocks::<S, 4, 1>(s),
        }
    }
}

impl Tiles<'_> {
    /// Computes `R` channels of `T` vectors of windows at a time.
    #[inline(always)]
    fn blocks<S: Simd, const R: usize, const T: usize>(&self, s: S) {
        let inner = self.offsets.len();
        for first in self.outputs.clone().step_by(R) {
            let block = (first - self.outputs.start) * inner;
            let (weights, _) = self.weights[block..][..R * inner].as_chunks::<R>();
            let mut at = self.places.start;
            while at < self.places.end {
                // The last ones are computed by as few vectors as there are.
                at += match (self.places.end - at).div_ceil(16) {
                    1 => self.tile::<S, R, 1>(s, at, weights, first),
                    2 if T > 2 => self.tile::<S, R, 2>(s, at, weights, first),
                    _ => self.tile::<S, R, T>(s, at, weights, first),
                };
            }
        }
    }

    /// The sums of windows from `at` on for channels from `first` on, and how many windows these are.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const T: usize>(
        &self,
        s: S,
        at: usize,
        weights: &[[f32; R]],
        first: usize,
    ) -> usize {
        let channels = R.min(self.outputs.end - first);
        let bias: [f32; R] = match self.bias {
            Some(bias) => from_fn(|r| bias[first + r.min(channels - 1)]),
            None => [0.0; R],
        };
        let mut tile = [[[0.0; 16]; T]; R];
        let mut sums = bias.map(|bias| [s.splat_f32(bias); T]);
        let chains = self.offsets.chunks(CHAIN).zip(weights.chunks(CHAIN));
        for (i, (offsets, weights)) in chains.enumerate() {
            if i > 0 {
                add(s, &sums, &mut tile);
                sums = [[s.splat_f32(0.0); T]; R];
            }
            for (&offset, weights) in offsets.iter().zip(weights) {
                let (x, _) = self.image[offset + at..][..16 * T].as_chunks::<16>();
                let mut pixels = [s.splat_f32(0.0); T];
                for (pixels, x) in pixels.iter_mut().zip(x) {
                    *pixels = s.load_f32(x);
                }
                for (sums, &weight) in sums.iter_mut().zip(weights) {
                    let weight = s.splat_f32(weight);
                    for (sum, pixels) in sums.iter_mut().zip(pixels) {
                        *sum = s.mul_add(*sum, pixels, weight);
                    }
                }
            }
        }
        if self.offsets.len() > CHAIN {
            add(s, &sums, &mut tile);
        } else {
            for (out, &sum) in tile.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
                s.store_f32(sum, out);
            }
        }
        for (channel, lanes) in (first..).zip(&tile[..channels]) {
            self.write(lanes.as_flattened(), channel, at);
        }
        16 * T
    }

    /// Writes results of a channel: those in rows of windows, of the places from `at` on.
    #[inline(always)]
    fn write(&self, lanes: &[f32], channel: usize, at: usize) {
        let end = self.places.end.min(at + lanes.len());
        let (mut row, mut column) = (at / self.width, at % self.width);
        let mut place = at;
        while place < end {
            let len = self.across.saturating_sub(column).min(end - place);
            if len > 0 {
                let lanes = &lanes[place - at..][..len];
                let start = self.rows[row] + channel * self.pixels + column * self.step;
                match self.step {
                    // SAFETY: part of a row of results, which are this task's alone.
                    1 => unsafe { self.out.range(start, len) }.copy_from_slice(lanes),
                    step => {
                        for (i, &lane) in lanes.iter().enumerate() {
                            // SAFETY: likewise.
                            unsafe { *self.out.at(start + i * step) = lane };
                        }
                    }
                }
            }
            place += self.width - column;
            (row, column) = (row + 1, 0);
        }
    }
}

/// Adds vectors of sums to those in memory.
#[inline(always)]
fn add<S: Simd, const R: usize, const T: usize>(
    s: S,
    sums: &[[S::F; T]; R],
    tile: &mut [[[f32; 16]; T]; R],
) {
    for (out, &sum) in tile.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
        s.store_f32(s.add_f32(s.load_f32(out), sum), out);
    }
}
