use std::ops::Range;

use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::{
    Graph, Named, OpDef, OpType, ResultTypes, Results, Shape, Signature, TensorType, ValueId,
};

/// Long short-term memory over all times of sequences: a layer in one direction.
///
/// Sequences are sorted by their lengths, the longest first. Their elements lie one time behind the other.
///
/// Operands: `x` `[elements, 4 · hidden]`, floating point, what the layer makes of its input, with all biases; `weight`
/// `[4 · hidden, hidden]`; the states `h` and `c` `[n, hidden]` before the first time; all of one dtype. Gates are in the order
/// input, forget, new, output.
///
/// Results: the hidden states `[elements, hidden]`; the last `h` and `c`; then, if that is asked, what gradients are made of:
/// the gates `[elements, 4 · hidden]`, and `h` and `c` before each time `[elements, hidden]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lstm {
    /// The number of sequences at each time step.
    pub sizes: Vec<usize>,
    /// Whether the last time step comes first.
    pub reverse: bool,
    /// Whether the values that gradients need are results, too.
    pub saves: bool,
}

impl Lstm {
    /// The elements of each time, in the order in which times follow.
    pub fn steps(&self) -> Vec<Range<usize>> {
        let mut end = 0;
        let ranges = self.sizes.iter().map(|rows| {
            end += rows;
            end - rows..end
        });
        let mut steps: Vec<Range<usize>> = ranges.collect();
        if self.reverse {
            steps.reverse();
        }
        steps
    }

    /// The number of sequences.
    pub(in crate::ops) fn sequences(&self) -> usize {
        self.sizes.first().copied().unwrap_or(0)
    }

    /// The number of elements.
    fn elements(&self) -> usize {
        self.sizes.iter().copied().fold(0, usize::saturating_add)
    }

    /// The types of what there is of each element and of each sequence, of `width` numbers.
    pub(in crate::ops) fn types(&self, width: usize, dtype: DType) -> [TensorType; 2] {
        [self.elements(), self.sequences()].map(|rows| TensorType::new([rows, width], dtype))
    }

    /// The hidden size by the type of the weight, if the sizes are legal.
    pub(in crate::ops) fn hidden(
        &self,
        op: &'static str,
        weight: &TensorType,
    ) -> Result<usize, OpError> {
        require_float(op, weight)?;
        let falls = !self.sizes.is_empty() && self.sizes.is_sorted_by(|a, b| a >= b);
        let got = format_args!("{:?}", self.sizes);
        require(op, falls, "sizes of times that do not grow", got)?;
        let fits = weight.rank() == 2 && Some(weight.shape[0]) == weight.shape[1].checked_mul(4);
        require(op, fits, "a weight [4 · hidden, hidden]", weight)?;
        Ok(weight.shape[1])
    }

    /// Multiplications and additions of a product with the weight at each time.
    pub(in crate::ops) fn products(&self, weight: &TensorType) -> usize {
        self.elements().saturating_mul(weight.shape.elements())
    }

    /// The joined results of steps, in the order in which elements lie.
    fn joined(&self, g: &mut Graph, mut parts: Vec<ValueId>) -> Result<ValueId, OpError> {
        if self.reverse {
            parts.reverse();
        }
        g.push(Concat { dim: 0 }, &parts)
    }
}

/// Joins the results of `step` for each of `steps`. A step gets the elements of a time, and the states of the sequences
/// that have it. States are those of `first` until `step` makes others. Returns the last ones.
pub(in crate::ops) fn walk(
    g: &mut Graph,
    steps: &[Range<usize>],
    first: [ValueId; 2],
    mut step: impl FnMut(&mut Graph, Range<usize>, [ValueId; 2]) -> Result<[ValueId; 2], OpError>,
) -> Result<[ValueId; 2], OpError> {
    let part = |g: &mut Graph, states: [ValueId; 2], rows: Range<usize>| {
        let [h, c] = states.map(|x| match rows == (0..g.ty(x).shape[0]) {
            true => Ok(x),
            false => g.slice(x, 0, rows.start, rows.end),
        });
        Ok::<_, OpError>([h?, c?])
    };
    let joined = |g: &mut Graph, parts: &[[ValueId; 2]]| {
        let [h, c] = [0, 1].map(|i| {
            let parts: Vec<ValueId> = parts.iter().map(|states| states[i]).collect();
            g.push(Concat { dim: 0 }, &parts)
        });
        Ok::<_, OpError>([h?, c?])
    };
    let mut rows = steps.first().map_or(0, Range::len);
    let mut states = part(g, first, 0..rows)?;
    // The states of sequences that have ended, the shortest first.
    let mut ended = Vec::new();
    for elements in steps {
        let wanted = elements.len();
        if wanted < rows {
            ended.push(part(g, states, wanted..rows)?);
            states = part(g, states, 0..wanted)?;
        } else if wanted > rows {
            let begun = part(g, first, rows..wanted)?;
            states = joined(g, &[states, begun])?;
        }
        rows = wanted;
        states = step(g, elements.clone(), states)?;
    }
    if ended.is_empty() {
        return Ok(states);
    }
    ended.push(states);
    ended.reverse();
    joined(g, &ended)
}

