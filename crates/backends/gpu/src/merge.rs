//! Steps of a decoder that one launch does better than several: products of the same rows with
//! the norm before them and the sum or gate behind them, and attention with the rotation and the
//! cache in front of it.
//!
//! A window of steps has all its values in memory of their own, so that launches may be made in
//! another order, and values that nobody else reads are not written at all.

use rustorch_ir::ops::{ActivationKind, BinaryOp};
use rustorch_ir::{DType, Op};
use rustorch_runtime::{Operand, Place, Slot, Step};
use smallvec::SmallVec;

use crate::emit::{Emit, Emitter};
use crate::ops::cuda;

/// Products of one matrix of rows, by weights of one dtype, or of two that a launch can have.
pub(crate) struct Products<'a> {
    /// `[m, k]`, contiguous.
    pub(crate) x: &'a Place,
    /// What is done to its rows before.
    pub(crate) norm: Option<Norm<'a>>,
    /// One, or several that share the rows.
    pub(crate) each: SmallVec<[Product<'a>; 3]>,
    /// What is done to the result.
    pub(crate) then: Then<'a>,
}

/// The root-mean-square norm of rows.
#[derive(Clone, Copy)]
pub(crate) struct Norm<'a> {
    /// `[k]`, of the rows' dtype.
    pub(crate) weight: Option<&'a Place>,
    pub(crate) eps: f64,
}

/// One of them: `y = x · wᵀ + bias`.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    /// `[n, k]`.
    pub(crate) w: &'a Place,
    /// `[n]`.
    pub(crate) bias: Option<&'a Place>,
    /// `[m, n]`, contiguous. Not written if something is done to the result.
    pub(crate) y: &'a Place,
}

/// What is done to a result.
#[derive(Clone, Copy)]
pub(crate) enum Then<'a> {
    /// Nothing.
    Nothing,
    /// `sum = y + other`, all contiguous, of one product.
    Add { other: &'a Place, sum: &'a Place },
    /// `gated = silu(y₀) · y₁`, of two products.
    SwiGlu { gated: &'a Place },
}

/// Attention of tokens with what is in a cache and with themselves: `q` and `k` are rotated,
/// `k` and `v` written to the cache.
pub(crate) struct CachedAttention<'a> {
    /// The rotations of queries and keys, whose results are not written.
    pub(crate) rope_q: &'a Step,
    pub(crate) rope_k: &'a Step,
    /// The writes to the cache, at the same position.
    pub(crate) update_k: &'a Step,
    pub(crate) update_v: &'a Step,
    /// Attention to the cache.
    pub(crate) attention: &'a Step,
}

/// How many steps from `at` on are one window: up to the next norm.
pub(crate) fn together(steps: &[Step], at: usize) -> usize {
    let is_norm = |step: &Step| matches!(step.last().op, Op::RmsNorm(_));
    let rest = steps[at + 1..].iter().position(is_norm);
    1 + rest.unwrap_or(steps.len() - at - 1)
}

/// Steps that are launched together.
pub(crate) struct Window<'a> {
    pub(crate) steps: &'a [Step],
    /// How each is launched by itself.
    pub(crate) emits: &'a [Emit],
    /// Of each, the last step that reads it, counted from the window's first.
    pub(crate) last_uses: Vec<usize>,
}

impl<'a> Window<'a> {
    /// Appends the launches of all steps, the first of which is step `first` of the graph.
    pub(crate) fn emit(&self, first: usize, emitter: &mut Emitter) {
        let mut done = vec![false; self.steps.len()];
        for at in 0..self.steps.len() {
            if done[at] {
                continue;
            }
            done[at] = true;
            emitter.at(first + at);
            let step = &self.steps[at];
            match &step.last().op {
                Op::RmsNorm(_) if self.is_only_for_products(at, &done, emitter) => {
                    self.products(at, &mut done, emitter);
                }
                Op::Linear(_) => {
                    done[at] = false;
                    let x = &step.inputs[0];
                    self.products_of(x, None, at, &mut done, emitter);
                }
                Op::Rope(_) => match self.cached_attention(at, &done) {
                    Some((attention, members)) if cuda::attention::accepts(&attention, emitter) => {
                        cuda::attention::emit(&attention, emitter);
                        members.iter().for_each(|&member| done[member] = true);
                    }
                    _ => self.alone(at, emitter),
                },
                _ => self.alone(at, emitter),
            }
        }
    }

    fn alone(&self, at: usize, emitter: &mut Emitter) {
        if self.steps[at].output.ty.shape.elements() > 0 {
            self.emits[at](&self.steps[at], emitter);
        }
    }

