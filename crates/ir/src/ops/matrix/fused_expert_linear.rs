use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use crate::case::{Case, CaseOperand, Fill};
use crate::ops::foreach::{ANY, instantiate};
use crate::ops::groups::{Group, chain, is_part};
use crate::ops::*;
use crate::ops::{Embedding, ExpertLinear, Reduce};
use crate::passes::{Finder, Match};
use crate::{
    BlockFormat, Graph, Named, Op, OpDef, OpKind, OpType, ResultTypes, Results, Signature, ValueId,
};

/// Products of experts ([`ExpertLinear`]) with the operations on their results.
///
/// Operands: `x` `[t, s, k]` or `[t, 1, k]`, floating point; the weights `[e, n, k]` of one product, or of two by an
/// [`ExpertEpilogue::Gate`]; `ids` `[t, s]`; `tables` tables `[e, n]` of `x`'s dtype, of whose rows each row of the
/// result has that of its expert; then those of the epilogue.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FusedExpertLinear {
    /// Number of tables.
    pub tables: usize,
    /// Operation on the results.
    pub epilogue: ExpertEpilogue,
}

/// Operations on the results of products of experts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ExpertEpilogue {
    /// Elementwise operations. Inputs of the graph are both products, then rows of the tables. Its one output is the
    /// result `[t, s, n]`.
    Gate(Arc<Graph>),
    /// The sum of all slots, each with rows of the tables added and multiplied by its weight: `[t, n]`.
    /// Operands: weights `[t, s, 1]`, and another term `[t, n]` if it `adds`.
    Sum {
        /// Is there another term?
        adds: bool,
    },
}

impl FusedExpertLinear {
    /// Number of products.
    pub fn products(&self) -> usize {
        match self.epilogue {
            ExpertEpilogue::Gate(_) => 2,
            ExpertEpilogue::Sum { .. } => 1,
        }
    }

    /// The operand of the ids. Weights of the products are before it.
    pub fn ids(&self) -> usize {
        1 + self.products()
    }

    /// The operand of a table.
    pub fn table(&self, table: usize) -> usize {
        self.ids() + 1 + table
    }

    /// The operand of the slots' weights.
    pub fn slot_weights(&self) -> Option<usize> {
        matches!(self.epilogue, ExpertEpilogue::Sum { .. }).then(|| self.table(self.tables))
    }

    /// The operand that is added to the sum.
    pub fn other(&self) -> Option<usize> {
        (self.epilogue == ExpertEpilogue::Sum { adds: true }).then(|| self.table(self.tables) + 1)
    }

    /// Number of operands.
    fn count(&self) -> usize {
        let behind = [self.slot_weights(), self.other()];
        self.table(self.tables) + behind.into_iter().flatten().count()
    }
}

impl OpDef for FusedExpertLinear {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn macs(&self, s: &Signature) -> usize {
        let [_, n, k] = [0, 1, 2].map(|d| s.inputs[1].shape[d]);
        self.products() * s.inputs[self.ids()].shape.elements() * n * k
    }

