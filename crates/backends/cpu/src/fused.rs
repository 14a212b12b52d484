//! Elementwise operations, one or several fused: threads take blocks of elements through all
//! of them, so that only operands and the last result are in memory and the rest stays in
//! the nearest caches.

use std::cell::RefCell;

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use rustorch_ir::{DType, Layout, Shape};
use rustorch_runtime::{Operand, Step};
use smallvec::SmallVec;

use crate::element::{unknown, with_type};
use crate::elementwise::{Function, Loop, Word};
use crate::kernel::{Args, Misuse, SharedMut, for_ranges};
use crate::pool::Pool;
use crate::reader::{Reader, Run, Runs, gather};
use crate::view::View;

/// Bytes of a register. Several fit the first-level cache.
const REGISTER_BYTES: usize = 8 * 1024;

/// What a step of elementwise operations does.
pub(crate) struct Plan {
    /// The operands of the step, then its constants.
    sources: Vec<Source>,
    /// Bytes of an element of the result.
    size: usize,
    work: Work,
}

enum Work {
    /// The result is this source.
    Copy(usize),
    /// The result is computed.
    Compute(Program),
}

/// A value of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Source(usize),
    Call(usize),
}

/// A function with its operands.
struct Call {
    function: Loop,
    operands: SmallVec<[Value; 3]>,
    /// Bytes of an element of the result.
    size: usize,
}

impl Plan {
    /// A plan of `step`, whose parts are these functions.
    pub(crate) fn new(step: &Step, functions: Vec<Function>) -> Result<Self, Misuse> {
        let shape = &step.output.ty.shape;
        let mut sources = Vec::with_capacity(step.inputs.len());
        for (i, place) in step.inputs.iter().enumerate() {
            let layout = place.layout.broadcast_to(shape);
            sources.push(Source::new(Data::Operand(i), &layout, place.ty.dtype)?);
        }
        let mut calls: Vec<Call> = Vec::new();
        let mut values: SmallVec<[Value; 8]> = SmallVec::new();
        for (part, function) in step.parts.iter().zip(functions) {
            let value = |operand: &Operand| match *operand {
                Operand::Input(i) => Value::Source(i),
                Operand::Part(i) => values[i],
            };
            let value = match function {
                Function::Identity => value(&part.operands[0]),
                Function::Constant(word) => {
                    let layout = Layout::contiguous(&Shape::default()).broadcast_to(shape);
                    sources.push(Source::new(Data::Constant(word), &layout, part.dtype)?);
                    Value::Source(sources.len() - 1)
                }
                Function::Loop(function) => {
                    calls.push(Call {
                        function,
                        operands: part.operands.iter().map(value).collect(),
                        size: size(part.dtype)?,
                    });
                    Value::Call(calls.len() - 1)
                }
            };
            values.push(value);
        }
        let work = match values.last() {
            Some(&Value::Source(source)) => Work::Copy(source),
            _ => Work::Compute(Program::new(&sources, calls)),
        };
        Ok(Self {
            sources,
            size: size(step.output.ty.dtype)?,
            work,
        })
    }

    /// Computes the step's result.
    pub(crate) fn run(&self, args: Args) {
        let Args {
            pool,
            inputs,
            mut output,
            ..
        } = args;
        let out = output.span(self.size);
        if out.is_empty() {
            return;
        }
        match &self.work {
            Work::Copy(source) => {
                let source = &self.sources[*source];
                (source.copy_all)(source.data(inputs), &source.layout, pool, out);
            }
            Work::Compute(program) => program.run(&self.sources, inputs, pool, out, self.size),
        }
    }
}

fn size(dtype: DType) -> Result<usize, Misuse> {
    dtype.size().ok_or_else(|| unknown(dtype))
}

/// Elements that a step reads.
struct Source {
    data: Data,
    /// Of the result's shape, collapsed, and counted from the first element of the data.
    layout: Layout,
    /// Bytes of an element.
    size: usize,
    /// Copies some elements: see [`gather`].
    gather: fn(&[u8], Runs, &mut [u8]),
    /// Copies all elements: see [`Reader::copy_all`].
    copy_all: fn(&[u8], &Layout, &Pool, &mut [u8]),
}

enum Data {
    /// The step's operand of this index.
    Operand(usize),
    /// One element.
    Constant(Word),
}

