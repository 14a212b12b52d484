//! Gradients: reverse-mode differentiation of graphs, whose result is graph nodes again.
//!
//! Each operation has its vector-Jacobian product ([`OpDef::vjp`](crate::OpDef::vjp)). A composite without one uses
//! that of its parts. Complex gradients are PyTorch's: conjugate Wirtinger derivatives, so that a step against the
//! gradient makes a real loss smaller.

use std::collections::HashMap;
use std::ops::Range;

use smallvec::SmallVec;

use crate::{DType, Graph, Node, Op, OpError, Results, TensorType, ValueId};

/// Gradients of an operation's operands, if requested and existing.
pub type Cotangents = SmallVec<[Option<ValueId>; 4]>;

/// A node whose gradient is computed. All values belong to the graph that is extended.
#[derive(Clone, Copy, Debug)]
pub struct Differentiated<'a> {
    /// The operands.
    pub inputs: &'a [ValueId],
    /// The computed results.
    pub results: &'a [ValueId],
    /// Gradients of the results, of their types; `None` is zero. At least one exists.
    pub cotangents: &'a [Option<ValueId>],
    /// For each operand, is its gradient needed? Operands without a gradient never need one.
    pub needed: &'a [bool],
}

impl Differentiated<'_> {
    /// The gradient of a result; zeros if there is none.
    ///
    /// # Errors
    /// Fails if the graph cannot hold zeros of this type.
    pub fn cotangent(&self, g: &mut Graph, result: usize) -> Result<ValueId, OpError> {
        match self.cotangents[result] {
            Some(cotangent) => Ok(cotangent),
            None => g.zeros_like(self.results[result]),
        }
    }

    /// The gradient of each operand that needs one, by a function of the operand's number.
    ///
    /// # Errors
    /// The errors of the function.
    pub fn each(
        &self,
        g: &mut Graph,
        mut gradient: impl FnMut(&mut Graph, usize) -> Result<ValueId, OpError>,
    ) -> Result<Cotangents, OpError> {
        let operands = self.needed.iter().enumerate();
        operands
            .map(|(operand, &is_needed)| is_needed.then(|| gradient(g, operand)).transpose())
            .collect()
    }

    /// Gradients through the parts of the operation: appends the parts again, and differentiates
    /// them. `decompose` is the operation's decomposition.
    ///
    /// # Errors
    /// The errors of the parts.
    pub fn through_parts(
        &self,
        g: &mut Graph,
        decompose: impl FnOnce(&mut Graph, &[ValueId]) -> Result<Results, OpError>,
    ) -> Result<Cotangents, OpError> {
        let first = g.nodes().len();
        let results = decompose(g, self.inputs)?;
        let cotangents = results.into_iter().zip(self.cotangents);
        let cotangents: Vec<(ValueId, ValueId)> = cotangents
            .filter_map(|(result, &cotangent)| Some((result, cotangent?)))
            .collect();
        // If an operand is there twice, the first one has the gradient of both.
        let is_wanted = |(i, v): (usize, &ValueId)| self.needed[i] && !self.inputs[..i].contains(v);
        let wanted: Vec<bool> = self.inputs.iter().enumerate().map(is_wanted).collect();
        let values: Vec<ValueId> = (self.inputs.iter().zip(&wanted))
            .filter_map(|(&value, &is_wanted)| is_wanted.then_some(value))
            .collect();
        let mut found = backward(g, first..g.nodes().len(), &cotangents, &values)?.into_iter();
        let cotangent = |is_wanted: bool| is_wanted.then(|| found.next().flatten()).flatten();
        Ok(wanted.into_iter().map(cotangent).collect())
    }
}

/// Description of operands that gradients are asked for.
const A_GRADIENT: &str = "an operation that has a gradient (detach operands that need none)";

/// The error of an operation that has no gradient.
pub fn not_differentiable(op: &'static str, reason: impl ToString) -> OpError {
    OpError::new(op, A_GRADIENT, reason)
}

/// Returns whether an error says that an operation has no gradient.
pub fn is_not_differentiable(error: &OpError) -> bool {
    error.expected == A_GRADIENT
}

impl DType {
    /// Returns whether elements of this type can have a gradient. Floats and complex numbers have one.
    pub fn has_gradient(self) -> bool {
        self.is_float() || self.is_complex()
    }
}

impl Op {
    /// [`OpDef::vjp`](crate::OpDef::vjp) with gradients of the operands' types: broadcast
    /// dimensions are summed, and real operands get the real part.
    ///
    /// # Errors
    /// Fails if the operation has no gradient. The error says why.
    pub fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let mut cotangents = self.def().vjp(g, node)?;
        for (cotangent, &input) in cotangents.iter_mut().zip(node.inputs) {
            if let Some(cotangent) = cotangent {
                let ty = g.ty(input).clone();
                *cotangent = fitted(g, *cotangent, &ty)?;
            }
        }
        Ok(cotangents)
    }
}

/// A gradient as one of an operand of this type.
fn fitted(g: &mut Graph, mut cotangent: ValueId, ty: &TensorType) -> Result<ValueId, OpError> {
    if !ty.dtype.is_complex() {
        cotangent = g.real(cotangent)?;
    }
    cotangent = g.sum_to(cotangent, &ty.shape)?;
    g.cast(cotangent, ty.dtype)
}

