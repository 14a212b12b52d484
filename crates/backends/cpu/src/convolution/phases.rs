//! Sides of images as windows see them.

use rustorch_ir::order::sort_by_key;
use std::ops::Range;

use crate::window::Side;

/// An element of windows on one side.
#[derive(Clone, Copy)]
pub(super) struct Tap {
    /// Its number in the kernel.
    pub(super) element: usize,
    /// The plane that it is in.
    pub(super) plane: usize,
    /// Offset of this tap for the first window.
    pub(super) distance: usize,
}

/// One side of images by phases: planes of elements that lie a stride apart.
pub(crate) struct Phases {
    /// Elements of the side.
    pub(super) size: usize,
    /// Number of windows.
    pub(super) count: usize,
    /// Distance of a plane's elements on the side.
    pub(super) stride: usize,
    /// Starts of planes: before the side's first element, in its padding.
    firsts: Vec<isize>,
    /// The elements of a window.
    pub(super) taps: Vec<Tap>,
    /// Place of the first window's result, and the distance of results.
    pub(super) results: [usize; 2],
}

impl Phases {
    /// Phases of windows of `kernel` elements.
    pub(crate) fn of_windows(side: Side, kernel: usize) -> Self {
        let places = || (0..kernel).map(|k| k * side.dilation);
        let mut phases: Vec<usize> = places().map(|at| at % side.stride).collect();
        sort_by_key(&mut phases, |phase| *phase);
        phases.dedup();
        let taps = places().enumerate().map(|(element, at)| Tap {
            element,
            plane: phases.partition_point(|&phase| phase < at % side.stride),
            distance: at / side.stride,
        });
        Self {
            taps: taps.collect(),
            size: side.size,
            count: side.count,
            stride: side.stride,
            firsts: (phases.iter())
                .map(|&phase| phase as isize - side.padding as isize)
                .collect(),
            results: [0, 1],
        }
    }

    /// Phases for the gradient: the elements of a convolution's result are spread to its windows. One phase of
    /// the spread result sums these.
    pub(crate) fn of_spread(side: Side, kernel: usize, phase: usize) -> Self {
        let Side {
            size,
            stride,
            padding,
            dilation,
            ..
        } = side;
        // The first element of the phase, and the last window that begins there or before.
        let first = (phase + stride - padding % stride) % stride;
        let window = (first + padding) / stride;
        let of_phase = |&k: &usize| k * dilation % stride == phase;
        let farthest = (0..kernel).filter(of_phase).map(|k| k * dilation / stride);
        let farthest = farthest.max().unwrap_or(0);
        let taps = (0..kernel).filter(of_phase).map(|k| Tap {
            element: k,
            plane: 0,
            distance: farthest - k * dilation / stride,
        });
        Self {
            taps: taps.collect(),
            size: side.count,
            count: size.saturating_sub(first).div_ceil(stride),
            stride: 1,
            firsts: vec![window as isize - farthest as isize],
            results: [first, stride],
        }
    }

    /// Number of planes.
    pub(super) fn planes(&self) -> usize {
        self.firsts.len()
    }

    /// Elements of a plane that `windows` windows reach.
    pub(super) fn reach(&self, windows: usize) -> usize {
        windows + self.taps.iter().map(|tap| tap.distance).max().unwrap_or(0)
    }

    /// The elements of a plane that are on the side, among the first `count`.
    pub(super) fn inside(&self, plane: usize, count: usize) -> Range<usize> {
        let (first, stride) = (self.firsts[plane], self.stride as isize);
        let before = |end: isize| ((end - first).max(0) + stride - 1) / stride;
        let end = count.min(before(self.size as isize) as usize);
        end.min(before(0) as usize)..end
    }

    /// Index on the side of an element of a plane, which is inside.
    pub(super) fn at(&self, plane: usize, element: usize) -> usize {
        (self.firsts[plane] + (element * self.stride) as isize) as usize
    }
}
