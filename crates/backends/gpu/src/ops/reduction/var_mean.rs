//! Variance and mean over any dimensions, in two passes where results are few and elements many.

use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::lines::{Tile, VECTORS, exact, vector_of_pieces};
use super::reduce::{split, walk_lines};
use crate::driver::Limits;
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::{Kernel, accumulator};
use crate::ops::views::Memory;

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::VarMean,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

/// Elements that a lane reads at a time, if not [`VECTORS`] of several.
const EACH: usize = 8;

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let (Op::VarMean(op), [var, mean]) = (&step.last().op, &step.outputs[..]) else {
        return;
    };
    let x = &step.inputs[0];
    let (starts, along) = split(&x.layout, &op.dims);
    let (count, len) = (starts.elements(), along.elements());
    let of_line = Spread {
        divisor: Some(op.divisor(len)),
        is_root: op.root,
    };
    let results = [var, mean].map(Memory::Place);
    let elements = Elements {
        x: Memory::Place(x),
        parts: None,
        starts,
        along,
    };
    let tile = elements.tile(emitter.limits, len);
    let segment = tile.segment(count, len);
    if segment >= len {
        return elements.pass(len, results, [1, 0], of_line, emitter);
    }
    let segments = len.div_ceil(segment);
    let dtype = var.ty.dtype;
    let bytes = dtype.size().unwrap_or(0) * count * segments;
    let [lengths, means] = [(); 2].map(|()| Memory::Scratch(dtype, emitter.scratch(bytes)));
    // Parts lie as the elements do.
    let strides = match tile.is_across {
        true => [1, count],
        false => [segments, 1],
    };
    let of_segment = Spread {
        divisor: None,
        is_root: true,
    };
    elements.pass(segment, [lengths, means], strides, of_segment, emitter);
    let line = |n: usize, stride: usize| Layout {
        shape: [n].into(),
        strides: [stride].into_iter().collect(),
        offset: 0,
    };
    let parts = Elements {
        x: lengths,
        parts: Some(Parts {
            means,
            part: segment,
            whole: len,
        }),
        starts: line(count, strides[0]),
        along: line(segments, strides[1]),
    };
    parts.pass(segments, results, [1, 0], of_line, emitter);
}

/// Lines whose mean and variance are computed.
struct Elements<'a> {
    x: Memory<'a>,
    parts: Option<Parts<'a>>,
    /// Starts of lines, and the places of a line's elements from there.
    starts: Layout,
    along: Layout,
}

/// Form in which a sum of squares is written.
struct Spread {
    /// It is divided by this, or else by the number of elements.
    divisor: Option<f64>,
    /// Is the root taken afterwards?
    is_root: bool,
}

/// Means and sizes of parts of lines. Elements are the roots of the parts' mean squares.
struct Parts<'a> {
    means: Memory<'a>,
    /// Elements of a part but for the last one, and of a line.
    part: usize,
    whole: usize,
}

impl Elements<'_> {
    /// Number of neighbours that lanes load at a time, of segments of `segment` elements.
    fn vector(&self, segment: usize) -> usize {
        match self.parts {
            None => vector_of_pieces(self.x, &self.starts, &self.along, segment),
            Some(_) => 1,
        }
    }

    fn tile(&self, limits: &Limits, segment: usize) -> Tile {
        Tile::of_vectors(limits, &self.starts, &self.along, self.vector(segment))
    }

    /// Writes the spread and the mean of each segment of each line. Results lie in steps of `strides` for the line
    /// and the segment.
    fn pass(
        &self,
        segment: usize,
        [spreads, means]: [Memory; 2],
        strides: [usize; 2],
        spread: Spread,
        emitter: &mut Emitter,
    ) {
        let (count, len) = (self.starts.elements(), self.along.elements());
        let vector = self.vector(segment);
        let tile = self.tile(emitter.limits, segment);
        let text = concat!(
            include_str!("../../../kernels/lines.h"),
            include_str!("../../../kernels/vectors.h"),
            include_str!("../../../kernels/var_mean.c")
        );
        let mut kernel = Kernel::new("var_mean", text, tile.group());
        kernel.define_dtype("X", self.x.dtype());
        kernel.define_dtype("Y", spreads.dtype());
        let dtype = exact(spreads.dtype(), len, emitter.limits);
        kernel.define("ACCUMULATOR", accumulator(dtype));
        kernel.define("VECTOR", vector);
        kernel.define("EACH", if vector == 1 { EACH } else { VECTORS });
        match spread.divisor {
            Some(divisor) => kernel.real("DIVISOR", dtype, divisor),
            None => kernel.define("DIVISOR", "number"),
        }
        kernel.define("IS_ROOT", u8::from(spread.is_root));
        // Squares of distances from 1 / edge to edge are far from the ends of the dtype's range. So are those of
        // others, beside `far` or `1 / far`.
        let (edge, far) = match dtype {
            DType::F64 => (2f64.powi(320), 2f64.powi(680)),
            _ => (2f64.powi(40), 2f64.powi(84)),
        };
        kernel.real("EDGE", dtype, edge);
        kernel.real("FAR", dtype, far);
        kernel.real("NEAR", dtype, 1.0 / far);
        self.x.read(&mut kernel, "x");
        kernel.define("HAS_PARTS", u8::from(self.parts.is_some()));
        if let Some(parts) = &self.parts {
            parts.means.read(&mut kernel, "means");
            kernel.word("part", parts.part);
            kernel.word("whole", parts.whole);
        }
        spreads.write(&mut kernel, "y");
        means.write(&mut kernel, "mean_of");
        tile.declare(&mut kernel);
        let [starts, along] = [("starts", &self.starts), ("along", &self.along)];
        walk_lines(&mut kernel, &[starts], &[along]);
        kernel.word("count", count);
        kernel.word("len", len);
        kernel.word("segment", segment);
        kernel.word("y_line", strides[0]);
        kernel.word("y_segment", strides[1]);
        let segments = len.div_ceil(segment.max(1)).max(1);
        emitter.launch(kernel.groups(tile.groups(count), segments, 1));
    }
}
