//! Discrete Fourier transforms of 2ᵃ 3ᵇ 5ᶜ numbers, in as many passes as local memory asks for.

use rustorch_ir::ops::{Fft, FftKind};
use rustorch_ir::{DType, Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts, Place, Step};

use super::views::{Memory, split, walk};
use crate::driver::Limits;
use crate::emit::{Emitter, GpuKernel};
use crate::kernel::Kernel;

pub(crate) const KERNEL: KernelEntry<GpuKernel> = KernelEntry {
    kind: OpKind::Fft,
    accepts,
    layouts: Layouts::Any,
    launch: GpuKernel::everywhere(emit),
};

/// Work-items of a group, and where they take turns.
const GROUPS: [usize; 2] = [256, 16];

/// The same for lines without gaps.
const GROUPS_OF_LINES: [usize; 2] = [128, 16];

/// Numbers that a group transforms, at most.
const TILE: usize = 2048;

/// Bytes of local memory that several groups of a compute unit have at once.
const LOCAL_BYTES: usize = 36 << 10;

/// Stages of a pass, at most: 2 · 3⁶ numbers have seven.
const STAGES: usize = 8;

/// Numbers of a pass's transforms, where there are several passes: neighbouring transforms of a
/// group are then at least 64 bytes of memory.
const RADIX: usize = 256;

/// Numbers of lines, made in one pass, that have a kernel of their own.
const USUAL: [usize; 4] = [256, 512, 1024, 2048];

/// Numbers of transforms that lanes make in registers.
const RADICES: [usize; 5] = [8, 4, 2, 3, 5];

fn accepts(s: &Signature) -> bool {
    match s.op {
        Op::Fft(op) => primes(size(op, s.inputs[0].shape[op.dim])).is_some(),
        _ => false,
    }
}

/// Numbers of a transform of `given` ones.
fn size(op: &Fft, given: usize) -> usize {
    match op.kind {
        FftKind::ComplexToReal { n } => n,
        _ => given,
    }
}

/// The prime factors of `n`, the largest first; `None` if there are others than 2, 3 and 5.
fn primes(mut n: usize) -> Option<Vec<usize>> {
    let mut primes = Vec::new();
    for prime in [5, 3, 2] {
        while n > 1 && n.is_multiple_of(prime) {
            primes.push(prime);
            n /= prime;
        }
    }
    (n == 1).then_some(primes)
}

/// The sizes of passes, whose product is that of `primes`: one pass of `tile` numbers at most, or
/// several of much the same size.
fn passes(primes: &[usize], tile: usize) -> Vec<usize> {
    let most = |count| if count == 1 { tile } else { RADIX.min(tile) };
    let shared = |count| {
        let mut passes = vec![1; count];
        for prime in primes {
            let at = (0..count).min_by_key(|&at| passes[at]).unwrap_or(0);
            passes[at] *= prime;
        }
        passes
    };
    (1..)
        .map(shared)
        .find(|passes| passes.iter().all(|&n| n <= most(passes.len())))
        .unwrap_or_default()
}

/// The radices of the stages of a pass.
fn stages(mut radix: usize) -> Vec<usize> {
    let mut stages = Vec::new();
    while let Some(next) = RADICES.into_iter().find(|&next| {
        // 16 is 4 · 4 sooner than 8 · 2.
        radix.is_multiple_of(next) && !(next == 8 && radix == 16)
    }) {
        stages.push(next);
        radix /= next;
    }
    stages
}

/// Numbers for a group: two copies, with the gaps that keep banks apart, fit into local memory.
fn tile(limits: &Limits, dtype: DType) -> usize {
    let bytes = |tile: usize| 2 * (tile + tile / 16) * dtype.size().unwrap_or(16);
    let mut tile = TILE;
    while tile > 1 && bytes(tile) > limits.local_bytes.min(LOCAL_BYTES) {
        tile /= 2;
    }
    tile
}

fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::Fft(op) = &step.last().op else {
        return;
    };
    let (x, y) = (&step.inputs[0], step.output());
    let dtype = match op.kind {
        FftKind::RealToComplex => y.ty.dtype,
        _ => x.ty.dtype,
    };
    let n = size(op, x.ty.shape[op.dim]);
    let tile = tile(emitter.limits, dtype);
    if let Some(lines) = Lines::of(op, step, tile) {
        return lines.launch(tile, emitter);
    }
    let half = n / 2;
    if op.kind == FftKind::RealToComplex
        && n.is_multiple_of(2)
        && half <= tile
        && USUAL.contains(&half)
    {
        let y_view = Layout::contiguous(&y.ty.shape);
        let pass = Pass {
            dtype,
            n: half,
            radix: half,
            done: 1,
            memory: [Memory::Place(x), Memory::Place(y)],
            views: [split(&x.layout, op.dim), split(&y_view, op.dim)],
            is_inverse: false,
            of_pairs: true,
        };
        return pass.launch(tile, emitter);
    }
    let passes = passes(&primes(n).unwrap_or_default(), tile);
    let (lines, _) = split(&x.layout, op.dim);
    let shape: Vec<usize> = lines.shape.iter().copied().chain([n]).collect();
    let inner = Layout::contiguous(&shape[..].into());
    let bytes = inner.elements() * dtype.size().unwrap_or(0);
    // All passes but the last write to two scratch places in turns.
    let scratch: Vec<Memory> = (1..passes.len().min(3))
        .map(|_| Memory::Scratch(dtype, emitter.scratch(bytes)))
        .collect();
    let y_view = Layout::contiguous(&y.ty.shape);
    let mut done = 1;
    for (at, &radix) in passes.iter().enumerate() {
        let is_last = at + 1 == passes.len();
        let (from, x_view, x_dim) = match at {
            0 => (Memory::Place(x), &x.layout, op.dim),
            _ => (scratch[(at - 1) % 2], &inner, inner.rank() - 1),
        };
        let (to, y_view, y_dim) = match is_last {
            true => (Memory::Place(y), &y_view, op.dim),
            false => (scratch[at % 2], &inner, inner.rank() - 1),
        };
        let pass = Pass {
            dtype,
            n,
            radix,
            done,
            memory: [from, to],
            views: [split(x_view, x_dim), split(y_view, y_dim)],
            is_inverse: matches!(op.kind, FftKind::Inverse | FftKind::ComplexToReal { .. }),
            of_pairs: false,
        };
        pass.launch(tile, emitter);
        done *= radix;
    }
}

/// Lines of a usual length without gaps, which are made in one pass.
struct Lines {
    /// Numbers to transform: real numbers are the pairs of complex ones that they are in memory.
    x: Place,
    y: Place,
    starts: [Layout; 2],
    /// Numbers of a line.
    n: usize,
    is_inverse: bool,
    of_pairs: bool,
}

impl Lines {
    /// The lines of a step, if it has such lines. They fit into `tile`.
    fn of(op: &Fft, step: &Step, tile: usize) -> Option<Self> {
        let (mut x, y) = (step.inputs[0].clone(), step.output().clone());
        let of_pairs = op.kind == FftKind::RealToComplex;
        let (mut x_starts, x_along) = split(&x.layout, op.dim);
        let (y_starts, y_along) = split(&Layout::contiguous(&y.ty.shape), op.dim);
        if !y.ty.dtype.is_complex()
            || [&x_along, &y_along]
                .iter()
                .any(|along| along.strides[0] != 1)
        {
            return None;
        }
        let mut n = x_along.elements();
        if of_pairs {
            let steps = x_starts.strides.iter_mut();
            let mut parts = steps.chain([&mut x.layout.offset, &mut n]);
            let are_even = parts.all(|part| {
                let is_even = part.is_multiple_of(2);
                *part /= 2;
                is_even
            });
            if !are_even {
                return None;
            }
            x.ty.dtype = y.ty.dtype;
        }
        let is_usual = USUAL.contains(&n) && n <= tile;
        is_usual.then_some(Self {
            x,
            y,
            starts: [x_starts, y_starts],
            n,
            is_inverse: op.kind == FftKind::Inverse,
            of_pairs,
        })
    }

    fn launch(&self, tile: usize, emitter: &mut Emitter) {
        let limits = emitter.limits;
        let group = GROUPS_OF_LINES[usize::from(limits.is_processor)];
        let text = concat!(
            include_str!("../../kernels/fft.h"),
            include_str!("../../kernels/fft_line.c")
        );
        let group = group.min(limits.max_group.max(1));
        let mut kernel = Kernel::new("fft_line", text, group as u32);
        let dtype = self.y.ty.dtype;
        for name in ["X", "Y", "Z"] {
            kernel.define_dtype(name, dtype);
        }
        kernel.define_dtype("R", dtype.real());
        let columns = tile / self.n;
        kernel.define("N", self.n);
        kernel.define("COLUMNS", columns);
        kernel.define("INVERSE", u8::from(self.is_inverse));
        kernel.define("OF_PAIRS", u8::from(self.of_pairs));
        let radices = radices_of_lines(self.n);
        let last = match self.of_pairs {
            true => "MIDDLE",
            false => "LAST",
        };
        let stages = radices.iter().enumerate().map(|(at, radix)| {
            let stage = match at {
                0 => "FIRST",
                _ if at + 1 == radices.len() => last,
                _ => "MIDDLE",
            };
            format!("{stage}({radix}) ")
        });
        kernel.define("STAGES", stages.collect::<String>());
        kernel.read("x", &self.x);
        kernel.write("y", &self.y);
        let [x, y] = &self.starts;
        walk(&mut kernel, "starts", &[("x", x), ("y", y)]);
        let count = x.elements();
        kernel.word("count", count);
        emitter.launch(kernel.groups(count.div_ceil(columns), 1, 1));
    }
}

/// The radices of the stages of a usual line: as few as possible, with numbers in registers of lanes.
fn radices_of_lines(n: usize) -> &'static [usize] {
    match n {
        256 => &[16, 16],
        512 => &[8, 8, 8],
        1024 => &[16, 8, 8],
        _ => &[16, 16, 8],
    }
}

