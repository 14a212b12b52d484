//! Products whose weights are chosen row by row: a few rows by themselves, many in tiles of those that chose one
//! expert.

use std::fmt::Write;

use rustorch_ir::ops::{ExpertEpilogue, FusedExpertLinear};
use rustorch_ir::{DType, Graph, Op, OpKind, Signature, TensorType};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::product::{Factor, Product};
use super::{blocks, quantized};
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::{Kernel, Scratch, name};
use crate::ops::cuda::matmul::Memory;
use crate::ops::cuda::{self, matmul, matvec_experts};
use crate::ops::functions::expression;
use crate::ops::special;

pub(crate) const KERNELS: [KernelEntry<GpuKernel>; 5] = [
    KernelEntry {
        kind: OpKind::FusedExpertLinear,
        accepts: |s| Behind::fits(s) && are_few_choices(s),
        layouts: Layouts::Aligned,
        launch: GpuKernel {
            emit: emit_few,
            suits: |device, s| matvec_experts::suits(device, factors(s), slots(s)),
        },
    },
    KernelEntry {
        kind: OpKind::FusedExpertLinear,
        accepts: |s| Behind::fits(s) && are_tiled(s) && has_vectors(s),
        layouts: Layouts::Aligned,
        launch: GpuKernel {
            emit: emit_many,
            suits: cuda::has_warpgroups,
        },
    },
    KernelEntry {
        kind: OpKind::ExpertLinear,
        accepts: are_few_choices,
        layouts: Layouts::Aligned,
        launch: GpuKernel {
            emit: emit_few,
            suits: |device, s| matvec_experts::suits(device, factors(s), slots(s)),
        },
    },
    KernelEntry {
        kind: OpKind::ExpertLinear,
        accepts: are_tiled,
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

/// The operation, if there are others behind the products.
fn fused(op: &Op) -> Option<&FusedExpertLinear> {
    match op {
        Op::FusedExpertLinear(op) => Some(op),
        _ => None,
    }
}

/// Number of products, and the operand of the ids.
fn products(op: &Op) -> (usize, usize) {
    fused(op).map_or((1, 2), |op| (op.products(), op.ids()))
}

/// Is the result made of two products?
fn is_gate(op: &Op) -> bool {
    products(op).0 == 2
}

/// The rows, the weights, of which all have one type, and the ids.
fn factors<'a>(s: &Signature<'a>) -> [&'a TensorType; 3] {
    let (_, ids) = products(s.op);
    [0, 1, ids].map(|i| s.inputs[i])
}

/// Can each row of a few be multiplied by itself?
fn are_few_choices(s: &Signature) -> bool {
    matvec_experts::accepts(factors(s), slots(s))
}

/// The slots that are summed up; 0 if there is no sum.
fn slots(s: &Signature) -> usize {
    let sums = fused(s.op).is_some_and(|op| op.slot_weights().is_some());
    if sums { factors(s)[2].shape[1] } else { 0 }
}

/// Are rows of a sum whole vectors?
fn has_vectors(s: &Signature) -> bool {
    is_gate(s.op) || s.inputs[1].shape[1].is_multiple_of(VECTOR)
}

/// Can rows be sorted, and be multiplied on tensor cores?
fn are_tiled(s: &Signature) -> bool {
    let [x, w, ids] = factors(s);
    !are_few(ids, w) && matmul::accepts_experts(x, w)
}

/// Numbers that a work-item of `kernels/cuda/expert_sum.cu` makes.
const VECTOR: usize = 4;

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
    pub(crate) ids: &'a Place,
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
        let (_, ids) = products(&step.last().op);
        let [x, w, ids] = [0, 1, ids].map(|i| &step.inputs[i]);
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
        let text = include_str!("../../../kernels/expert_rows.c");
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
    format!("{}\n{kernel}", include_str!("../../../kernels/experts.h"))
}

/// Operations behind products, in single precision.
pub(crate) struct Behind<'a> {
    /// Tables, of which each row of a product has that of its expert.
    pub(crate) tables: Vec<&'a Place>,
    /// The function `after` of both products and of rows of the tables, as text.
    pub(crate) gate: Option<String>,
    /// Weights of a sum's slots, and their number.
    sum: Option<(&'a Place, usize)>,
    /// Another term of the sum.
    pub(crate) other: Option<&'a Place>,
}

impl<'a> Behind<'a> {
    /// Tables that kernels have room for.
    const TABLES: usize = 2;

    /// Can kernels do the operations?
    fn fits(s: &Signature) -> bool {
        fused(s.op).is_some_and(|op| {
            let is_known = match &op.epilogue {
                ExpertEpilogue::Gate(body) => after(body).is_some(),
                ExpertEpilogue::Sum { .. } => true,
            };
            s.output().dtype == DType::F32 && op.tables <= Self::TABLES && is_known
        })
    }

