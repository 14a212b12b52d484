//! Convolutions as products, without a matrix of windows: the rows of pixels that are
//! multiplied are gathered on their way to local memory.

use rustorch_ir::{DType, Op, Signature};
use rustorch_runtime::{Place, Step};
use smallvec::smallvec;

use super::matmul::{Kind, Launch, Memory, Numbers, Panels, Weights};
use crate::emit::Emitter;
use crate::kernel::{Kernel, Scratch};
use crate::ops::conv2d::windows;

/// Channels that are copied at a time.
const PIECE: usize = 8;

/// Is this convolution one of those?
pub(crate) fn accepts(s: &Signature) -> bool {
    let dtype = s.output().dtype;
    matches!(s.op, Op::Conv2d(op) if op.groups == 1)
        && matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
        && s.inputs[1].shape.elements() > 0
}

/// Appends its launches.
pub(crate) fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Conv2d(op) = &step.last().op else {
        return;
    };
    let windows = windows(op, &step.inputs[1].ty.shape);
    let (x, w, y) = (&step.inputs[0], &step.inputs[1], step.output());
    let pieces = x.ty.shape[1].div_ceil(PIECE);
    let taps = windows.kernel_size.iter().product::<usize>();
    let k = taps * pieces * PIECE;
    let numbers = Numbers::of(y.ty.dtype);
    let weights = Panels::new(w.ty.shape[0], k, Kind::Pixels, numbers, emitter);
    channels_last(w, pieces, Target::Panels(&weights), numbers, emitter);
    let size = [x.ty.shape[2], x.ty.shape[3]];
    let term_pieces = x.ty.shape[0] * size[0] * size[1] * pieces;
    let images = emitter.scratch(numbers.terms * term_pieces * PIECE * 2);
    channels_last(x, pieces, Target::Rows(images), numbers, emitter);

    let plane = y.ty.shape[2] * y.ty.shape[3];
    let launch = Launch {
        m: y.ty.shape[1],
        k,
        x: weights,
        kind: Kind::Pixels,
        w_stride: 0,
        weights: smallvec![Weights {
            w: Memory::Scratch(images),
            n: y.ty.shape[0] * plane,
            bias: step.inputs.get(2),
        }],
        results: smallvec![y],
        other: None,
        gate: None,
        given: (numbers.terms > 1).then(|| [w, x].map(|place| (place, strides(place)))),
        words: vec![
            ("channels", vec![x.ty.shape[1]]),
            ("term_pieces", vec![term_pieces]),
            ("plane", vec![plane]),
            ("out_width", vec![y.ty.shape[3]]),
            ("pieces_count", vec![pieces]),
            ("size", size.to_vec()),
            ("kernel_size", windows.kernel_size.to_vec()),
            ("stride", windows.stride.to_vec()),
            ("padding", windows.padding.to_vec()),
            ("dilation", windows.dilation.to_vec()),
        ],
    };
    launch.emit(emitter);
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