/// The four gates, or their gradients, of rows.
pub(in crate::ops) fn gates(g: &mut Graph, x: ValueId) -> Result<[ValueId; 4], OpError> {
    let hidden = g.ty(x).shape[1] / 4;
    let [input, forget, new, output] =
        [0, 1, 2, 3].map(|gate| g.slice(x, 1, gate * hidden, (gate + 1) * hidden));
    Ok([input?, forget?, new?, output?])
}

impl OpDef for Lstm {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn macs(&self, s: &Signature) -> usize {
        self.products(s.inputs[1])
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x, weight, h, c] = operands(Self::NAME, inputs)?;
        let hidden = self.hidden(Self::NAME, weight)?;
        let [gates, _] = self.types(4 * hidden, weight.dtype);
        let [states, last] = self.types(hidden, weight.dtype);
        for (ty, expected) in [(x, &gates), (h, &last), (c, &last)] {
            require(Self::NAME, ty == expected, expected, ty)?;
        }
        let mut results: ResultTypes = smallvec![states.clone(), last.clone(), last];
        if self.saves {
            results.extend([gates, states.clone(), states]);
        }
        Ok(results)
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let [x, weight] = [inputs[0], inputs[1]];
        let sigmoid = |g: &mut Graph, x| {
            let kind = ActivationKind::Sigmoid;
            g.push(Activation { kind }, &[x])
        };
        let mut parts: [Vec<ValueId>; 4] = Default::default();
        let first = [inputs[2], inputs[3]];
        let last = walk(g, &self.steps(), first, |g, elements, [h, c]| {
            let y = g.push(Linear, &[h, weight])?;
            let x = g.slice(x, 0, elements.start, elements.end)?;
            let sum = g.add(x, y)?;
            let [input, forget, new, output] = gates(g, sum)?;
            let (input, forget) = (sigmoid(g, input)?, sigmoid(g, forget)?);
            let (new, output) = (g.unary(UnaryOp::Tanh, new)?, sigmoid(g, output)?);
            let (kept, added) = (g.mul(forget, c)?, g.mul(input, new)?);
            let next = g.add(kept, added)?;
            let shown = g.unary(UnaryOp::Tanh, next)?;
            let y = g.mul(output, shown)?;
            parts[0].push(y);
            if self.saves {
                let all = g.push(Concat { dim: 1 }, &[input, forget, new, output])?;
                for (parts, part) in parts[1..].iter_mut().zip([all, h, c]) {
                    parts.push(part);
                }
            }
            Ok([y, next])
        })?;
        let mut joined = parts.into_iter().filter(|parts| !parts.is_empty());
        let y = joined.next().map(|parts| self.joined(g, parts));
        let mut results: Results = y.transpose()?.into_iter().chain(last).collect();
        for parts in joined {
            results.push(self.joined(g, parts)?);
        }
        Ok(results)
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        if !self.saves || node.cotangents[3..].iter().any(Option::is_some) {
            return node.through_parts(g, |g, inputs| self.decompose(g, inputs));
        }
        let [y, h, c] = [0, 1, 2].map(|result| node.cotangent(g, result));
        let [gates, before, cells] = [3, 4, 5].map(|result| node.results[result]);
        let backward = LstmBackward { lstm: self.clone() };
        let dx = g.push(backward, &[y?, h?, c?, gates, cells, node.inputs[1]])?;
        let [dx, dh, dc] = [0, 1, 2].map(|result| g.results(dx)[result]);
        node.each(g, |g, operand| match operand {
            0 => Ok(dx),
            1 => {
                let dx = g.transpose(dx)?;
                g.matmul(dx, before)
            }
            2 => Ok(dh),
            _ => Ok(dc),
        })
    }
}

/// Sizes of times that conformance cases have, with hidden sizes.
pub(in crate::ops) const SIZES: [(&[usize], usize); 4] = [
    (&[3, 3, 2, 1], 5),
    (&[2], 3),
    (&[7, 6, 6, 2, 1, 1], 40),
    (&[1, 1], 1),
];

impl Named for Lstm {
    const NAME: &'static str = "lstm";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            let mut push =
                |sizes: &[usize], hidden: usize, [reverse, saves]: [bool; 2], arrange| {
                    let op = Self {
                        sizes: sizes.to_vec(),
                        reverse,
                        saves,
                    };
                    let of = |shape: Shape| CaseOperand::new(shape, dtype).arrange(arrange);
                    let [gates, _] = op.types(4 * hidden, dtype);
                    let [_, state] = op.types(hidden, dtype);
                    let weight = of([4 * hidden, hidden].into());
                    let state = of(state.shape);
                    let inputs = [of(gates.shape), weight, state.clone(), state];
                    cases.push(Case::new(op, inputs));
                };
            for (sizes, hidden) in SIZES {
                for options in [[false; 2], [false, true], [true; 2]] {
                    push(sizes, hidden, options, ARRANGEMENTS[0]);
                }
            }
            for arrange in ARRANGEMENTS {
                push(&[3, 1], 2, [false, true], arrange);
            }
            push(&[0, 0], 2, [true; 2], ARRANGEMENTS[0]);
        }
        cases
    }
}
