//! Threads that take blocks through a program.

use std::cell::RefCell;
use std::ops::Range;

use bytemuck::{Pod, Zeroable, cast_slice, cast_slice_mut};
use smallvec::SmallVec;

use super::program::{Instruction, Program, Typed};
use super::source::{Place, Source};
use crate::cache;
use crate::elementwise::Loop;
use crate::kernel::{SharedMut, for_ranges};
use crate::pool::Pool;
use crate::view::View;

/// Bytes of a block's widest elements. A function of them takes longer than its call, and some
/// registers fit the nearest caches.
pub(super) const BLOCK_BYTES: usize = 8 * 1024;

/// The same of a program that keeps nothing in registers.
const LONE_BYTES: usize = 32 * 1024;

/// Bytes of a block's widest elements while operands and results stream through the caches:
/// the shorter the blocks, the more evenly is memory used.
const STREAM_BYTES: usize = 2 * 1024;

/// Elements of a row that is worth its own block, rather than to be brought together with others.
const ROW: usize = 256;

/// Number of blocks before its use at which an operand is prefetched.
const AHEAD: usize = 2;

/// Computes `out`, of elements of `size` bytes, in parallel.
pub(super) fn run(
    program: &Program,
    sources: &[Source],
    operands: &[View],
    pool: &Pool,
    out: &mut [u8],
    size: usize,
) {
    let streams = out.len() >= cache::STREAMED;
    let keeps_none = program.broadcasts || program.repeated.is_empty();
    let bytes = match streams {
        true => STREAM_BYTES,
        false if program.is_one() && keeps_none => LONE_BYTES,
        false => BLOCK_BYTES,
    };
    let count = out.len() / size;
    // Blocks within one row read operands in place that are broadcast along rows.
    let row = match sources.iter().filter_map(Source::row).min() {
        Some(row) if row >= ROW => row,
        _ => count,
    };
    let parts = row.div_ceil(bytes / program.widest);
    let block = row.div_ceil(parts).next_multiple_of(cache::LINE);
    let parts = row.div_ceil(block);
    let (blocks, work) = (count / row * parts, block * program.work);
    let out = SharedMut::new(out);
    for_ranges(pool, blocks, work, |blocks| {
        let mut worker = Worker::new(program, sources, operands, block.min(row), streams);
        let (mut first, mut within) = (blocks.start / parts * row, blocks.start % parts * block);
        for _ in blocks {
            let (start, len) = (first + within, block.min(row - within));
            // SAFETY: blocks are disjoint and inside the output.
            let out = unsafe { out.range(start * size, len * size) };
            worker.block(start, len, out);
            within += block;
            if within >= row {
                (first, within) = (first + row, 0);
            }
        }
        if streams {
            cache::fence();
        }
    });
}

thread_local! {
    /// A thread's registers, as many and as large as were ever needed.
    static REGISTERS: RefCell<Vec<Register>> = const { RefCell::new(Vec::new()) };
}

/// Memory for elements of any type.
#[derive(Default)]
pub(super) struct Register {
    lines: Vec<Line>,
    /// The elements of a source that are in it, if it is a panel's.
    pub(super) holds: Range<usize>,
}

/// Vectors are aligned to lines of the cache.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; cache::LINE]);

impl Register {
    /// All bytes of the register.
    pub(super) fn bytes(&self) -> &[u8] {
        cast_slice(&self.lines)
    }

    /// The first `bytes` bytes.
    pub(super) fn room(&mut self, bytes: usize) -> &mut [u8] {
        let lines = bytes.div_ceil(cache::LINE);
        if self.lines.len() < lines {
            self.lines.resize(lines, Line::zeroed());
        }
        &mut cast_slice_mut(&mut self.lines)[..bytes]
    }
}

