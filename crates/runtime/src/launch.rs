//! The launches of a lowered graph: kernel launches, and the buffers that they work on.

use rustorch_ir::{DType, Layout, Op, Shape, TensorType};
use smallvec::SmallVec;

/// The buffer a value lies in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Slot {
    /// A graph input.
    Input(usize),
    /// A graph output.
    Output(usize),
    /// Bytes of a buffer of the arena, from an offset on.
    Arena {
        /// The buffer: an index of [`Lowered::arena`], or behind these of [`Lowered::offloaded`].
        buffer: usize,
        /// The offset in bytes.
        at: usize,
    },
}

/// The place of an operand or result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The buffer.
    pub slot: Slot,
    /// The elements in it.
    pub layout: Layout,
    /// Shape and element type.
    pub ty: TensorType,
}

/// The nodes that a launch computes, by their indices in the graph: several if elementwise ones are fused.
pub type Nodes = SmallVec<[usize; 2]>;

/// One kernel launch: an operation, or several fused: elementwise ones, with a reduction among them
/// or none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The steps, in order. The results of the last part are the step's. If there are several parts, those
    /// before a reduction are its prologue: elementwise operations on the shape that it reduces. Parts after it
    /// are its epilogue: elementwise operations on the result's shape. So are all parts if there is no
    /// reduction; they read nothing of the prologue but constants.
    pub parts: SmallVec<[Part; 1]>,
    /// The reduction among the parts.
    pub reduction: Option<Reduction>,
    /// The operands.
    pub inputs: SmallVec<[Place; 4]>,
    /// The results, row-major without gaps unless the kernel [writes others](crate::Kernels::result_layouts); those that are
    /// written over an operand lie where it does.
    pub outputs: SmallVec<[Place; 1]>,
}

/// A reduction among the parts of a [`Step`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reduction {
    /// The index of the part.
    pub part: usize,
    /// Shape of the reduced operand.
    pub shape: Shape,
}

/// An operation of a [`Step`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Index of the node in the graph that it is for.
    pub node: usize,
    /// The operation.
    pub op: Op,
    /// Its operands.
    pub operands: SmallVec<[PartOperand; 4]>,
    /// Element type of its result.
    pub dtype: DType,
}

/// The source of a [`Part`]'s operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartOperand {
    /// The step's operand of this index.
    Input(usize),
    /// The result of the part of this index.
    Part(usize),
}

impl Step {
    /// The last part: the only one, unless the step is fused.
    pub fn last(&self) -> &Part {
        &self.parts[self.parts.len() - 1]
    }

    /// The shape that its operands are read in, other than those of a reduction's epilogue.
    pub fn domain(&self) -> &Shape {
        match &self.reduction {
            Some(reduction) => &reduction.shape,
            None => &self.output().ty.shape,
        }
    }

    /// Layout of most operands in its [domain](Self::domain): that of an operand of the whole
    /// shape.
    pub fn domain_layout(&self) -> Layout {
        let domain = self.domain();
        let whole = |layout: &&Layout| {
            let mut dims = layout.shape.iter().zip(&layout.strides);
            layout.shape == *domain && dims.all(|(&size, &stride)| size == 1 || stride > 0)
        };
        let found = self.inputs.iter().map(|place| &place.layout).find(whole);
        found.cloned().unwrap_or_else(|| Layout::contiguous(domain))
    }

    /// Element type of an operand of its parts.
    pub fn dtype(&self, operand: PartOperand) -> DType {
        match operand {
            PartOperand::Input(index) => self.inputs[index].ty.dtype,
            PartOperand::Part(index) => self.parts[index].dtype,
        }
    }

    /// Returns whether it computes random numbers.
    pub fn draws(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| part.op.def().draws())
    }

    /// The nodes that it computes, each once.
    pub fn nodes(&self) -> Nodes {
        let mut nodes: Nodes = self.parts.iter().map(|part| part.node).collect();
        nodes.dedup();
        nodes
    }

    /// The first result, for most operations the only one.
    pub fn output(&self) -> &Place {
        &self.outputs[0]
    }

    /// The operand that the result of this index is written over.
    pub fn overwrites(&self, result: usize) -> Option<usize> {
        self.last().op.def().overwrites(result)
    }
}

/// A graph as kernel launches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lowered {
    /// The launches in order.
    pub steps: Vec<Step>,
    /// Bytes of each buffer of the arena for intermediate values.
    pub arena: Vec<usize>,
    /// Bytes of each buffer for values that [wait in the host's memory](rustorch_ir::OpDef::offloads). In a
    /// [`Slot::Arena`] these are counted on behind those of the arena.
    pub offloaded: Vec<usize>,
}

impl Lowered {
    /// Bytes of all intermediate values.
    pub fn arena_bytes(&self) -> usize {
        self.arena.iter().sum()
    }
}

/// Values while their buffers are not known yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Root {
    Input(usize),
    Result(ResultId),
}

/// A result of a step, both by their indices.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ResultId {
    pub(crate) step: usize,
    pub(crate) result: usize,
}

/// A step before its buffers are known.
#[derive(Clone)]
pub(crate) struct Draft {
    /// In a box, for it is large, and drafts are moved about.
    pub(crate) step: Box<Step>,
    /// The source of each operand.
    pub(crate) roots: SmallVec<[Root; 4]>,
    /// Whether it may be fused with its neighbours.
    pub(crate) fuses: bool,
}
