//! Less memory for a recorded computation: a cross entropy with the product before it, and their gradients, in
//! chunks of rows. The whole table of logits never exists.

use std::collections::{BTreeSet, HashMap};

use smallvec::{SmallVec, smallvec};

use super::{Decomposition, OneDevice, Pass, Places, Rewriting, Rewritten};
use crate::ops::{
    Binary, BinaryOp, Cast, Concat, CrossEntropy, CrossEntropyBackward, Permute, Reduce, ReduceOp,
    Reshape, Slice,
};
use crate::{DType, Graph, Node, Op, OpError, Signature, TensorType, ValueId};

/// Operation that adds up results of chunks.
const ADD: Binary = Binary { op: BinaryOp::Add };

/// A table of logits, or of their gradients, as a value of the graph has it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    /// `[rows, classes]`, where rows may be several dimensions.
    Rows,
    /// `[classes, rows]`.
    Columns,
}

/// A chunk's replacement of an operand.
#[derive(Clone, Copy)]
enum Part {
    /// Its own table.
    Table(ValueId),
    /// The whole value.
    Whole(ValueId),
    /// Its rows, which come first, in one dimension.
    Rows(ValueId),
    /// Its columns, as a matrix.
    Columns(ValueId),
}

/// The combination of the chunks' results.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Together {
    /// A table that never exists as a whole.
    Table(Table),
    /// Chunks are concatenated in order.
    Joined,
    /// Their sum.
    Summed,
}

/// A node as each chunk has it.
struct ByChunk {
    at: usize,
    /// `None` where a chunk's table is seen in another shape alone.
    op: Option<Op>,
    parts: SmallVec<[Part; 3]>,
    together: Together,
}

/// Chunks of rows in place of the largest table of logits, if their number is worth it.
///
/// The graph's logits have to come from a product. Only cross entropies, their gradients and dependent products may
/// read them.
pub struct Chunks {
    /// Number of chunks.
    pub chunks: usize,
}

impl Pass for Chunks {
    fn name(&self) -> &'static str {
        "chunks"
    }

    fn run(&self, graph: &Graph, _places: &dyn Places) -> Result<Option<Rewritten>, OpError> {
        let chunking = Chunking::of(graph)?.filter(|chunking| chunking.is_worth(self.chunks));
        chunking.map(|c| c.by_chunks(self.chunks)).transpose()
    }
}

/// The nodes that compute or read the largest table of logits of a graph.
struct Chunking {
    /// The graph, with means of cross entropies replaced by their parts.
    parts: Rewritten,
    rows: usize,
    /// Bytes of the table.
    bytes: usize,
    nodes: Vec<ByChunk>,
    /// Nodes behind the product that have to be computed before the chunks.
    before: BTreeSet<usize>,
}

impl Chunking {
    /// `None` if there is no such table.
    fn of(graph: &Graph) -> Result<Option<Self>, OpError> {
        let is_one = |s: &Signature| !matches!(s.op, Op::CrossEntropyMean(_));
        let parts = Decomposition.run(graph, &OneDevice(is_one))?;
        let parts = parts.unwrap_or_else(|| graph.clone().into());
        let graph = &parts.graph;
        let losses = graph.nodes().iter().filter(|node| {
            let Op::CrossEntropy(loss) = &node.op else {
                return false;
            };
            is_of_rows(loss, graph.ty(node.inputs[0]))
        });
        let logits = losses.map(|node| node.inputs[0]);
        let largest = logits.max_by_key(|&logits| graph.ty(logits).bytes());
        let product = largest.and_then(|logits| product(graph, logits));
        let region = product.and_then(|product| Region::of(graph, product));
        let Some(Region {
            rows,
            nodes,
            before,
            ..
        }) = region
        else {
            return Ok(None);
        };
        Ok(Some(Self {
            bytes: graph.nodes()[nodes[0].at].output().bytes(),
            rows,
            nodes,
            before,
            parts,
        }))
    }

