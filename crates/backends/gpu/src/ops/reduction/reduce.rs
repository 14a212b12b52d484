//! Reductions over any dimensions, in two passes where results are few and elements many.

use std::fmt::Write;
use std::ops::Range;

use rustorch_ir::ops::ReduceOp;
use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, PartOperand, Step};

use super::lines::{NEIGHBOURS, Tile, VECTORS, vector};
use crate::driver::Limits;
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::{Kernel, name};
use crate::ops::functions::rounded;
use crate::ops::views::{Memory, PARTS, WIDEST, define_rank, walk};
use crate::ops::{pointwise, special};

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Reduce,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

/// Elements, or vectors of them, that a lane reads at a time.
const EACH: usize = VECTORS;

/// Elements of lines beside each other from which on they are read in vectors, in segments of some of them.
const LONG: usize = 1024;

/// Vectors of such lines that a lane reads at a time, and lanes that have the same of them.
const EACH_ACROSS: usize = 8;
const TEAM_ACROSS: usize = 8;

/// Groups of a compute unit for them.
const GROUPS_ACROSS: usize = 4;

fn accepts(_: &Signature) -> bool {
    true
}

/// Appends the kernels of a reduction, with the elementwise operations that are fused with it.
pub(crate) fn emit(step: &Step, emitter: &mut Emitter) {
    let Some(reduction) = &step.reduction else {
        return;
    };
    let part = &step.parts[reduction.part];
    let Op::Reduce(op) = &part.op else { return };
    let (x, layout) = match part.operands[0] {
        PartOperand::Input(at) => {
            let place = &step.inputs[at];
            let x = Elements::Memory(Memory::Place(place));
            (x, place.layout.clone())
        }
        PartOperand::Part(_) => {
            let chain = Chain::new(step, reduction.part, &op.dims);
            (Elements::Computed(chain), step.domain_layout())
        }
    };
    let (starts, along) = split(&layout, &op.dims);
    let lines = Lines { x, starts, along };
    let combination = Combination::of(op.op, step.dtype(part.operands[0]));
    let combination = combination.exactly(op.op == ReduceOp::Sum, emitter.limits);
    let epilogue = (reduction.part + 1 < step.parts.len()).then_some(step);
    let y = Memory::Place(step.output());
    lines.reduce(&combination, y, epilogue, emitter);
}

/// The dimensions of a layout that are kept, and those that are reduced.
pub(in crate::ops) fn split(layout: &Layout, reduced: &[usize]) -> (Layout, Layout) {
    let (kept, along) = order(layout, reduced);
    (layout.permute(&kept), layout.permute(&along))
}

/// The dimensions that are kept, and those that are reduced, in the order of memory.
fn order(layout: &Layout, reduced: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let strides = &layout.strides;
    let (mut along, kept): (Vec<usize>, Vec<usize>) =
        (0..strides.len()).partition(|d| reduced.contains(d));
    along.sort_by_key(|&d| std::cmp::Reverse(strides[d]));
    (kept, along)
}

/// Elements to reduce.
pub(in crate::ops) enum Elements<'a> {
    /// Elements in memory.
    Memory(Memory<'a>),
    /// Computed.
    Computed(Chain<'a>),
}

/// The elementwise operations before a reduction.
pub(in crate::ops) struct Chain<'a> {
    step: &'a Step,
    /// The index of the reduction.
    reduction: usize,
    /// The operands that are read, with the layouts of lines' starts and along lines; those of one
    /// element have none.
    operands: Vec<(usize, Option<(Layout, Layout)>)>,
}

impl<'a> Chain<'a> {
    fn new(step: &'a Step, reduction: usize, dims: &[usize]) -> Self {
        let domain = step.domain();
        // In the order of most of the memory.
        let order = |layout: &Layout| {
            let (kept, along) = order(&step.domain_layout(), dims);
            (layout.permute(&kept), layout.permute(&along))
        };
        let read = operands_of(step, 0..reduction);
        let lines = |at: usize| {
            let layout = step.inputs[at].layout.broadcast_to(domain);
            let is_one = layout.strides.iter().all(|&stride| stride == 0);
            (at, (!is_one).then(|| order(&layout)))
        };
        Self {
            step,
            reduction,
            operands: read.into_iter().map(lines).collect(),
        }
    }

