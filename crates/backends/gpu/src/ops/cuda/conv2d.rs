//! Convolutions as products, without a matrix of windows: the rows of pixels that are
//! multiplied are gathered on their way to local memory.

use rustorch_ir::ops::{ChannelsLast, Conv2d};
use rustorch_ir::{DType, Op, Signature};
use rustorch_runtime::{Place, Step};
use smallvec::smallvec;

use super::matmul::{Kind, Launch, Memory, Numbers, Panels, Weights};
use crate::emit::Emitter;
use crate::kernel::{Kernel, Scratch};
use crate::ops::conv2d::windows;
use crate::ops::windows::Windows;

/// Channels that are copied at a time.
const PIECE: usize = 8;

/// Returns whether this convolution is one of those.
pub(crate) fn accepts(s: &Signature) -> bool {
    matches!(s.op, Op::Conv2d(op) if op.groups == 1) && has_numbers(s)
}

/// Returns whether there are weights, and numbers that tensor cores have.
pub(super) fn has_numbers(s: &Signature) -> bool {
    matches!(s.output().dtype, DType::F32 | DType::F16 | DType::BF16)
        && s.inputs[1].shape.elements() > 0
}

/// Appends its launches.
pub(crate) fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Conv2d(op) = &step.last().op else {
        return;
    };
    let operands: Vec<&Place> = step.inputs.iter().collect();
    convolve(op, &operands, step.output(), emitter);
}

/// Appends the launches of the convolution of x by a weight and perhaps a bias.
pub(crate) fn convolve(op: &Conv2d, operands: &[&Place], y: &Place, emitter: &mut Emitter) {
    let (x, w) = (operands[0], operands[1]);
    let sharing = Sharing::of(op, x.ty.shape[1], x.ty.dtype);
    let convolution = Convolution {
        windows: sharing.windows(windows(op, &w.ty.shape)),
        w,
        bias: operands.get(2).copied(),
        y,
    };
    convolution.emit(&Images::new(x, sharing, emitter), emitter);
}

/// Neighbouring pixels of a line that share a piece: images of few channels take less memory then, and products have fewer
/// zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sharing {
    pub(super) together: usize,
    /// Pixels of the padding that the first piece begins with, so that windows begin with pieces.
    before: usize,
}

impl Sharing {
    /// A piece for each pixel.
    pub(super) const NONE: Self = Self {
        together: 1,
        before: 0,
    };

    /// The sharing that a convolution of images with this number of channels allows.
    pub(super) fn of(op: &Conv2d, channels: usize, dtype: DType) -> Self {
        const PAIR: usize = 2;
        // Sums that have to be made again are so by the images themselves.
        let is_exact = Numbers::of(dtype).terms == 1;
        let fits = channels <= PIECE / PAIR && op.stride[1].is_multiple_of(PAIR);
        match is_exact && fits && op.dilation[1] == 1 {
            true => Self {
                together: PAIR,
                before: op.padding[1] % PAIR,
            },
            false => Self::NONE,
        }
    }

    /// Pieces of a line of `pixels` pixels.
    pub(super) fn width(self, pixels: usize) -> usize {
        (self.before + pixels).div_ceil(self.together)
    }

    /// Windows of pixels as such of pieces.
    pub(super) fn windows(self, windows: Windows) -> Windows {
        if self == Self::NONE {
            return windows;
        }
        let [kernel, stride, padding] =
            [windows.kernel_size, windows.stride, windows.padding].map(|[_, of_line]| of_line);
        Windows {
            kernel_size: [windows.kernel_size[0], kernel.div_ceil(self.together)],
            stride: [windows.stride[0], stride / self.together],
            padding: [windows.padding[0], padding / self.together],
            dilation: windows.dilation,
        }
    }
}

/// A convolution of images: their windows times the weights `w` are `y`, a view.
pub(super) struct Convolution<'a> {
    /// Paddings and dilations are numbers modulo 2³²; the upper half stands for negative ones.
    pub(super) windows: Windows,
    pub(super) w: &'a Place,
    pub(super) bias: Option<&'a Place>,
    pub(super) y: &'a Place,
}

