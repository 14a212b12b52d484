//! The table of operations.

use std::fmt;

use smallvec::SmallVec;

use crate::autodiff::{Cotangents, Differentiated, not_differentiable};
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

    /// Bytes of the contiguous tensor. Types in a [`Graph`] are checked to have a size.
    pub fn bytes(&self) -> usize {
        self.dtype.bytes_of(&self.shape).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

/// Types of an operation's results: usually one.
pub type ResultTypes = SmallVec<[TensorType; 1]>;

/// The results of an operation in a [`Graph`].
pub type Results = SmallVec<[ValueId; 1]>;

/// The families of operations in device policies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OpType {
    /// Matrix products, and operations composed of them.
    LinearAlgebra,
    /// Convolutions and pooling.
    Convolution,
    /// Elementwise functions.
    Activation,
    /// Reductions, scans and selections.
    Reduction,
    /// Softmax and the norms.
    Normalization,
    /// All operations on complex numbers.
    ComplexMath,
    /// Random numbers.
    Distribution,
    /// A user-defined kernel.
    CustomKernel,
    /// Communication between devices.
    DistributedOps,
}

impl OpType {
    /// The family of an operation on these operands. `None` for operations that only move data,
    /// which go with their neighbours.
    pub fn of(signature: &Signature) -> Option<Self> {
        let op_type = signature.op.def().op_type()?;
        let mut dtypes = signature.types().map(|ty| ty.dtype);
        match dtypes.any(DType::is_complex) {
            true => Some(Self::ComplexMath),
            false => Some(op_type),
        }
    }
}

/// Effect of an operation on memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Computes its results from its operands and writes them to memory.
    Compute,
    /// Views its input in another [`Layout`].
    View,
}

/// An operation with the types of its operands, for asking devices about support.
#[derive(Clone, Copy, Debug)]
pub struct Signature<'a> {
    /// The operation.
    pub op: &'a Op,
    /// Types of the operands.
    pub inputs: &'a [&'a TensorType],
    /// Types of the results.
    pub outputs: &'a [TensorType],
}

impl<'a> Signature<'a> {
    /// Type of the first result.
    pub fn output(&self) -> &'a TensorType {
        &self.outputs[0]
    }

    /// Types of operands and results.
    pub fn types(&self) -> impl Iterator<Item = &'a TensorType> + use<'a> {
        self.inputs.iter().copied().chain(self.outputs)
    }
}

/// An operation's name and examples.
pub trait Named {
    /// The operation's name.
    const NAME: &'static str;

    /// Examples for tests of every backend's kernel. They cover each listed dtype and critical
    /// shapes: strided, broadcast, empty, size 1.
    fn cases() -> Vec<Case>;
}

/// Definition of an operation, in its module.
pub trait OpDef {
    /// Family of the operation on real numbers; `None` if it only moves data.
    fn op_type(&self) -> Option<OpType>;

