//! Instructions on registers that compute each block of elements.

use smallvec::SmallVec;

use super::products::joined;
use super::source::Source;
use super::{Call, Value};
use crate::elementwise::Loop;

/// Instructions for each block.
pub(super) struct Program {
    /// Bytes of the widest element.
    pub(super) widest: usize,
    /// Cost of an element.
    pub(super) work: usize,
    /// Number of registers.
    pub(super) registers: usize,
    /// Sources that repeat one element, and the registers that are full of it.
    pub(super) repeated: Vec<(usize, Typed)>,
    /// Is an element that is repeated given to functions as it is?
    pub(super) broadcasts: bool,
    /// Instructions, in order.
    pub(super) instructions: Vec<Instruction>,
}

/// A register and the type of its contents.
#[derive(Clone, Copy)]
pub(super) struct Typed {
    /// Number of the register.
    pub(super) register: usize,
    /// Bytes of an element.
    pub(super) size: usize,
}

pub(super) enum Instruction {
    /// Finds a block of a source, or brings it to a register.
    Load { source: usize, to: Typed },
    /// Computes a block.
    Compute {
        function: Loop,
        operands: SmallVec<[Typed; 4]>,
        /// Register of the result; without one it goes to the step's result.
        to: Option<Typed>,
    },
}

/// Hands out registers.
#[derive(Default)]
struct Registers {
    free: Vec<usize>,
    count: usize,
}

impl Registers {
    fn take(&mut self, size: usize) -> Typed {
        let register = self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        });
        Typed { register, size }
    }

    fn release(&mut self, typed: Typed) {
        self.free.push(typed.register);
    }
}

impl Program {
    /// The calls in order; the result of the last is the step's.
    pub(super) fn new(sources: &[Source], calls: Vec<Call>) -> Self {
        Self::of(sources, joined(calls), None).0
    }

    /// The calls in order. Results of calls in `kept` stay in the registers that are returned for each
    /// call.
    pub(super) fn keeping(
        sources: &[Source],
        calls: Vec<Call>,
        kept: &[Value],
    ) -> (Self, Vec<Typed>) {
        Self::of(sources, calls, Some(kept))
    }

    fn of(sources: &[Source], calls: Vec<Call>, kept: Option<&[Value]>) -> (Self, Vec<Typed>) {
        let sizes = sources.iter().map(|source| source.size);
        let widest = sizes.chain(calls.iter().map(|call| call.size)).max();
        let work = calls.iter().map(|call| call.function.work).sum();
        let broadcasts = calls.iter().all(|call| call.function.broadcasts);
        let released = last_uses(&calls);
        let mut registers = Registers::default();
        let mut loaded: Vec<Option<Typed>> = vec![None; sources.len()];
        let (mut repeated, mut instructions) = (Vec::new(), Vec::new());
        for (index, source) in sources.iter().enumerate() {
            let value = Value::Source(index);
            let is_read = calls.iter().any(|call| call.operands.contains(&value));
            if is_read && source.keeps_register() {
                let to = registers.take(source.size);
                loaded[index] = Some(to);
                match source.is_repeated() {
                    true => repeated.push((index, to)),
                    false => instructions.push(Instruction::Load { source: index, to }),
                }
            }
        }
        let mut computed: Vec<Typed> = Vec::with_capacity(calls.len());
        let count = calls.len();
        for (at, (call, released)) in calls.into_iter().zip(released).enumerate() {
            let mut operand = |value: &Value| match *value {
                Value::Call(call) => computed[call],
                Value::Source(index) => *loaded[index].get_or_insert_with(|| {
                    let to = registers.take(sources[index].size);
                    instructions.push(Instruction::Load { source: index, to });
                    to
                }),
            };
            let operands = call.operands.iter().map(&mut operand).collect();
            let is_between = kept.is_some() || at + 1 < count;
            let to = is_between.then(|| registers.take(call.size));
            computed.extend(to);
            instructions.push(Instruction::Compute {
                function: call.function,
                operands,
                to,
            });
            let is_kept = |value: &Value| kept.is_some_and(|kept| kept.contains(value));
            for value in released.into_iter().filter(|value| !is_kept(value)) {
                match value {
                    Value::Call(call) => registers.release(computed[call]),
                    Value::Source(index) if sources[index].keeps_register() => {}
                    Value::Source(index) => {
                        loaded[index].iter().for_each(|&r| registers.release(r))
                    }
                }
            }
        }
        let program = Self {
            widest: widest.unwrap_or(1),
            work,
            registers: registers.count,
            repeated,
            broadcasts,
            instructions,
        };
        (program, computed)
    }

    /// Returns whether it is one function.
    pub(super) fn is_one(&self) -> bool {
        let is_function = |i: &&Instruction| matches!(i, Instruction::Compute { .. });
        self.instructions.iter().filter(is_function).count() == 1
    }
}

/// For each call, the operands that no later one reads.
fn last_uses(calls: &[Call]) -> Vec<SmallVec<[Value; 4]>> {
    (1..=calls.len())
        .map(|next| {
            let operands = &calls[next - 1].operands;
            let later = |value| calls[next..].iter().any(|c| c.operands.contains(value));
            (operands.iter().enumerate())
                .filter(|(i, value)| !operands[..*i].contains(value) && !later(value))
                .map(|(_, &value)| value)
                .collect()
        })
        .collect()
}