    /// Is it worth having this number of chunks rather than half of it? The saved bytes would otherwise be
    /// saved by recomputation, which moves about three times as many; it costs adding up so many more sums.
    fn is_worth(&self, chunks: usize) -> bool {
        let added = self
            .nodes
            .iter()
            .filter(|node| node.together == Together::Summed);
        let moved = added.map(|node| {
            let ty = self.graph().nodes()[node.at].output();
            // The next one is read, the sum so far read and written.
            ty.bytes() + 2 * summed(ty).bytes()
        });
        let costs = moved.sum::<usize>().saturating_mul(chunks / 2);
        chunks <= self.rows && 3 * (self.bytes / chunks) >= costs
    }

    fn graph(&self) -> &Graph {
        &self.parts.graph
    }

    /// The graph with this number of chunks.
    fn by_chunks(&self, chunks: usize) -> Result<Rewritten, OpError> {
        let mut out = Rewriting::new(self.graph())?;
        let of_chunks: BTreeSet<usize> = self.nodes.iter().map(|node| node.at).collect();
        let product = self.nodes[0].at;
        for at in 0..self.graph().nodes().len() {
            if at == product {
                for &early in &self.before {
                    out.keep(early)?;
                }
                self.emit(chunks, &mut out)?;
            }
            if !of_chunks.contains(&at) && !self.before.contains(&at) {
                out.keep(at)?;
            }
        }
        Ok(self.parts.then(out.finish()?))
    }

    /// Appends the chunks, one after the other, and the nodes that join their results.
    fn emit(&self, chunks: usize, out: &mut Rewriting) -> Result<(), OpError> {
        let size = self.rows.div_ceil(chunks.max(1)).max(1);
        let mut joined: HashMap<usize, Vec<ValueId>> = HashMap::new();
        let mut sums: HashMap<usize, ValueId> = HashMap::new();
        // Operands whose rows are of several dimensions, in one.
        let mut flat: HashMap<ValueId, ValueId> = HashMap::new();
        for start in (0..self.rows).step_by(size) {
            let end = (start + size).min(self.rows);
            let mut tables: HashMap<ValueId, ValueId> = HashMap::new();
            for node in &self.nodes {
                let ByChunk { at, parts, .. } = node;
                let mut operands: SmallVec<[ValueId; 3]> = SmallVec::new();
                for part in parts {
                    operands.push(match *part {
                        Part::Table(value) => tables[&value],
                        Part::Whole(value) => out.value(value)?,
                        Part::Rows(value) => {
                            let rows = match flat.get(&value) {
                                Some(&known) => known,
                                None => {
                                    let rows = self.flattened(value, *at, out)?;
                                    flat.insert(value, rows);
                                    rows
                                }
                            };
                            out.push(slice(0, start, end), &[rows], *at)?
                        }
                        Part::Columns(value) => {
                            let matrix = out.value(value)?;
                            out.push(slice(1, start, end), &[matrix], *at)?
                        }
                    });
                }
                let result = match &node.op {
                    Some(op) => out.push(op.clone(), &operands, *at)?,
                    None => operands[0],
                };
                match node.together {
                    Together::Table(_) => {
                        tables.insert(self.graph().nodes()[*at].result(0), result);
                    }
                    Together::Joined => joined.entry(*at).or_default().push(result),
                    Together::Summed => {
                        let ty = out.graph().ty(result);
                        let (dtype, wide) = (ty.dtype, summed(ty).dtype);
                        let result = match dtype == wide {
                            true => result,
                            false => out.push(Cast { dtype: wide }, &[result], *at)?,
                        };
                        let sum = match sums.get(at) {
                            Some(&sum) => out.push(ADD, &[sum, result], *at)?,
                            None => result,
                        };
                        sums.insert(*at, sum);
                    }
                }
            }
        }
        for ByChunk { at, together, .. } in &self.nodes {
            let node = &self.graph().nodes()[*at];
            let whole = match together {
                Together::Table(_) => continue,
                Together::Joined => out.push(Concat { dim: 0 }, &joined[at], *at)?,
                Together::Summed => self.rounded(sums[at], *at, out)?,
            };
            out.set(node.result(0), whole);
        }
        Ok(())
    }

