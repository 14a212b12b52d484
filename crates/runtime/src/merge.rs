//! Steps of a decoder that one launch does better than several: products of the same rows with
//! the norm before them and the sum or gate behind them, and attention with the rotation and the
//! cache in front of it.
//!
//! A backend says which steps make a window ([`Kernels::together`](crate::Kernels::together)) and
//! what it has kernels for ([`Merge`]). A window has all its values in memory of their own, so
//! that launches may be made in another order, and values that nobody else reads need not be
//! written at all.

use rustorch_ir::ops::{ActivationKind, BinaryOp};
use rustorch_ir::{DType, Op};
use smallvec::SmallVec;

use crate::{Lowered, Operand, Place, Slot, Step};

/// What a backend can launch together.
pub trait Merge {
    /// Is this `linear` one that is launched with others of the same rows, or with what is done
    /// to its result?
    fn product(&self, step: &Step) -> bool;

    /// Do such products norm the rows by themselves?
    fn norms(&self) -> bool;

    /// Can these two, of the same rows by weights of two dtypes, be launched together if nothing
    /// is done to the results?
    fn joins(&self, products: [&Step; 2]) -> bool;

    /// Is there a kernel for this attention?
    fn attends(&self, attention: &CachedAttention) -> bool;
}

/// One or more steps of a window.
pub struct Launch<'a> {
    /// Their indices in the window.
    pub steps: SmallVec<[usize; 5]>,
    /// What they do.
    pub work: Work<'a>,
}

/// What a launch does.
pub enum Work<'a> {
    /// A step by itself.
    Alone(&'a Step),
    /// Products of the same rows.
    Products(Products<'a>),
    /// Attention with what comes before.
    Attention(CachedAttention<'a>),
}

/// Products of one matrix of rows, by weights of one dtype, or of two that a launch can have.
pub struct Products<'a> {
    /// `[m, k]`, contiguous.
    pub x: &'a Place,
    /// What is done to its rows before.
    pub norm: Option<Norm<'a>>,
    /// One, or several that share the rows.
    pub each: SmallVec<[Product<'a>; 3]>,
    /// What is done to the result.
    pub then: Then<'a>,
}

impl Products<'_> {
    /// How many rows they have.
    pub fn rows(&self) -> usize {
        let width = self.x.ty.shape.last().copied().unwrap_or(1);
        self.x.ty.shape.elements() / width.max(1)
    }
}

/// The root-mean-square norm of rows.
#[derive(Clone, Copy)]
pub struct Norm<'a> {
    /// `[k]`, of the rows' dtype.
    pub weight: Option<&'a Place>,
    /// Added to the mean square.
    pub eps: f64,
}

/// One of them: `y = x · wᵀ + bias`.
#[derive(Clone, Copy)]
pub struct Product<'a> {
    /// `[n, k]`.
    pub w: &'a Place,
    /// `[n]`.
    pub bias: Option<&'a Place>,
    /// `[m, n]`, contiguous. Need not be written if something is done to the result.
    pub y: &'a Place,
}

/// What is done to a result.
#[derive(Clone, Copy)]
pub enum Then<'a> {
    /// Nothing.
    Nothing,
    /// `sum = y + other`, all contiguous, of one product.
    Add {
        /// What is added.
        other: &'a Place,
        /// The result.
        sum: &'a Place,
    },
    /// `gated = silu(y₀) · y₁`, of two products.
    SwiGlu {
        /// The result.
        gated: &'a Place,
    },
}

/// Attention of tokens with what is in a cache and with themselves: `q` and `k` are rotated,
/// `k` and `v` written to the cache.
pub struct CachedAttention<'a> {
    /// The rotation of the queries; what rotations give need not be written.
    pub rope_q: &'a Step,
    /// Of the keys.
    pub rope_k: &'a Step,
    /// The write of the keys to the cache, at the same position as the values.
    pub update_k: &'a Step,
    /// Of the values.
    pub update_v: &'a Step,
    /// Attention to the cache.
    pub attention: &'a Step,
}

/// How many steps from `at` on are one window: up to the next norm.
pub fn up_to_norm(steps: &[Step], at: usize) -> usize {
    let is_norm = |step: &Step| matches!(step.last().op, Op::RmsNorm(_));
    let rest = steps[at + 1..].iter().position(is_norm);
    1 + rest.unwrap_or(steps.len() - at - 1)
}

/// Steps that are launched together.
pub struct Window<'a> {
    /// The steps.
    pub steps: &'a [Step],
    /// Of each, the last step that reads it, counted from the window's first.
    last_uses: Vec<usize>,
}

