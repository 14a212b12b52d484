use std::any::Any;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::*;
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::{FoldingHasher, Graph, Named, OpDef, OpKind, OpType, ResultTypes, Results, ValueId};

/// A composite operation from another crate: a type of its parameters, plain data, with the
/// operations that it is composed of.
///
/// It runs on every device, as its parts, or by its own [kernel](Composite::kernel). A backend with
/// its own kernel lists [`Custom`] in its table and recognises it by [`Custom::downcast_ref`]. A
/// runtime's [rule](crate::passes::Rule) can put it in place of those parts.
pub trait Composite: Parameters + fmt::Debug + Send + Sync {
    /// The operation's name.
    fn name(&self) -> &'static str;

    /// Appends the parts of the operation, and returns its results, at least one. Only the types of
    /// the operands decide the parts.
    ///
    /// # Errors
    /// Fails for operands that the operation is not defined for.
    fn decompose(&self, graph: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError>;

    /// The gradients of the operands that need one, see [`OpDef::vjp`]. By default they are those
    /// of the parts.
    ///
    /// # Errors
    /// Fails if a part has no gradient.
    fn vjp(&self, graph: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        node.through_parts(graph, |g, inputs| self.decompose(g, inputs))
    }

    /// A kernel in this language that a GPU runs in place of the parts, on operands of these types;
    /// `None` if there is none.
    ///
    /// If it cannot be compiled, or fails, the operation falls back to the next device, or to its
    /// parts.
    fn kernel(
        &self,
        _language: KernelLanguage,
        _inputs: &[&TensorType],
        _outputs: &[TensorType],
    ) -> Option<CustomKernel> {
        None
    }

    /// Family of the operation on real numbers, see [`OpDef::op_type`].
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::CustomKernel)
    }

    /// The operations that a rule replaces by this one, see [`OpDef::replaces`].
    fn replaces(&self) -> Vec<OpKind> {
        Vec::new()
    }
}

/// Common traits of plain data: it can be compared and hashed.
pub trait Parameters: Any {
    /// Returns whether both are the same operation with the same parameters.
    fn is_same(&self, other: &dyn Any) -> bool;

    /// A hash of them.
    fn hash(&self) -> u64;
}

impl<T: Any + Eq + Hash> Parameters for T {
    fn is_same(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self)
    }

    fn hash(&self) -> u64 {
        let mut hasher = FoldingHasher::default();
        Hash::hash(&(self.type_id(), self), &mut hasher);
        hasher.finish()
    }
}

/// A [`Composite`] as one of the operations.
///
/// Operands and results are its own.
#[derive(Clone)]
pub struct Custom {
    op: Arc<dyn Composite>,
    is_guarded: bool,
}

impl Custom {
    /// The operation `composite`.
    pub fn new(composite: impl Composite) -> Self {
        Self {
            op: Arc::new(composite),
            is_guarded: false,
        }
    }

    /// Guards the kernel: writes outside its results are reported as a mistake of the caller.
    pub fn guarded(self) -> Self {
        Self {
            is_guarded: true,
            ..self
        }
    }

    /// Returns whether its kernel is guarded.
    pub fn is_guarded(&self) -> bool {
        self.is_guarded
    }

    /// [`Composite::kernel`].
    pub fn kernel(
        &self,
        language: KernelLanguage,
        inputs: &[&TensorType],
        outputs: &[TensorType],
    ) -> Option<CustomKernel> {
        self.op.kernel(language, inputs, outputs)
    }

    /// The operation's name.
    pub fn name(&self) -> &'static str {
        self.op.name()
    }

    /// Its parameters, if they are a `T`.
    pub fn downcast_ref<T: Composite>(&self) -> Option<&T> {
        let any: &dyn Any = &*self.op;
        any.downcast_ref()
    }

    /// A graph of this operation alone.
    fn alone(&self, inputs: &[&TensorType]) -> Result<(Graph, Results), OpError> {
        let mut graph = Graph::new();
        let operands = inputs.iter().map(|&ty| graph.input(ty.clone()));
        let operands: Vec<ValueId> = operands.collect::<Result<_, _>>()?;
        let results = self.op.decompose(&mut graph, &operands)?;
        let is_any = !results.is_empty();
        require(self.name(), is_any, "a result at least", "none")?;
        Ok((graph, results))
    }
}

