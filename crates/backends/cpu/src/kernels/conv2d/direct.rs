//! Convolution from slices of the image.
//!
//! An image is copied with its padding, and by phases: the rows that lie `stride` apart together,
//! and so the columns. Elements that windows beside each other have in one place are neighbours
//! then, also where one row of windows ends and the next begins. So an element of the windows is a
//! slice, which starts at the element's offset, and no matrix of windows has to be made. What is
//! computed between the rows of windows is left out of the result.

use std::ops::Range;

use crate::kernel::{SharedMut, for_ranges};
use crate::pool::Pool;
use crate::simd::{Kernel, Level, Simd, from_fn};
use crate::window::Side;

/// Tasks for each thread.
const TASKS: usize = 4;

/// Windows that a task has at least, where there are so many.
const WINDOWS: usize = 192;

/// Elements of a copied image that stay in a second-level cache.
const NEAR: usize = 128 * 1024;

/// Results that are computed together, at most.
const ROWS: usize = 8;

/// Lanes that are computed together, at most, and so read past the last window.
const LANES: usize = 8 * 16;

/// One side of images by phases.
pub(super) struct Phases {
    side: Side,
    /// The places in a stride at which windows have elements.
    phases: Vec<usize>,
    /// For each element of a window, its phase among those and its distance there.
    elements: Vec<(usize, usize)>,
}

impl Phases {
    /// For windows of `kernel` elements.
    pub(super) fn new(side: Side, kernel: usize) -> Self {
        let places = || (0..kernel).map(|k| k * side.dilation);
        let mut phases: Vec<usize> = places().map(|at| at % side.stride).collect();
        phases.sort_unstable();
        phases.dedup();
        let phase = |at| phases.partition_point(|&phase| phase < at % side.stride);
        let elements = places().map(|at| (phase(at), at / side.stride)).collect();
        Self {
            side,
            phases,
            elements,
        }
    }

    /// Elements of a phase that `windows` windows reach.
    fn reach(&self, windows: usize) -> usize {
        windows + self.elements.last().map_or(0, |&(_, distance)| distance)
    }

    /// Those elements of a phase that are on the side, of the first `count`.
    fn inside(&self, phase: usize, count: usize) -> Range<usize> {
        let Side {
            size,
            stride,
            padding,
            ..
        } = self.side;
        let before = |end: usize| end.saturating_sub(phase).div_ceil(stride).min(count);
        let end = before(size + padding);
        before(padding).min(end)..end
    }
}

/// A convolution of images with weights for groups of channels.
pub(super) struct Convolution<'a> {
    /// Down and across.
    pub(super) sides: [Phases; 2],
    /// Of a group.
    pub(super) channels: usize,
    /// Channels of the result of a group.
    pub(super) outputs: usize,
    pub(super) groups: usize,
    /// The images.
    pub(super) x: &'a [f32],
    /// A row of weights for each channel of the result.
    pub(super) weight: &'a [f32],
    /// One for each channel of the result.
    pub(super) bias: Option<&'a [f32]>,
}

