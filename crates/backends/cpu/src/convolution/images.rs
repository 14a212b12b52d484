//! Convolution from slices of the images, or of gathered windows.

use std::ops::Range;

use super::phases::Phases;
use super::tiles::{LANES, ROWS, Tiles, Together};
use crate::kernel::{SharedMut, for_ranges};
use crate::pool::Pool;
use crate::simd::{Level, map};

/// Tasks for each thread.
const TASKS: usize = 4;

/// Least number of windows in a task, if there are as many.
const WINDOWS: usize = 192;

/// Elements of a copied image that stay in a second-level cache.
const NEAR: usize = 128 * 1024;

/// Windows that are gathered together, at most.
const COLUMNS: usize = 512;

/// Elements of gathered windows, at most.
const GATHERED: usize = 16 << 20;

/// Number of lanes that are computed in the time in which the element of one window is gathered.
const GATHERING: usize = 24;

/// Weights of windows. A weight has four coordinates: group, channel of the result, channel of the image, and element
/// of the window. Its place in `data` follows from the distances of the first three; elements are neighbours.
pub(crate) struct Weights<'a> {
    pub(crate) data: &'a [f32],
    /// Distances of groups, of channels of the result, and of channels of the image.
    pub(crate) strides: [usize; 3],
    /// Elements of a window's row.
    pub(crate) width: usize,
}

/// A convolution of images with weights for groups of channels.
pub(crate) struct Convolution<'a> {
    /// Down and across.
    pub(crate) sides: [Phases; 2],
    /// Channels of the image in a group.
    pub(crate) channels: usize,
    /// Channels of the result of a group.
    pub(crate) outputs: usize,
    pub(crate) groups: usize,
    /// The images.
    pub(crate) x: &'a [f32],
    pub(crate) weight: Weights<'a>,
    /// One for each channel of the result.
    pub(crate) bias: Option<&'a [f32]>,
    /// The sides of the result; other phases may be computed elsewhere.
    pub(crate) result: [usize; 2],
}

/// Source of the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Slices of each image.
    Direct,
    /// The windows of several images.
    Gathered(usize),
}

