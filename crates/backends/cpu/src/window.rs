//! Windows along one side of an image: convolutions and pooling.

use std::ops::Range;

/// `count` windows, `stride` apart, of elements `dilation` apart, on a side of `size`
/// elements with `padding` more on each end.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    /// Elements of the side.
    pub(crate) size: usize,
    /// Number of windows.
    pub(crate) count: usize,
    /// Distance between windows.
    pub(crate) stride: usize,
    /// Elements before the side's first that windows may have.
    pub(crate) padding: usize,
    /// Distance between the elements of a window.
    pub(crate) dilation: usize,
}

impl Side {
    /// The windows whose element `k` is on the side and not in the padding.
    pub(crate) fn windows(&self, k: usize) -> Range<usize> {
        let reach = k * self.dilation;
        let before = |end: usize| {
            end.saturating_sub(reach)
                .div_ceil(self.stride)
                .min(self.count)
        };
        let end = before(self.size + self.padding);
        before(self.padding).min(end)..end
    }

    /// Index on the side of element `k` of a window, which is on it.
    pub(crate) fn at(&self, window: usize, k: usize) -> usize {
        window * self.stride + k * self.dilation - self.padding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_those_inside() {
        for size in 1..7 {
            for padding in 0..4 {
                for stride in 1..4 {
                    for dilation in 1..3 {
                        let side = Side {
                            size,
                            count: 5,
                            stride,
                            padding,
                            dilation,
                        };
                        for k in 0..4 {
                            let inside = |&w: &usize| {
                                let at = (w * stride + k * dilation) as isize - padding as isize;
                                (0..size as isize).contains(&at)
                            };
                            let expected: Vec<usize> = (0..5).filter(inside).collect();
                            assert!(side.windows(k).eq(expected), "{k}");
                        }
                    }
                }
            }
        }
    }
}
