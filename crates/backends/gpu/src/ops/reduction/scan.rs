//! Each element combined with all before it along a dimension. Few long lines are computed in
//! segments, which begin with the result of the segments before.

use rustorch_ir::ops::{ReduceOp, ScanOp};
use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Step};

use super::lines::Tile;
use super::reduce::{Combination, Elements, Lines};
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::Kernel;
use crate::ops::views::{Memory, split, walk};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Scan,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

/// Elements that a lane combines at a time.
const EACH: usize = 4;

fn accepts(_: &Signature) -> bool {
    true
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Scan(op) = &step.last().op else {
        return;
    };
    let (x, y) = (&step.inputs[0], step.output());
    let (x_lines, x_along) = split(&x.layout, op.dim);
    let (count, len) = (x_lines.elements(), x_along.elements());
    let tile = Tile::new(emitter.limits, &x_lines, &x_along);
    let segment = tile.segment(count, len);
    let segments = len.div_ceil(segment);
    let combination = combination(op.op, x.ty.dtype);
    let combination = combination.exactly(op.op == ScanOp::Sum, emitter.limits);
    let dtype = combination.dtype;
    let carries = (segments > 1).then(|| {
        let bytes = count * segments * dtype.size().unwrap_or(0);
        let [totals, carries] = [(); 2].map(|()| Memory::Scratch(dtype, emitter.scratch(bytes)));
        let lines = Lines {
            x: Elements::Memory(Memory::Place(x)),
            starts: x_lines,
            along: x_along,
        };
        lines.pass(
            &combination,
            segment,
            (totals, [segments, 1]),
            None,
            emitter,
        );
        let view = Layout::contiguous(&[count, segments].into());
        let running = Running {
            combination: &combination,
            memory: [totals, carries],
            views: [&view, &view],
            dim: 1,
        };
        running.pass(None, segments, emitter);
        carries
    });
    let running = Running {
        combination: &combination,
        memory: [Memory::Place(x), Memory::Place(y)],
        views: [&x.layout, &Layout::contiguous(&y.ty.shape)],
        dim: op.dim,
    };
    running.pass(carries, segment, emitter);
}

/// Combination of a scan's elements of `dtype`.
fn combination(op: ScanOp, dtype: DType) -> Combination {
    let reduction = |op, start: Option<String>| {
        let combination = Combination::of(op, dtype);
        Combination {
            start: start.or(combination.start),
            ..combination
        }
    };
    match op {
        ScanOp::Sum => reduction(ReduceOp::Sum, None),
        ScanOp::Prod => reduction(ReduceOp::Prod, None),
        ScanOp::Max => reduction(ReduceOp::Max, Some(least(dtype))),
        ScanOp::Min => reduction(ReduceOp::Min, Some(greatest(dtype))),
        ScanOp::LogSumExp => Combination {
            functions: include_str!("../../../kernels/log_add_exp.h"),
            combine: "log_add_exp(a, b)".to_owned(),
            start: Some(least(dtype)),
            ..Combination::of(ReduceOp::Sum, dtype)
        },
    }
}

/// No number of `dtype` is above.
fn greatest(dtype: DType) -> String {
    match dtype {
        DType::Bool => "1".to_owned(),
        d if d.is_float() => "INFINITY".to_owned(),
        DType::U64 => format!("{}UL", u64::MAX),
        d if d.is_unsigned() => format!("{}u", u64::MAX >> (64 - bits(d))),
        d => format!("{}L", i64::MAX >> (64 - bits(d))),
    }
}

/// No number of `dtype` is below.
fn least(dtype: DType) -> String {
    match dtype {
        DType::Bool => "0".to_owned(),
        d if d.is_float() => "-INFINITY".to_owned(),
        d if d.is_unsigned() => "0".to_owned(),
        d => format!("(-{}L - 1)", i64::MAX >> (64 - bits(d))),
    }
}

fn bits(dtype: DType) -> usize {
    8 * dtype.size().unwrap_or(8)
}

/// Elements, and the place of their results.
struct Running<'a> {
    combination: &'a Combination,
    memory: [Memory<'a>; 2],
    views: [&'a Layout; 2],
    dim: usize,
}

impl Running<'_> {
    /// Goes through the segments of `segment` elements, which begin with `carries`.
    fn pass(&self, carries: Option<Memory>, segment: usize, emitter: &mut Emitter) {
        let [(x_lines, x_along), (y_lines, y_along)] = self.views.map(|v| split(v, self.dim));
        let (count, len) = (x_lines.elements(), x_along.elements());
        let tile = Tile::new(emitter.limits, &x_lines, &x_along);
        let text = concat!(
            include_str!("../../../kernels/lines.h"),
            include_str!("../../../kernels/scan.c")
        );
        let text = self.combination.functions.to_owned() + text;
        let mut kernel = Kernel::new("scan", text, tile.group());
        let [x, y] = self.memory;
        kernel.define_dtype("X", x.dtype());
        kernel.define_dtype("Y", y.dtype());
        self.combination.define(&mut kernel);
        kernel.define("EACH", EACH);
        kernel.define("HAS_CARRIES", u8::from(carries.is_some()));
        x.read(&mut kernel, "x");
        y.write(&mut kernel, "y");
        if let Some(carries) = carries {
            carries.read(&mut kernel, "carries");
        }
        tile.declare(&mut kernel);
        walk(&mut kernel, "starts", &[("x", &x_lines), ("y", &y_lines)]);
        let segments = len.div_ceil(segment);
        kernel.word("count", count);
        kernel.word("len", len);
        kernel.word("segment", segment);
        kernel.word("segments", segments);
        kernel.word("x_step", x_along.strides[0]);
        kernel.word("y_step", y_along.strides[0]);
        emitter.launch(kernel.groups(tile.groups(count), segments, 1));
    }
}