    fn read(&self, s: &Signature, operand: usize) -> usize {
        let is_weight = (1..self.ids()).contains(&operand);
        let product = Signature {
            inputs: &[s.inputs[0], s.inputs[operand], s.inputs[self.ids()]],
            ..*s
        };
        match is_weight {
            true => ExpertLinear.read(&product, 1),
            false => s.inputs[operand].bytes(),
        }
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let count = self.count();
        let expected = format_args!("{count} operands");
        require(Self::NAME, inputs.len() == count, expected, inputs.len())?;
        let (x, ids) = (inputs[0], inputs[self.ids()]);
        let mut product = None;
        for &w in &inputs[1..self.ids()] {
            let result = ExpertLinear.infer(&[x, w, ids]);
            let result = result.map_err(|e| OpError {
                op: Self::NAME,
                ..e
            })?;
            let expected = "products of one type";
            let alike = product.as_ref().is_none_or(|first| *first == result[0]);
            require(Self::NAME, alike, expected, &result[0])?;
            product = result.into_iter().next();
        }
        let y = product.unwrap_or_else(|| x.clone());
        let [t, s, n] = [0, 1, 2].map(|d| y.shape[d]);
        let table = TensorType::new([inputs[1].shape[0], n], y.dtype);
        for i in 0..self.tables {
            let operand = inputs[self.table(i)];
            let expected = format_args!("a table {table}");
            require(Self::NAME, *operand == table, expected, operand)?;
        }
        match &self.epilogue {
            ExpertEpilogue::Gate(body) => {
                let input = TensorType::new(ANY, y.dtype);
                let fits = body.inputs().len() == self.products() + self.tables
                    && body.inputs().iter().all(|ty| *ty == input)
                    && matches!(body.outputs(), &[output] if *body.ty(output) == input);
                let expected = "operations on products and tables, with one result";
                require(Self::NAME, fits, expected, body.inputs().len())?;
                Ok(smallvec![y])
            }
            ExpertEpilogue::Sum { .. } => {
                let result = TensorType::new([t, n], y.dtype);
                let weights = TensorType::new([t, s, 1], y.dtype);
                let behind = [
                    (self.slot_weights(), weights),
                    (self.other(), result.clone()),
                ];
                for (operand, ty) in behind {
                    let Some(operand) = operand.map(|i| inputs[i]) else {
                        continue;
                    };
                    let expected = format_args!("an operand {ty}");
                    require(Self::NAME, *operand == ty, expected, operand)?;
                }
                require(Self::NAME, self.tables <= 1, "a table or none", self.tables)?;
                Ok(smallvec![result])
            }
        }
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn replaces(&self) -> Vec<OpKind> {
        let products = std::iter::repeat_n(OpKind::ExpertLinear, self.products());
        let tables = std::iter::repeat_n(OpKind::Embedding, self.tables);
        let epilogue: Vec<OpKind> = match &self.epilogue {
            ExpertEpilogue::Gate(body) => body.nodes().iter().map(|node| node.op.kind()).collect(),
            ExpertEpilogue::Sum { .. } => vec![OpKind::Binary, OpKind::Reduce],
        };
        products.chain(tables).chain(epilogue).collect()
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let (x, ids) = (inputs[0], inputs[self.ids()]);
        let dtype = g.ty(x).dtype;
        let products = &inputs[1..self.ids()];
        let products = (products.iter()).map(|&w| g.push(ExpertLinear, &[x, w, ids]));
        let mut values: Vec<ValueId> = products.collect::<Result<_, _>>()?;
        for i in 0..self.tables {
            values.push(g.push(Embedding { dtype }, &[inputs[self.table(i)], ids])?);
        }
        if let ExpertEpilogue::Gate(body) = &self.epilogue {
            return instantiate(g, body, &values);
        }
        let mut y = values[0];
        for &rows in &values[1..] {
            y = g.add(y, rows)?;
        }
        if let Some(weights) = self.slot_weights() {
            y = g.mul(y, inputs[weights])?;
        }
        y = g.push(sum_of_slots(), &[y])?;
        if let Some(other) = self.other() {
            y = g.add(y, inputs[other])?;
        }
        Ok(smallvec![y])
    }
}

/// The sum over the slots of `[t, s, n]`.
fn sum_of_slots() -> Reduce {
    Reduce {
        op: ReduceOp::Sum,
        dims: smallvec![1],
        keepdim: false,
    }
}

/// Products of experts with the operations on them, found by the first product.
pub(crate) fn fused_expert_linear(f: &Finder, at: usize) -> Vec<Match> {
    match f.op(at) {
        Op::ExpertLinear(_) => gate(f, at).into_iter().chain(sum(f, at)).collect(),
        _ => Vec::new(),
    }
}

/// The node that gives rows of a table by the ids of a product.
fn table(f: &Finder, value: ValueId, ids: ValueId) -> Option<usize> {
    let at = f.producer(value)?;
    let &[table, by] = f.operands(at) else {
        return None;
    };
    let fits = matches!(f.op(at), Op::Embedding(_))
        && by == ids
        && f.ty(table).dtype == f.ty(value).dtype
        && f.ty(table).rank() == 2;
    fits.then_some(at)
}

/// The last of the elementwise operations on the results of products.
fn last_of(f: &Finder, products: [usize; 2]) -> Option<usize> {
    /// A kernel has all of them in registers.
    const MOST: usize = 32;
    let shape = &f.ty(f.result(products[0])).shape;
    let mut found: Vec<usize> = Vec::new();
    let mut ahead = products.to_vec();
    while let Some(at) = ahead.pop() {
        for &reader in f.readers(f.result(at)) {
            let is_next = is_part(f, reader) && f.ty(f.result(reader)).shape == *shape;
            if is_next && !found.contains(&reader) {
                found.push(reader);
                ahead.push(reader);
            }
        }
        if found.len() > MOST {
            return None;
        }
    }
    found.into_iter().max()
}

/// Two products of the same rows by the same experts, and elementwise operations on both.
fn gate(f: &Finder, first: usize) -> Option<Match> {
    let &[x, w, ids] = f.operands(first) else {
        return None;
    };
    let is_second = |&&at: &&usize| {
        let operands = f.operands(at);
        at > first
            && matches!(f.op(at), Op::ExpertLinear(_))
            && [operands[0], operands[2]] == [x, ids]
            && f.ty(operands[1]) == f.ty(w)
    };
    let mut seconds = f.readers(x).iter().filter(is_second);
    let (&second, None) = (seconds.next()?, seconds.next()) else {
        return None;
    };
    let products = [first, second];
    let last = last_of(f, products)?;
    let shape = &f.ty(f.result(first)).shape;
    let group = Group::new(f, shape, chain(f, &[last]), vec![f.result(last)])?;
    let results = products.map(|at| f.result(at));
    if !results.iter().all(|result| group.operands.contains(result)) {
        return None;
    }
    let rows = group
        .operands
        .iter()
        .filter(|value| !results.contains(value));
    let rows: Vec<ValueId> = rows.copied().collect();
    let tables: Option<Vec<usize>> = rows.iter().map(|&row| table(f, row, ids)).collect();
    let tables = tables?;
    let body = group.body(f, &[&results[..], &rows].concat())?;
    let mut inputs: SmallVec<[ValueId; 8]> = smallvec![x, w, f.operands(second)[1], ids];
    inputs.extend(tables.iter().map(|&at| f.operands(at)[0]));
    let mut nodes: SmallVec<[usize; 8]> = smallvec![first, second];
    nodes.extend(tables.iter().copied());
    nodes.extend(group.nodes.iter().copied());
    let is_f32 = body.inputs().iter().all(|ty| ty.dtype == DType::F32)
        && f.ty(f.result(last)).dtype == DType::F32;
    is_f32.then(|| Match {
        op: FusedExpertLinear {
            tables: tables.len(),
            epilogue: ExpertEpilogue::Gate(Arc::new(body)),
        }
        .into(),
        inputs,
        nodes,
        results: smallvec![f.result(last)],
    })
}

/// The weighted sum of a product's slots, with another term first, then without.
fn sum(f: &Finder, product: usize) -> Vec<Match> {
    let find = || {
        let &[x, w, ids] = f.operands(product) else {
            return None;
        };
        let mut inputs: SmallVec<[ValueId; 8]> = smallvec![x, w, ids];
        let mut nodes: SmallVec<[usize; 8]> = smallvec![product];
        let mut value = f.result(product);
        if let Some((at, rows)) = f.sum_with(value) {
            let table = table(f, rows, ids)?;
            inputs.push(f.operands(table)[0]);
            nodes.extend([table, at]);
            value = f.result(at);
        }
        let tables = inputs.len() - 3;
        let scaled = f.only_reader(value)?;
        let &[a, b] = f.operands(scaled) else {
            return None;
        };
        let weights = if a == value { b } else { a };
        let [t, s] = [0, 1].map(|d| f.ty(value).shape[d]);
        let is_scaled = matches!(f.op(scaled), Op::Binary(op) if op.op == BinaryOp::Mul)
            && f.ty(weights).shape[..] == [t, s, 1]
            && f.ty(weights).dtype == f.ty(value).dtype;
        let summed = f.only_reader(f.result(scaled))?;
        if !is_scaled || *f.op(summed) != sum_of_slots().into() {
            return None;
        }
        inputs.push(weights);
        nodes.extend([scaled, summed]);
        Some((tables, inputs, nodes, f.result(summed)))
    };
    let Some((tables, inputs, nodes, result)) = find() else {
        return Vec::new();
    };
    let found = |other: Option<(usize, ValueId)>| Match {
        op: FusedExpertLinear {
            tables,
            epilogue: ExpertEpilogue::Sum {
                adds: other.is_some(),
            },
        }
        .into(),
        inputs: inputs
            .iter()
            .copied()
            .chain(other.map(|(_, x)| x))
            .collect(),
        nodes: nodes
            .iter()
            .copied()
            .chain(other.map(|(at, _)| at))
            .collect(),
        results: smallvec![other.map_or(result, |(at, _)| f.result(at))],
    };
    let other = f.sum_with(result);
    other
        .map(Some)
        .into_iter()
        .chain([None])
        .map(found)
        .collect()
}

/// Gates of examples: `silu(gate) · up`, and the clamped one of gpt-oss on products with biases.
fn gates() -> [Option<(usize, Graph)>; 2] {
    let input = || TensorType::new(ANY, DType::F32);
    let plain = || -> Result<Graph, OpError> {
        let mut g = Graph::new();
        let (gate, up) = (g.input(input())?, g.input(input())?);
        let kind = ActivationKind::Silu;
        let gate = g.push(Activation { kind }, &[gate])?;
        let y = g.mul(gate, up)?;
        g.output(y);
        Ok(g)
    };
    let clamped = || -> Result<Graph, OpError> {
        let mut g = Graph::new();
        let (gate, up) = (g.input(input())?, g.input(input())?);
        let (gate_rows, up_rows) = (g.input(input())?, g.input(input())?);
        let (gate, up) = (g.add(gate, gate_rows)?, g.add(up, up_rows)?);
        let limit = g.constant(7.0, DType::F32)?;
        let low = g.constant(-7.0, DType::F32)?;
        let gate = g.binary(BinaryOp::Minimum, gate, limit)?;
        let scaled = g.mul_scalar(gate, 1.702)?;
        let kind = ActivationKind::Sigmoid;
        let scaled = g.push(Activation { kind }, &[scaled])?;
        let gate = g.mul(gate, scaled)?;
        let op = TernaryOp::Clamp;
        let up = g.push(Ternary { op }, &[up, low, limit])?;
        let up = g.add_scalar(up, 1.0)?;
        let y = g.mul(gate, up)?;
        g.output(y);
        Ok(g)
    };
    let (plain, clamped) = (plain().ok(), clamped().ok());
    [plain.map(|body| (0, body)), clamped.map(|body| (2, body))]
}

impl Named for FusedExpertLinear {
    const NAME: &'static str = "fused_expert_linear";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        let formats = BlockFormat::ALL.iter().map(|&format| DType::Block(format));
        let weights = formats.chain([DType::F16, DType::BF16, DType::F32]);
        let gates = gates().into_iter().flatten();
        let gates = gates.map(|(tables, body)| (tables, ExpertEpilogue::Gate(Arc::new(body))));
        let sums = [(0, false), (0, true), (1, false), (1, true)];
        let sums = sums.map(|(tables, adds)| (tables, ExpertEpilogue::Sum { adds }));
        let ops: Vec<Self> = gates
            .chain(sums)
            .map(|(tables, epilogue)| Self { tables, epilogue })
            .collect();
        for w in weights {
            for (i, op) in ops.iter().enumerate() {
                // One token, several, and many with few experts.
                for ([t, s], [e, n, k]) in [
                    ([1, 1], [3, 21, 256]),
                    ([1, 4], [7, 37, 512]),
                    ([2, 3], [4, 16, 768]),
                    ([35, 1], [3, 37, 256]),
                ] {
                    // Rows of all slots where there is a sum.
                    let slots = if i < 2 { 1 } else { s };
                    let f32 = |shape: &[usize]| CaseOperand::new(shape, DType::F32);
                    let w = || CaseOperand::new([e, n, k], w).fill(Fill::Uniform(-1.0, 1.0));
                    let mut inputs = vec![f32(&[t, slots, k])];
                    inputs.extend((0..op.products()).map(|_| w()));
                    inputs.push(CaseOperand::new([t, s], DType::I32).fill(Fill::Ints(0, e as i64)));
                    inputs.extend((0..op.tables).map(|_| f32(&[e, n])));
                    inputs.extend(op.slot_weights().map(|_| f32(&[t, s, 1])));
                    inputs.extend(op.other().map(|_| f32(&[t, n])));
                    cases.push(Case::new(op.clone(), inputs));
                }
            }
        }
        cases
    }
}