    /// Number of neighbours of a line that can be loaded of each operand at once; 1 if they are not all of one size
    /// and in whole vectors.
    fn vector(&self) -> usize {
        let of_lines = self
            .operands
            .iter()
            .filter_map(|(k, lines)| Some((*k, lines.as_ref()?)));
        let vectors = of_lines.map(|(k, (starts, along))| {
            let place = &self.step.inputs[k];
            let size = place
                .ty
                .dtype
                .size()
                .filter(|_| PARTS.contains(&place.ty.dtype))?;
            let vector = WIDEST / size;
            let [line] = Layout::collapse([along]);
            let mut steps = starts.strides.iter().chain([&along.offset]);
            let fits = line.strides[..] == [1]
                && along.elements().is_multiple_of(vector)
                && steps.all(|step| step.is_multiple_of(vector));
            fits.then_some(vector)
        });
        let vectors: Option<Vec<usize>> = vectors.collect();
        match vectors.as_deref() {
            Some([first, rest @ ..]) if rest.iter().all(|vector| vector == first) => *first,
            _ => 1,
        }
    }

    /// Tells a kernel how elements are computed, `vector` at a time, and returns the text for it.
    fn declare(&self, vector: usize, kernel: &mut Kernel, emitter: &mut Emitter) -> String {
        let step = self.step;
        let (mut begin, mut load, mut element) = (String::new(), String::new(), String::new());
        let mut views = (Vec::new(), Vec::new());
        for (k, lines) in &self.operands {
            let place = &step.inputs[*k];
            kernel.read(&format!("x{k}"), place);
            let t = name(place.ty.dtype);
            let at = match lines {
                None => "0".to_owned(),
                Some((starts, along)) => {
                    views.0.push((format!("starts{k}"), starts));
                    views.1.push((format!("along{k}"), along));
                    let _ = write!(
                        begin,
                        "uint s{k} = 0; ADD_OFFSET(s{k}, line, p.starts_rank, p.starts_shape, \
                         p.starts{k}_strides) "
                    );
                    let _ = match vector {
                        1 => write!(
                            element,
                            "uint a{k} = s{k}; ADD_OFFSET(a{k}, j, ALONG_RANK, p.along_shape, \
                             p.along{k}_strides) "
                        ),
                        _ => write!(
                            load,
                            "uint w{k}[4]; LOAD_4_WORDS(w{k}, x{k}, (s{k} + (j)) / VECTOR) "
                        ),
                    };
                    format!("a{k}")
                }
            };
            let value = match lines {
                Some(_) if vector > 1 => format!("PART({t}, w{k}, j)"),
                _ => format!("LOAD({t}, x{k}, {at})"),
            };
            let _ = write!(element, "const compute_{t} v{k}_0 = {value}; ");
        }
        walk_lines(kernel, &named(&views.0), &named(&views.1));
        for at in 0..self.reduction {
            pointwise::compute(step, at, 0, Some(kernel), emitter, &mut element);
        }
        let PartOperand::Part(last) = step.parts[self.reduction].operands[0] else {
            return String::new();
        };
        let t = name(step.parts[last].dtype);
        let _ = write!(element, "const compute_{t} name = t{last};");
        let element = element.replace('\n', " ");
        let load = match vector {
            1 => String::new(),
            _ => format!("#define LOAD_ELEMENTS(j) {load}\n"),
        };
        format!("#define BEGIN_LINE(line) {begin}\n{load}#define ELEMENT(name, j) {element}\n")
    }
}

/// The operands that some parts of a step read, each once.
fn operands_of(step: &Step, parts: Range<usize>) -> Vec<usize> {
    let operands = step.parts[parts].iter().flat_map(|part| &part.operands);
    let mut read: Vec<usize> = operands
        .filter_map(|operand| match *operand {
            PartOperand::Input(at) => Some(at),
            PartOperand::Part(_) => None,
        })
        .collect();
    read.sort_unstable();
    read.dedup();
    read
}