impl Convolution<'_> {
    /// Is at least half of what is computed of use?
    pub(super) fn pays(&self) -> bool {
        !self.weight.is_empty() && self.width() <= 2 * self.sides[1].side.count
    }

    /// The width of a copied image.
    fn width(&self) -> usize {
        self.sides[1].reach(self.sides[1].side.count)
    }

    /// Writes the results of all images.
    ///
    /// # Panics
    /// `x`, `weight` or `bias` has fewer elements.
    pub(super) fn run(&self, pool: &Pool, out: &mut [f32]) {
        self.run_at(Level::current(), pool, out);
    }

    fn run_at(&self, level: Level, pool: &Pool, out: &mut [f32]) {
        let (down, across) = (&self.sides[0], &self.sides[1]);
        let (height, width) = (down.side.count, self.width());
        let pixels = height * across.side.count;
        if out.is_empty() {
            return;
        }
        let images = out.len() / (self.outputs * pixels);
        // Bands of an image, where that is large or there are few, and parts of its channels.
        let tasks = TASKS * pool.threads();
        let plane = self.channels * down.phases.len() * across.phases.len();
        let near = (NEAR / (plane * width)).saturating_sub(down.reach(0));
        let rows = height
            .div_ceil(tasks.div_ceil(images))
            .min(near)
            .max(WINDOWS.div_ceil(width))
            .min(height);
        let bands = height.div_ceil(rows);
        let outputs = self.outputs.div_ceil(tasks.div_ceil(images * bands));
        let outputs = outputs.next_multiple_of(ROWS).min(self.outputs);
        let parts = self.outputs.div_ceil(outputs);

        let offsets = self.offsets(rows);
        let inner = offsets.len();
        let out = SharedMut::new(out);
        let work = rows * across.side.count * outputs * inner;
        for_ranges(pool, images * bands * parts, work, |tasks| {
            let (mut copy, mut copied) = (Vec::new(), None);
            for task in tasks {
                let (band, part) = (task / parts, task % parts * outputs);
                let (image, row) = (band / bands, band % bands * rows);
                let rows = row..height.min(row + rows);
                if copied.replace(band) != Some(band) {
                    self.copy(image, rows.clone(), offsets.plane, &mut copy);
                }
                let first = image % self.groups * self.outputs + part;
                let outputs = outputs.min(self.outputs - part);
                level.run(Band {
                    image: &copy,
                    offsets: &offsets.of_elements,
                    weight: &self.weight[first * inner..][..outputs * inner],
                    bias: self.bias.map(|bias| &bias[first..][..outputs]),
                    width,
                    across: across.side.count,
                    rows: rows.len(),
                    out: &out,
                    start: (image * self.outputs + part) * pixels + row * across.side.count,
                    pixels,
                });
            }
        });
    }

    /// Where in copied bands of `rows` rows of windows the elements of the first window are.
    fn offsets(&self, rows: usize) -> Offsets {
        let [down, across] = &self.sides;
        let width = self.width();
        let plane = down.reach(rows) * width;
        let planes = [down.phases.len(), across.phases.len()];
        let of_elements = (0..self.channels).flat_map(|channel| {
            down.elements.iter().flat_map(move |&(i, y)| {
                across.elements.iter().map(move |&(j, x)| {
                    ((channel * planes[0] + i) * planes[1] + j) * plane + y * width + x
                })
            })
        });
        Offsets {
            of_elements: of_elements.collect(),
            plane,
        }
    }

    /// Copies what rows of windows see of an image, in planes of `plane` elements.
    fn copy(&self, image: usize, rows: Range<usize>, plane: usize, to: &mut Vec<f32>) {
        let [down, across] = &self.sides;
        let (width, size) = (self.width(), down.side.size * across.side.size);
        let phases = || {
            let across = |&i| across.phases.iter().map(move |&j| (i, j));
            down.phases.iter().flat_map(across)
        };
        let planes = self.channels * phases().count();
        to.clear();
        to.resize(planes * plane + LANES, 0.0);
        let mut planes = to.chunks_exact_mut(plane);
        for channel in 0..self.channels {
            let x = &self.x[(image * self.channels + channel) * size..][..size];
            for (i, j) in phases() {
                let Some(to) = planes.next() else { return };
                let end = rows.start + down.reach(rows.len());
                let inside = down.inside(i, end);
                let columns = across.inside(j, width);
                for row in inside.start.max(rows.start)..inside.end {
                    let line = row * down.side.stride + i - down.side.padding;
                    let to = &mut to[(row - rows.start) * width..][columns.clone()];
                    if to.is_empty() {
                        continue;
                    }
                    let first = columns.start * across.side.stride + j - across.side.padding;
                    let x = &x[line * across.side.size + first..];
                    match across.side.stride {
                        1 => to.copy_from_slice(&x[..to.len()]),
                        stride => {
                            let x = x.iter().step_by(stride);
                            to.iter_mut().zip(x).for_each(|(to, x)| *to = *x);
                        }
                    }
                }
            }
        }
    }
}

