//! The gradient of a convolution's weights.

use std::ops::Range;

use super::images::copy_rows;
use super::phases::{Phases, Tap};
use crate::kernel::{SharedMut, for_ranges, for_rows};
use crate::pool::Pool;
use crate::product::{Batch, Matrix, is_large, products};
use crate::simd::{Kernel, Level, Simd, from_fn};

/// Number of windows that are gone through together: their elements and gradients stay in a second-level
/// cache. Their products are one chain of additions, and chains are added up.
const WINDOWS: usize = 256;

/// Elements of gradients that are put in order at once.
const ORDERED: usize = 1 << 20;

/// Elements of windows that are computed together, at most.
const TAPS: usize = 6;

/// Operands of the gradient of the weights.
pub(crate) struct WeightGradient<'a> {
    /// Down and across.
    pub(crate) sides: [Phases; 2],
    /// Channels of the image in a group.
    pub(crate) channels: usize,
    /// Channels of the result of a group.
    pub(crate) outputs: usize,
    pub(crate) groups: usize,
    /// The images, one after the other.
    pub(crate) x: &'a [f32],
    pub(crate) images: usize,
    /// The gradient of the result.
    pub(crate) gradient: &'a [f32],
}

/// Windows of some images, or some rows of windows of one.
#[derive(Clone)]
struct Block {
    images: Range<usize>,
    rows: Range<usize>,
}

impl Block {
    /// Rows of windows.
    fn all(&self) -> impl Iterator<Item = (usize, usize)> {
        let Self { images, rows } = self.clone();
        images.flat_map(move |image| rows.clone().map(move |row| (image, row)))
    }
}

/// Blocks of a group that are added together.
struct Part<'a> {
    group: usize,
    blocks: &'a [Block],
    /// Rows of windows of a block, at most.
    rows: usize,
    /// Gradients of the blocks' windows in order, `lanes` numbers for each.
    gradients: &'a [f32],
    lanes: usize,
}