fn named<'a>(views: &'a [(String, &'a Layout)]) -> Vec<(&'a str, &'a Layout)> {
    let views = views.iter();
    views
        .map(|(name, layout)| (name.as_str(), *layout))
        .collect()
}

/// The parameters to find lines and their elements.
pub(in crate::ops) fn walk_lines(
    kernel: &mut Kernel,
    starts: &[(&str, &Layout)],
    along: &[(&str, &Layout)],
) {
    walk(kernel, "starts", starts);
    let rank = walk(kernel, "along", along);
    define_rank(kernel, "ALONG_RANK", rank, "along_rank");
}

/// The text for the epilogue of a reduction of `step`. The kernel computes the elements by the chain
/// `before`, or reads them.
fn epilogue(
    step: &Step,
    before: Option<&Chain>,
    kernel: &mut Kernel,
    emitter: &mut Emitter,
) -> String {
    let Some(reduction) = &step.reduction else {
        return String::new();
    };
    let (at, mut body, mut views) = (reduction.part, String::new(), Vec::new());
    let shape = &step.output().ty.shape;
    let layouts: Vec<(usize, Layout)> = operands_of(step, at + 1..step.parts.len())
        .into_iter()
        .map(|k| (k, step.inputs[k].layout.broadcast_to(shape)))
        .collect();
    for (k, layout) in &layouts {
        let is_known =
            before.is_some_and(|chain| chain.operands.iter().any(|(known, _)| known == k));
        if !is_known {
            kernel.read(&format!("x{k}"), &step.inputs[*k]);
        }
        let t = name(step.inputs[*k].ty.dtype);
        views.push((format!("results{k}"), layout));
        let _ = write!(
            body,
            "uint e{k} = 0; ADD_OFFSET(e{k}, line, p.results_rank, p.results_shape, \
             p.results{k}_strides) const compute_{t} v{k}_0 = LOAD({t}, x{k}, e{k}); "
        );
    }
    walk(kernel, "results", &named(&views));
    for constant in (0..at).filter(|&k| step.parts[k].op.kind() == OpKind::Full) {
        let own = before.is_none().then_some(&mut *kernel);
        pointwise::compute(step, constant, 0, own, emitter, &mut body);
    }
    let dtype = step.parts[at].dtype;
    let (t, value) = (name(dtype), rounded(dtype, "value".to_owned()));
    let _ = write!(body, "const compute_{t} t{at} = {value}; ");
    for part in at + 1..step.parts.len() {
        pointwise::compute(step, part, 0, Some(kernel), emitter, &mut body);
    }
    let last = step.parts.len() - 1;
    let body = body.replace('\n', " ");
    format!("#define EPILOGUE {body}\n#define RESULT t{last}\n")
}

/// Lines whose elements are combined.
pub(in crate::ops) struct Lines<'a> {
    /// Their elements.
    pub(in crate::ops) x: Elements<'a>,
    /// Starts of the lines.
    pub(in crate::ops) starts: Layout,
    /// Places of a line's elements from there.
    pub(in crate::ops) along: Layout,
}