/// Where in a copied band things are.
struct Offsets {
    /// The elements of the first window, channel by channel.
    of_elements: Vec<usize>,
    /// Elements of a plane.
    plane: usize,
}

impl Offsets {
    fn len(&self) -> usize {
        self.of_elements.len()
    }
}

/// Rows of windows, and some channels of the result.
struct Band<'a> {
    /// The copied image.
    image: &'a [f32],
    offsets: &'a [usize],
    weight: &'a [f32],
    bias: Option<&'a [f32]>,
    /// From one row of windows to the next.
    width: usize,
    /// Windows in a row.
    across: usize,
    rows: usize,
    /// The results, in which those of this band begin at `start`, and channels are `pixels` apart.
    out: &'a SharedMut<'a, f32>,
    start: usize,
    pixels: usize,
}

impl Kernel for Band<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match (S::SUMS, self.weight.len() / self.offsets.len().max(1)) {
            (24.., 1) => self.tiles::<S, 1, 8>(s),
            (24.., 2) => self.tiles::<S, 2, 8>(s),
            (24.., 3..=4) => self.tiles::<S, 4, 6>(s),
            (24.., _) => self.tiles::<S, ROWS, 3>(s),
            (_, 1) => self.tiles::<S, 1, 3>(s),
            (_, 2) => self.tiles::<S, 2, 2>(s),
            _ => self.tiles::<S, 4, 1>(s),
        }
    }
}