impl Source {
    fn new(data: Data, layout: &Layout, dtype: DType) -> Result<Self, Misuse> {
        let [mut layout] = Layout::collapse([layout]);
        layout.offset = 0;
        with_type!(dtype, words T => Ok(Self {
            data,
            layout,
            size: size_of::<T>(),
            gather: |data, runs, out| gather::<T>(cast_slice(data), runs, cast_slice_mut(out)),
            copy_all: |data, layout, pool, out| {
                Reader::<T>::of(cast_slice(data), layout).copy_all(pool, cast_slice_mut(out));
            },
        }))
    }

    /// Is it one element again and again?
    fn is_repeated(&self) -> bool {
        self.layout.strides.iter().all(|&stride| stride == 0)
    }

    /// The bytes that the layout counts from.
    fn data<'a>(&'a self, operands: &[View<'a>]) -> &'a [u8] {
        match &self.data {
            Data::Operand(i) => operands[*i].span(self.size),
            Data::Constant(word) => &bytemuck::bytes_of(word)[..self.size],
        }
    }

    /// Fills `register` with the source's one element.
    fn repeat(&self, data: &[u8], register: &mut [u8]) {
        let runs = Runs::new(&self.layout, 0..register.len() / self.size);
        (self.gather)(data, runs, register);
    }

    /// The bytes of `len` elements from `start` on, if they are neighbours in `data`.
    /// Copies them to `register` if not.
    fn load<'a>(
        &self,
        data: &'a [u8],
        start: usize,
        len: usize,
        register: &mut [u8],
    ) -> Option<&'a [u8]> {
        let runs = || Runs::new(&self.layout, start..start + len);
        match runs().next() {
            Some(Run {
                at,
                stride: 1,
                len: n,
            }) if n == len => Some(&data[at * self.size..][..len * self.size]),
            _ => {
                (self.gather)(data, runs(), &mut register[..len * self.size]);
                None
            }
        }
    }
}

/// What is done to each block of elements.
struct Program {
    /// Elements of a block.
    len: usize,
    /// Cost of an element.
    work: usize,
    /// Number of registers.
    registers: usize,
    /// Sources that repeat one element, and the registers that are full of it.
    repeated: Vec<(usize, Register)>,
    /// What is done, in order.
    instructions: Vec<Instruction>,
}

/// A place for a block of elements.
#[derive(Clone, Copy)]
struct Register {
    index: usize,
    /// Bytes of an element.
    size: usize,
}

enum Instruction {
    /// Brings a block of a source to a register.
    Load { source: usize, to: Register },
    /// Computes a block.
    Compute {
        function: Loop,
        operands: SmallVec<[Register; 3]>,
        /// Where the result goes: to the step's, if nowhere else.
        to: Option<Register>,
    },
}

/// Hands out registers.
#[derive(Default)]
struct Registers {
    free: Vec<usize>,
    count: usize,
}

impl Registers {
    fn take(&mut self, size: usize) -> Register {
        let index = self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        });
        Register { index, size }
    }

    fn release(&mut self, register: Register) {
        self.free.push(register.index);
    }
}

