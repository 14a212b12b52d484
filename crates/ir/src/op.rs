//! The table of operations.

use std::fmt;

use crate::case::Case;
use crate::{DType, Graph, Layout, OpError, Shape, ValueId, ops};

/// Shape and element type of a value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TensorType {
    /// Sizes of the dimensions.
    pub shape: Shape,
    /// Type of the elements.
    pub dtype: DType,
}

impl TensorType {
    /// A type of `shape` and `dtype`.
    pub fn new(shape: impl Into<Shape>, dtype: DType) -> Self {
        Self {
            shape: shape.into(),
            dtype,
        }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Bytes of the contiguous tensor. A type inside a [`Graph`] has been checked to have some.
    pub fn bytes(&self) -> usize {
        self.dtype.bytes_of(&self.shape).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

/// The families of operations that device policies speak of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OpClass {
    /// Matrix products and what is made of them.
    LinearAlgebra,
    /// Convolutions and pooling.
    Convolution,
    /// Elementwise functions.
    Activation,
    /// Reductions, scans and selections.
    Reduction,
    /// Softmax and the norms.
    Normalization,
    /// Arithmetic on complex numbers.
    ComplexMath,
    /// Random numbers.
    Distribution,
    /// A user's own kernel.
    CustomKernel,
    /// Communication between devices.
    DistributedOps,
    /// Moving data: copies, casts, gathers.
    Memory,
}

/// How an operation treats memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Computes its result from others and writes it to memory of its own.
    Compute,
    /// Only looks at its input in another [`Layout`].
    View,
    /// Writes into its first input, a state buffer, which is also its result. Idempotent.
    State,
}

/// An operation with the types of its operands: what a device says yes or no to.
#[derive(Clone, Copy, Debug)]
pub struct Signature<'a> {
    /// The operation.
    pub op: &'a Op,
    /// Types of the operands.
    pub inputs: &'a [&'a TensorType],
    /// Type of the result.
    pub output: &'a TensorType,
}

/// An operation's name and examples.
pub trait Named {
    /// The operation's name.
    const NAME: &'static str;

    /// Examples that every backend's kernel is held to. They cover each listed dtype and
    /// the shapes where kernels go wrong: strided, broadcast, empty, size 1.
    fn cases() -> Vec<Case>;
}

/// What an operation's module defines.
pub trait OpDef {
    /// Family of the operation.
    fn class(&self) -> OpClass;

    /// Type of the result, or what is wrong with the operands.
    fn infer(&self, inputs: &[&TensorType]) -> Result<TensorType, OpError>;

    /// How the operation treats memory.
    fn role(&self) -> Role {
        Role::Compute
    }

    /// Multiplications, each with its addition, that a result takes, where those and not the
    /// bytes are what takes time.
    fn products(&self, _signature: &Signature) -> usize {
        0
    }

    /// For views: the input's layout seen through the operation; `None` where strides
    /// cannot express it, so that a copy has to be made.
    fn view(&self, _input: &Layout) -> Option<Layout> {
        None
    }

    /// Is the operation made of others?
    fn is_composite(&self) -> bool {
        false
    }

    /// Appends what a composite operation is made of, and returns its result. This is the
    /// operation's definition.
    fn decompose(&self, _graph: &mut Graph, _inputs: &[ValueId]) -> Result<ValueId, OpError> {
        Err(OpError::new(
            "decompose",
            "a composite operation",
            "a primitive",
        ))
    }
}

/// Makes the closed set of operations from one line for each.
macro_rules! ops {
    ($($module:ident::$name:ident),* $(,)?) => {
        /// An operation with its parameters: plain data.
        #[derive(Clone, PartialEq, Eq, Hash, Debug)]
        pub enum Op {
            $(#[doc = concat!("See [`", stringify!($name), "`](ops::", stringify!($name), ").")]
              $name(ops::$name)),*
        }

        /// An operation without its parameters.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum OpKind {
            $(#[doc = concat!("See [`", stringify!($name), "`](ops::", stringify!($name), ").")]
              $name),*
        }

        impl Op {
            /// The operation's definition.
            pub fn def(&self) -> &dyn OpDef {
                match self { $(Self::$name(op) => op),* }
            }

            /// Which operation it is.
            pub fn kind(&self) -> OpKind {
                match self { $(Self::$name(_) => OpKind::$name),* }
            }
        }

        impl OpKind {
            /// Every operation.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The operation's name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => <ops::$name as Named>::NAME),* }
            }

            /// The operation's conformance cases.
            pub fn cases(self) -> Vec<Case> {
                match self { $(Self::$name => <ops::$name as Named>::cases()),* }
            }
        }

        $(impl From<ops::$name> for Op {
            fn from(op: ops::$name) -> Self { Self::$name(op) }
        })*
    };
}

ops! {
    // Making values
    full::Full, arange::Arange, random::Random,
    // Views and moving data
    as_strided::AsStrided, reshape::Reshape, permute::Permute, expand::Expand, slice::Slice,
    contiguous::Contiguous, cast::Cast, concat::Concat, pad::Pad, update_slice::UpdateSlice,
    // Elementwise
    unary::Unary, binary::Binary, compare::Compare, select::Where, activation::Activation,
    // Reductions, scans and selections
    reduce::Reduce, arg_reduce::ArgReduce, cumsum::Cumsum, top_k::TopK,
    index_select::IndexSelect, gather::Gather, scatter::Scatter,
    // Linear algebra
    matmul::Matmul, linear::Linear, embedding::Embedding, rope::Rope, attention::Attention,
    // Convolution
    conv2d::Conv2d, conv_transpose2d::ConvTranspose2d, pool2d::Pool2d,
    // Normalisation
    softmax::Softmax, layer_norm::LayerNorm, rms_norm::RmsNorm, batch_norm::BatchNorm,
}

impl Op {
    /// The operation's name.
    pub fn name(&self) -> &'static str {
        self.kind().name()
    }
}
