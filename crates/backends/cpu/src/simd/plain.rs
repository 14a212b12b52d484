//! Rust without its own vector instructions: the compiler's code for loops over arrays.

use super::{Kernel, Simd, from_fn, map};
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

/// A level for any machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain;

impl Simd for Plain {
    type V = [u8; 64];
    type F = [f32; 16];

    const FUSED: bool = false;
    const TOKENS: usize = 1;
    const PAIRS: bool = true;
    const SUMS: usize = 4;
    const BIAS: u8 = 0x80;

    #[inline]
    fn run<K: Kernel>(self, kernel: K) {
        kernel.run(self);
    }

    #[inline]
    fn load(self, bytes: &[u8; 64]) -> [u8; 64] {
        *bytes
    }

    #[inline]
    fn load_halves(self, low: &[u8; 32], high: &[u8; 32]) -> [u8; 64] {
        bytemuck::cast([*low, *high])
    }

    #[inline]
    fn load_quarters(self, low: &[u8; 16], high: &[u8; 16]) -> [u8; 64] {
        bytemuck::cast([*low, *low, *high, *high])
    }

    #[inline]
    fn store(self, v: [u8; 64], out: &mut [u8; 64]) {
        *out = v;
    }

    #[inline]
    fn splat(self, byte: u8) -> [u8; 64] {
        [byte; 64]
    }

    #[inline]
    fn splat_i32(self, lane: i32) -> [u8; 64] {
        bytemuck::cast([lane; 16])
    }

    #[inline]
    fn spread_bits(self, bits: u64, one: u8) -> [u8; 64] {
        from_fn(|i| (bits >> i & 1) as u8 * one)
    }

    #[inline]
    fn and(self, a: [u8; 64], b: [u8; 64]) -> [u8; 64] {
        from_fn(|i| a[i] & b[i])
    }

    #[inline]
    fn or(self, a: [u8; 64], b: [u8; 64]) -> [u8; 64] {
        from_fn(|i| a[i] | b[i])
    }

    #[inline]
    fn xor(self, a: [u8; 64], b: [u8; 64]) -> [u8; 64] {
        from_fn(|i| a[i] ^ b[i])
    }

    #[inline]
    fn shl(self, v: [u8; 64], by: u32) -> [u8; 64] {
        map(v, |byte| byte << by)
    }

    #[inline]
    fn shr_halves(self, v: [u8; 64], low: u32, high: u32) -> [u8; 64] {
        from_fn(|i| v[i] >> if i < 32 { low } else { high })
    }

