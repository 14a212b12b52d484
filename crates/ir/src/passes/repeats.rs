//! Removes conversions that a recorded computation makes twice, as autocast does for each product
//! that reads a tensor.

use std::collections::HashMap;

use super::{Pass, Places, Rewriting, Rewritten};
use crate::{Graph, Op, OpError, ValueId};

/// Makes each conversion to a smaller dtype once, while its result is still needed. So nothing takes more memory, and
/// recomputed values are still recomputed.
pub struct Repeats;

impl Pass for Repeats {
    fn name(&self) -> &'static str {
        "repeats"
    }

    fn run(&self, graph: &Graph, _places: &dyn Places) -> Result<Option<Rewritten>, OpError> {
        let same = repeats(graph);
        if same.is_empty() {
            return Ok(None);
        }
        let mut out = Rewriting::new(graph)?;
        for (at, node) in graph.nodes().iter().enumerate() {
            match same.get(&node.result(0)) {
                Some(&first) => out.set(node.result(0), out.value(first)?),
                None => out.keep(at)?,
            }
        }
        out.finish().map(Some)
    }
}

/// The conversions that are not made again, with the earlier results.
fn repeats(graph: &Graph) -> HashMap<ValueId, ValueId> {
    // The last node that reads each value or a view of it.
    let mut last = vec![0; graph.len()];
    for (at, node) in graph.nodes().iter().enumerate() {
        for &value in &node.inputs {
            last[graph.base(value).index()] = at;
        }
    }
    let mut is_output = vec![false; graph.len()];
    for &value in graph.outputs() {
        is_output[graph.base(value).index()] = true;
    }
    let (mut firsts, mut same) = (HashMap::new(), HashMap::new());
    for (at, node) in graph.nodes().iter().enumerate() {
        let Op::Cast(cast) = &node.op else {
            continue;
        };
        let value = node.result(0);
        let is_smaller = graph.ty(value).bytes() < graph.ty(node.inputs[0]).bytes();
        if !is_smaller || is_output[value.index()] {
            continue;
        }
        let first = firsts
            .entry((node.inputs[0], cast.dtype, node.pin))
            .or_insert(value);
        if *first == value || last[first.index()] < at {
            *first = value;
            continue;
        }
        last[first.index()] = last[first.index()].max(last[value.index()]);
        same.insert(value, *first);
    }
    same
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::OneDevice;
    use crate::{DType, TensorType};

    const HALF: DType = DType::BF16;

    fn less(graph: &Graph) -> Result<Option<Rewritten>, OpError> {
        Repeats.run(graph, &OneDevice(|_| true))
    }

    fn casts(graph: &Graph) -> usize {
        let nodes = graph.nodes().iter();
        nodes.filter(|node| matches!(node.op, Op::Cast(_))).count()
    }

    #[test]
    fn a_conversion_is_made_once_while_it_is_needed() -> Result<(), OpError> {
        let mut graph = Graph::new();
        let x = graph.input(TensorType::new([4], DType::F32))?;
        let [a, b] = [graph.cast(x, HALF)?, graph.cast(x, HALF)?];
        let sum = graph.add(a, b)?;
        let product = graph.mul(a, sum)?;
        // Behind the last that reads the others.
        let later = graph.cast(x, HALF)?;
        let y = graph.add(product, later)?;
        let wide = [graph.cast(y, DType::F32)?, graph.cast(y, DType::F32)?];
        let y = graph.mul(wide[0], wide[1])?;
        graph.output(y);
        let less = less(&graph)?.unwrap();
        assert_eq!([casts(&graph), casts(&less.graph)], [5, 4]);
        let origins: Vec<usize> = less.origins.iter().map(|of| of[0]).collect();
        assert_eq!(origins, [0, 2, 3, 4, 5, 6, 7, 8]);
        let sum = &less.graph.nodes()[1];
        assert_eq!(sum.inputs[0], sum.inputs[1]);
        Ok(())
    }

    #[test]
    fn outputs_are_conversions_of_their_own() -> Result<(), OpError> {
        let mut graph = Graph::new();
        let x = graph.input(TensorType::new([4], DType::F32))?;
        let [a, b] = [graph.cast(x, HALF)?, graph.cast(x, HALF)?];
        let sum = graph.add(a, b)?;
        for value in [a, b, sum] {
            graph.output(value);
        }
        assert!(less(&graph)?.is_none());
        Ok(())
    }
}