impl Convolution<'_> {
    /// Appends the launches.
    pub(super) fn emit(&self, images: &Images, emitter: &mut Emitter) {
        let Self {
            windows,
            w,
            bias,
            y,
        } = self;
        let &Images {
            place: x,
            sharing,
            numbers,
            pieces,
            term_pieces,
            memory,
        } = images;
        let taps = windows.kernel_size.iter().product::<usize>();
        let k = taps * pieces * PIECE;
        let weights = Panels::new(w.ty.shape[0], k, Kind::Pixels, numbers, emitter);
        // Windows begin with pieces.
        let of_weights = Sharing {
            before: 0,
            ..sharing
        };
        channels_last(
            w,
            of_weights,
            pieces,
            Target::Panels(&weights),
            numbers,
            emitter,
        );
        let plane = y.ty.shape[2] * y.ty.shape[3];
        let launch = Launch {
            m: y.ty.shape[1],
            k,
            x: weights,
            kind: Kind::Pixels,
            w_stride: 0,
            weights: smallvec![Weights {
                w: memory,
                n: y.ty.shape[0] * plane,
                bias: *bias,
            }],
            results: smallvec![Memory::Place(y)],
            other: None,
            gate: None,
            is_wide: numbers.terms == 1 && has_pieces(y),
            given: (numbers.terms > 1).then(|| [*w, x].map(|place| (place, strides(place)))),
            experts: None,
            behind: None,
            words: vec![
                ("channels", vec![x.ty.shape[1]]),
                ("term_pieces", vec![term_pieces]),
                ("plane", vec![plane]),
                ("out_width", vec![y.ty.shape[3]]),
                ("y_strides", strides(y)),
                ("pieces_count", vec![pieces]),
                ("size", vec![x.ty.shape[2], sharing.width(x.ty.shape[3])]),
                ("kernel_size", windows.kernel_size.to_vec()),
                ("stride", windows.stride.to_vec()),
                ("padding", windows.padding.to_vec()),
                ("dilation", windows.dilation.to_vec()),
            ],
        };
        launch.emit(emitter);
    }
}

/// Images with their channels last, in `pieces` pieces a pixel, or for several.
pub(super) struct Images<'a> {
    place: &'a Place,
    sharing: Sharing,
    numbers: Numbers,
    pub(super) pieces: usize,
    /// Pieces of each of the terms.
    term_pieces: usize,
    pub(super) memory: Memory<'a>,
}

impl<'a> Images<'a> {
    /// Appends the launch that makes them, where they are not so already.
    pub(super) fn new(place: &'a Place, sharing: Sharing, emitter: &mut Emitter) -> Self {
        let shape = &place.ty.shape;
        let numbers = Numbers::of(place.ty.dtype);
        let pieces = shape[1].div_ceil(PIECE);
        let term_pieces = shape[0] * shape[2] * sharing.width(shape[3]) * pieces;
        let is_so = numbers.terms == 1
            && sharing == Sharing::NONE
            && has_pieces(place)
            && place.layout.permute(&ChannelsLast::ORDER).is_contiguous();
        let memory = match is_so {
            true => Memory::Place(place),
            false => {
                let memory = emitter.scratch(numbers.terms * term_pieces * PIECE * 2);
                channels_last(
                    place,
                    sharing,
                    pieces,
                    Target::Rows(memory),
                    numbers,
                    emitter,
                );
                Memory::Scratch(memory)
            }
        };
        Self {
            place,
            sharing,
            numbers,
            pieces,
            term_pieces,
            memory,
        }
    }
}

/// Are the channels of all pixels pieces that begin at multiples of 16 bytes?
fn has_pieces(place: &Place) -> bool {
    let layout = &place.layout;
    let others = [layout.shape[1], layout.offset, layout.strides[0]];
    layout.strides[1] == 1
        && (others.iter().chain(&layout.strides[2..])).all(|n| n.is_multiple_of(PIECE))
}

fn strides(place: &Place) -> Vec<usize> {
    place.layout.strides.to_vec()
}

/// Destination of pieces.
enum Target<'a> {
    /// Pixels one after the other.
    Rows(Scratch),
    Panels(&'a Panels),
}

