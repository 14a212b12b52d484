//! Random numbers by their definition in the operation.
//!
//! Numbers of single precision and less are computed in single precision, with adjacent blocks as
//! lanes of vectors. Uniform ones are exact. Normal ones have errors of a few units in the last
//! place.

use std::f32::consts::FRAC_1_SQRT_2;

use bytemuck::cast_slice_mut;
use half::{bf16, f16};
use num_complex::Complex;
use rustorch_ir::ops::{Distribution, Random, philox};
use rustorch_ir::{DType, Op, OpKind, Scalar, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, FromScalar};
use crate::kernel::{Args, Misuse, SharedMut, for_ranges, for_rows};
use crate::launch::Launch;
use crate::math::{ln_of, sin_cos_of, turned};
use crate::pool::Pool;
use crate::simd::{Arithmetic, Kernel, Level, Simd};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Random,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

/// Cost of a double beside an addition.
const WORK: usize = 32;

/// The same of a block of numbers in single precision.
const BLOCK_WORK: usize = 8;

/// Numbers of a block of the generator.
const BLOCK: usize = 4;

/// Blocks that are drawn before they are rounded to less than single precision.
const BLOCKS: usize = 256;

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Random(op) = args.op else {
        return Err(Misuse("not a random".to_owned()));
    };
    let [seed, offset] = args.inputs else {
        return Err(Misuse("a key of seed and offset".to_owned()));
    };
    let key = [seed.data::<i64>()[0], offset.data::<i64>()[0]];
    let (pool, out) = (args.pool, &mut args.output);
    match op.dtype {
        DType::F32 => singles::<f32>(pool, op, key, 1.0, out.data()),
        DType::F16 => singles::<f16>(pool, op, key, 1.0, out.data()),
        DType::BF16 => singles::<bf16>(pool, op, key, 1.0, out.data()),
        DType::Complex64 => {
            let parts = cast_slice_mut(out.data::<Complex<f32>>());
            singles::<f32>(pool, op, key, FRAC_1_SQRT_2, parts);
        }
        DType::Complex128 => defined::<Complex<f64>>(pool, out.data(), |i| {
            let part = |i| (op.draw(key, i) * std::f64::consts::FRAC_1_SQRT_2).into();
            Scalar::Complex(part(2 * i), part(2 * i + 1))
        }),
        _ => defined::<f64>(pool, out.data(), |i| op.draw(key, i).into()),
    }
    Ok(())
}

/// The numbers as the operation defines them, one by one.
fn defined<T: FromScalar>(pool: &Pool, out: &mut [T], at: impl Fn(u64) -> Scalar + Sync) {
    for_rows(pool, out, 1, WORK, |first, part| {
        for (i, y) in (first as u64..).zip(part) {
            *y = T::from_scalar(at(i));
        }
    });
}

/// The numbers, times `deviation` if they are normal, by way of single precision.
fn singles<T: Element<Compute = f32>>(
    pool: &Pool,
    op: &Random,
    [seed, offset]: [i64; 2],
    deviation: f32,
    out: &mut [T],
) {
    let (level, len) = (Level::current(), out.len());
    let out = SharedMut::new(out);
    for_ranges(pool, len.div_ceil(BLOCK), BLOCK_WORK * BLOCK, |blocks| {
        let mut buffer = Vec::new();
        for first in blocks.clone().step_by(BLOCKS) {
            let blocks = first..blocks.end.min(first + BLOCKS);
            let numbers = BLOCK * blocks.start..len.min(BLOCK * blocks.end);
            // SAFETY: ranges are disjoint and inside the result.
            let part = unsafe { out.range(numbers.start, numbers.len()) };
            let (key, counter) = (seed as u64, (offset as u64).wrapping_add(first as u64));
            T::write(part, &mut buffer, |out| match op.distribution {
                Distribution::Uniform => {
                    let bits = op.bits();
                    let scale = (-(bits as f32)).exp2();
                    let even = |_, word: [u32; 4]| {
                        word.map(|word| (word >> (32 - bits)) as i32 as f32 * scale)
                    };
                    draw(level, counter, key, even, out);
                }
                Distribution::Normal => {
                    let normal = |m, [a, b, c, d]: [u32; 4]| {
                        let ([a, b], [c, d]) = (normals(m, a, b), normals(m, c, d));
                        [a, b, c, d].map(|x| x * deviation)
                    };
                    draw(level, counter, key, normal, out);
                }
            });
        }
    });
}