    /// A sum as the result of a node.
    fn rounded(&self, sum: ValueId, at: usize, out: &mut Rewriting) -> Result<ValueId, OpError> {
        let TensorType { shape, dtype } = self.graph().nodes()[at].output().clone();
        let cast = Cast { dtype };
        let sum = match out.graph().ty(sum).dtype == dtype {
            true => sum,
            false => out.push(cast, &[sum], at)?,
        };
        match out.graph().ty(sum).shape == shape {
            true => Ok(sum),
            false => out.push(Reshape { shape }, &[sum], at),
        }
    }

    /// A value whose rows are one dimension.
    fn flattened(
        &self,
        value: ValueId,
        at: usize,
        out: &mut Rewriting,
    ) -> Result<ValueId, OpError> {
        let now = out.value(value)?;
        let shape = &self.graph().ty(value).shape;
        match shape.len() <= 2 && shape.first() == Some(&self.rows) {
            true => Ok(now),
            false => {
                let width = shape.last().copied().unwrap_or(1);
                let shape = [self.rows, width].into();
                out.push(Reshape { shape }, &[now], at)
            }
        }
    }
}

/// Indices from `start` up to and excluding `end`.
fn slice(dim: usize, start: usize, end: usize) -> Slice {
    let step = 1;
    Slice {
        dim,
        start,
        end,
        step,
    }
}

/// The dtype for sums of results of a type: halves in single precision.
fn summed(ty: &TensorType) -> TensorType {
    let dtype = match ty.dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    };
    TensorType::new(ty.shape.clone(), dtype)
}

/// Returns whether it is the loss of each row of a matrix.
fn is_of_rows(loss: &CrossEntropy, x: &TensorType) -> bool {
    x.rank() == 2 && loss.dim == 1
}

/// The product that logits are, or are made of by conversions and other shapes with the same rows.
fn product(graph: &Graph, logits: ValueId) -> Option<usize> {
    let classes = graph.ty(logits).shape.last()?;
    let mut at = graph.producer(logits)?;
    loop {
        let node = &graph.nodes()[at];
        match &node.op {
            Op::Linear(_) => return Some(at),
            Op::Matmul(_) if node.output().rank() == 2 => return Some(at),
            Op::Reshape(_) | Op::Cast(_) => {
                let operand = node.inputs[0];
                (graph.ty(operand).shape.last() == Some(classes)).then_some(())?;
                at = graph.producer(operand)?;
            }
            _ => return None,
        }
    }
}

/// The nodes that compute or read tables that follow from a product.
struct Region<'a> {
    graph: &'a Graph,
    rows: usize,
    tables: HashMap<ValueId, Table>,
    nodes: Vec<ByChunk>,
    before: BTreeSet<usize>,
}

impl<'a> Region<'a> {
    fn of(graph: &'a Graph, product: usize) -> Option<Self> {
        let head = &graph.nodes()[product];
        let shape = &head.output().shape;
        let rows = shape[..shape.len() - 1].iter().product();
        let mut region = Self {
            graph,
            rows,
            tables: HashMap::from([(head.result(0), Table::Rows)]),
            nodes: Vec::new(),
            before: BTreeSet::new(),
        };
        let whole = head.inputs[1..].iter().map(|&value| Part::Whole(value));
        region.nodes.push(ByChunk {
            at: product,
            op: Some(head.op.clone()),
            parts: [Part::Rows(head.inputs[0])]
                .into_iter()
                .chain(whole)
                .collect(),
            together: Together::Table(Table::Rows),
        });
        for (at, node) in graph.nodes().iter().enumerate().skip(product + 1) {
            if node
                .inputs
                .iter()
                .any(|value| region.tables.contains_key(value))
            {
                let node_by_chunk = region.by_chunk(at, node)?;
                if let Together::Table(table) = node_by_chunk.together {
                    region.tables.insert(node.result(0), table);
                }
                region.nodes.push(node_by_chunk);
            }
        }
        let is_table = |value: &ValueId| region.tables.contains_key(value);
        if rows < 2 || graph.outputs().iter().any(is_table) {
            return None;
        }
        region.find_before(product)?;
        Some(region)
    }

