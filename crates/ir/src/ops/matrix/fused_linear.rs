use smallvec::{SmallVec, smallvec};

use crate::case::{Case, CaseOperand, Fill};
use crate::ops::*;
use crate::ops::{Activation, ActivationKind, Linear, RmsNorm};
use crate::passes::{Finder, Match};
use crate::{
    BlockFormat, Graph, Named, Op, OpDef, OpKind, OpType, Param, ResultTypes, Results, Signature,
    ValueId,
};

/// Products of the same rows ([`Linear`]), with the norm before them and the operations on their
/// results.
///
/// Operands: `x` `[…, k]`, floating point; the norm's weight `[k]` where the prologue has one;
/// `count` weights `[nᵢ, k]`, of one dtype or of several; with `bias` as many biases `[nᵢ]`; and
/// the other term where the epilogue is a sum. Results: with an epilogue its own one, else each
/// product's `[…, nᵢ]`; of `x`'s dtype.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FusedLinear {
    /// Operation on the rows before the products.
    pub norm: Option<Prologue>,
    /// Number of products.
    pub count: usize,
    /// Whether each product has a bias.
    pub bias: bool,
    /// Operation on the results.
    pub epilogue: Option<Epilogue>,
}

/// [`RmsNorm`] before products.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Prologue {
    /// The norm.
    pub norm: RmsNorm,
    /// Whether it has a weight.
    pub weight: bool,
}

/// Operations on the results of products.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Epilogue {
    /// `y + other`, of one product; `other` has its type.
    Add,
    /// `activation(y₀) · y₁`, of two products of one type.
    Gate(ActivationKind),
}

impl FusedLinear {
    /// The operand of the norm's weight.
    pub fn norm_weight(&self) -> Option<usize> {
        self.norm
            .as_ref()
            .is_some_and(|norm| norm.weight)
            .then_some(1)
    }

    /// The operand of a product's weights.
    pub fn weight(&self, product: usize) -> usize {
        1 + usize::from(self.norm_weight().is_some()) + product
    }

    /// The operand of a product's bias.
    pub fn bias(&self, product: usize) -> Option<usize> {
        self.bias.then(|| self.weight(self.count) + product)
    }

    /// The operand that the epilogue adds.
    pub fn other(&self) -> Option<usize> {
        let behind = self.weight(self.count) + usize::from(self.bias) * self.count;
        (self.epilogue == Some(Epilogue::Add)).then_some(behind)
    }

    /// Operands of a product of the rows `x`.
    fn product<T: Copy>(&self, x: T, product: usize, inputs: &[T]) -> SmallVec<[T; 3]> {
        let bias = self.bias(product).map(|i| inputs[i]);
        [x, inputs[self.weight(product)]]
            .into_iter()
            .chain(bias)
            .collect()
    }
}

