use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytemuck::{AnyBitPattern, NoUninit};

use super::*;
use crate::autodiff::{Cotangents, Differentiated, not_differentiable};
use crate::case::{Case, CaseOperand};
use crate::{Graph, Named, Op, OpDef, OpType, ResultTypes};

/// A user-defined function on the host, on elements in its memory: a type of its parameters, plain
/// data. It must return the same for the same operands, at every call, unless it is
/// [collective](Self::is_collective).
///
/// The CPU runs it; on other devices it falls back to the CPU. A function that can be composed of
/// operations is better a [`Composite`], which runs everywhere.
pub trait HostFunction: Parameters + fmt::Debug + Send + Sync {
    /// The operation's name.
    fn name(&self) -> &'static str;

    /// Types of the results, at least one.
    ///
    /// # Errors
    /// Fails for operands that the function is not defined for.
    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError>;

    /// Computes the results, whose elements are 0 before.
    ///
    /// # Errors
    /// Fails for a mistake of the caller that shows only in the elements. The error gives its
    /// place.
    fn call(&self, inputs: &[HostArray], outputs: &mut [HostArrayMut]) -> Result<(), String>;

    /// Do other processes or threads take part in each call? Such a function may return other results for the same
    /// operands. Tensors compute it when it is recorded, and never again.
    fn is_collective(&self) -> bool {
        false
    }

    /// Appends the gradients of the operands, see [`OpDef::vjp`].
    ///
    /// # Errors
    /// By default, a function has no gradient.
    fn vjp(&self, _: &mut Graph, _: &Differentiated) -> Result<Cotangents, OpError> {
        let reason = "a function of the host's (what is made of operations has one: Composite)";
        Err(not_differentiable(self.name(), reason))
    }
}

/// Elements of an operand, row-major without gaps.
#[derive(Clone, Copy, Debug)]
pub struct HostArray<'a> {
    /// Shape and element type.
    pub ty: &'a TensorType,
    /// The elements.
    pub bytes: &'a [u8],
}

impl<'a> HostArray<'a> {
    /// The elements as a Rust type. `bool` is read as `u8`.
    ///
    /// # Errors
    /// Fails if the size of the numbers differs from the size of the elements.
    pub fn data<T: AnyBitPattern>(&self) -> Result<&'a [T], String> {
        bytemuck::try_cast_slice(self.bytes).map_err(|_| unfit::<T>(self.ty))
    }
}

/// Elements of a result, row-major without gaps.
#[derive(Debug)]
pub struct HostArrayMut<'a> {
    /// Shape and element type.
    pub ty: &'a TensorType,
    /// The elements.
    pub bytes: &'a mut [u8],
}

impl HostArrayMut<'_> {
    /// The elements as a Rust type. `bool` is 0 or 1 in `u8`.
    ///
    /// # Errors
    /// Fails if the size of the numbers differs from the size of the elements.
    pub fn data<T: AnyBitPattern + NoUninit>(&mut self) -> Result<&mut [T], String> {
        bytemuck::try_cast_slice_mut(self.bytes).map_err(|_| unfit::<T>(self.ty))
    }
}

fn unfit<T>(ty: &TensorType) -> String {
    format!("elements of {ty} are not {}", std::any::type_name::<T>())
}

/// A [`HostFunction`] as one of the operations.
#[derive(Clone)]
pub struct Host(Arc<dyn HostFunction>);

impl Host {
    /// The operation `function`.
    pub fn new(function: impl HostFunction) -> Self {
        Self(Arc::new(function))
    }

    /// The operation's name.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// [`HostFunction::call`].
    ///
    /// # Errors
    /// The errors of that method.
    pub fn call(&self, inputs: &[HostArray], outputs: &mut [HostArrayMut]) -> Result<(), String> {
        let named = |mistake| format!("{}: {mistake}", self.name());
        self.0.call(inputs, outputs).map_err(named)
    }
}

impl Op {
    /// Do other processes or threads take part in it? Then it is computed once, in the order of the program.
    pub fn is_collective(&self) -> bool {
        matches!(self, Op::Host(function) if function.0.is_collective())
    }
}

impl PartialEq for Host {
    fn eq(&self, other: &Self) -> bool {
        let any: &dyn Any = &*other.0;
        self.0.is_same(any)
    }
}

impl Eq for Host {}

impl Hash for Host {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(Parameters::hash(&*self.0));
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl OpDef for Host {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::CustomKernel)
    }

    fn is_of_processor(&self) -> bool {
        true
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let results = self.0.infer(inputs)?;
        let scalars = results.iter().all(|ty| !ty.dtype.is_block());
        let expected = "at least one result, with scalar elements";
        require(
            self.name(),
            scalars && !results.is_empty(),
            expected,
            format!("{results:?}"),
        )?;
        Ok(results)
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        self.0.vjp(g, node)
    }
}

impl Named for Host {
    const NAME: &'static str = "host";

    fn cases() -> Vec<Case> {
        let op = Self::new(SortedAndCount { descending: true });
        let shapes = [&[][..], &[0, 3], &[3, 70]];
        let x = |shape: &&[usize]| CaseOperand::new(*shape, DType::F32);
        let cases = shapes.iter().map(|shape| Case::new(op.clone(), [x(shape)]));
        cases.collect()
    }
}

/// The function that conformance tries: all elements sorted, and the number of elements above 0.
#[derive(PartialEq, Eq, Hash, Debug)]
struct SortedAndCount {
    descending: bool,
}

impl HostFunction for SortedAndCount {
    fn name(&self) -> &'static str {
        "sorted_and_count"
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(self.name(), inputs)?;
        require(self.name(), x.dtype == DType::F32, "f32", x)?;
        let count = TensorType::new([], DType::I64);
        Ok([x.clone(), count].into_iter().collect())
    }

    fn call(&self, inputs: &[HostArray], outputs: &mut [HostArrayMut]) -> Result<(), String> {
        let x = inputs[0].data::<f32>()?;
        let sorted = outputs[0].data::<f32>()?;
        sorted.copy_from_slice(x);
        sorted.sort_by(f32::total_cmp);
        if self.descending {
            sorted.reverse();
        }
        outputs[1].data::<i64>()?[0] = x.iter().filter(|x| **x > 0.0).count() as i64;
        Ok(())
    }
}