    /// A node that reads a table, as each chunk has it; `None` if it needs all rows at once.
    fn by_chunk(&self, at: usize, node: &Node) -> Option<ByChunk> {
        let table = |operand: usize| self.tables.get(node.inputs.get(operand)?).copied();
        let whole = |operand: usize| match table(operand) {
            Some(_) => None,
            None => Some(Part::Whole(node.inputs[operand])),
        };
        let rows = |operand: usize| match table(operand) {
            Some(_) => None,
            None => Some(Part::Rows(node.inputs[operand])),
        };
        let own = |operand: usize| Part::Table(node.inputs[operand]);
        let ty = |operand: usize| self.graph.ty(node.inputs[operand]);
        let is_matrix = |operand: usize| ty(operand).rank() == 2;
        let same = || Some(node.op.clone());
        let first = table(0);
        let (op, parts, together): (_, SmallVec<[Part; 3]>, _) = match &node.op {
            Op::Reshape(_) if first == Some(Table::Rows) => {
                let classes = ty(0).shape.last();
                (node.output().shape.last() == classes).then_some(())?;
                (None, smallvec![own(0)], Together::Table(Table::Rows))
            }
            Op::Cast(_) => (same(), smallvec![own(0)], Together::Table(first?)),
            Op::Permute(Permute { dims }) if dims[..] == [1, 0] => {
                let turned = match first? {
                    Table::Rows => Table::Columns,
                    Table::Columns => Table::Rows,
                };
                (same(), smallvec![own(0)], Together::Table(turned))
            }
            Op::CrossEntropy(loss) if first == Some(Table::Rows) && is_of_rows(loss, ty(0)) => {
                (same(), smallvec![own(0), rows(1)?], Together::Joined)
            }
            Op::CrossEntropyBackward(CrossEntropyBackward {
                loss,
                also_loss: false,
            }) if first == Some(Table::Rows) && is_of_rows(loss, ty(0)) => {
                let parts = smallvec![own(0), rows(1)?, rows(2)?];
                (same(), parts, Together::Table(Table::Rows))
            }
            Op::Matmul(_) if is_matrix(0) && is_matrix(1) => match (first, table(1)) {
                (Some(Table::Rows), None) => {
                    (same(), smallvec![own(0), whole(1)?], Together::Joined)
                }
                (Some(Table::Columns), None) => {
                    (same(), smallvec![own(0), rows(1)?], Together::Summed)
                }
                (None, Some(Table::Rows)) => {
                    let columns = Part::Columns(node.inputs[0]);
                    (same(), smallvec![columns, own(1)], Together::Summed)
                }
                _ => return None,
            },
            Op::Reduce(Reduce {
                op: ReduceOp::Sum,
                dims,
                ..
            }) if first == Some(Table::Rows) && dims.iter().copied().eq(0..ty(0).rank() - 1) => {
                let sum = Reduce {
                    op: ReduceOp::Sum,
                    dims: smallvec![0],
                    keepdim: false,
                };
                (Some(sum.into()), smallvec![own(0)], Together::Summed)
            }
            _ => return None,
        };
        Some(ByChunk {
            at,
            op,
            parts,
            together,
        })
    }