impl Program {
    /// The calls in order; the result of the last is the step's.
    fn new(sources: &[Source], calls: Vec<Call>) -> Self {
        let sizes = sources.iter().map(|source| source.size);
        let widest = sizes.chain(calls.iter().map(|call| call.size)).max();
        let work = calls.iter().map(|call| call.function.work).sum();
        // For each call, the operands that no later one reads.
        let released: Vec<SmallVec<[Value; 3]>> = (1..=calls.len())
            .map(|next| {
                let operands = &calls[next - 1].operands;
                let later = |value| calls[next..].iter().any(|c| c.operands.contains(value));
                (operands.iter().enumerate())
                    .filter(|(i, value)| !operands[..*i].contains(value) && !later(value))
                    .map(|(_, &value)| value)
                    .collect()
            })
            .collect();
        let mut registers = Registers::default();
        let mut loaded: Vec<Option<Register>> = vec![None; sources.len()];
        let mut repeated = Vec::new();
        for (index, source) in sources.iter().enumerate() {
            let value = Value::Source(index);
            if source.is_repeated() && calls.iter().any(|call| call.operands.contains(&value)) {
                let to = registers.take(source.size);
                repeated.push((index, to));
                loaded[index] = Some(to);
            }
        }
        let mut computed: Vec<Register> = Vec::with_capacity(calls.len());
        let (mut instructions, count) = (Vec::new(), calls.len());
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
            let to = (at + 1 < count).then(|| registers.take(call.size));
            computed.extend(to);
            instructions.push(Instruction::Compute {
                function: call.function,
                operands,
                to,
            });
            for value in released {
                match value {
                    Value::Call(call) => registers.release(computed[call]),
                    Value::Source(source) if sources[source].is_repeated() => {}
                    Value::Source(source) => {
                        loaded[source].iter().for_each(|&r| registers.release(r));
                    }
                }
            }
        }
        Self {
            len: REGISTER_BYTES / widest.unwrap_or(1),
            work,
            registers: registers.count,
            repeated,
            instructions,
        }
    }

    /// Computes `out`, of elements of `size` bytes.
    fn run(&self, sources: &[Source], operands: &[View], pool: &Pool, out: &mut [u8], size: usize) {
        let count = out.len() / size;
        let out = SharedMut::new(out);
        for_ranges(
            pool,
            count.div_ceil(self.len),
            self.len * self.work,
            |blocks| {
                BANK.with_borrow_mut(|bank| {
                    let data = sources.iter().map(|source| source.data(operands)).collect();
                    let mut worker = Worker::new(self, sources, data, bank, count);
                    for start in blocks.map(|block| block * self.len) {
                        let len = self.len.min(count - start);
                        // SAFETY: blocks are disjoint and inside the output.
                        let out = unsafe { out.range(start * size, len * size) };
                        worker.block(start, len, out);
                    }
                });
            },
        );
    }
}

/// Vectors are aligned to lines of the cache.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// The memory of a register.
type Memory = Vec<Line>;

thread_local! {
    /// A thread's registers, as many as were ever needed.
    static BANK: RefCell<Vec<Memory>> = const { RefCell::new(Vec::new()) };
}

/// A thread that runs a program.
struct Worker<'a> {
    program: &'a Program,
    sources: &'a [Source],
    /// Of each source.
    data: SmallVec<[&'a [u8]; 8]>,
    bank: &'a mut [Memory],
    /// For each register, the memory outside the bank that stands for it.
    elsewhere: SmallVec<[Option<&'a [u8]>; 16]>,
}

impl<'a> Worker<'a> {
    /// A worker on some of `count` elements.
    fn new(
        program: &'a Program,
        sources: &'a [Source],
        data: SmallVec<[&'a [u8]; 8]>,
        bank: &'a mut Vec<Memory>,
        count: usize,
    ) -> Self {
        if bank.len() < program.registers {
            bank.resize_with(program.registers, || {
                vec![Line::zeroed(); REGISTER_BYTES / size_of::<Line>()]
            });
        }
        for &(source, to) in &program.repeated {
            let register: &mut [u8] = cast_slice_mut(&mut bank[to.index]);
            let len = program.len.min(count);
            sources[source].repeat(data[source], &mut register[..len * to.size]);
        }
        Self {
            program,
            sources,
            data,
            bank,
            elsewhere: SmallVec::from_elem(None, program.registers),
        }
    }

    /// Computes `len` elements of the result, from number `start` on.
    fn block(&mut self, start: usize, len: usize, out: &mut [u8]) {
        for instruction in &self.program.instructions {
            match instruction {
                Instruction::Load { source, to } => {
                    let register = cast_slice_mut(&mut self.bank[to.index]);
                    let data = self.data[*source];
                    self.elsewhere[to.index] =
                        self.sources[*source].load(data, start, len, register);
                }
                Instruction::Compute {
                    function,
                    operands,
                    to: None,
                } => function.run(&self.operands(operands, len), out),
                Instruction::Compute {
                    function,
                    operands,
                    to: Some(to),
                } => {
                    // Taken out, as the operands are in the same bank.
                    let mut register = std::mem::take(&mut self.bank[to.index]);
                    let result = &mut cast_slice_mut(&mut register)[..len * to.size];
                    function.run(&self.operands(operands, len), result);
                    self.bank[to.index] = register;
                    self.elsewhere[to.index] = None;
                }
            }
        }
    }

    /// The first `len` elements of each of some registers.
    fn operands(&self, registers: &[Register], len: usize) -> SmallVec<[&[u8]; 3]> {
        let contents = |register: &Register| match self.elsewhere[register.index] {
            Some(memory) => memory,
            None => &cast_slice(&self.bank[register.index])[..len * register.size],
        };
        registers.iter().map(contents).collect()
    }
}