/// Fills `out` with the results of `f` for the blocks from `counter` on.
fn draw(
    level: Level,
    counter: u64,
    key: u64,
    f: impl Fn(Arithmetic, [u32; 4]) -> [f32; 4] + Copy,
    out: &mut [f32],
) {
    let (blocks, rest) = out.as_chunks_mut::<BLOCK>();
    let last = counter.wrapping_add(blocks.len() as u64);
    let draw = |counter, out| {
        level.run(Draw {
            counter,
            key,
            f,
            out,
        });
    };
    draw(counter, blocks);
    if !rest.is_empty() {
        let mut block = [[0.0; BLOCK]];
        draw(last, &mut block);
        rest.copy_from_slice(&block[0][..rest.len()]);
    }
}

struct Draw<'a, F> {
    counter: u64,
    key: u64,
    f: F,
    out: &'a mut [[f32; BLOCK]],
}

impl<F: Fn(Arithmetic, [u32; 4]) -> [f32; 4]> Kernel for Draw<'_, F> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let m = Arithmetic::of(s);
        for (i, out) in (0..).zip(self.out) {
            *out = (self.f)(m, philox(self.counter.wrapping_add(i), self.key));
        }
    }
}

/// Two normal numbers of two words, by Box and Muller.
#[inline(always)]
fn normals(m: Arithmetic, first: u32, second: u32) -> [f32; 2] {
    /// The words from √½ of the range on: close to 1 the distance from it counts.
    const NEAR: u32 = 0xB504_F333;
    /// 2⁻³²
    const UNIT: f32 = 1.0 / 4_294_967_296.0;
    /// The angle of a word.
    const ANGLE: f32 = std::f32::consts::TAU * UNIT;

    let fraction = first.wrapping_add(1) as f32 * UNIT;
    let bits = fraction.to_bits();
    let exponent = (bits.wrapping_sub(std::f32::consts::FRAC_1_SQRT_2.to_bits()) as i32) >> 23;
    let mantissa = f32::from_bits(bits.wrapping_sub((exponent as u32) << 23));
    let is_near = first >= NEAR;
    let e = if is_near { 0.0 } else { exponent as f32 };
    let distance = -((!first) as i32 as f32 * UNIT);
    let r = if is_near { distance } else { mantissa - 1.0 };
    let radius = (-2.0 * ln_of(m, e, r)).max(0.0).sqrt();

    // The nearest quarter of a turn, and the rest with its sign.
    let quarter = second.wrapping_add(1 << 29) >> 30;
    let rest = second.wrapping_sub(quarter << 30) as i32 as f32 * ANGLE;
    let [sin, cos] = turned(sin_cos_of(m, rest), quarter);
    [radius * cos, radius * sin]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_definition() {
        let pool = Pool::new(2);
        for distribution in [Distribution::Uniform, Distribution::Normal] {
            let len = 100_003;
            let op = Random {
                distribution,
                shape: [len].into(),
                dtype: DType::F32,
            };
            // Counters go past the end.
            for key in [[7, 0], [-1 << 40, 12345], [3, -1000]] {
                let mut out = vec![f32::NAN; len];
                singles(&pool, &op, key, 1.0, &mut out);
                for (i, &x) in (0..).zip(&out) {
                    let expected = op.draw(key, i);
                    let error = (f64::from(x) - expected).abs();
                    let allowed = match distribution {
                        Distribution::Uniform => 0.0,
                        Distribution::Normal => 1e-6 * expected.abs().max(0.1),
                    };
                    assert!(error <= allowed, "{i}: {x}, not {expected}");
                }
            }
        }
    }

    #[test]
    fn the_ends_of_the_words() {
        let exact = |first: u32, second: u32| {
            let scale = 32f64.exp2();
            let radius = (-2.0 * ((f64::from(first) + 1.0) / scale).ln()).sqrt();
            let angle = std::f64::consts::TAU * f64::from(second) / scale;
            [radius * angle.cos(), radius * angle.sin()]
        };
        let words = [
            0,
            1,
            2,
            0xB504_F332,
            0xB504_F333,
            0xB504_F334,
            1 << 29,
            3 << 29,
        ];
        let words = words
            .into_iter()
            .chain([u32::MAX - 1, u32::MAX, 5 << 29, 7 << 29]);
        for level in Level::available() {
            for first in words.clone() {
                for second in words.clone() {
                    let mut out = [[0.0; 2]];
                    let f = |m, [first, second]: [u32; 2]| normals(m, first, second);
                    crate::simd::apply::apply_at(level, &[[first, second]], &mut out, f);
                    let radius = exact(first, 0)[0];
                    for (x, expected) in out[0].into_iter().zip(exact(first, second)) {
                        let error = (f64::from(x) - expected).abs();
                        assert!(error <= 4e-7 * radius, "{level}: {first:x} {second:x}: {x}");
                    }
                }
            }
        }
    }
}