    /// Finds nodes behind the product that the chunks read. `None` if one follows from a chunk, or writes over
    /// something.
    fn find_before(&mut self, product: usize) -> Option<()> {
        let of_chunks: BTreeSet<usize> = self.nodes.iter().map(|node| node.at).collect();
        let parts = self.nodes.iter().flat_map(|node| &node.parts);
        let read = parts.filter_map(|part| match *part {
            Part::Table(_) => None,
            Part::Whole(value) | Part::Rows(value) | Part::Columns(value) => Some(value),
        });
        let mut ahead: Vec<ValueId> = read.collect();
        while let Some(value) = ahead.pop() {
            let Some(at) = self.graph.producer(value) else {
                continue;
            };
            if of_chunks.contains(&at) {
                return None;
            }
            if at > product && self.before.insert(at) {
                let node = &self.graph.nodes()[at];
                (!node.has_effects()).then_some(())?;
                ahead.extend(&node.inputs);
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use crate::autodiff::backward;
    use crate::ops::{CrossEntropyMean, Linear};

    use super::*;
    use crate::passes::peak;

    const ROWS: usize = 480;
    const CLASSES: usize = 1000;

    /// A product of `[2, 24, 8]` in a dtype, the mean of its rows' losses, and the gradients of the factors.
    fn head(dtype: DType, has_bias: bool) -> Result<(Graph, ValueId), OpError> {
        let mut g = Graph::new();
        let x = g.input(TensorType::new([2, ROWS / 2, 8], DType::F32))?;
        let w = g.input(TensorType::new([CLASSES, 8], DType::F32))?;
        let bias = g.input(TensorType::new([CLASSES], DType::F32))?;
        let class = g.input(TensorType::new([ROWS], DType::I64))?;
        let mut operands = vec![g.cast(x, dtype)?, g.cast(w, dtype)?];
        if has_bias {
            operands.push(g.cast(bias, dtype)?);
        }
        let logits = g.push(Linear, &operands)?;
        let flat = g.reshape(logits, [ROWS, CLASSES])?;
        let loss = CrossEntropy {
            dim: 1,
            ignore_index: -100,
        };
        let loss = g.push(CrossEntropyMean { loss }, &[flat, class])?;
        let one = g.constant(1.0, DType::F32)?;
        let wanted = [x, w, bias];
        let nodes = 0..g.nodes().len();
        let gradients = backward(&mut g, nodes, &[(loss, one)], &wanted)?;
        g.output(loss);
        for gradient in gradients.into_iter().flatten() {
            g.output(gradient);
        }
        Ok((g, logits))
    }

    fn tables(graph: &Graph) -> usize {
        let results = graph.nodes().iter().flat_map(|node| &node.outputs);
        let sizes = results.map(|ty| ty.shape.elements());
        sizes.filter(|&size| size == ROWS * CLASSES).count()
    }

    #[test]
    fn there_is_never_a_whole_table() -> Result<(), OpError> {
        for dtype in [DType::F32, DType::BF16] {
            for has_bias in [false, true] {
                let (graph, _) = head(dtype, has_bias)?;
                assert!(tables(&graph) > 0);
                let chunking = Chunking::of(&graph)?.unwrap();
                let mut before = peak(&graph);
                // The last one has fewer rows.
                for chunks in [2, 5, 7] {
                    let Rewritten {
                        graph: by_chunks,
                        origins,
                    } = chunking.by_chunks(chunks)?;
                    assert_eq!(tables(&by_chunks), 0);
                    assert!(peak(&by_chunks) < before, "{chunks}");
                    before = peak(&by_chunks);
                    let types = |graph: &Graph| -> Vec<TensorType> {
                        let outputs = graph.outputs().iter();
                        outputs.map(|&value| graph.ty(value).clone()).collect()
                    };
                    assert_eq!(types(&by_chunks), types(&graph));
                    assert_eq!(by_chunks.nodes().len(), origins.len());
                    assert!(origins.iter().all(|of| of[0] < graph.nodes().len()));
                }
            }
        }
        Ok(())
    }

    #[test]
    fn logits_that_something_else_reads_stay() -> Result<(), OpError> {
        let (mut graph, logits) = head(DType::F32, false)?;
        graph.output(logits);
        assert!(Chunking::of(&graph)?.is_none());
        let (mut graph, logits) = head(DType::F32, false)?;
        let largest = graph.arg_reduce(true, logits, 2)?;
        graph.output(largest);
        assert!(Chunking::of(&graph)?.is_none());
        Ok(())
    }

    #[test]
    fn more_chunks_are_worth_it_while_they_save_more_than_they_add() -> Result<(), OpError> {
        let (graph, _) = head(DType::F32, false)?;
        let chunking = Chunking::of(&graph)?.unwrap();
        // 1.92 MB of logits, and 96,000 that are moved for each further sum.
        let worth = [2, 8, 16].map(|chunks| chunking.is_worth(chunks));
        assert_eq!(worth, [true, true, false]);
        Ok(())
    }
}