impl WeightGradient<'_> {
    /// Writes the gradient, of the weights' shape.
    ///
    /// # Panics
    /// Panics if `x` or `gradient` has too few elements.
    pub(crate) fn run(&self, pool: &Pool, out: &mut [f32]) {
        self.run_at(Level::current(), pool, out);
    }

    pub(super) fn run_at(&self, level: Level, pool: &Pool, out: &mut [f32]) {
        let [down, across] = &self.sides;
        let (height, width) = (down.count, across.count);
        let inner = self.channels * down.taps.len() * across.taps.len();
        let lanes = self.outputs.next_multiple_of(16);
        // Blocks of windows, and as many as are put in order at once.
        let rows = (WINDOWS / width.max(1)).clamp(1, height.max(1));
        let images = (WINDOWS / (height * width).max(1)).max(1);
        let mut blocks = Vec::new();
        for first in (0..self.images).step_by(images) {
            let images = first..self.images.min(first + images);
            blocks.extend((0..height).step_by(rows).map(|row| Block {
                images: images.clone(),
                rows: row..height.min(row + rows),
            }));
        }
        if let [block] = &blocks[..]
            && self.by_product(pool, block, out)
        {
            return;
        }
        let together = (ORDERED / (lanes * rows * images * width).max(1)).max(1);

        // A single block needs no sums: its gradients are written at once.
        let is_single = blocks.len() == 1;
        let mut sums = vec![0.0; if is_single { 0 } else { inner * lanes }];
        let mut ordered = vec![0.0; together.min(blocks.len()) * rows * images * width * lanes];
        let parts = out.chunks_exact_mut((self.outputs * inner).max(1));
        for (group, out) in (0..self.groups).zip(parts) {
            sums.fill(0.0);
            for blocks in blocks.chunks(together) {
                self.order(pool, group, blocks, lanes, &mut ordered);
                let out = is_single.then_some(&mut *out);
                let part = Part {
                    group,
                    blocks,
                    rows,
                    gradients: &ordered,
                    lanes,
                };
                self.add(level, pool, &part, &mut sums, out);
            }
            if !is_single {
                write(pool, &sums, lanes, inner, out);
            }
        }
    }

    /// Writes the gradient as one product, if it is a large one and the block has all windows. The factors are the
    /// result's gradients and the elements that windows see. With few windows and many weights, writing these takes
    /// longest.
    fn by_product(&self, pool: &Pool, block: &Block, out: &mut [f32]) -> bool {
        let [down, across] = &self.sides;
        let [plane, channel] = self.copies(down.count);
        let taps = self.taps(plane);
        let inner = self.channels * taps.len();
        let pixels = down.count * across.count;
        let places = self.places(block, self.channels * channel);
        let sizes = [self.outputs, places.len(), inner];
        if !is_large(sizes) {
            return false;
        }
        let mut copies = vec![0.0; self.images * self.channels * channel];
        let mut windows = vec![0.0; places.len() * inner];
        let mut gradients = vec![0.0; self.outputs * places.len()];
        let parts = out.chunks_exact_mut(self.outputs * inner);
        for (group, out) in (0..self.groups).zip(parts) {
            for_rows(pool, &mut copies, channel, channel, |first, copies| {
                for (i, to) in (first..).zip(copies.chunks_exact_mut(channel)) {
                    let (image, c) = (i / self.channels, i % self.channels);
                    let from = (image * self.groups + group) * self.channels + c;
                    copy_rows(&self.sides, self.x, from, 0..down.count, plane, to);
                }
            });
            for_rows(pool, &mut windows, inner, inner, |first, windows| {
                for (place, window) in places[first..].iter().zip(windows.chunks_exact_mut(inner)) {
                    let channels = copies[*place..].chunks(channel);
                    for (from, to) in channels.zip(window.chunks_exact_mut(taps.len())) {
                        to.iter_mut()
                            .zip(&taps)
                            .for_each(|(to, tap)| *to = from[*tap]);
                    }
                }
            });
            for (output, row) in gradients.chunks_exact_mut(places.len()).enumerate() {
                for (image, to) in row.chunks_exact_mut(pixels).enumerate() {
                    let from = (image * self.groups + group) * self.outputs + output;
                    to.copy_from_slice(&self.gradient[from * pixels..][..pixels]);
                }
            }
            let matrix = |data, width| {
                Batch::one(Matrix {
                    data,
                    strides: [width, 1],
                })
            };
            let a = matrix(&gradients[..], places.len());
            let b = matrix(&windows[..], inner);
            products(pool, &a, &b, sizes, out);
        }
        true
    }

    /// Elements of a plane of the copies of `rows` rows of windows, and of a channel's copies.
    fn copies(&self, rows: usize) -> [usize; 2] {
        let [down, across] = &self.sides;
        let plane = down.reach(rows) * across.reach(across.count);
        [plane, down.planes() * across.planes() * plane]
    }

    /// Offsets of the first window's elements in a channel's copies, of `plane` elements.
    fn taps(&self, plane: usize) -> Vec<usize> {
        let [down, across] = &self.sides;
        let (planes, width) = (across.planes(), across.reach(across.count));
        let of_row = |y: &Tap| {
            let (row, first) = (y.plane * planes, y.distance * width);
            let across = across.taps.iter();
            across.map(move |x| (row + x.plane) * plane + first + x.distance)
        };
        down.taps.iter().flat_map(of_row).collect()
    }

    /// Starts of a block's windows in the copies of its images, of `image` elements.
    fn places(&self, block: &Block, image: usize) -> Vec<usize> {
        let across = &self.sides[1];
        let row = |(i, row): (usize, usize)| {
            let first = (i - block.images.start) * image;
            let first = first + (row - block.rows.start) * across.reach(across.count);
            first..first + across.count
        };
        block.all().flat_map(row).collect()
    }

    /// Writes the gradients of windows, one after the other, with the result's channels as neighbours.
    fn order(&self, pool: &Pool, group: usize, blocks: &[Block], lanes: usize, to: &mut [f32]) {
        let [height, width] = [0, 1].map(|i| self.sides[i].count);
        let rows: Vec<(usize, usize)> = blocks.iter().flat_map(Block::all).collect();
        let to = SharedMut::new(to);
        for_ranges(pool, rows.len(), width * lanes, |some| {
            for at in some {
                let (image, row) = rows[at];
                // SAFETY: the windows of a row are one thread's.
                let to = unsafe { to.range(at * width * lanes, width * lanes) };
                let first = (image * self.groups + group) * self.outputs;
                for output in 0..self.outputs {
                    let from = ((first + output) * height + row) * width;
                    let to = to[output..].iter_mut().step_by(lanes);
                    to.zip(&self.gradient[from..][..width])
                        .for_each(|(to, x)| *to = *x);
                }
            }
        });
    }

    /// Adds the products of the windows of blocks with their gradients to `sums`, or writes them to `out`.
    fn add(
        &self,
        level: Level,
        pool: &Pool,
        part: &Part,
        sums: &mut [f32],
        out: Option<&mut [f32]>,
    ) {
        let &Part {
            group,
            blocks,
            rows,
            gradients,
            lanes,
        } = part;
        let [plane, channel] = self.copies(rows);
        let across = &self.sides[1];
        let taps = self.taps(plane);
        let inner = self.channels * taps.len();
        let (sums, out) = (SharedMut::new(sums), out.map(SharedMut::new));
        let tiles = inner.div_ceil(TAPS);
        for_ranges(pool, tiles, rows * across.count * TAPS * lanes, |some| {
            let elements = some.start * TAPS..inner.min(some.end * TAPS);
            let channels = elements.start / taps.len()..elements.end.div_ceil(taps.len());
            let offsets: Vec<usize> = (elements.clone())
                .map(|k| (k / taps.len() - channels.start) * channel + taps[k % taps.len()])
                .collect();
            let image = channels.len() * channel;
            let sums: &mut [f32] = match &out {
                Some(_) => &mut [],
                // SAFETY: the sums of these elements are this thread's alone.
                None => unsafe { sums.range(elements.start * lanes, elements.len() * lanes) },
            };
            let mut copies = Vec::new();
            let mut gradients = gradients;
            for block in blocks {
                copies.clear();
                copies.resize(block.images.len() * image, 0.0);
                for (i, copies) in block.images.clone().zip(copies.chunks_exact_mut(image)) {
                    let first = (i * self.groups + group) * self.channels;
                    for (c, to) in channels.clone().zip(copies.chunks_exact_mut(channel)) {
                        copy_rows(
                            &self.sides,
                            self.x,
                            first + c,
                            block.rows.clone(),
                            plane,
                            to,
                        );
                    }
                }
                let places = self.places(block, image);
                let (some, rest) = gradients.split_at(places.len() * lanes);
                gradients = rest;
                level.run(Products {
                    image: &copies,
                    places: &places,
                    offsets: &offsets,
                    gradients: some,
                    lanes,
                    sums,
                    rows: out.as_ref().map(|out| Rows {
                        out,
                        first: elements.start,
                        inner,
                        outputs: self.outputs,
                    }),
                });
            }
        });
    }
}

