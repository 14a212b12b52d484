//! Elementwise operations, one or several fused: threads take blocks of elements through all
//! of them, so that only operands and the last result are in memory and the rest stays in
//! the nearest caches.

use std::cell::RefCell;

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use rustorch_ir::{DType, Layout, Shape};
use rustorch_runtime::{Operand, Step};
use smallvec::SmallVec;

use crate::cache;
use crate::element::{unknown, with_type};
use crate::elementwise::{Function, Loop, Word};
use crate::kernel::{Args, Misuse, SharedMut, for_ranges};
use crate::pool::Pool;
use crate::reader::{Reader, Run, Runs, gather};
use crate::view::View;

/// Bytes of a register: so many that a function of a block takes longer than its call, so
/// few that some registers fit the nearest caches.
const REGISTER_BYTES: usize = 8 * 1024;

/// Bytes of results that do not stay in the caches until they are read.
const STREAMED: usize = 32 * 1024 * 1024;

/// Bytes of a register that are used while operands and results stream through the caches:
/// the shorter the blocks, the more evenly is memory used.
const STREAM_BYTES: usize = 2 * 1024;

/// How many blocks before its use an operand is asked for.
const AHEAD: usize = 2;

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
    /// Is the layout one of neighbours?
    contiguous: bool,
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
            contiguous: layout.rank() == 1 && layout.strides[0] == 1,
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
        if self.contiguous {
            return Some(&data[start * self.size..][..len * self.size]);
        }
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
    /// Bytes of the widest element.
    widest: usize,
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
            widest: widest.unwrap_or(1),
            work,
            registers: registers.count,
            repeated,
            instructions,
        }
    }

    /// Computes `out`, of elements of `size` bytes.
    fn run(&self, sources: &[Source], operands: &[View], pool: &Pool, out: &mut [u8], size: usize) {
        let streams = out.len() >= STREAMED;
        let bytes = if streams {
            STREAM_BYTES
        } else {
            REGISTER_BYTES
        };
        let block = bytes / self.widest;
        let count = out.len() / size;
        let out = SharedMut::new(out);
        for_ranges(pool, count.div_ceil(block), block * self.work, |blocks| {
            BANK.with_borrow_mut(|bank| {
                let mut worker = Worker {
                    program: self,
                    sources,
                    data: sources.iter().map(|source| source.data(operands)).collect(),
                    bank,
                    elsewhere: SmallVec::from_elem(None, self.registers),
                    streams,
                };
                worker.begin(block.min(count));
                for start in blocks.map(|index| index * block) {
                    let len = block.min(count - start);
                    // SAFETY: blocks are disjoint and inside the output.
                    let out = unsafe { out.range(start * size, len * size) };
                    worker.block(start, len, out);
                }
            });
            if streams {
                cache::fence();
            }
        });
    }
}

/// Vectors are aligned to lines of the cache.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; cache::LINE]);

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
    data: SmallVec<[&'a [u8]; 16]>,
    bank: &'a mut Vec<Memory>,
    /// For each register, the memory outside the bank that stands for it.
    elsewhere: SmallVec<[Option<&'a [u8]>; 16]>,
    /// Do operands and results stream through the caches?
    streams: bool,
}

impl Worker<'_> {
    /// Prepares for blocks of at most `len` elements.
    fn begin(&mut self, len: usize) {
        // And one for a result that is to be streamed.
        let registers = self.program.registers + 1;
        if self.bank.len() < registers {
            let memory = || vec![Line::zeroed(); REGISTER_BYTES / size_of::<Line>()];
            self.bank.resize_with(registers, memory);
        }
        for &(source, to) in &self.program.repeated {
            let register: &mut [u8] = cast_slice_mut(&mut self.bank[to.index]);
            self.sources[source].repeat(self.data[source], &mut register[..len * to.size]);
        }
    }

    /// Computes `len` elements of the result, from number `start` on.
    fn block(&mut self, start: usize, len: usize, out: &mut [u8]) {
        let steps = self.program.instructions.len();
        for (step, instruction) in self.program.instructions.iter().enumerate() {
            if self.streams {
                // Evenly, for memory and the computation to go on at the same time.
                let part = |step| step * len / steps;
                self.prefetch(
                    start + AHEAD * len + part(step),
                    part(step + 1) - part(step),
                );
            }
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
                } if !self.streams => self.compute(function, operands, len, out),
                Instruction::Compute {
                    function,
                    operands,
                    to,
                } => {
                    let index = to.map_or(self.program.registers, |to| to.index);
                    let bytes = to.map_or(out.len(), |to| len * to.size);
                    // Taken out, as the operands are in the same bank.
                    let mut register = std::mem::take(&mut self.bank[index]);
                    let result: &mut [u8] = &mut cast_slice_mut(&mut register)[..bytes];
                    self.compute(function, operands, len, result);
                    match to {
                        Some(to) => self.elsewhere[to.index] = None,
                        None => cache::stream(result, out),
                    }
                    self.bank[index] = register;
                }
            }
        }
    }

    /// Computes `len` elements of `result` from those in registers.
    fn compute(&self, function: &Loop, operands: &[Register], len: usize, result: &mut [u8]) {
        let mut contents = [&[][..]; 3];
        for (contents, register) in contents.iter_mut().zip(operands) {
            *contents = match self.elsewhere[register.index] {
                Some(memory) => memory,
                None => &cast_slice(&self.bank[register.index])[..len * register.size],
            };
        }
        function.run(&contents[..operands.len()], result);
    }

    /// Brings `len` elements of each source, from number `start` on, near.
    fn prefetch(&self, start: usize, len: usize) {
        for (source, data) in self.sources.iter().zip(&self.data) {
            if source.contiguous {
                let (start, bytes) = (start * source.size, len * source.size);
                cache::prefetch(data.get(start..start + bytes).unwrap_or_default());
            }
        }
    }
}