impl Lines<'_> {
    /// Writes each line's result to `y`, which lies without gaps. If the step has an epilogue,
    /// results go through it.
    pub(in crate::ops) fn reduce(
        &self,
        combination: &Combination,
        y: Memory,
        epilogue: Option<&Step>,
        emitter: &mut Emitter,
    ) {
        let (count, len) = (self.starts.elements(), self.along.elements());
        if let Some(vector) = self.short_vector(combination, emitter.limits) {
            return self.pass_short(combination, vector, y, epilogue, emitter);
        }
        if let Some(across) = self.across(combination, emitter.limits) {
            let partial = self.pass_across(combination, &across, emitter);
            return partial.reduce(combination, y, epilogue, emitter);
        }
        let tile = self.tile(emitter.limits, len);
        let segment = tile.segment(count, len);
        if segment >= len {
            return self.pass(combination, len, (y, [1, 0]), epilogue, emitter);
        }
        let segments = len.div_ceil(segment);
        let dtype = combination.dtype;
        let bytes = dtype.size().unwrap_or(0) * count * segments;
        let partial = Memory::Scratch(dtype, emitter.scratch(bytes));
        // Partial results lie as the elements do.
        let strides = match tile.is_across {
            true => [1, count],
            false => [segments, 1],
        };
        self.pass(combination, segment, (partial, strides), None, emitter);
        let line = |n: usize, stride: usize| Layout {
            shape: [n].into(),
            strides: [stride].into_iter().collect(),
            offset: 0,
        };
        let partial = Lines {
            x: Elements::Memory(partial),
            starts: line(count, strides[0]),
            along: line(segments, strides[1]),
        };
        partial.reduce(combination, y, epilogue, emitter);
    }

    /// Number of neighbours that a lane has in computed lines. A vector for each of few lanes has to be a
    /// whole line.
    fn short_vector(&self, combination: &Combination, limits: &Limits) -> Option<usize> {
        let Elements::Computed(chain) = &self.x else {
            return None;
        };
        let (vector, len) = (chain.vector(), self.along.elements());
        let fits = vector > 1
            && (2..=NEIGHBOURS).contains(&(len / vector))
            && combination.start.is_some()
            && !limits.is_processor;
        fits.then_some(vector)
    }

    /// Reduces such lines.
    fn pass_short(
        &self,
        combination: &Combination,
        vector: usize,
        y: Memory,
        step: Option<&Step>,
        emitter: &mut Emitter,
    ) {
        let Elements::Computed(chain) = &self.x else {
            return;
        };
        let (count, len) = (self.starts.elements(), self.along.elements());
        let tile = Tile::of_short_lines(emitter.limits, len / vector);
        let mut kernel = Kernel::new("reduce_short", "", tile.group());
        kernel.define_dtype("Y", y.dtype());
        combination.define(&mut kernel);
        kernel.define("VECTOR", vector);
        let mut text = ["SEPARATE_ROUNDING\n", combination.functions].concat();
        text += &chain.declare(vector, &mut kernel, emitter);
        if let Some(step) = step {
            text += &epilogue(step, Some(chain), &mut kernel, emitter);
        }
        y.write(&mut kernel, "y");
        tile.declare(&mut kernel);
        kernel.word("count", count);
        kernel.word("len", len);
        text += concat!(
            include_str!("../../../kernels/lines.h"),
            include_str!("../../../kernels/vectors.h"),
            include_str!("../../../kernels/reduce_short.c")
        );
        kernel.set_text(special::with_definitions(text));
        emitter.launch(kernel.groups(tile.groups(count), 1, 1));
    }

    /// Plan by which lines that lie beside each other are read in vectors, if they are long.
    fn across(&self, combination: &Combination, limits: &Limits) -> Option<Across> {
        let Elements::Memory(x) = self.x else {
            return None;
        };
        let size = x.dtype().size().filter(|_| PARTS.contains(&x.dtype()))?;
        let vector = WIDEST / size;
        let [starts, along] = [&self.starts, &self.along].map(|layout| Layout::collapse([layout]));
        let ([starts], [along]) = (starts, along);
        let (&[count], &[1], &[len], &[step]) = (
            &starts.shape[..],
            &starts.strides[..],
            &along.shape[..],
            &along.strides[..],
        ) else {
            return None;
        };
        let mut sizes = [count, step, x.offset()].into_iter();
        let fits = vector > 1
            && count > 0
            && len >= LONG
            && sizes.all(|size| size.is_multiple_of(vector))
            && combination.start.is_some()
            && limits.max_group >= NEIGHBOURS * TEAM_ACROSS
            && !limits.is_processor;
        fits.then_some(())?;
        let groups = count.div_ceil(NEIGHBOURS * vector);
        let wanted = limits.compute_units.saturating_mul(GROUPS_ACROSS) / groups;
        let segments = wanted.clamp(1, len / (TEAM_ACROSS * EACH_ACROSS));
        let segment = len.div_ceil(segments);
        Some(Across {
            vector,
            groups,
            step,
            segment,
            segments: len.div_ceil(segment),
        })
    }

    /// Reduces each segment of such lines.
    fn pass_across(
        &self,
        combination: &Combination,
        across: &Across,
        emitter: &mut Emitter,
    ) -> Lines<'static> {
        let (count, len) = (self.starts.elements(), self.along.elements());
        let dtype = combination.dtype;
        let bytes = dtype.size().unwrap_or(0) * count * across.segments;
        let partial = Memory::Scratch(dtype, emitter.scratch(bytes));
        let mut kernel = Kernel::new("reduce_across", "", (NEIGHBOURS * TEAM_ACROSS) as u32);
        combination.define(&mut kernel);
        kernel.define("EACH", EACH_ACROSS);
        kernel.define("TEAM", TEAM_ACROSS);
        kernel.define("LANES", NEIGHBOURS);
        kernel.define("VECTOR", across.vector);
        if let Elements::Memory(x) = self.x {
            kernel.define_dtype("X", x.dtype());
            x.read(&mut kernel, "x");
        }
        partial.write(&mut kernel, "y");
        kernel.word("count", count);
        kernel.word("len", len);
        kernel.word("segment", across.segment);
        kernel.word("step", across.step);
        let text = concat!(
            include_str!("../../../kernels/vectors.h"),
            include_str!("../../../kernels/reduce_across.c")
        );
        kernel.set_text([combination.functions, text].concat());
        emitter.launch(kernel.groups(across.groups, across.segments, 1));
        let line = |n: usize, stride: usize| Layout {
            shape: [n].into(),
            strides: [stride].into_iter().collect(),
            offset: 0,
        };
        Lines {
            x: Elements::Memory(partial),
            starts: line(count, 1),
            along: line(across.segments, count),
        }
    }

    /// Number of neighbours that lanes load at a time, of segments of `segment` elements.
    fn vector(&self, segment: usize) -> usize {
        match self.x {
            Elements::Memory(x) => vector(x, &self.starts, &self.along, segment),
            Elements::Computed(_) => 1,
        }
    }

    fn tile(&self, limits: &Limits, segment: usize) -> Tile {
        Tile::of_vectors(limits, &self.starts, &self.along, self.vector(segment))
    }

    /// Reduces each segment of `segment` elements of each line. Results are in steps of `strides`
    /// for the line and the segment. If the step has an epilogue, they went through it.
    pub(in crate::ops) fn pass(
        &self,
        combination: &Combination,
        segment: usize,
        (y, strides): (Memory, [usize; 2]),
        step: Option<&Step>,
        emitter: &mut Emitter,
    ) {
        let (count, len) = (self.starts.elements(), self.along.elements());
        let vector = self.vector(segment);
        let tile = self.tile(emitter.limits, segment);
        let mut kernel = Kernel::new("reduce", "", tile.group());
        kernel.define_dtype("Y", y.dtype());
        combination.define(&mut kernel);
        kernel.define("EACH", EACH);
        kernel.define("VECTOR", vector);
        let (mut text, mut chain) = (combination.functions.to_owned(), None);
        match &self.x {
            Elements::Memory(x) => {
                kernel.define_dtype("X", x.dtype());
                x.read(&mut kernel, "x");
                let [starts, along] = [("starts", &self.starts), ("along", &self.along)];
                walk_lines(&mut kernel, &[starts], &[along]);
            }
            Elements::Computed(computed) => {
                text += &computed.declare(1, &mut kernel, emitter);
                chain = Some(computed);
            }
        }
        if let Some(step) = step {
            text += &epilogue(step, chain, &mut kernel, emitter);
        }
        y.write(&mut kernel, "y");
        tile.declare(&mut kernel);
        kernel.word("count", count);
        kernel.word("len", len);
        kernel.word("segment", segment);
        kernel.word("y_line", strides[0]);
        kernel.word("y_segment", strides[1]);
        // Fused or not, each operation rounds its own result.
        let is_fused = chain.is_some() || step.is_some();
        let rounding = if is_fused { "SEPARATE_ROUNDING\n" } else { "" };
        let text = [
            rounding,
            &text,
            include_str!("../../../kernels/lines.h"),
            include_str!("../../../kernels/vectors.h"),
            include_str!("../../../kernels/reduce.c"),
        ]
        .concat();
        kernel.set_text(special::with_definitions(text));
        let segments = len.div_ceil(segment.max(1)).max(1);
        emitter.launch(kernel.groups(tile.groups(count), segments, 1));
    }
}