/// Writes sums as rows of weights. In the sums the result's channels are neighbours.
fn write(pool: &Pool, sums: &[f32], lanes: usize, inner: usize, out: &mut [f32]) {
    let outputs = out.len() / inner.max(1);
    let out = SharedMut::new(out);
    let tiles = inner.div_ceil(16);
    for_ranges(pool, tiles, 16 * outputs, |some| {
        for first in some.map(|tile| tile * 16) {
            let len = 16.min(inner - first);
            let sums = &sums[first * lanes..][..len * lanes];
            for output in 0..outputs {
                // SAFETY: these elements of the rows are this thread's alone.
                let row = unsafe { out.range(output * inner + first, len) };
                let from = sums[output..].iter().step_by(lanes);
                row.iter_mut().zip(from).for_each(|(to, sum)| *to = *sum);
            }
        }
    });
}

/// Products of elements of windows with the windows' gradients, which are added to sums.
struct Products<'a> {
    /// Elements that the windows see.
    image: &'a [f32],
    /// Start of each window in it.
    places: &'a [usize],
    /// Offsets of the elements in windows.
    offsets: &'a [usize],
    /// Rows of `lanes`, one for each window.
    gradients: &'a [f32],
    lanes: usize,
    /// Rows of `lanes`, one for each element, that products are added to.
    sums: &'a mut [f32],
    /// Or where they are written.
    rows: Option<Rows<'a>>,
}