    /// PyTorch's name of the computed function, if the operation has several.
    fn function(&self) -> Option<&'static str> {
        None
    }

    /// Types of the results, at least one, or the error in the operands.
    ///
    /// # Errors
    /// Fails for operands that the operation is not defined for.
    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError>;

    /// Treatment of memory by the operation.
    fn role(&self) -> Role {
        Role::Compute
    }

    /// The operand that a result overwrites, if it has no memory of its own. The operand is a
    /// state: a graph input, or a state that another operation wrote. Nothing may read it
    /// afterwards. Repeated runs write the same, unless the operation [reads](Self::reads_state)
    /// the old value. Otherwise, values that depend on it are computed first.
    fn overwrites(&self, _result: usize) -> Option<usize> {
        None
    }

    /// Returns whether the new value of a state depends on its old one.
    fn reads_state(&self, _result: usize) -> bool {
        false
    }

    /// The operand whose elements a result that [overwrites](Self::overwrites) a state gets.
    fn source(&self, _result: usize) -> usize {
        1
    }

    /// Multiply-accumulates (MACs) of the operation, if they and not the bytes decide its time.
    fn macs(&self, _signature: &Signature) -> usize {
        0
    }

    /// Bytes that the operation writes, if it writes only a part of a state.
    fn written(&self, signature: &Signature) -> usize {
        let bytes = signature.outputs.iter().map(TensorType::bytes);
        bytes.fold(0, usize::saturating_add)
    }

    /// Bytes of an operand that the operation reads. Some operands are read only in part, where
    /// others select.
    fn read(&self, signature: &Signature, operand: usize) -> usize {
        signature.inputs[operand].bytes()
    }

    /// For views: the input's layout seen through the operation; `None` if strides cannot express
    /// it, so that a copy is needed.
    fn view(&self, _input: &Layout) -> Option<Layout> {
        None
    }

    /// The operation that computes only the part of the result that a view shows, of type `ty`.
    fn seen(&self, _view: &Op, _ty: &TensorType) -> Option<Op> {
        None
    }

    /// Returns whether its results are kept in host memory, if the device can access that, not in the device's.
    fn offloads(&self) -> bool {
        false
    }

    /// Returns whether it brings back [offloaded](Self::offloads) values.
    fn reloads(&self) -> bool {
        false
    }

    /// Is each element of the result the same number?
    fn is_number(&self) -> bool {
        false
    }

    /// Does it compute random numbers?
    fn draws(&self) -> bool {
        false
    }

    /// Does it combine the elements of whole dimensions into one?
    fn reduces(&self) -> bool {
        false
    }

    /// Does it move values without computing with them? Then bits will do.
    fn only_moves(&self, _signature: &Signature) -> bool {
        false
    }

    /// Does it only convert its operand to another element type?
    fn converts(&self) -> bool {
        false
    }

    /// Is it an operation that no device but the processor has to have a kernel for? These are
    /// factorisations, functions of the host, and Fourier transforms: GPUs make those of 2ᵃ 3ᵇ 5ᶜ numbers.
    fn is_of_processor(&self) -> bool {
        false
    }

    /// Is the operation composed of others?
    fn is_composite(&self) -> bool {
        false
    }

    /// The operations that a rule of [fusion](crate::passes::Fusion) replaces by this one, in the order of
    /// its decomposition. Empty for operations that users call by name.
    fn replaces(&self) -> Vec<OpKind> {
        Vec::new()
    }

    /// Appends the parts of a composite operation, and returns its results.
    ///
    /// # Errors
    /// Fails if the operation is a primitive, or if [`OpDef::infer`] rejects the operands.
    fn decompose(&self, _graph: &mut Graph, _inputs: &[ValueId]) -> Result<Results, OpError> {
        Err(OpError::new(
            "decompose",
            "a composite operation",
            "a primitive",
        ))
    }

    /// The vector-Jacobian product: appends the gradients of the operands that need one, from those
    /// of the results. They may have the shape that the operand was broadcast to, or be complex or
    /// of another precision: [`Op::vjp`] converts them. By default a composite operation uses that
    /// of its parts.
    ///
    /// # Errors
    /// Fails if the operation [has no gradient](not_differentiable).
    fn vjp(&self, graph: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        match self.is_composite() {
            true => node.through_parts(graph, |g, inputs| self.decompose(g, inputs)),
            false => Err(not_differentiable("vjp", "a primitive that says of none")),
        }
    }
}

/// Advice for operations that compute and were given 8-bit floats.
pub const FLOAT8_ADVICE: &str = "8-bit floats are only stored: cast them first, as to f32";

/// Defines the closed set of operations, one on each line.
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

            /// Kind of the operation.
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

impl OpKind {
    /// The operation whose measured times stand for others of its family.
    pub fn typical(family: Option<OpType>) -> Self {
        match family {
            Some(OpType::LinearAlgebra) => Self::Matmul,
            Some(OpType::Convolution) => Self::Conv2d,
            Some(OpType::Reduction) => Self::Reduce,
            Some(OpType::Normalization) => Self::Softmax,
            Some(OpType::Distribution) => Self::Random,
            // No type: operations that only move data.
            None => Self::Concat,
            Some(
                OpType::Activation
                | OpType::ComplexMath
                | OpType::CustomKernel
                | OpType::DistributedOps,
            ) => Self::Binary,
        }
    }

    /// Returns whether it divides rows by their root mean square, alone or after a sum.
    pub fn is_rms_norm(self) -> bool {
        matches!(self, Self::RmsNorm | Self::AddRmsNorm)
    }