/// Plan for reading lines that lie beside each other.
struct Across {
    /// Number of lines from which a lane reads an element at a time.
    vector: usize,
    /// Groups for all of them.
    groups: usize,
    /// From an element of a line to the next.
    step: usize,
    /// Elements of a segment, and how many there are.
    segment: usize,
    segments: usize,
}

/// Combination of elements.
pub(in crate::ops) struct Combination {
    /// The type that they are combined in.
    pub(in crate::ops) dtype: DType,
    /// Functions that kernels need before.
    pub(in crate::ops) functions: &'static str,
    /// `a` and `b` combined.
    pub(in crate::ops) combine: String,
    /// Neutral element of the combination. Without one, a line's first element is the start, and
    /// may be taken twice.
    pub(in crate::ops) start: Option<String>,
}

impl Combination {
    /// A reduction of elements of `dtype`.
    pub(in crate::ops) fn of(op: ReduceOp, dtype: DType) -> Self {
        let dtype = match op.output(dtype) {
            DType::F16 | DType::BF16 => DType::F32,
            other => other,
        };
        Self {
            dtype,
            functions: "",
            combine: combination(op, dtype),
            start: start(op, dtype),
        }
    }

    /// The same in double precision for a sum on a processor. Each of its lanes adds many numbers, whose roundings would
    /// lose digits.
    pub(in crate::ops) fn exactly(self, is_sum: bool, limits: &Limits) -> Self {
        let dtype = match self.dtype {
            DType::F32 if is_sum && limits.is_processor && limits.has_f64 => DType::F64,
            other => other,
        };
        Self { dtype, ..self }
    }