    #[inline]
    fn shr_quarters(self, v: [u8; 64], even: u32, odd: u32) -> [u8; 64] {
        from_fn(|i| v[i] >> if i / 16 % 2 == 0 { even } else { odd })
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn mul_add_16(self, sum: [u8; 64], a: [u8; 64], b: [u8; 64]) -> [u8; 64] {
        let [sum, a, b] = [sum, a, b].map(bytemuck::cast::<_, [u16; 32]>);
        bytemuck::cast::<[u16; 32], _>(from_fn(|i| sum[i].wrapping_add(a[i].wrapping_mul(b[i]))))
    }

    #[inline]
    fn look_up(self, table: &'static [u8; 16], indices: [u8; 64]) -> [u8; 64] {
        map(indices, |i| table[usize::from(i & 15)])
    }

    #[inline]
    fn add(self, a: [u8; 64], b: [u8; 64]) -> [u8; 64] {
        let (a, b): ([i32; 16], [i32; 16]) = (bytemuck::cast(a), bytemuck::cast(b));
        bytemuck::cast::<[i32; 16], _>(from_fn(|i| a[i] + b[i]))
    }

    #[inline]
    fn dot4(self, sum: [u8; 64], codes: [u8; 64], x: [u8; 64], _wide: bool) -> [u8; 64] {
        // Byte by byte of the lanes: loops over lanes are what compilers vectorise.
        let (codes, x): ([i32; 16], [i32; 16]) = (bytemuck::cast(codes), bytemuck::cast(x));
        let mut sum: [i32; 16] = bytemuck::cast(sum);
        for byte in 0..4 {
            for (sum, (codes, x)) in sum.iter_mut().zip(codes.iter().zip(x)) {
                *sum += (codes >> (8 * byte) & 0xFF) * (x << (24 - 8 * byte) >> 24);
            }
        }
        bytemuck::cast(sum)
    }

    #[inline]
    fn sum_quarters(self, vs: [[u8; 64]; 4]) -> [u8; 64] {
        let vs: [[[i32; 4]; 4]; 4] = bytemuck::cast(vs);
        let sums: [[i32; 4]; 4] = from_fn(|quarter| map(vs, |v| v[quarter].iter().sum()));
        bytemuck::cast(sums)
    }

    #[inline]
    fn transpose(self, rows: [[u8; 64]; 16]) -> [[u8; 64]; 16] {
        let rows: [[u32; 16]; 16] = bytemuck::cast(rows);
        let columns: [[u32; 16]; 16] = from_fn(|i| from_fn(|j| rows[j][i]));
        bytemuck::cast(columns)
    }

    #[inline]
    fn to_f32(self, v: [u8; 64]) -> [f32; 16] {
        map(bytemuck::cast::<_, [i32; 16]>(v), |lane| lane as f32)
    }

    #[inline]
    fn bits(self, f: [f32; 16]) -> [u8; 64] {
        bytemuck::cast(f)
    }

    #[inline]
    fn load_f32(self, lanes: &[f32; 16]) -> [f32; 16] {
        *lanes
    }

    #[inline]
    fn load_f16(self, lanes: &[u16; 16]) -> [f32; 16] {
        let mut values = [0.0; 16];
        lanes
            .reinterpret_cast::<f16>()
            .convert_to_f32_slice(&mut values);
        values
    }

    #[inline]
    fn load_bf16(self, lanes: &[u16; 16]) -> [f32; 16] {
        map(*lanes, |bits| f32::from_bits(u32::from(bits) << 16))
    }

    #[inline]
    fn store_f32(self, f: [f32; 16], out: &mut [f32; 16]) {
        *out = f;
    }

    #[inline]
    fn splat_f32(self, lane: f32) -> [f32; 16] {
        [lane; 16]
    }

    #[inline]
    fn splat_f16(self, lane: u16) -> [f32; 16] {
        [f16::from_bits(lane).to_f32(); 16]
    }

    #[inline]
    fn pick_u8(self, bytes: &[u8; 16], order: &'static [u8; 16]) -> [f32; 16] {
        map(*order, |i| f32::from(bytes[usize::from(i)]))
    }

    #[inline]
    fn pick_i8(self, bytes: &[i8; 16], order: &'static [u8; 16]) -> [f32; 16] {
        map(*order, |i| f32::from(bytes[usize::from(i)]))
    }

    #[inline]
    fn pick_f16(self, halves: &[u16; 8], order: &'static [u8; 16]) -> [f32; 16] {
        let halves = map(*halves, |bits| f16::from_bits(bits).to_f32());
        map(*order, |i| halves[usize::from(i)])
    }

    #[inline]
    fn pick_bf16(self, halves: &[u16; 8], order: &'static [u8; 16]) -> [f32; 16] {
        map(*order, |i| {
            f32::from_bits(u32::from(halves[usize::from(i)]) << 16)
        })
    }

    #[inline]
    fn peak(self, x: &[f32; 32]) -> u32 {
        x.iter().fold(0, |peak, x| peak.max(x.abs().to_bits()))
    }

    #[inline]
    fn round(self, x: &[f32; 32], factor: f32) -> [u8; 32] {
        // At 1.5 × 2²³ floats are integers, and the lowest bits are those of what is added.
        map(*x, |x| (x * factor + 12_582_912.0).to_bits() as u8)
    }

    #[inline]
    fn add_f32(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        from_fn(|i| a[i] + b[i])
    }

    #[inline]
    fn larger(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline]
    fn mul(self, a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        from_fn(|i| a[i] * b[i])
    }

    #[inline]
    fn mul_add(self, sum: [f32; 16], a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        from_fn(|i| sum[i] + a[i] * b[i])
    }

    #[inline]
    fn mul_sub(self, sum: [f32; 16], a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        from_fn(|i| sum[i] - a[i] * b[i])
    }

    #[inline]
    fn sum(self, f: [f32; 16]) -> f32 {
        let f: [f32; 8] = from_fn(|i| f[i] + f[i + 8]);
        let f: [f32; 4] = from_fn(|i| f[i] + f[i + 4]);
        (f[0] + f[2]) + (f[1] + f[3])
    }
}