impl Band<'_> {
    /// Computes `R` channels of `T` vectors of windows at a time.
    #[inline(always)]
    fn tiles<S: Simd, const R: usize, const T: usize>(&self, s: S) {
        let inner = self.offsets.len();
        let outputs = self.weight.len() / inner.max(1);
        // Weights of channels that are computed together are neighbours.
        let weights: Vec<[f32; R]> = (0..outputs)
            .step_by(R)
            .flat_map(|first| (0..inner).map(move |k| (first, k)))
            .map(|(first, k)| Self::of_channels(first, outputs, |row| self.weight[row * inner + k]))
            .collect();
        let places = (self.rows - 1) * self.width + self.across;
        for at in (0..places).step_by(16 * T) {
            for (i, weights) in weights.chunks_exact(inner).enumerate() {
                let first = i * R;
                let bias = self.bias.map_or([0.0; R], |bias| {
                    Self::of_channels(first, outputs, |row| bias[row])
                });
                let sums = self.tile::<S, R, T>(s, at, weights, bias);
                self.write(&sums[..R.min(outputs - first)], first, at, places);
            }
        }
    }

    /// What `value` says of `R` channels from `first` on: of those past the last one, of the last.
    fn of_channels<const R: usize>(
        first: usize,
        outputs: usize,
        value: impl Fn(usize) -> f32,
    ) -> [f32; R] {
        from_fn(|r| value((first + r).min(outputs - 1)))
    }

    #[inline(always)]
    fn tile<S: Simd, const R: usize, const T: usize>(
        &self,
        s: S,
        at: usize,
        weights: &[[f32; R]],
        bias: [f32; R],
    ) -> [[[f32; 16]; T]; R] {
        let mut sums = bias.map(|bias| [s.splat_f32(bias); T]);
        for (&offset, weights) in self.offsets.iter().zip(weights) {
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
        let mut tile = [[[0.0; 16]; T]; R];
        for (out, sums) in tile.iter_mut().zip(sums) {
            for (out, sum) in out.iter_mut().zip(sums) {
                s.store_f32(sum, out);
            }
        }
        tile
    }

    /// Writes channels from `first` on: what is in rows of windows, of the places from `at` on.
    #[inline(always)]
    fn write<const T: usize>(
        &self,
        tile: &[[[f32; 16]; T]],
        first: usize,
        at: usize,
        places: usize,
    ) {
        let end = places.min(at + 16 * T);
        let (mut row, mut column) = (at / self.width, at % self.width);
        let mut place = at;
        while place < end {
            let len = self.across.saturating_sub(column).min(end - place);
            for (channel, lanes) in (first..).zip(tile).filter(|_| len > 0) {
                let start = self.start + channel * self.pixels + row * self.across + column;
                // SAFETY: part of a row of the band's results, which are this task's alone.
                let out = unsafe { self.out.range(start, len) };
                out.copy_from_slice(&lanes.as_flattened()[place - at..][..len]);
            }
            place += self.width - column;
            (row, column) = (row + 1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some numbers, of which sums are exact.
    fn numbers(len: usize) -> Vec<f32> {
        let number = |i: usize| (i * 37 % 17) as f32 - 8.0;
        (0..len).map(number).collect()
    }

    /// The definition.
    fn expected(c: &Convolution, images: usize) -> Vec<f32> {
        let [down, across] = [0, 1].map(|i| c.sides[i].side);
        let kernel = [0, 1].map(|i| c.sides[i].elements.len());
        let inside = |s: Side, window: usize, k: usize| {
            let at = window * s.stride + k * s.dilation;
            at.checked_sub(s.padding).filter(|&at| at < s.size)
        };
        let mut out = Vec::new();
        for output in 0..images * c.groups * c.outputs {
            let (image, row) = (output / c.outputs, output % (c.groups * c.outputs));
            for (y, x) in (0..down.count).flat_map(|y| (0..across.count).map(move |x| (y, x))) {
                let mut sum = c.bias.map_or(0.0, |bias| bias[row]);
                for k in 0..c.channels * kernel[0] * kernel[1] {
                    let (i, j) = (k / kernel[1] % kernel[0], k % kernel[1]);
                    let channel = image * c.channels + k / (kernel[0] * kernel[1]);
                    if let (Some(y), Some(x)) = (inside(down, y, i), inside(across, x, j)) {
                        let x = c.x[(channel * down.size + y) * across.size + x];
                        sum += x * c.weight[row * c.channels * kernel[0] * kernel[1] + k];
                    }
                }
                out.push(sum);
            }
        }
        out
    }

    #[test]
    fn any_stride_padding_and_dilation() {
        let pool = Pool::new(2);
        let sides = (1..4).flat_map(|stride| {
            let side = move |padding, dilation| (stride, padding, dilation);
            [(0, 1), (2, 1), (1, 2), (3, 3)].map(|(padding, dilation)| side(padding, dilation))
        });
        for (stride, padding, dilation) in sides {
            // Images, groups, channels and outputs of a group.
            for [images, groups, channels, outputs] in
                [[1, 1, 3, 11], [2, 3, 1, 1], [1, 2, 2, 2], [3, 1, 2, 3]]
            {
                let side = |size: usize, kernel: usize| {
                    let reach = (kernel - 1) * dilation + 1;
                    let count = (size + 2 * padding - reach) / stride + 1;
                    let side = Side {
                        size,
                        count,
                        stride,
                        padding,
                        dilation,
                    };
                    Phases::new(side, kernel)
                };
                let sides = [side(29, 3), side(23, 2)];
                let pixels = sides[0].side.count * sides[1].side.count;
                let x = numbers(images * groups * channels * 29 * 23);
                let (weight, bias) = (
                    numbers(groups * outputs * channels * 3 * 2),
                    numbers(groups * outputs),
                );
                let convolution = Convolution {
                    sides,
                    channels,
                    outputs,
                    groups,
                    x: &x,
                    weight: &weight,
                    bias: (images == 1).then_some(&bias),
                };
                let expected = expected(&convolution, images);
                for level in Level::available() {
                    let mut out = vec![f32::NAN; images * groups * outputs * pixels];
                    convolution.run_at(level, &pool, &mut out);
                    let what = [stride, padding, dilation, images, groups, channels, outputs];
                    assert!(out == expected, "{level}: {what:?}");
                }
            }
        }
    }
}