    /// Tells a kernel.
    pub(in crate::ops) fn define(&self, kernel: &mut Kernel) {
        kernel.define_dtype("A", self.dtype);
        kernel.define("COMBINE(a, b)", &self.combine);
        if let Some(start) = &self.start {
            kernel.define("START", start);
        }
    }
}

/// The combination of `a` and `b`, in the type of the computation.
pub(in crate::ops) fn combination(op: ReduceOp, dtype: DType) -> String {
    match op {
        ReduceOp::Sum => sum(dtype),
        ReduceOp::Prod if dtype.is_complex() => format!("mul_{}(a, b)", name(dtype)),
        ReduceOp::Prod if dtype.is_float() => "((a) * (b))".to_owned(),
        // Through unsigned numbers, whose overflow is defined.
        ReduceOp::Prod => format!("((compute_{dtype})((ulong)(a) * (ulong)(b)))"),
        ReduceOp::Max => "MAX_OR_NAN(a, b)".to_owned(),
        ReduceOp::Min => "MIN_OR_NAN(a, b)".to_owned(),
    }
}

/// The sum of `a` and `b`, computed in the type that elements of `dtype` are.
pub(in crate::ops) fn sum(dtype: DType) -> String {
    let name = name(dtype);
    match dtype {
        d if d.is_complex() => format!("add_{name}(a, b)"),
        d if d.is_float() => "((a) + (b))".to_owned(),
        _ => format!("((compute_{name})((ulong)(a) + (ulong)(b)))"),
    }
}

/// Neutral element of the combination, if there is such a number.
fn start(op: ReduceOp, dtype: DType) -> Option<String> {
    let number = match op {
        ReduceOp::Sum => "0",
        ReduceOp::Prod => "1",
        ReduceOp::Max | ReduceOp::Min => return None,
    };
    Some(match dtype.is_complex() {
        true => format!("make_{}({number}, 0)", name(dtype)),
        false => number.to_owned(),
    })
}