impl Convolution<'_> {
    /// Elements of windows in a group's channels.
    fn inner(&self) -> usize {
        self.channels * self.sides[0].taps.len() * self.sides[1].taps.len()
    }

    /// Windows of an image.
    fn windows(&self) -> usize {
        self.sides[0].count * self.sides[1].count
    }

    /// The width of a copied image.
    fn width(&self) -> usize {
        self.sides[1].reach(self.sides[1].count)
    }

    /// Images of a batch of results.
    fn images(&self, results: usize) -> usize {
        let one = self.groups * self.outputs * self.result[0] * self.result[1];
        results.checked_div(one).unwrap_or(0)
    }

    /// The way that computes the fewest lanes, if at least half of them are of use.
    pub(super) fn way(&self, images: usize) -> Option<Way> {
        let (windows, inner) = (self.windows(), self.inner());
        let across = &self.sides[1];
        if self.channels == 0 {
            return None;
        }
        if windows == 0 || inner == 0 {
            return Some(Way::Direct);
        }
        let together = (COLUMNS / windows).clamp(1, images.max(1));
        let gathered = (together * windows).next_multiple_of(16);
        let can_gather = windows <= COLUMNS && inner.saturating_mul(gathered) <= GATHERED;
        let direct = (self.sides[0].count - 1) * self.width() + across.count;
        let cost = [
            direct.next_multiple_of(16) * together * self.outputs,
            gathered * self.outputs + GATHERING * together * windows,
        ];
        let is_dense = self.width() <= 2 * across.count;
        match (is_dense, can_gather) {
            (true, true) if cost[0] > cost[1] => Some(Way::Gathered(together)),
            (true, _) => Some(Way::Direct),
            (false, true) => Some(Way::Gathered(together)),
            (false, false) => None,
        }
    }

    /// Returns whether there is a way for this number of results with little wasted work.
    pub(crate) fn pays(&self, results: usize) -> bool {
        self.way(self.images(results)).is_some()
    }

    /// Writes the results of all images.
    ///
    /// # Panics
    /// Panics if `x`, `weight` or `bias` has too few elements.
    pub(crate) fn run(&self, pool: &Pool, out: &mut [f32]) {
        self.run_at(Level::current(), pool, out);
    }

    fn run_at(&self, level: Level, pool: &Pool, out: &mut [f32]) {
        let images = self.images(out.len());
        if images == 0 || self.windows() == 0 {
            return;
        }
        let way = self.way(images).unwrap_or(Way::Direct);
        self.run_by(level, pool, way, images, &SharedMut::new(out));
    }

    pub(super) fn run_by(
        &self,
        level: Level,
        pool: &Pool,
        way: Way,
        images: usize,
        out: &SharedMut<f32>,
    ) {
        let packed = self.pack(level, pool);
        match way {
            Way::Direct => self.direct(level, pool, images, &packed, out),
            Way::Gathered(together) => {
                for group in 0..self.groups {
                    for first in (0..images).step_by(together) {
                        let some = first..images.min(first + together);
                        self.gathered(level, pool, some, group, &packed, out);
                    }
                }
            }
        }
    }

    /// Starts of the results of an image's rows of windows.
    fn rows(&self, image: usize, rows: Range<usize>) -> impl Iterator<Item = usize> {
        let [[row, down], [column, _]] = [0, 1].map(|i| self.sides[i].results);
        let [height, width] = self.result;
        let first = image * self.outputs * height * width + column;
        rows.map(move |y| first + (row + y * down) * width)
    }

    fn direct(
        &self,
        level: Level,
        pool: &Pool,
        images: usize,
        packed: &Packed,
        out: &SharedMut<f32>,
    ) {
        let [down, across] = &self.sides;
        let (height, width) = (down.count, self.width());
        let images = images * self.groups;
        // Bands of an image, where that is large or there are few, and parts of its channels.
        let tasks = TASKS * pool.threads();
        let plane = self.channels * down.planes() * across.planes();
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

        let plane = down.reach(rows) * width;
        let size = down.planes() * across.planes() * plane;
        let offsets: Vec<usize> = (0..self.channels)
            .flat_map(|channel| self.offsets(plane).map(move |at| channel * size + at))
            .collect();
        let work = rows * across.count * outputs * offsets.len();
        for_ranges(pool, images * bands * parts, work, |tasks| {
            let (mut copy, mut copied) = (Vec::new(), None);
            for task in tasks {
                let (band, part) = (task / parts, task % parts * outputs);
                let (image, row) = (band / bands, band % bands * rows);
                let rows = row..height.min(row + rows);
                if copied.replace(band) != Some(band) {
                    copy.clear();
                    copy.resize(self.channels * size + LANES, 0.0);
                    for channel in 0..self.channels {
                        let to = &mut copy[channel * size..][..size];
                        let channel = image * self.channels + channel;
                        copy_rows(&self.sides, self.x, channel, rows.clone(), plane, to);
                    }
                }
                let starts: Vec<usize> = self.rows(image, rows.clone()).collect();
                let group = image % self.groups;
                level.run(Tiles {
                    image: &copy,
                    offsets: &offsets,
                    width,
                    across: across.count,
                    places: 0..(rows.len() - 1) * width + across.count,
                    together: packed.together,
                    weights: packed.of(group, part),
                    outputs: part..self.outputs.min(part + outputs),
                    bias: self.bias.map(|bias| &bias[group * self.outputs..]),
                    out,
                    rows: &starts,
                    step: across.results[1],
                    pixels: self.result[0] * self.result[1],
                });
            }
        });
    }

    /// Computes the results of a group of channels of some images.
    fn gathered(
        &self,
        level: Level,
        pool: &Pool,
        images: Range<usize>,
        group: usize,
        packed: &Packed,
        out: &SharedMut<f32>,
    ) {
        let [down, across] = &self.sides;
        let (count, width) = (images.len(), self.width());
        let plane = down.reach(down.count) * width;
        let size = down.planes() * across.planes() * plane;
        // Places at which windows begin, in the copies of a channel of the images.
        let begins: Vec<usize> = (0..count)
            .flat_map(|i| (0..down.count).map(move |y| i * size + y * width))
            .flat_map(|row| row..row + across.count)
            .collect();
        let taps: Vec<usize> = self.offsets(plane).collect();
        let columns = begins.len();
        let image = |i: usize| (images.start + i) * self.groups + group;

        let mut gathered = vec![0.0; self.channels * taps.len() * columns + LANES];
        let to = SharedMut::new(&mut gathered);
        let work = taps.len() * columns;
        for_ranges(pool, self.channels, work, |channels| {
            let mut copies = vec![0.0; count * size];
            for channel in channels {
                copies.fill(0.0);
                for (i, copy) in copies.chunks_exact_mut(size).enumerate() {
                    let channel = image(i) * self.channels + channel;
                    copy_rows(&self.sides, self.x, channel, 0..down.count, plane, copy);
                }
                for (tap, &offset) in taps.iter().enumerate() {
                    let start = (channel * taps.len() + tap) * columns;
                    // SAFETY: the columns of this channel, which is one thread's.
                    let to = unsafe { to.range(start, columns) };
                    let from = &copies[offset..];
                    for (to, &begin) in to.iter_mut().zip(&begins) {
                        *to = from[begin];
                    }
                }
            }
        });

        let inner = self.channels * taps.len();
        let offsets: Vec<usize> = (0..inner).map(|k| k * columns).collect();
        let rows: Vec<usize> = (0..count)
            .flat_map(|i| self.rows(image(i), 0..down.count))
            .collect();
        let tasks = TASKS * pool.threads();
        let outputs = self.outputs.div_ceil(tasks).next_multiple_of(ROWS);
        let parts = self.outputs.div_ceil(outputs);
        let places = columns
            .div_ceil(tasks.div_ceil(parts))
            .next_multiple_of(WINDOWS / 4);
        let across_parts = columns.div_ceil(places);
        for_ranges(
            pool,
            parts * across_parts,
            places * outputs * inner,
            |tasks| {
                for task in tasks {
                    let part = task / across_parts * outputs;
                    let first = task % across_parts * places;
                    level.run(Tiles {
                        image: &gathered,
                        offsets: &offsets,
                        width: across.count,
                        across: across.count,
                        places: first..columns.min(first + places),
                        together: packed.together,
                        weights: packed.of(group, part),
                        outputs: part..self.outputs.min(part + outputs),
                        bias: self.bias.map(|bias| &bias[group * self.outputs..]),
                        out,
                        rows: &rows,
                        step: across.results[1],
                        pixels: self.result[0] * self.result[1],
                    });
                }
            },
        );
    }

    /// Offsets of the first window's elements in a copied channel.
    fn offsets(&self, plane: usize) -> impl Iterator<Item = usize> {
        let [down, across] = &self.sides;
        let (planes, width) = (across.planes(), self.width());
        down.taps.iter().flat_map(move |y| {
            (across.taps.iter()).map(move |x| {
                (y.plane * planes + x.plane) * plane + y.distance * width + x.distance
            })
        })
    }

    /// The weights in the order in which they are used.
    fn pack(&self, level: Level, pool: &Pool) -> Packed {
        let mut together = 1;
        level.run(Together {
            outputs: self.outputs,
            answer: &mut together,
        });
        let inner = self.inner();
        let blocks = self.outputs.div_ceil(together);
        let mut data = vec![0.0; self.groups * blocks * inner * together];
        let Weights {
            data: weight,
            strides: [groups, outputs, channels],
            width,
        } = self.weight;
        let taps: Vec<usize> = (self.sides[0].taps.iter())
            .flat_map(|y| {
                let across = &self.sides[1].taps;
                across.iter().map(move |x| y.element * width + x.element)
            })
            .collect();
        let to = SharedMut::new(&mut data);
        for_ranges(pool, self.groups * blocks, inner * together, |some| {
            for block in some {
                let (group, first) = (block / blocks, block % blocks * together);
                // SAFETY: a block is one thread's.
                let to = unsafe { to.range(block * inner * together, inner * together) };
                // Rows past the last channel repeat it. Their results are computed and dropped.
                let row = |r: usize| group * groups + (first + r).min(self.outputs - 1) * outputs;
                let from = |channel| &weight[channel * channels..];
                match together {
                    1 => interleave::<1>(from, &taps, row, to),
                    2 => interleave::<2>(from, &taps, row, to),
                    4 => interleave::<4>(from, &taps, row, to),
                    _ => interleave::<ROWS>(from, &taps, row, to),
                }
            }
        });
        Packed {
            data,
            together,
            inner,
            group: blocks * inner * together,
        }
    }
}