    fn new(op: &FusedExpertLinear, step: &'a Step) -> Self {
        let operand = |i: usize| &step.inputs[i];
        Self {
            tables: (0..op.tables).map(|i| operand(op.table(i))).collect(),
            gate: match &op.epilogue {
                ExpertEpilogue::Gate(body) => after(body),
                ExpertEpilogue::Sum { .. } => None,
            },
            sum: (op.slot_weights()).map(|i| (operand(i), operand(op.ids()).ty.shape[1])),
            other: op.other().map(operand),
        }
    }

    /// Slots of a sum; 0 if there is none.
    pub(crate) fn slots(&self) -> usize {
        self.sum.map_or(0, |(_, slots)| slots)
    }

    /// A kernel's text behind the function `after`.
    pub(crate) fn with_gate(&self, text: &str) -> String {
        match &self.gate {
            Some(gate) => special::with_definitions(format!("{gate}{text}")),
            None => text.to_owned(),
        }
    }

    /// Lets a kernel do them.
    pub(crate) fn pass(&self, kernel: &mut Kernel) {
        for (i, table) in self.tables.iter().enumerate() {
            kernel.read(&format!("table{i}"), table);
        }
        if let Some((weights, _)) = self.sum {
            kernel.read("slot_weights", weights);
        }
        if self.gate.is_some() {
            let rows = (0..self.tables.len()).map(|i| format!(", (rows)[{i}]"));
            let rows: String = rows.collect();
            kernel.define("AFTER(a, b, rows)", format!("after(a, b{rows})"));
        }
    }
}

/// The text of the function `after` that does the elementwise operations of a graph in single precision; `None` if it
/// has others.
fn after(body: &Graph) -> Option<String> {
    let inputs = 0..body.inputs().len();
    let mut values: Vec<String> = inputs.map(|i| format!("v{i}")).collect();
    let parameters: Vec<String> = values.iter().map(|v| format!("float {v}")).collect();
    let mut text = format!("FUNCTION float after({}) {{\n", parameters.join(", "));
    for (at, node) in body.nodes().iter().enumerate() {
        let dtype = node.output().dtype;
        let names: Vec<&str> = (node.inputs.iter())
            .map(|value| values[value.index()].as_str())
            .collect();
        let value = match (&node.op, dtype) {
            (Op::Full(full), DType::F32) => {
                let bits = (full.value.as_f64() as f32).to_bits();
                format!("F32_OF_BITS({bits}u)")
            }
            (op, DType::F32 | DType::Bool) => {
                let from = body.ty(*node.inputs.last()?).dtype;
                expression(op, from, dtype, &names)?
            }
            _ => return None,
        };
        let _ = writeln!(text, "    const compute_{} t{at} = {value};", name(dtype));
        values.push(format!("t{at}"));
    }
    let result = body.outputs().first()?.index();
    let _ = writeln!(text, "    return {};\n}}", values[result]);
    Some(text)
}

/// The operands that have the weights of products.
fn weights(step: &Step) -> &[Place] {
    let (products, _) = products(&step.last().op);
    &step.inputs[1..=products]
}

/// Appends the launch of CUDA's kernel for few rows.
fn emit_few(step: &Step, emitter: &mut Emitter) {
    let experts = Experts::new(step, emitter);
    let behind = fused(&step.last().op).map(|op| Behind::new(op, step));
    let operands = (&step.inputs[0], weights(step), step.output());
    matvec_experts::emit(operands, &experts, behind.as_ref(), emitter);
}

/// Appends the launches of CUDA's kernels for many.
fn emit_many(step: &Step, emitter: &mut Emitter) {
    let experts = Experts::new(step, emitter);
    let (x, weights, y) = (&step.inputs[0], weights(step), step.output());
    let behind = fused(&step.last().op).map(|op| Behind::new(op, step));
    let Some((behind, (_, slots))) = behind.as_ref().and_then(|b| Some((b, b.sum?))) else {
        let operands = (x, weights, Memory::Place(y));
        return matmul::emit_experts(operands, &experts, behind.as_ref(), emitter);
    };
    let n = weights[0].ty.shape[1];
    let rows = emitter.scratch(experts.rows * n * size_of::<f32>());
    matmul::emit_experts((x, weights, Memory::Scratch(rows)), &experts, None, emitter);

    const GROUP: usize = 256;
    let text = include_str!("../../../kernels/cuda/expert_sum.cu");
    let mut kernel = Kernel::new("expert_sum", text, GROUP as u32);
    experts.define(&mut kernel);
    kernel.define("TABLES", behind.tables.len());
    behind.pass(&mut kernel);
    kernel.scratch("x", DType::F32, rows, false);
    kernel.define("HAS_OTHER", u8::from(behind.other.is_some()));
    if let Some(other) = behind.other {
        kernel.read("other", other);
    }
    kernel.write("y", y);
    let count = y.ty.shape.elements() / VECTOR;
    for (name, size) in [("count", count), ("vectors", n / VECTOR), ("slots", slots)] {
        kernel.word(name, size);
    }
    emitter.launch(kernel.groups(count.div_ceil(GROUP), 1, 1));
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