/// Appends the launch that puts the channels of `x`, a tensor of rank 4, last.
fn channels_last(
    x: &Place,
    sharing: Sharing,
    pieces: usize,
    target: Target<'_>,
    numbers: Numbers,
    emitter: &mut Emitter,
) {
    const GROUP: usize = 256;
    /// Elements that the kernel takes together.
    const NEIGHBOURS: usize = 16;
    let text = include_str!("../../../kernels/cuda/channels_last.cu");
    let mut kernel = Kernel::new("channels_last", text, GROUP as u32);
    let images = x.ty.shape[0];
    let size = [x.ty.shape[2], sharing.width(x.ty.shape[3])];
    let (memory, row_pieces, stride, term_pieces) = match target {
        Target::Rows(memory) => (memory, 0, 0, images * size[0] * size[1] * pieces),
        Target::Panels(panels) => {
            let term_pieces = panels.count * PIECE * panels.stride;
            (
                panels.memory,
                panels.count * PIECE,
                panels.stride,
                term_pieces,
            )
        }
    };
    let items = match target {
        Target::Rows(_) => {
            let pixels = (images * size[0] * size[1]).next_multiple_of(NEIGHBOURS);
            match pieces {
                1 => pixels,
                _ => pixels * pieces.next_multiple_of(2),
            }
        }
        Target::Panels(_) => images * row_pieces,
    };
    kernel.define_dtype("X", x.ty.dtype);
    let is_panels = matches!(target, Target::Panels(_));
    kernel.define("IS_PANELS", u8::from(is_panels));
    kernel.define("TOGETHER", sharing.together);
    kernel.read("x", x);
    kernel.define("TERMS", numbers.terms);
    kernel.scratch("pieces", numbers.dtype, memory, true);
    kernel.word("images", images);
    kernel.word("channels", x.ty.shape[1]);
    kernel.word("pieces_count", pieces);
    kernel.words("size", &size);
    kernel.word("width", x.ty.shape[3]);
    kernel.word("before", sharing.before);
    kernel.words("strides", &x.layout.strides);
    kernel.word("row_pieces", row_pieces);
    kernel.word("stride", stride);
    kernel.word("term_pieces", term_pieces);
    emitter.launch(kernel.groups(items.div_ceil(GROUP), 1, 1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustorch_ir::Shape;

    #[test]
    fn windows_of_pieces_see_the_pixels_of_windows() {
        let (size, count) = (15, 6);
        for (stride, padding, kernel) in [(2, 3, 7), (2, 0, 4), (4, 2, 5), (2, 1, 1), (6, 4, 8)] {
            let op = Conv2d {
                stride: [1, stride],
                padding: [0, padding],
                ..Conv2d::default()
            };
            let sharing = Sharing::of(&op, 3, DType::BF16);
            assert_eq!(sharing.together, 2);
            let windows = sharing.windows(windows(&op, &Shape::from([1, 3, 1, kernel])));
            for at in 0..count {
                let mut seen = Vec::new();
                for tap in 0..windows.kernel_size[1] {
                    let piece = (at * windows.stride[1] + tap).wrapping_sub(windows.padding[1]);
                    for i in (0..2).filter(|_| piece < sharing.width(size)) {
                        let pixel = (piece * 2 + i).wrapping_sub(sharing.before);
                        let element = tap * 2 + i;
                        seen.extend((pixel < size && element < kernel).then_some([element, pixel]));
                    }
                }
                let pixel = |element: usize| (at * stride + element).wrapping_sub(padding);
                let expected = (0..kernel).map(|element| [element, pixel(element)]);
                let expected: Vec<_> = expected.filter(|[_, pixel]| *pixel < size).collect();
                assert_eq!(seen, expected, "{op:?}, {kernel} elements, window {at}");
            }
        }
    }

    #[test]
    fn pixels_share_pieces_where_all_windows_begin_with_them() {
        let of = |stride, dilation, channels, dtype| {
            let op = Conv2d {
                stride: [2, stride],
                dilation: [1, dilation],
                ..Conv2d::default()
            };
            Sharing::of(&op, channels, dtype).together
        };
        assert_eq!(of(2, 1, 4, DType::F16), 2);
        assert_eq!(of(2, 1, 5, DType::F16), 1);
        assert_eq!(of(2, 1, 3, DType::F32), 1);
        assert_eq!(of(3, 1, 3, DType::F16), 1);
        assert_eq!(of(2, 2, 3, DType::F16), 1);
    }
}