/// Weights, those of channels that are computed together beside each other.
struct Packed {
    data: Vec<f32>,
    together: usize,
    inner: usize,
    /// Elements of a group.
    group: usize,
}

impl Packed {
    /// The weights of a group from a channel on that begins a block.
    fn of(&self, group: usize, output: usize) -> &[f32] {
        &self.data[group * self.group + output * self.inner..]
    }
}

/// Writes the weights of `R` rows beside each other, for each tap of each channel.
fn interleave<'a, const R: usize>(
    channel: impl Fn(usize) -> &'a [f32],
    taps: &[usize],
    row: impl Fn(usize) -> usize,
    to: &mut [f32],
) {
    /// Elements of the usual windows.
    const USUAL: usize = 9;
    let rows: [usize; R] = std::array::from_fn(row);
    let (to, _) = to.as_chunks_mut::<R>();
    if taps.iter().copied().eq(0..USUAL) {
        for (i, to) in to.as_chunks_mut::<USUAL>().0.iter_mut().enumerate() {
            let weights = channel(i);
            let rows = map(rows, |row| {
                &weights[row..][..USUAL].as_chunks::<USUAL>().0[0]
            });
            for (tap, to) in to.iter_mut().enumerate() {
                *to = map(rows, |row| row[tap]);
            }
        }
        return;
    }
    for (i, to) in to.chunks_exact_mut(taps.len().max(1)).enumerate() {
        let weights = channel(i);
        for (to, tap) in to.iter_mut().zip(taps) {
            *to = map(rows, |row| weights[row + tap]);
        }
    }
}

/// Copies the elements that rows of windows see of a channel, in planes of `plane` elements, which
/// are zeros.
pub(super) fn copy_rows(
    [down, across]: &[Phases; 2],
    x: &[f32],
    channel: usize,
    rows: Range<usize>,
    plane: usize,
    to: &mut [f32],
) {
    let width = across.reach(across.count);
    let size = down.size * across.size;
    let x = &x[channel * size..][..size];
    let planes = (0..down.planes()).flat_map(|i| (0..across.planes()).map(move |j| (i, j)));
    for ((i, j), to) in planes.zip(to.chunks_exact_mut(plane.max(1))) {
        let inside = down.inside(i, rows.start + down.reach(rows.len()));
        let columns = across.inside(j, width);
        if columns.is_empty() {
            continue;
        }
        for row in inside.start.max(rows.start)..inside.end {
            let to = &mut to[(row - rows.start) * width..][columns.clone()];
            let x = &x[down.at(i, row) * across.size + across.at(j, columns.start)..];
            match across.stride {
                1 => to.copy_from_slice(&x[..to.len()]),
                stride => {
                    let x = x.iter().step_by(stride);
                    to.iter_mut().zip(x).for_each(|(to, x)| *to = *x);
                }
            }
        }
    }
}