/// A thread that runs a program.
pub(super) struct Worker<'a> {
    program: &'a Program,
    sources: &'a [Source],
    /// Data of each source.
    data: SmallVec<[&'a [u8]; 16]>,
    /// Actual place of each register's contents.
    places: SmallVec<[Place<'a>; 16]>,
    /// The thread's, while it does.
    registers: Vec<Register>,
    /// Do operands and results stream through the caches?
    streams: bool,
    /// The sources that do, with the bytes of an element.
    streamed: SmallVec<[(&'a [u8], usize); 8]>,
    /// Elements of them to prefetch with each instruction, so that memory and computation overlap.
    pace: usize,
    /// Addresses, with as many bytes behind them, that are asked for in the same way.
    ahead: SmallVec<[(usize, usize); 8]>,
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        REGISTERS.set(std::mem::take(&mut self.registers));
    }
}

impl<'a> Worker<'a> {
    /// Runs `program` on blocks of at most `len` elements, which may stream through the caches.
    #[inline]
    pub(super) fn new(
        program: &'a Program,
        sources: &'a [Source],
        operands: &[View<'a>],
        len: usize,
        streams: bool,
    ) -> Self {
        let data = sources.iter().map(|source| source.data(operands));
        Self::over(program, sources, data, len, streams)
    }

    /// The same, with the sources' data.
    #[inline]
    pub(super) fn over(
        program: &'a Program,
        sources: &'a [Source],
        data: impl Iterator<Item = &'a [u8]>,
        len: usize,
        streams: bool,
    ) -> Self {
        let mut worker = Self {
            program,
            sources,
            data: SmallVec::new(),
            places: SmallVec::new(),
            registers: REGISTERS.take(),
            streams,
            streamed: SmallVec::new(),
            pace: len.div_ceil(program.instructions.len()),
            ahead: SmallVec::new(),
        };
        // One by one, which is shorter for a few than extending the list.
        data.for_each(|data| worker.data.push(data));
        worker.begin(len);
        worker
    }

    /// Prepares for blocks of at most `len` elements.
    fn begin(&mut self, len: usize) {
        let count = self.program.registers;
        (0..count).for_each(|_| self.places.push(Place::Register(0)));
        // And one for a result that is to be streamed.
        if self.registers.len() <= count {
            self.registers.resize_with(count + 1, Register::default);
        }
        self.registers.iter_mut().for_each(|r| r.holds = 0..0);
        for &(source, Typed { register, size }) in &self.program.repeated {
            let data = self.data[source];
            match self.program.broadcasts {
                true => self.places[register] = Place::Memory(&data[..size]),
                false => {
                    let out = self.registers[register].room(len * size);
                    self.sources[source].repeat(data, out);
                }
            }
        }
        if self.streams {
            let sources = self.sources.iter().zip(&self.data);
            let streamed = sources.filter(|(source, _)| source.contiguous);
            self.streamed = streamed
                .map(|(source, &data)| (data, source.size))
                .collect();
        }
    }

    /// Makes the next block prefetch `bytes` bytes of memory, which need not be valid. They are read after that block.
    pub(super) fn ask_for(&mut self, memory: *const u8, bytes: usize) {
        self.ahead.push((memory.addr(), bytes));
    }

    /// Computes `len` elements of the result, from number `start` on.
    pub(super) fn block(&mut self, start: usize, len: usize, out: &mut [u8]) {
        let mut next = start + AHEAD * len;
        let count = self.program.instructions.len();
        for (done, instruction) in self.program.instructions.iter().enumerate() {
            for &(address, bytes) in &self.ahead {
                let share = bytes.div_ceil(count).next_multiple_of(cache::LINE);
                let from = bytes.min(done * share);
                let memory = std::ptr::without_provenance(address.wrapping_add(from));
                cache::prefetch(memory, share.min(bytes - from));
            }
            for &(data, size) in &self.streamed {
                let range = next * size..(next + self.pace) * size;
                let data = data.get(range).unwrap_or_default();
                cache::prefetch(data.as_ptr(), data.len());
            }
            next += self.pace;
            match instruction {
                Instruction::Load { source, to } => {
                    let (data, register) = (self.data[*source], &mut self.registers[to.register]);
                    let as_one = self.program.broadcasts;
                    self.places[to.register] =
                        self.sources[*source].load(data, start, len, as_one, register);
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
                    let index = to.map_or(self.program.registers, |to| to.register);
                    let bytes = to.map_or(out.len(), |to| len * to.size);
                    // Taken out, as the operands are among the others.
                    let mut register = std::mem::take(&mut self.registers[index]);
                    let result = register.room(bytes);
                    self.compute(function, operands, len, result);
                    match to {
                        Some(_) => self.places[index] = Place::Register(0),
                        None => cache::stream(result, out),
                    }
                    self.registers[index] = register;
                }
            }
        }
    }

    /// The `len` elements that were computed into a register.
    pub(super) fn register(&self, typed: Typed, len: usize) -> &[u8] {
        &self.registers[typed.register].bytes()[..len * typed.size]
    }

    /// Computes `len` elements of `result` from those in registers.
    fn compute(&self, function: &Loop, operands: &[Typed], len: usize, result: &mut [u8]) {
        let mut contents = [&[][..]; 4];
        for (contents, Typed { register, size }) in contents.iter_mut().zip(operands) {
            *contents = match self.places[*register] {
                Place::Memory(bytes) => bytes,
                Place::Register(at) => {
                    &cast_slice(&self.registers[*register].lines)[at..at + len * size]
                }
            };
        }
        function.run(&contents[..operands.len()], result);
    }
}