/// Appends the gradients of `wanted`, values of the graph, from `cotangents`. These are gradients of other
/// values, which nodes of the range `nodes` compute from the wanted ones. Values that are not on a path
/// between them are not touched. `None` if there is no path.
///
/// # Errors
/// Fails if an operation on the path has no gradient, or reads a value that was overwritten.
pub fn backward(
    g: &mut Graph,
    nodes: Range<usize>,
    cotangents: &[(ValueId, ValueId)],
    wanted: &[ValueId],
) -> Result<Vec<Option<ValueId>>, OpError> {
    let mut follows = vec![false; g.len()];
    wanted.iter().for_each(|v| follows[v.index()] = true);
    for node in &g.nodes()[nodes.clone()] {
        if needed(g, &follows, node).contains(&true) {
            node.results().for_each(|v| follows[v.index()] = true);
        }
    }
    let mut gradients: HashMap<ValueId, ValueId> = HashMap::new();
    for &(value, cotangent) in cotangents {
        add(g, &mut gradients, value, cotangent)?;
    }
    for at in nodes.rev() {
        let node = g.nodes()[at].clone();
        let needed = needed(g, &follows, &node);
        let results: Results = node.results().collect();
        // Wanted values keep their gradients. Other values are done with theirs.
        let take = |value: &ValueId| match wanted.contains(value) {
            true => gradients.get(value).copied(),
            false => gradients.remove(value),
        };
        let cotangents: Cotangents = results.iter().map(take).collect();
        if !needed.contains(&true) || cotangents.iter().all(Option::is_none) {
            continue;
        }
        let differentiated = Differentiated {
            inputs: &node.inputs,
            results: &results,
            cotangents: &cotangents,
            needed: &needed,
        };
        let found = node.op.vjp(g, &differentiated)?;
        for (&input, cotangent) in node.inputs.iter().zip(found) {
            if let Some(cotangent) = cotangent {
                add(g, &mut gradients, input, cotangent)?;
            }
        }
    }
    Ok(wanted.iter().map(|v| gradients.get(v).copied()).collect())
}

/// For each operand of a node: does it have a gradient that a wanted value needs?
fn needed(g: &Graph, follows: &[bool], node: &Node) -> SmallVec<[bool; 4]> {
    let is_needed = |v: &ValueId| follows[v.index()] && g.ty(*v).dtype.has_gradient();
    node.inputs.iter().map(is_needed).collect()
}

fn add(
    g: &mut Graph,
    gradients: &mut HashMap<ValueId, ValueId>,
    value: ValueId,
    cotangent: ValueId,
) -> Result<(), OpError> {
    let sum = match gradients.get(&value) {
        Some(&other) => g.add(other, cotangent)?,
        None => cotangent,
    };
    gradients.insert(value, sum);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::OpKind;
    use crate::case::Case;

    /// Operations without a gradient, and the reasons. All other operations have one.
    const WITHOUT: &[(&str, &str)] = &[
        ("binary", "a polynomial's degree"),
        (
            "binary",
            "a polynomial, which has no derivative in PyTorch either",
        ),
        (
            "binary",
            "the first operand of an incomplete gamma function or zeta",
        ),
        ("cached_attention", "it writes over its cache"),
        ("geqrf", "PyTorch has no gradient of it either (qr has one)"),
        ("ldl", "PyTorch has no gradient of it either"),
        ("ldl_solve", "PyTorch has no gradient of it either"),
        (
            "qr",
            "a complete basis, which the matrix determines only in part (use the reduced one)",
        ),
        (
            "sorted_and_count",
            "a function of the host's (what is made of operations has one: Composite)",
        ),
        ("unary", "airy_ai, whose derivative is not a function here"),
    ];

    /// Asks for the gradient of one operand, in a graph of types alone.
    fn ask(case: &Case, operand: usize) -> Result<(), OpError> {
        let mut g = Graph::new();
        let types: Vec<&TensorType> = case.inputs.iter().map(|x| &x.ty).collect();
        let mut input = |ty: &TensorType| g.input(ty.clone());
        let inputs: Vec<ValueId> = types
            .iter()
            .copied()
            .map(&mut input)
            .collect::<Result<_, _>>()?;
        let found = case.op.infer(&types)?;
        let results: Vec<ValueId> = found.iter().map(&mut input).collect::<Result<_, _>>()?;
        let cotangent = |ty: &TensorType| ty.dtype.has_gradient().then(|| input(ty)).transpose();
        let cotangents: Vec<Option<ValueId>> =
            found.iter().map(cotangent).collect::<Result<_, _>>()?;
        if cotangents.iter().all(Option::is_none) {
            return Ok(());
        }
        let needed: Vec<bool> = (0..inputs.len()).map(|i| i == operand).collect();
        let node = Differentiated {
            inputs: &inputs,
            results: &results,
            cotangents: &cotangents,
            needed: &needed,
        };
        let found = case.op.vjp(&mut g, &node)?;
        // None where there is no way from the operand, as from the state that is written over.
        for (i, cotangent) in found.iter().enumerate() {
            assert!(i == operand || cotangent.is_none(), "{case:?}");
            assert!(cotangent.is_none_or(|v| g.ty(v) == types[i]), "{case:?}");
        }
        Ok(())
    }

    #[test]
    fn every_operation_has_a_gradient_or_says_why_not() {
        let mut without = BTreeSet::new();
        for case in OpKind::ALL.iter().flat_map(|kind| kind.cases()) {
            for operand in 0..case.inputs.len() {
                if case.inputs[operand].ty.dtype.has_gradient()
                    && let Err(e) = ask(&case, operand)
                {
                    assert!(is_not_differentiable(&e), "{case:?}: {e}");
                    without.insert((e.op, e.got));
                }
            }
        }
        let without: Vec<(&str, &str)> = without.iter().map(|(op, why)| (*op, &**why)).collect();
        assert_eq!(without, WITHOUT);
    }
}
