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

/// Is this convolution one of those?
pub(crate) fn accepts(s: &Signature) -> bool {
    matches!(s.op, Op::Conv2d(op) if op.groups == 1) && has_numbers(s)
}

/// Are there weights, and numbers that tensor cores have?
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
    let convolution = Convolution {
        windows: windows(op, &w.ty.shape),
        w,
        bias: operands.get(2).copied(),
        y,
    };
    convolution.emit(&Images::new(x, emitter), emitter);
}

/// A convolution of images: their windows times the weights `w` are `y`, a view.
pub(super) struct Convolution<'a> {
    /// Paddings and dilations are numbers modulo 2³², of which those above the half stand for
    /// negative ones.
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
            numbers,
            pieces,
            term_pieces,
            memory,
        } = images;
        let taps = windows.kernel_size.iter().product::<usize>();
        let k = taps * pieces * PIECE;
        let weights = Panels::new(w.ty.shape[0], k, Kind::Pixels, numbers, emitter);
        channels_last(w, pieces, Target::Panels(&weights), numbers, emitter);
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
            results: smallvec![*y],
            other: None,
            gate: None,
            is_wide: numbers.terms == 1 && has_pieces(y),
            given: (numbers.terms > 1).then(|| [*w, x].map(|place| (place, strides(place)))),
            words: vec![
                ("channels", vec![x.ty.shape[1]]),
                ("term_pieces", vec![term_pieces]),
                ("plane", vec![plane]),
                ("out_width", vec![y.ty.shape[3]]),
                ("y_strides", strides(y)),
                ("pieces_count", vec![pieces]),
                ("size", x.ty.shape[2..].to_vec()),
                ("kernel_size", windows.kernel_size.to_vec()),
                ("stride", windows.stride.to_vec()),
                ("padding", windows.padding.to_vec()),
                ("dilation", windows.dilation.to_vec()),
            ],
        };
        launch.emit(emitter);
    }
}

/// Images with their channels last, in `pieces` pieces a pixel.
pub(super) struct Images<'a> {
    place: &'a Place,
    numbers: Numbers,
    pub(super) pieces: usize,
    /// Pieces of each of the terms.
    term_pieces: usize,
    pub(super) memory: Memory<'a>,
}

impl<'a> Images<'a> {
    /// Appends the launch that makes them, where they are not so already.
    pub(super) fn new(place: &'a Place, emitter: &mut Emitter) -> Self {
        let shape = &place.ty.shape;
        let numbers = Numbers::of(place.ty.dtype);
        let pieces = shape[1].div_ceil(PIECE);
        let term_pieces = shape[0] * shape[2] * shape[3] * pieces;
        let is_so = numbers.terms == 1
            && has_pieces(place)
            && place.layout.permute(&ChannelsLast::ORDER).is_contiguous();
        let memory = match is_so {
            true => Memory::Place(place),
            false => {
                let memory = emitter.scratch(numbers.terms * term_pieces * PIECE * 2);
                channels_last(place, pieces, Target::Rows(memory), numbers, emitter);
                Memory::Scratch(memory)
            }
        };
        Self {
            place,
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

/// Where pieces go.
enum Target<'a> {
    /// One pixel after the other.
    Rows(Scratch),
    Panels(&'a Panels),
}

/// Appends the launch that puts the channels of `x`, a tensor of rank 4, last.
fn channels_last(
    x: &Place,
    pieces: usize,
    target: Target<'_>,
    numbers: Numbers,
    emitter: &mut Emitter,
) {
    const GROUP: usize = 256;
    /// What the kernel takes together.
    const NEIGHBOURS: usize = 16;
    let text = include_str!("../../../kernels/cuda/channels_last.cu");
    let mut kernel = Kernel::new("channels_last", text, GROUP as u32);
    let (images, size) = (x.ty.shape[0], &x.ty.shape[2..]);
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
            pixels * pieces.next_multiple_of(2)
        }
        Target::Panels(_) => images * row_pieces,
    };
    kernel.define_dtype("X", x.ty.dtype);
    let is_panels = matches!(target, Target::Panels(_));
    kernel.define("IS_PANELS", u8::from(is_panels));
    kernel.read("x", x);
    kernel.define("TERMS", numbers.terms);
    kernel.scratch("pieces", numbers.dtype, memory, true);
    kernel.word("images", images);
    kernel.word("channels", x.ty.shape[1]);
    kernel.word("pieces_count", pieces);
    kernel.words("size", size);
    kernel.words("strides", &x.layout.strides);
    kernel.word("row_pieces", row_pieces);
    kernel.word("stride", stride);
    kernel.word("term_pieces", term_pieces);
    emitter.launch(kernel.groups(items.div_ceil(GROUP), 1, 1));
}