impl PartialEq for Custom {
    fn eq(&self, other: &Self) -> bool {
        let any: &dyn Any = &*other.op;
        self.op.is_same(any) && self.is_guarded == other.is_guarded
    }
}

impl Eq for Custom {}

impl Hash for Custom {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(Parameters::hash(&*self.op) ^ u64::from(self.is_guarded));
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.op.fmt(f)
    }
}

impl OpDef for Custom {
    fn op_type(&self) -> Option<OpType> {
        self.op.op_type()
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let (graph, results) = self.alone(inputs)?;
        Ok(results
            .iter()
            .map(|&value| graph.ty(value).clone())
            .collect())
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn replaces(&self) -> Vec<OpKind> {
        self.op.replaces()
    }

    fn decompose(&self, graph: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        self.op.decompose(graph, inputs)
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        self.op.vjp(g, node)
    }
}

impl Named for Custom {
    const NAME: &'static str = "custom";

    fn cases() -> Vec<Case> {
        let op = Self::new(ScaledSum { scale: 2 });
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            let x = |shape: &[usize]| CaseOperand::new(shape, dtype);
            for shape in [&[][..], &[1], &[0, 3], &[3, 70]] {
                cases.push(Case::new(op.clone(), [x(shape), x(shape)]));
            }
            for arrange in ARRANGEMENTS {
                let x = |shape: &[usize]| x(shape).arrange(arrange);
                cases.push(Case::new(op.clone(), [x(&[3, 5, 7]), x(&[7])]));
            }
        }
        cases
    }
}

/// The operation that conformance tries: the sum and the scaled sum of two tensors.
#[derive(PartialEq, Eq, Hash, Debug)]
struct ScaledSum {
    scale: i32,
}

impl Composite for ScaledSum {
    fn name(&self) -> &'static str {
        "scaled_sum"
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let &[a, b] = inputs else {
            return Err(OpError::new(self.name(), "2 operands", inputs.len()));
        };
        let sum = g.add(a, b)?;
        let scale = g.full(g.ty(sum).shape.clone(), self.scale, g.ty(sum).dtype)?;
        let scaled = g.mul(sum, scale)?;
        Ok([sum, scaled].into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another operation of the same parameters.
    #[derive(PartialEq, Eq, Hash, Debug)]
    struct Other {
        scale: i32,
    }

    impl Composite for Other {
        fn name(&self) -> &'static str {
            "other"
        }

        fn decompose(&self, _: &mut Graph, _: &[ValueId]) -> Result<Results, OpError> {
            Ok(Results::new())
        }
    }

    #[test]
    fn it_is_its_type_and_parameters() {
        let hash = |op: &Custom| {
            let mut hasher = FoldingHasher::default();
            Hash::hash(op, &mut hasher);
            hasher.finish()
        };
        let [two, same, three] = [2, 2, 3].map(|scale| Custom::new(ScaledSum { scale }));
        let other = Custom::new(Other { scale: 2 });
        assert!(two == same && hash(&two) == hash(&same));
        for different in [&three, &other] {
            assert!(two != *different && hash(&two) != hash(different));
        }
        assert_eq!(two.downcast_ref(), Some(&ScaledSum { scale: 2 }));
        assert_eq!(two.downcast_ref::<Other>(), None);
    }

    #[test]
    fn its_types_are_those_of_its_parts() {
        let mut g = Graph::new();
        let [a, b] = [[3, 1], [1, 4]].map(|shape| {
            let ty = TensorType::new(shape, DType::F32);
            g.input(ty).unwrap()
        });
        let op = Custom::new(ScaledSum { scale: 3 });
        let first = g.push(op.clone(), &[a, b]).unwrap();
        let results = g.results(first);
        assert_eq!(results.len(), 2);
        assert!(results.iter().all(|&v| *g.ty(v).shape == [3, 4]));
        let refused = g.push(op, &[a]).unwrap_err().to_string();
        assert_eq!(refused, "scaled_sum: expected 2 operands, got 1");
        let none = g.push(Custom::new(Other { scale: 1 }), &[a]).unwrap_err();
        assert_eq!(
            none.to_string(),
            "other: expected a result at least, got none"
        );
    }
}