impl OpDef for FusedLinear {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn macs(&self, s: &Signature) -> usize {
        let weights = &s.inputs[self.weight(0)..self.weight(self.count)];
        let width = s.inputs[0].shape.last().copied().unwrap_or(0);
        let rows = s.inputs[0].shape.elements() / width.max(1);
        rows * weights.iter().map(|w| w.shape.elements()).sum::<usize>()
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let other = usize::from(self.epilogue == Some(Epilogue::Add));
        let each = 1 + usize::from(self.bias);
        let count = self.weight(0) + each * self.count + other;
        let expected = format_args!("{count} operands");
        require(Self::NAME, inputs.len() == count, expected, inputs.len())?;
        require(Self::NAME, self.count > 0, "a product or more", self.count)?;
        let named = |e: OpError| OpError {
            op: Self::NAME,
            ..e
        };
        let x = inputs[0];
        if let Some(prologue) = &self.norm {
            let weight = self.norm_weight().map(|i| inputs[i]);
            let operands: SmallVec<[&TensorType; 2]> = [x].into_iter().chain(weight).collect();
            prologue.norm.infer(&operands).map_err(named)?;
        }
        let mut results = ResultTypes::new();
        for i in 0..self.count {
            results.extend(Linear.infer(&self.product(x, i, inputs)).map_err(named)?);
        }
        match self.epilogue {
            None => {}
            Some(Epilogue::Add) => {
                require(
                    Self::NAME,
                    self.count == 1,
                    "a sum of one product",
                    self.count,
                )?;
                let other = inputs[count - 1];
                let expected = format_args!("another term {}", results[0]);
                require(Self::NAME, *other == results[0], expected, other)?;
            }
            Some(Epilogue::Gate(_)) => {
                let alike = self.count == 2 && results[0] == results[1];
                let expected = "a gate of two products of one type";
                let got: Vec<String> = results.iter().map(ToString::to_string).collect();
                require(Self::NAME, alike, expected, got.join(", "))?;
                results.truncate(1);
            }
        }
        Ok(results)
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn replaces(&self) -> Vec<OpKind> {
        let norm = self.norm.iter().map(|_| OpKind::RmsNorm);
        let products = std::iter::repeat_n(OpKind::Linear, self.count);
        let epilogue: &[OpKind] = match self.epilogue {
            None => &[],
            Some(Epilogue::Add) => &[OpKind::Binary],
            Some(Epilogue::Gate(_)) => &[OpKind::Activation, OpKind::Binary],
        };
        norm.chain(products)
            .chain(epilogue.iter().copied())
            .collect()
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let mut x = inputs[0];
        if let Some(prologue) = &self.norm {
            let weight = self.norm_weight().map(|i| inputs[i]);
            let operands: SmallVec<[ValueId; 2]> = [x].into_iter().chain(weight).collect();
            x = g.push(prologue.norm.clone(), &operands)?;
        }
        let products = (0..self.count).map(|i| g.push(Linear, &self.product(x, i, inputs)));
        let products: Results = products.collect::<Result<_, _>>()?;
        Ok(match (self.epilogue, self.other()) {
            (Some(Epilogue::Gate(kind)), _) => {
                let gate = g.push(Activation { kind }, &products[..1])?;
                smallvec![g.mul(gate, products[1])?]
            }
            (_, Some(other)) => smallvec![g.add(products[0], inputs[other])?],
            _ => products,
        })
    }
}

/// Products, found by their norm or by the first of them.
pub(crate) fn fused_linear(f: &Finder, at: usize) -> Vec<Match> {
    match f.op(at) {
        Op::RmsNorm(norm) => {
            let y = f.result(at);
            let Some(products) = products(f, y).filter(|products| {
                // Nothing else needs the norm's result.
                products.len() == f.readers(y).len() && !f.is_output(y)
            }) else {
                return Vec::new();
            };
            let operands = f.operands(at);
            let prologue = Prologue {
                norm: norm.clone(),
                weight: operands.len() == 2,
            };
            let before = Before {
                nodes: smallvec![at],
                prologue: Some(prologue),
                inputs: operands.into(),
            };
            matches(f, &before, &products)
        }
        Op::Linear(_) => {
            let x = f.operands(at)[0];
            let before = Before {
                nodes: SmallVec::new(),
                prologue: None,
                inputs: smallvec![x],
            };
            let products = products(f, x).unwrap_or_default();
            matches(f, &before, &products)
        }
        _ => Vec::new(),
    }
}

/// Operation before products: a norm, or nothing.
struct Before {
    nodes: SmallVec<[usize; 1]>,
    prologue: Option<Prologue>,
    /// The rows, and the norm's weight.
    inputs: SmallVec<[ValueId; 2]>,
}

/// The products whose rows are `x`, all with a bias or all without.
fn products(f: &Finder, x: ValueId) -> Option<Vec<usize>> {
    let is_product = |&&n: &&usize| {
        let operands = f.operands(n);
        matches!(f.op(n), Op::Linear(_)) && operands[0] == x && !operands[1..].contains(&x)
    };
    let found: Vec<usize> = f.readers(x).iter().filter(is_product).copied().collect();
    let operands = f.operands(*found.first()?).len();
    let alike = found.iter().all(|&n| f.operands(n).len() == operands);
    alike.then_some(found)
}

/// With an epilogue first, then without one. A product alone is left as it is.
fn matches(f: &Finder, before: &Before, products: &[usize]) -> Vec<Match> {
    let make = |epilogue: Option<(Epilogue, SmallVec<[usize; 2]>, Option<ValueId>)>| {
        let mut inputs: SmallVec<[ValueId; 8]> = before.inputs.iter().copied().collect();
        for operand in 1..f.operands(products[0]).len() {
            inputs.extend(products.iter().map(|&n| f.operands(n)[operand]));
        }
        let mut nodes: SmallVec<[usize; 8]> = before.nodes.iter().copied().collect();
        nodes.extend_from_slice(products);
        let mut results: SmallVec<[ValueId; 4]> = products.iter().map(|&n| f.result(n)).collect();
        let mut op = FusedLinear {
            norm: before.prologue.clone(),
            count: products.len(),
            bias: f.operands(products[0]).len() == 3,
            epilogue: None,
        };
        if let Some((kind, members, other)) = epilogue {
            op.epilogue = Some(kind);
            results = members
                .last()
                .map(|&last| f.result(last))
                .into_iter()
                .collect();
            nodes.extend(members);
            inputs.extend(other);
        }
        Match {
            op: op.into(),
            inputs,
            nodes,
            results,
        }
    };
    let mut found = Vec::new();
    match *products {
        [] => return found,
        [product] => found.extend(sum(f, product).map(|sum| make(Some(sum)))),
        [a, b] => found.extend(gate(f, [a, b]).map(|gate| make(Some(gate)))),
        _ => {}
    }
    if !before.nodes.is_empty() || products.len() > 1 {
        found.push(make(None));
    }
    found
}

/// The sum that alone reads a product, with its other term.
fn sum(f: &Finder, product: usize) -> Option<(Epilogue, SmallVec<[usize; 2]>, Option<ValueId>)> {
    let (at, other) = f.sum_with(f.result(product))?;
    Some((Epilogue::Add, smallvec![at], Some(other)))
}

/// The gate that alone reads two products: an activation of the first times the second.
fn gate(
    f: &Finder,
    products: [usize; 2],
) -> Option<(Epilogue, SmallVec<[usize; 2]>, Option<ValueId>)> {
    let [a, b] = products.map(|n| f.result(n));
    let at = f.only_reader(a)?;
    let Op::Activation(activation) = f.op(at) else {
        return None;
    };
    let gate = f.result(at);
    let last = f
        .only_reader(gate)
        .filter(|&last| f.only_reader(b) == Some(last))?;
    let is_product = matches!(f.op(last), Op::Binary(op) if op.op == BinaryOp::Mul);
    let both = f.operands(last).contains(&gate) && f.operands(last).contains(&b);
    let fits = is_product && both && f.ty(a) == f.ty(b);
    fits.then(|| (Epilogue::Gate(activation.kind), smallvec![at, last], None))
}

impl Named for FusedLinear {
    const NAME: &'static str = "fused_linear";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        let formats = BlockFormat::ALL.iter().map(|&format| DType::Block(format));
        let weights: Vec<DType> = formats
            .chain([DType::F16, DType::BF16, DType::F32])
            .collect();
        let epilogues = [Epilogue::Add].into_iter();
        let gates = ActivationKind::ALL.iter().map(|&kind| Epilogue::Gate(kind));
        let epilogues: Vec<Option<Epilogue>> =
            epilogues.chain(gates).map(Some).chain([None]).collect();
        let example = |x: DType, weights: &[DType], rows: usize, epilogue, norm, bias| {
            let op = Self {
                norm: (norm > 0).then_some(Prologue {
                    norm: RmsNorm { eps: Param(1e-5) },
                    weight: norm > 1,
                }),
                count: weights.len(),
                bias,
                epilogue,
            };
            let (k, n) = (512, 48);
            let mut inputs = vec![CaseOperand::new([rows, k], x)];
            inputs.extend(op.norm_weight().map(|_| CaseOperand::new([k], x)));
            let weight = |(i, &dtype): (usize, &DType)| {
                let n = n + 16 * i * usize::from(epilogue.is_none());
                CaseOperand::new([n, k], dtype).fill(Fill::Uniform(-1.0, 1.0))
            };
            inputs.extend(weights.iter().enumerate().map(weight));
            for i in 0..op.count * usize::from(bias) {
                inputs.push(CaseOperand::new([inputs[op.weight(i)].ty.shape[0]], x));
            }
            inputs.extend(op.other().map(|_| CaseOperand::new([rows, n], x)));
            Case::new(op, inputs)
        };
        let count = |epilogue| match epilogue {
            Some(Epilogue::Add) => 1,
            Some(Epilogue::Gate(_)) => 2,
            None => 3,
        };
        for (i, &dtype) in weights.iter().enumerate() {
            for (j, &epilogue) in epilogues.iter().enumerate() {
                for (rows, norm) in [(1, 2), (1, 0), (3, 1), (2, 2), (40, 0)] {
                    // Every other one with biases.
                    let bias = (i + j + rows) % 2 == 0;
                    let weights = vec![dtype; count(epilogue)];
                    cases.push(example(DType::F32, &weights, rows, epilogue, norm, bias));
                }
            }
            // Weights of two dtypes.
            let next = weights[(i + 1) % weights.len()];
            for rows in [1, 4] {
                cases.push(example(
                    DType::F32,
                    &[dtype, dtype, next],
                    rows,
                    None,
                    2,
                    false,
                ));
                let gate = Some(Epilogue::Gate(ActivationKind::Silu));
                cases.push(example(DType::F32, &[dtype, next], rows, gate, 2, false));
            }
        }
        for x in [DType::F64, DType::F16, DType::BF16] {
            for &epilogue in &epilogues {
                let weights = vec![x; count(epilogue)];
                cases.push(example(x, &weights, 2, epilogue, 2, true));
            }
        }
        cases
    }
}