impl Lowered {
    /// The windows in order, each with the index of its first step.
    pub fn windows(&self) -> impl Iterator<Item = (usize, Window<'_>)> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let first = next;
            let steps = first..first + self.together.get(first)?;
            next = steps.end;
            let inside = |&last: &usize| last.saturating_sub(first);
            let window = Window {
                steps: &self.steps[steps.clone()],
                last_uses: self.last_uses[steps].iter().map(inside).collect(),
            };
            Some((first, window))
        })
    }
}

impl<'a> Window<'a> {
    /// The launches that do all steps.
    pub fn launches(&self, rules: &impl Merge) -> Vec<Launch<'a>> {
        let mut merging = Merging {
            window: self,
            rules,
            done: vec![false; self.steps.len()],
            launches: Vec::with_capacity(self.steps.len()),
        };
        for at in 0..self.steps.len() {
            merging.step(at);
        }
        merging.launches
    }

    /// The steps that read the result of step `at`.
    fn readers(&self, at: usize) -> impl Iterator<Item = usize> {
        let slot = self.steps[at].output().slot;
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

    /// Is what lies there made by a step of the window from `at` on?
    fn is_made_behind(&self, slot: Slot, at: usize) -> bool {
        self.steps[at..]
            .iter()
            .any(|step| step.output().slot == slot)
    }
}

/// A window whose launches are being made.
struct Merging<'w, 'a, R> {
    window: &'w Window<'a>,
    rules: &'w R,
    done: Vec<bool>,
    launches: Vec<Launch<'a>>,
}