/// Rows of weights, one for each of the result's channels.
struct Rows<'a> {
    out: &'a SharedMut<'a, f32>,
    /// The number of the first element in a row.
    first: usize,
    /// Elements of a row.
    inner: usize,
    /// Number of rows.
    outputs: usize,
}

impl Rows<'_> {
    /// Writes `sums[element][channel]`, from these on.
    #[inline(always)]
    fn write<const T: usize>(&self, sums: &[[[f32; 16]; T]], element: usize, lane: usize) {
        for channel in 0..(16 * T).min(self.outputs - lane.min(self.outputs)) {
            let start = (lane + channel) * self.inner + self.first + element;
            for (i, sums) in sums.iter().enumerate() {
                // SAFETY: these elements of rows are one thread's.
                unsafe { *self.out.at(start + i) = sums.as_flattened()[channel] };
            }
        }
    }
}

impl Kernel for Products<'_> {
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        match S::SUMS {
            24.. => self.tiles::<S, TAPS, 4>(s),
            _ => self.tiles::<S, 4, 1>(s),
        }
    }
}

impl Products<'_> {
    /// Goes through `R` elements and `T` vectors of channels at a time.
    #[inline(always)]
    fn tiles<S: Simd, const R: usize, const T: usize>(&mut self, s: S) {
        for first in (0..self.offsets.len()).step_by(R) {
            let mut lane = 0;
            while lane < self.lanes {
                lane += match (self.lanes - lane) / 16 {
                    1 => self.tile::<S, R, 1>(s, first, lane),
                    2..=3 if T > 2 => self.tile::<S, R, 2>(s, first, lane),
                    _ => self.tile::<S, R, T>(s, first, lane),
                };
            }
        }
    }

    #[inline(always)]
    fn tile<S: Simd, const R: usize, const T: usize>(
        &mut self,
        s: S,
        first: usize,
        lane: usize,
    ) -> usize {
        // Offsets past the last one repeat it. Their sums are computed and dropped.
        let last = self.offsets.len() - 1;
        let offsets: [usize; R] = from_fn(|r| self.offsets[last.min(first + r)]);
        let mut sums = [[s.splat_f32(0.0); T]; R];
        let gradients = self.gradients.chunks_exact(self.lanes);
        for (&place, gradient) in self.places.iter().zip(gradients) {
            let (gradient, _) = gradient[lane..][..16 * T].as_chunks::<16>();
            let mut gradients = [s.splat_f32(0.0); T];
            for (to, gradient) in gradients.iter_mut().zip(gradient) {
                *to = s.load_f32(gradient);
            }
            for (sums, offset) in sums.iter_mut().zip(offsets) {
                let x = s.splat_f32(self.image[place + offset]);
                for (sum, gradient) in sums.iter_mut().zip(gradients) {
                    *sum = s.mul_add(*sum, gradient, x);
                }
            }
        }
        if let Some(rows) = &self.rows {
            let mut tile = [[[0.0; 16]; T]; R];
            for (out, sums) in tile.iter_mut().zip(sums) {
                for (out, sum) in out.iter_mut().zip(sums) {
                    s.store_f32(sum, out);
                }
            }
            rows.write(&tile[..R.min(last + 1 - first)], first, lane);
            return 16 * T;
        }
        let rows = self.sums[first * self.lanes..].chunks_exact_mut(self.lanes);
        for (sums, row) in sums.into_iter().zip(rows) {
            let (row, _) = row[lane..][..16 * T].as_chunks_mut::<16>();
            for (sum, row) in sums.into_iter().zip(row) {
                s.store_f32(s.add_f32(s.load_f32(row), sum), row);
            }
        }
        16 * T
    }
}