    /// The steps that read the result of step `at`.
    fn readers(&self, at: usize) -> impl Iterator<Item = usize> {
        let slot = self.steps[at].output.slot;
        let reads = move |step: &Step| step.inputs.iter().any(|place| place.slot == slot);
        let after = self.steps.iter().enumerate().skip(at + 1);
        after.filter(move |(_, step)| reads(step)).map(|(i, _)| i)
    }

    /// The only step that reads the result of step `at`.
    fn only_reader(&self, at: usize) -> Option<usize> {
        let mut readers = self.readers(at);
        let reader = readers.next().filter(|_| self.stays_inside(at))?;
        readers.next().is_none().then_some(reader)
    }

    /// Does nothing behind the window read the result of step `at`?
    fn stays_inside(&self, at: usize) -> bool {
        self.last_uses[at] < self.steps.len()
    }

    /// Is the result of the norm `at` read by products only, which do the norm by themselves?
    fn is_only_for_products(&self, at: usize, done: &[bool], emitter: &Emitter) -> bool {
        let y = &self.steps[at].output;
        let reads_as_x = |i: usize| {
            let step = &self.steps[i];
            !done[i]
                && matches!(step.last().op, Op::Linear(_))
                && step.inputs[0].slot == y.slot
                && step.inputs[1..].iter().all(|place| place.slot != y.slot)
                && cuda::products(step, emitter).is_some()
        };
        let inputs = &self.steps[at].inputs;
        self.stays_inside(at)
            && inputs.iter().all(|place| place.layout.is_contiguous())
            && self.readers(at).next().is_some()
            && self.readers(at).all(reads_as_x)
    }

    /// Appends the products that read the norm `at`.
    fn products(&self, at: usize, done: &mut [bool], emitter: &mut Emitter) {
        let step = &self.steps[at];
        let Op::RmsNorm(op) = &step.last().op else {
            return;
        };
        let norm = Norm {
            weight: step.inputs.get(1),
            eps: op.eps.0,
        };
        self.products_of(
            &step.output,
            Some((norm, &step.inputs[0])),
            at + 1,
            done,
            emitter,
        );
    }

    /// Appends all products from step `from` on that read `x`, which is the norm of other rows
    /// if so given: those of weights of one dtype together, or of two that a launch can have.
    fn products_of(
        &self,
        x: &'a Place,
        norm: Option<(Norm<'a>, &'a Place)>,
        from: usize,
        done: &mut [bool],
        emitter: &mut Emitter,
    ) {
        let mut left: Vec<usize> = (from..self.steps.len())
            .filter(|&i| {
                let step = &self.steps[i];
                !done[i]
                    && matches!(step.last().op, Op::Linear(_))
                    && step.inputs[0].slot == x.slot
                    && step.inputs[0].layout == x.layout
            })
            .collect();
        while let Some(&first) = left.first() {
            done[first] = true;
            let Some(emit) = cuda::products(&self.steps[first], emitter) else {
                left.remove(0);
                self.alone(first, emitter);
                continue;
            };
            let is_alike = |i: usize, other: usize| {
                let dtype = |i: usize| self.steps[i].inputs[1].ty.dtype;
                dtype(i) == dtype(other) && cuda::products(&self.steps[i], emitter).is_some()
            };
            let mut group: Vec<usize> = left.extract_if(.., |&mut i| is_alike(i, first)).collect();
            group.iter().for_each(|&i| done[i] = true);
            let (then, last) = self.then(&group, done);
            if let Some(last) = last {
                done[last] = true;
            } else if let Some(&other) = left.first()
                && cuda::joins([first, other].map(|i| &self.steps[i]), emitter)
            {
                let others: Vec<usize> = left
                    .iter()
                    .copied()
                    .filter(|&i| is_alike(i, other))
                    .collect();
                if self.then(&others, done).1.is_none() {
                    others.iter().for_each(|&i| done[i] = true);
                    left.retain(|i| !others.contains(i));
                    group.extend(others);
                }
            }
            let product = |&i: &usize| {
                let step = &self.steps[i];
                Product {
                    w: &step.inputs[1],
                    bias: step.inputs.get(2),
                    y: &step.output,
                }
            };
            let products = Products {
                x: norm.map_or(x, |(_, rows)| rows),
                norm: norm.map(|(norm, _)| norm),
                each: group.iter().map(product).collect(),
                then,
            };
            emit(&products, emitter);
        }
    }