impl<'a, R: Merge> Merging<'_, 'a, R> {
    fn step(&mut self, at: usize) {
        if self.done[at] {
            return;
        }
        let step = &self.window.steps[at];
        match &step.last().op {
            Op::RmsNorm(op) if self.is_only_for_products(at) => {
                let norm = Norm {
                    weight: step.inputs.get(1),
                    eps: op.eps.0,
                };
                self.done[at] = true;
                self.products_of(step.output(), Some((at, norm)));
            }
            Op::Linear(_) => self.products_of(&step.inputs[0], None),
            Op::Rope(_) => match self.cached_attention(at) {
                Some((attention, members)) if self.rules.attends(&attention) => {
                    self.push(&members, Work::Attention(attention));
                }
                _ => self.alone(at),
            },
            _ => self.alone(at),
        }
    }

    fn push(&mut self, steps: &[usize], work: Work<'a>) {
        steps.iter().for_each(|&step| self.done[step] = true);
        self.launches.push(Launch {
            steps: steps.into(),
            work,
        });
    }

    fn alone(&mut self, at: usize) {
        self.push(&[at], Work::Alone(&self.window.steps[at]));
    }

    /// Is the result of the norm `at` read by products only, which do the norm by themselves?
    fn is_only_for_products(&self, at: usize) -> bool {
        let (window, step) = (self.window, &self.window.steps[at]);
        let y = step.output();
        let reads_as_x = |i: usize| {
            let step = &window.steps[i];
            self.is_product(i)
                && step.inputs[0].slot == y.slot
                && step.inputs[1..].iter().all(|place| place.slot != y.slot)
        };
        self.rules.norms()
            && window.stays_inside(at)
            && step.inputs.iter().all(|place| place.layout.is_contiguous())
            && window.readers(at).next().is_some()
            && window.readers(at).all(reads_as_x)
    }

    /// Is step `at` a product that is still to be launched, and may be so with others?
    fn is_product(&self, at: usize) -> bool {
        let step = &self.window.steps[at];
        !self.done[at] && matches!(step.last().op, Op::Linear(_)) && self.rules.product(step)
    }

    /// Makes launches of all products that read `x`, which is the result of the norm if one is
    /// given: those of weights of one dtype together, or of two that a launch can have.
    fn products_of(&mut self, x: &'a Place, norm: Option<(usize, Norm<'a>)>) {
        let steps = self.window.steps;
        let mut uncounted = norm.map(|(at, _)| at);
        let mut left: Vec<usize> = (0..steps.len())
            .filter(|&i| {
                let step = &steps[i];
                !self.done[i]
                    && matches!(step.last().op, Op::Linear(_))
                    && step.inputs[0].slot == x.slot
                    && step.inputs[0].layout == x.layout
            })
            .collect();
        while let Some(&first) = left.first() {
            if !self.is_product(first) {
                left.remove(0);
                self.alone(first);
                continue;
            }
            let is_alike = |i: usize, other: usize| {
                let dtype = |i: usize| steps[i].inputs[1].ty.dtype;
                dtype(i) == dtype(other) && self.is_product(i)
            };
            let mut group: Vec<usize> = left.extract_if(.., |&mut i| is_alike(i, first)).collect();
            let (then, last) = self.then(&group);
            if last.is_none()
                && let Some(&other) = left.first()
                && self.rules.joins([first, other].map(|i| &steps[i]))
            {
                let others: Vec<usize> = left
                    .iter()
                    .copied()
                    .filter(|&i| is_alike(i, other))
                    .collect();
                if self.then(&others).1.is_none() {
                    left.retain(|i| !others.contains(i));
                    group.extend(others);
                }
            }
            let product = |&i: &usize| {
                let step = &steps[i];
                Product {
                    w: &step.inputs[1],
                    bias: step.inputs.get(2),
                    y: step.output(),
                }
            };
            let products = Products {
                x: norm.map_or(x, |(at, _)| &steps[at].inputs[0]),
                norm: norm.map(|(_, norm)| norm),
                each: group.iter().map(product).collect(),
                then,
            };
            // The norm is done by each launch that reads it, and counts as part of the first.
            let members: SmallVec<[usize; 5]> = uncounted
                .take()
                .into_iter()
                .chain(group)
                .chain(last)
                .collect();
            self.push(&members, Work::Products(products));
        }
    }

    /// What is done to the results of these products alone, and the step that does it.
    fn then(&self, group: &[usize]) -> (Then<'a>, Option<usize>) {
        let window = self.window;
        let nothing = (Then::Nothing, None);
        let readers = group.iter().map(|&i| window.only_reader(i));
        let Some(readers) = readers.collect::<Option<Vec<usize>>>() else {
            return nothing;
        };
        let last = readers[0];
        if self.done[last] || readers.iter().any(|&reader| reader != last) {
            return nothing;
        }
        let step = &window.steps[last];
        let is_plain = |place: &Place| {
            place.ty == step.output().ty && place.layout.is_contiguous() && place.layout.offset == 0
        };
        // As many elements, and all of them with a bias or none.
        let is_like = |i: usize| {
            let of = &window.steps[i];
            of.output().ty.shape.elements() == step.output().ty.shape.elements()
                && of.inputs.len() == window.steps[group[0]].inputs.len()
        };
        if step.output().ty.dtype != DType::F32
            || step.inputs.len() != 2
            || group.iter().any(|&i| !is_like(i))
        {
            return nothing;
        }
        let slot = |i: usize| window.steps[i].output().slot;
        match *group {
            [only] if is_sum(step) => {
                let other = usize::from(step.inputs[0].slot == slot(only));
                let other = &step.inputs[other];
                let is_before = !window.is_made_behind(other.slot, only);
                match is_plain(other) && other.slot != slot(only) && is_before {
                    true => (
                        Then::Add {
                            other,
                            sum: step.output(),
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
                            gated: step.output(),
                        },
                        Some(last),
                    )
                }
                _ => nothing,
            },
            _ => nothing,
        }
    }

    /// The attention that the rotation `at` is for, if all that belongs to it is in the window
    /// and nothing else reads the rotated values; with the steps that it is made of.
    fn cached_attention(&self, at: usize) -> Option<(CachedAttention<'a>, [usize; 5])> {
        let window = self.window;
        let made_by = |place: &Place, is: fn(&Op) -> bool| {
            let makes = |step: &Step| step.output().slot == place.slot && is(&step.last().op);
            window.steps.iter().position(makes)
        };
        let is_rope = |op: &Op| matches!(op, Op::Rope(_));
        let is_update = |op: &Op| matches!(op, Op::UpdateSlice(_));
        let is_attention = |step: &Step| matches!(step.last().op, Op::Attention(_));
        let attention = at + window.steps[at..].iter().position(is_attention)?;
        let [q, k, v] = [0, 1, 2].map(|i| &window.steps[attention].inputs[i]);
        let rope_q = made_by(q, is_rope)?;
        let [update_k, update_v] = [made_by(k, is_update)?, made_by(v, is_update)?];
        let rope_k = made_by(&window.steps[update_k].inputs[1], is_rope)?;
        let members = [rope_q, rope_k, update_k, update_v, attention];
        let are_left = members.iter().all(|&i| i == at || !self.done[i]);
        let is_whole = members.contains(&at)
            && window.only_reader(rope_q) == Some(attention)
            && window.only_reader(rope_k) == Some(update_k);
        // What they read is there by now.
        let is_ready = members.iter().all(|&member| {
            window.steps[member].inputs.iter().all(|place| {
                let makers = window.steps.iter().enumerate();
                let mut makers = makers.filter(|(_, step)| step.output().slot == place.slot);
                makers.all(|(maker, _)| self.done[maker] || members.contains(&maker))
            })
        });
        let step = |i: usize| &window.steps[i];
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