/// One reading and writing of all numbers.
struct Pass<'a> {
    /// Type of the computation.
    dtype: DType,
    /// Numbers of a line.
    n: usize,
    /// Numbers of the pass's transforms.
    radix: usize,
    /// Numbers of the transforms that there are already.
    done: usize,
    memory: [Memory<'a>; 2],
    /// The lines and their elements.
    views: [(Layout, Layout); 2],
    is_inverse: bool,
    /// Are numbers pairs of neighbours among real ones?
    of_pairs: bool,
}

impl Pass<'_> {
    fn launch(&self, tile: usize, emitter: &mut Emitter) {
        let [(x_lines, x_along), (y_lines, y_along)] = &self.views;
        let [x, y] = self.memory;
        let limits = emitter.limits;
        let group = GROUPS[usize::from(limits.is_processor)].min(limits.max_group.max(1));
        let text = concat!(
            include_str!("../../kernels/fft.h"),
            include_str!("../../kernels/fft.c")
        );
        let mut kernel = Kernel::new("fft", text, group as u32);
        let from = match (x.dtype().is_complex(), x_along.elements() == self.n) {
            (false, _) if self.of_pairs => "PAIRS",
            (false, _) => "REAL",
            // Half a spectrum of one or two numbers is all of it. Its imaginary parts still do not count.
            (true, is_whole) if !is_whole || !y.dtype().is_complex() && self.done == 1 => "HALF",
            _ => "COMPLEX",
        };
        kernel.define("FROM", from);
        kernel.define("TO_REAL", u8::from(!y.dtype().is_complex()));
        kernel.define("TILE", tile);
        kernel.define_dtype("X", x.dtype());
        kernel.define_dtype("Y", y.dtype());
        kernel.define_dtype("Z", self.dtype);
        kernel.define_dtype("R", self.dtype.real());
        x.read(&mut kernel, "x");
        y.write(&mut kernel, "y");
        walk(&mut kernel, "starts", &[("x", x_lines), ("y", y_lines)]);
        let apart = self.n / self.radix;
        let columns = tile / self.radix;
        let count = x_lines.elements() * apart;
        let (x_step, y_step) = (x_along.strides[0], y_along.strides[0]);
        kernel.word("n", self.n);
        kernel.word("kept", y_along.elements());
        kernel.word("count", count);
        kernel.word("columns", columns);
        kernel.word("radix", self.radix);
        kernel.word("apart", apart);
        kernel.word("done", self.done);
        let mut stages = stages(self.radix);
        // Whole lines of usual lengths are made without divisions.
        let is_usual = apart == 1 && USUAL.contains(&self.radix);
        let known = [
            ("RADIX", "p.radix", self.radix),
            ("COLUMNS", "p.columns", columns),
            ("APART", "p.apart", apart),
            ("DONE", "p.done", self.done),
        ];
        for (name, parameter, value) in known {
            match is_usual {
                true => kernel.define(name, value),
                false => kernel.define(name, parameter),
            }
        }
        let all: String = stages.iter().map(|n| format!("STAGE({n}) ")).collect();
        kernel.define("STAGES", if is_usual { &all } else { "ANY_STAGES" });
        kernel.word("x_step", x_step);
        kernel.word("y_step", y_step);
        kernel.word("reads_across", usize::from(apart > 1 || x_step != 1));
        kernel.word("writes_across", usize::from(self.done > 1 || y_step != 1));
        kernel.word("is_inverse", usize::from(self.is_inverse));
        kernel.word("stages", stages.len());
        stages.resize(stages.len().max(STAGES), 1);
        kernel.words("radices", &stages);
        emitter.launch(kernel.groups(count.div_ceil(columns), 1, 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_make_the_whole_transform_and_fit() {
        let sizes = (1..70_000).chain([1 << 20, 1_000_000, 14_348_907, 1 << 30]);
        for (n, primes) in sizes.filter_map(|n| Some((n, primes(n)?))) {
            for tile in [1024, TILE] {
                let passes = passes(&primes, tile);
                assert_eq!(passes.iter().product::<usize>(), n);
                let most = if passes.len() == 1 { tile } else { RADIX };
                assert!(passes.iter().all(|&radix| radix <= most), "{n}: {passes:?}");
                assert_eq!(passes.len() == 1, n <= tile, "{n}: {passes:?}");
                for &radix in &passes {
                    let stages = stages(radix);
                    assert_eq!(stages.iter().product::<usize>(), radix);
                    assert!(stages.len() <= STAGES, "{radix}: {stages:?}");
                }
            }
        }
        assert_eq!(passes(&primes(1 << 20).unwrap(), TILE), [128, 128, 64]);
        assert_eq!(primes(2 * 3 * 5 * 7), None);
        for n in USUAL {
            assert_eq!(radices_of_lines(n).iter().product::<usize>(), n);
        }
    }
}