    /// Returns whether each element of the result is a function of the operands' elements at its place.
    pub fn is_elementwise(self) -> bool {
        matches!(
            self,
            Self::Cast
                | Self::Unary
                | Self::Binary
                | Self::Compare
                | Self::Where
                | Self::Activation
                | Self::Ternary
        )
    }
}

ops! {
    // Making values
    full::Full, arange::Arange, random::Random,
    // Views and moving data
    as_strided::AsStrided, reshape::Reshape, permute::Permute, expand::Expand, slice::Slice,
    contiguous::Contiguous, cast::Cast, concat::Concat, pad::Pad, update_slice::UpdateSlice,
    assign::Assign, flip::Flip, triangle::Triangle, within::Within, offload::Offload, reload::Reload,
    // Elementwise
    unary::Unary, binary::Binary, compare::Compare, select::Where, activation::Activation,
    ternary::Ternary,
    // Reductions, scans and selections
    reduce::Reduce, var_mean::VarMean, arg_reduce::ArgReduce, scan::Scan, top_k::TopK, kth_value::KthValue,
    index_select::IndexSelect, gather::Gather, scatter::Scatter,
    // Linear algebra
    matmul::Matmul, linear::Linear, expert_linear::ExpertLinear, embedding::Embedding, rope::Rope, attention::Attention,
    attention_backward::AttentionBackward, lstm::Lstm, lstm_backward::LstmBackward,
    linear_recurrence::LinearRecurrence,
    // Factorisations
    cholesky::Cholesky, ldl::Ldl, ldl_solve::LdlSolve, lu::Lu, lu_pivots_to_permutation::LuPivotsToPermutation,
    determinant::Determinant, log_determinant::LogDeterminant, adjugate::Adjugate, qr::Qr, svd::Svd, pseudo_inverse::PseudoInverse, eigh::Eigh, eig::Eig, geqrf::Geqrf,
    householder_product::HouseholderProduct, solve_triangular::SolveTriangular,
    matrix_exp::MatrixExp,
    // Fourier transforms
    fft::Fft,
    // Convolution
    conv2d::Conv2d, conv_transpose2d::ConvTranspose2d, conv2d_weight::Conv2dWeight,
    pool2d::Pool2d, max_pool2d_backward::MaxPool2dBackward, resample::Resample,
    channels_last::ChannelsLast,
    // Normalisation
    softmax::Softmax, cross_entropy::CrossEntropy, layer_norm::LayerNorm, group_norm::GroupNorm,
    rms_norm::RmsNorm, batch_norm::BatchNorm, cross_entropy_backward::CrossEntropyBackward,
    cross_entropy_mean::CrossEntropyMean, norm_backward::NormBackward,
    batch_norm_train::BatchNormTrain, batch_norm_backward::BatchNormBackward,
    // Results of fusion rules
    fused_linear::FusedLinear, cached_attention::CachedAttention, add_rms_norm::AddRmsNorm,
    foreach::Foreach, foreach_reduce::ForeachReduce,
    fused_norm::FusedNorm, fused_expert_linear::FusedExpertLinear, top_k_softmax::TopKSoftmax,
    // Defined by users
    custom::Custom, host::Host,
}

impl Op {
    /// [`OpDef::infer`], whose error gives advice if the operation does not support 8-bit floats.
    ///
    /// # Errors
    /// Fails for operands that the operation is not defined for.
    pub fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let def = self.def();
        def.infer(inputs).map_err(|e| {
            let cast = |ty: &&TensorType| match ty.dtype.is_float8() {
                true => TensorType::new(ty.shape.clone(), DType::F32),
                false => (*ty).clone(),
            };
            let wide: Vec<TensorType> = inputs.iter().map(cast).collect();
            match def.infer(&wide.iter().collect::<Vec<_>>()).is_ok() {
                true => OpError {
                    expected: format!("{} ({FLOAT8_ADVICE})", e.expected),
                    ..e
                },
                false => e,
            }
        })
    }

    /// The name of the computation: that of its [function](OpDef::function), or else its own.
    pub fn function(&self) -> &'static str {
        self.def().function().unwrap_or_else(|| self.name())
    }

    /// The operation's name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Custom(op) => op.name(),
            Self::Host(op) => op.name(),
            op => op.kind().name(),
        }
    }
}