    /// What is done to the results of these products alone, and the step that does it.
    fn then(&self, group: &[usize], done: &[bool]) -> (Then<'a>, Option<usize>) {
        let nothing = (Then::Nothing, None);
        let readers = group.iter().map(|&i| self.only_reader(i));
        let Some(readers) = readers.collect::<Option<Vec<usize>>>() else {
            return nothing;
        };
        let last = readers[0];
        if done[last] || readers.iter().any(|&reader| reader != last) {
            return nothing;
        }
        let step = &self.steps[last];
        let is_plain = |place: &Place| {
            place.ty == step.output.ty && place.layout.is_contiguous() && place.layout.offset == 0
        };
        // As many elements, and all of them with a bias or none.
        let is_like = |i: usize| {
            let of = &self.steps[i];
            of.output.ty.shape.elements() == step.output.ty.shape.elements()
                && of.inputs.len() == self.steps[group[0]].inputs.len()
        };
        if step.output.ty.dtype != DType::F32
            || step.inputs.len() != 2
            || group.iter().any(|&i| !is_like(i))
        {
            return nothing;
        }
        let slot = |i: usize| self.steps[i].output.slot;
        match *group {
            [only] if is_sum(step) => {
                let other = usize::from(step.inputs[0].slot == slot(only));
                let other = &step.inputs[other];
                let is_before = !self.is_made_behind(other.slot, only);
                match is_plain(other) && other.slot != slot(only) && is_before {
                    true => (
                        Then::Add {
                            other,
                            sum: &step.output,
                        },
                        Some(last),
                    ),
                    false => nothing,
                }
            }
            [gate, up] => match swiglu_operands(step) {
                Some([a, b])
                    if step.inputs[a].slot == slot(gate) && step.inputs[b].slot == slot(up) =>
                {
                    (
                        Then::SwiGlu {
                            gated: &step.output,
                        },
                        Some(last),
                    )
                }
                _ => nothing,
            },
            _ => nothing,
        }
    }

    /// Is what lies there made by a step of the window from `at` on?
    fn is_made_behind(&self, slot: Slot, at: usize) -> bool {
        self.steps[at..].iter().any(|step| step.output.slot == slot)
    }

    /// The attention that the rotation `at` is for, if all that belongs to it is in the window
    /// and nothing else reads the rotated values; with the steps that it is made of.
    fn cached_attention(
        &self,
        at: usize,
        done: &[bool],
    ) -> Option<(CachedAttention<'a>, [usize; 5])> {
        let made_by = |place: &Place, is: fn(&Op) -> bool| {
            let makes = |step: &Step| step.output.slot == place.slot && is(&step.last().op);
            self.steps.iter().position(makes)
        };
        let is_rope = |op: &Op| matches!(op, Op::Rope(_));
        let is_update = |op: &Op| matches!(op, Op::UpdateSlice(_));
        let is_attention = |step: &Step| matches!(step.last().op, Op::Attention(_));
        let attention = at + self.steps[at..].iter().position(is_attention)?;
        let [q, k, v] = [0, 1, 2].map(|i| &self.steps[attention].inputs[i]);
        let rope_q = made_by(q, is_rope)?;
        let [update_k, update_v] = [made_by(k, is_update)?, made_by(v, is_update)?];
        let rope_k = made_by(&self.steps[update_k].inputs[1], is_rope)?;
        let members = [rope_q, rope_k, update_k, update_v, attention];
        let are_left = members.iter().all(|&i| i == at || !done[i]);
        let is_whole = members.contains(&at)
            && self.only_reader(rope_q) == Some(attention)
            && self.only_reader(rope_k) == Some(update_k);
        // What they read is there by now.
        let is_ready = members.iter().all(|&member| {
            self.steps[member].inputs.iter().all(|place| {
                let makers = self.steps.iter().enumerate();
                let mut makers = makers.filter(|(_, step)| step.output.slot == place.slot);
                makers.all(|(maker, _)| done[maker] || members.contains(&maker))
            })
        });
        let step = |i: usize| &self.steps[i];
        (are_left && is_whole && is_ready).then(|| {
            let attention = CachedAttention {
                rope_q: step(rope_q),
                rope_k: step(rope_k),
                update_k: step(update_k),
                update_v: step(update_v),
                attention: step(attention),
            };
            (attention, members)
        })
    }
}

fn is_sum(step: &Step) -> bool {
    matches!(&step.parts[..], [part] if matches!(&part.op, Op::Binary(b) if b.op == BinaryOp::Add))
}

/// The operands of `silu(a) · b`, by their index in the step, if it is that.
fn swiglu_operands(step: &Step) -> Option<[usize; 2]> {
    let [silu, product] = &step.parts[..] else {
        return None;
    };
    let is_silu = matches!(&silu.op, Op::Activation(a) if a.kind == ActivationKind::Silu);
    let is_product = matches!(&product.op, Op::Binary(b) if b.op == BinaryOp::Mul);
    let (Operand::Input(a), true, true) = (silu.operands[0], is_silu, is_product) else {
        return None;
    };
    match product.operands[..] {
        [Operand::Part(0), Operand::Input(b)] | [Operand::Input(b), Operand::Part(0)] => {
            Some([a, b])
        }
        _ => None,
    }
}
