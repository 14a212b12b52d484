//! Products whose weights are chosen row by row: a few rows by themselves, many in tiles of those that chose one
//! expert.

use rustorch_ir::{DType, OpKind, TensorType};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};
use smallvec::smallvec;

use super::cuda::{self, matmul, matvec};
use super::fused_linear::{Linear, Linears};
use super::product::{Factor, Product};
use super::{blocks, quantized};
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::{Kernel, Scratch};

pub(crate) const KERNELS: [KernelEntry<GpuKernel>; 3] = [
    KernelEntry {
        kind: OpKind::ExpertLinear,
        accepts: matvec::accepts_experts,
        layouts: Layouts::Aligned,
        launch: GpuKernel {
            emit: emit_few,
            suits: matvec::suits_experts,
        },
    },
    KernelEntry {
        kind: OpKind::ExpertLinear,
        accepts: |s| {
            !are_few(s.inputs[2], s.inputs[1]) && matmul::accepts_experts(s.inputs[0], s.inputs[1])
        },
        layouts: Layouts::Aligned,
        launch: GpuKernel {
            emit: emit_many,
            suits: cuda::has_warpgroups,
        },
    },
    KernelEntry {
        kind: OpKind::ExpertLinear,
        accepts: |_| true,
        layouts: Layouts::Contiguous,
        launch: GpuKernel::everywhere(emit),
    },
];

/// Rows for each expert up to which reading its weights for each is sooner done than sorting rows.
const FEW: usize = 2;

/// Is each row multiplied by itself?
fn are_few(ids: &TensorType, w: &TensorType) -> bool {
    ids.shape.elements() <= FEW * w.shape[0]
}

/// The experts that rows of a product chose.
#[derive(Clone, Copy)]
pub(crate) struct Experts<'a> {
    /// One for each row.
    ids: &'a Place,
    count: usize,
    /// Rows of the result.
    pub(crate) rows: usize,
    /// Rows of the result that share a row of activations.
    sharing: usize,
    /// Is each row multiplied by itself?
    are_few: bool,
    /// The code to report of ids outside.
    code: u32,
}

/// Rows sorted by expert, in tiles, see `kernels/expert_rows.c`.
pub(crate) struct Sorted {
    order: Scratch,
    sources: Scratch,
    tiles: Scratch,
    /// Number of tiles.
    pub(crate) count: usize,
}

impl<'a> Experts<'a> {
    fn new(step: &'a Step, emitter: &mut Emitter) -> Self {
        let [x, w, ids] = [0, 1, 2].map(|i| &step.inputs[i]);
        let (count, rows) = (w.ty.shape[0], ids.ty.shape.elements());
        let range = format!("{count} experts");
        Self {
            ids,
            count,
            rows,
            sharing: match x.ty.shape[1] {
                1 => ids.ty.shape[1].max(1),
                _ => 1,
            },
            are_few: are_few(&ids.ty, &w.ty),
            code: emitter.outside(step, ids, count, range),
        }
    }

    /// Is each row multiplied by itself?
    pub(crate) fn are_few(&self) -> bool {
        self.are_few
    }

    /// Rows of an expert, on average.
    pub(crate) fn rows_of_each(&self) -> usize {
        self.rows.div_ceil(self.count.max(1))
    }

    /// Appends the launch that sorts the rows, for tiles of `rows` rows.
    pub(crate) fn sort(&self, rows: usize, emitter: &mut Emitter) -> Sorted {
        let group = if emitter.limits.is_processor { 1 } else { 128 };
        let words = |emitter: &mut Emitter, count: usize| emitter.scratch(count * size_of::<u32>());
        let count = self.rows / rows + self.count;
        let sorted = Sorted {
            order: words(emitter, self.rows),
            sources: words(emitter, self.rows),
            tiles: words(emitter, 3 * count),
            count,
        };
        let text = include_str!("../../kernels/expert_rows.c");
        let mut kernel = Kernel::new("expert_rows", text, group);
        kernel.define("ROWS", rows);
        self.define(&mut kernel);
        sorted.pass(&mut kernel, true);
        kernel.word("rows", self.rows);
        emitter.launch(kernel.groups(self.count, 1, 1));
        sorted
    }

    /// Lets a kernel look ids up.
    pub(crate) fn define(&self, kernel: &mut Kernel) {
        kernel.define_dtype("INDEX", self.ids.ty.dtype);
        kernel.read("ids", self.ids);
        kernel.word("experts", self.count);
        kernel.word("sharing", self.sharing);
        kernel.status("status", self.code);
    }
}

impl Sorted {
    /// Lets a kernel go through the tiles.
    pub(crate) fn pass(&self, kernel: &mut Kernel, written: bool) {
        for (name, words) in [
            ("order", self.order),
            ("sources", self.sources),
            ("tiles", self.tiles),
        ] {
            kernel.scratch(name, DType::U32, words, written);
        }
    }
}

/// A kernel's text that knows of experts.
pub(crate) fn text(kernel: &str) -> String {
    format!("{}\n{kernel}", include_str!("../../kernels/experts.h"))
}

/// Appends the launch of CUDA's kernel for few rows.
fn emit_few(step: &Step, emitter: &mut Emitter) {
    let linears = Linears {
        x: &step.inputs[0],
        norm: None,
        each: smallvec![Linear {
            w: &step.inputs[1],
            bias: None,
            y: Some(step.output()),
        }],
        other: None,
        gate: None,
        experts: Some(Experts::new(step, emitter)),
    };
    matvec::emit(&linears, emitter);
}

/// Appends the launches of CUDA's kernels for many.
fn emit_many(step: &Step, emitter: &mut Emitter) {
    let experts = Experts::new(step, emitter);
    let operands = [&step.inputs[0], &step.inputs[1], step.output()];
    matmul::emit_experts(operands, &experts, emitter);
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let (x, w, y) = (&step.inputs[0], &step.inputs[1], step.output());
    let experts = Experts::new(step, emitter);
    if blocks::format(w.ty.dtype).is_some() {
        return quantized::multiply([x, w, y], None, Some(experts), emitter);
    }
    let [n, k] = [1, 2].map(|d| w.ty.shape[d]);
    let (m, batch) = match experts.are_few() {
        true => (1, vec![experts.rows / experts.sharing, experts.sharing]),
        false => (experts.rows, Vec::new()),
    };
    let strides = |of_batch: [usize; 2]| of_batch[..batch.len()].to_vec();
    let factor = |place, of_batch| Factor {
        place,
        outer: k,
        inner: 1,
        batch: strides(of_batch),
    };
    let product = Product {
        m,
        k,
        n,
        a: factor(x, [k, 0]),
        b: factor(w, [0, 0]),
        batch,
        bias: None,
        y,
        experts: Some(experts),
    };
    product.emit(emitter);
}
