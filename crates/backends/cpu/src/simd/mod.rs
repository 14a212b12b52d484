//! The vector unit as the kernels see it, and the matrix unit.
//!
//! Every kernel is written once, generic over [`Simd`]; a level of machine is one implementation of the trait.
//! Its vectors are 64 bytes or 16 f32 on every level (one AVX-512 register, two of AVX2, four of NEON). Its sums
//! are added in one order, so levels with fused multiply-add agree to the last bit.
//!
//! [`Level`] has the table of them, and the machine's best.
//!
//! A value of an implementing type is the proof that the machine has the level's instructions: only
//! `detect` makes one.

/// Methods of [`Simd`] whose bodies are instructions of a level.
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
macro_rules! instructions {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $out:ty)? $body:block)+) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $type),*) $(-> $out)? {
            // SAFETY: `self` proves that the machine has the instructions, and memory is reached
            // through references to all of the bytes.
            unsafe { $body }
        }
    )+};
}

pub(crate) mod apply;
mod level;
mod plain;

pub use level::Level;

pub(crate) use apply::{
    Arithmetic, Strided, all, apply, apply_function, apply2, apply2_at, apply2_broadcast,
    apply2_rows, apply3, apply3_broadcast, apply4_broadcast, each2,
};
pub(crate) use plain::Plain;

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod bf16;

#[cfg(target_arch = "x86_64")]
pub(crate) use {amx::Amx, avx2::Avx2, avx512::Avx512, bf16::Bf16};

#[cfg(target_arch = "aarch64")]
mod neon;

#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;

/// A computation to be compiled for a level. `run` and all that it calls with vectors must be
/// `#[inline(always)]`: instructions of the level are only generated within [`Simd::run`].
pub(crate) trait Kernel {
    /// Does it multiply bytes? Kernels without such products are not compiled for levels that add
    /// only these: such levels run the other level's kernel.
    const DOTS: bool = false;

    fn run<S: Simd>(self, s: S);
}

/// Operations on vectors: `V` of 64 bytes, also seen as 16 lanes of i32, and `F` of 16 f32. A
/// quarter is 16 bytes or 4 lanes, a half two quarters.
pub(crate) trait Simd: Copy {
    type V: Copy;
    type F: Copy;

    /// Are [`Self::mul_add`] and its like rounded once?
    const FUSED: bool = true;

    /// Rows of activations whose sums with a panel or a pair fit the registers beside a product's
    /// other operands.
    const TOKENS: usize;
    /// Whether panels are multiplied in pairs, or each on its own.
    const PAIRS: bool;
    /// Vectors of sums that fit the registers beside the operands of a product of floats.
    const SUMS: usize;
    /// Offset from bytes with sign to the wide codes of [`Self::dot4`].
    const BIAS: u8;

    /// Runs a kernel with the level's instructions.
    fn run<K: Kernel>(self, kernel: K);

    fn load(self, bytes: &[u8; 64]) -> Self::V;
    /// `low` in the first half, `high` in the second.
    fn load_halves(self, low: &[u8; 32], high: &[u8; 32]) -> Self::V;
    /// `low` in the first two quarters, `high` in the last two.
    fn load_quarters(self, low: &[u8; 16], high: &[u8; 16]) -> Self::V;
    fn store(self, v: Self::V, out: &mut [u8; 64]);
    fn splat(self, byte: u8) -> Self::V;
    fn splat_i32(self, lane: i32) -> Self::V;
    /// For each bit, the lowest first, 0 or `one`.
    fn spread_bits(self, bits: u64, one: u8) -> Self::V;

    fn and(self, a: Self::V, b: Self::V) -> Self::V;
    fn or(self, a: Self::V, b: Self::V) -> Self::V;
    fn xor(self, a: Self::V, b: Self::V) -> Self::V;
    /// Shifts bytes, or wider lanes: bits may cross into a byte from its neighbour.
    fn shl(self, v: Self::V, by: u32) -> Self::V;
    /// Shifts as [`Self::shl`] does, the first half by `low` and the second by `high`.
    fn shr_halves(self, v: Self::V, low: u32, high: u32) -> Self::V;
    /// Shifts as [`Self::shl`] does, the first and third quarter by `even`, the others by `odd`.
    fn shr_quarters(self, v: Self::V, even: u32, odd: u32) -> Self::V;

    /// `sum + a × b` of lanes of 16 bits; the low halves are kept.
    #[cfg(target_arch = "x86_64")]
    fn mul_add_16(self, sum: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// Byte `i` is `table[indices[i]]`: indices are below 16.
    fn look_up(self, table: &'static [u8; 16], indices: Self::V) -> Self::V;
    /// Adds the lanes of i32.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// Adds to each lane the sum of its four products of a `codes` byte and an `x` byte with sign.
    /// Codes are up to 127, or if `wide` they are bytes with sign plus [`Self::BIAS`].
    fn dot4(self, sum: Self::V, codes: Self::V, x: Self::V, wide: bool) -> Self::V;
    /// Two steps of a panel, each four codes of the row of every lane, as [`Self::dot_panels`] wants
    /// them.
    #[inline(always)]
    fn interleave(self, steps: [Self::V; 2]) -> [Self::V; 2] {
        steps
    }
    /// Adds to each lane of `dots[t][p]` the products of steps of panel `p`, codes as for
    /// [`Self::dot4`], with as many words of `x[t]`.
    #[inline(always)]
    fn dot_panels<const T: usize, const P: usize>(
        self,
        dots: &mut [[Self::V; P]; T],
        panels: [&[[u8; 64]]; P],
        x: [&[[u8; 4]]; T],
        wide: bool,
    ) {
        dot_steps(self, dots, panels, x, wide);
    }
    /// Adds up the lanes of every quarter: lane `4q + i` of the result is the sum over quarter `q`
    /// of `vs[i]`.
    fn sum_quarters(self, vs: [Self::V; 4]) -> Self::V;
    /// Lane `j` of result `i` is lane `i` of `rows[j]`.
    fn transpose(self, rows: [Self::V; 16]) -> [Self::V; 16];

    fn to_f32(self, v: Self::V) -> Self::F;
    /// The lanes' bits.
    fn bits(self, f: Self::F) -> Self::V;
    fn load_f32(self, lanes: &[f32; 16]) -> Self::F;
    /// Lanes from the bits of f16.
    fn load_f16(self, lanes: &[u16; 16]) -> Self::F;
    /// Lanes from the bits of bf16.
    fn load_bf16(self, lanes: &[u16; 16]) -> Self::F;
    fn store_f32(self, f: Self::F, out: &mut [f32; 16]);
    fn splat_f32(self, lane: f32) -> Self::F;
    /// All lanes from the bits of one f16.
    fn splat_f16(self, lane: u16) -> Self::F;
    /// [`Self::splat_f16`] of two.
    fn splat_f16s(self, lanes: [u16; 2]) -> [Self::F; 2] {
        map(lanes, |lane| self.splat_f16(lane))
    }
    /// Lane `i` is `bytes[order[i]]`.
    fn pick_u8(self, bytes: &[u8; 16], order: &'static [u8; 16]) -> Self::F;
    /// Lane `i` is `bytes[order[i]]`.
    fn pick_i8(self, bytes: &[i8; 16], order: &'static [u8; 16]) -> Self::F;
    /// Lane `i` is `halves[order[i]]`, from the bits of f16.
    fn pick_f16(self, halves: &[u16; 8], order: &'static [u8; 16]) -> Self::F;
    /// Lane `i` is `halves[order[i]]`, from the bits of bf16.
    fn pick_bf16(self, halves: &[u16; 8], order: &'static [u8; 16]) -> Self::F;

    /// The largest of the values' bits without their signs.
    fn peak(self, x: &[f32; 32]) -> u32;
    /// The nearest integers, ties to even, of `x × factor` as the bits of i8: of values beyond,
    /// anything.
    fn round(self, x: &[f32; 32], factor: f32) -> [u8; 32];

    fn add_f32(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// The larger of each two lanes; that of `b` where `a` is NaN.
    fn larger(self, a: Self::F, b: Self::F) -> Self::F;
    /// `sum + a × b`, rounded once where the machine can.
    fn mul_add(self, sum: Self::F, a: Self::F, b: Self::F) -> Self::F;
    /// `sum − a × b`, rounded once where the machine can.
    fn mul_sub(self, sum: Self::F, a: Self::F, b: Self::F) -> Self::F;
    /// The sum of the lanes: halves first, then quarters, then neighbours at distance two and one.
    fn sum(self, f: Self::F) -> f32;
}

/// [`std::array::from_fn`] of what can be copied. The kernels have thousands of such arrays, and a loop
/// is a tenth of the code that the compiler must read.
#[inline(always)]
pub(crate) fn from_fn<T: Copy, const N: usize>(f: impl Fn(usize) -> T) -> [T; N] {
    let mut array = [f(0); N];
    for (i, element) in array.iter_mut().enumerate() {
        *element = f(i);
    }
    array
}

/// [`array::map`] as [`from_fn`].
#[inline(always)]
pub(crate) fn map<A: Copy, B: Copy, const N: usize>(from: [A; N], f: impl Fn(A) -> B) -> [B; N] {
    from_fn(|i| f(from[i]))
}

/// [`Simd::dot_panels`] by [`Simd::dot4`].
#[inline(always)]
fn dot_steps<S: Simd, const T: usize, const P: usize>(
    s: S,
    dots: &mut [[S::V; P]; T],
    panels: [&[[u8; 64]]; P],
    x: [&[[u8; 4]]; T],
    wide: bool,
) {
    for step in 0..panels[0].len() {
        let mut codes = [s.splat(0); P];
        for (codes, steps) in codes.iter_mut().zip(panels) {
            *codes = s.load(&steps[step]);
        }
        for (dots, words) in dots.iter_mut().zip(x) {
            let x = s.splat_i32(i32::from_le_bytes(words[step]));
            for (dot, codes) in dots.iter_mut().zip(codes) {
                *dot = s.dot4(*dot, codes, x, wide);
            }
        }
    }
}

/// Exchanges the rows of a matrix of 4-byte words with its columns.
#[inline(always)]
pub(crate) fn transpose<S: Simd>(s: S, matrix: &mut [[u8; 64]; 16]) {
    let mut rows = [s.splat(0); 16];
    for (row, bytes) in rows.iter_mut().zip(&*matrix) {
        *row = s.load(bytes);
    }
    for (column, bytes) in s.transpose(rows).into_iter().zip(matrix) {
        s.store(column, bytes);
    }
}

/// Fields of `BITS` bits that lie in planes: bits `BITS × p` and up of all bytes of a chunk are the
/// codes of plane `p`.
pub(crate) trait Planes: Simd {
    /// Plane `plane` of a chunk of 64 bytes.
    #[inline(always)]
    fn plane_of_64<const BITS: u32>(self, chunk: &[u8; 64], plane: u32) -> Self::V {
        let shift = BITS * plane;
        let fields = self.shr_halves(self.load(chunk), shift, shift);
        self.and(fields, self.splat(0xFF >> (8 - BITS)))
    }

    /// Plane `plane` of a chunk of 32 bytes, then the plane after it.
    #[inline(always)]
    fn planes_of_32<const BITS: u32>(self, chunk: &[u8; 32], plane: u32) -> Self::V {
        let shift = BITS * plane;
        let fields = self.shr_halves(self.load_halves(chunk, chunk), shift, shift + BITS);
        self.and(fields, self.splat(0xFF >> (8 - BITS)))
    }

    /// Planes 0 and 1 of one chunk of 16 bytes, then of another.
    #[inline(always)]
    fn planes_of_16<const BITS: u32>(self, first: &[u8; 16], second: &[u8; 16]) -> Self::V {
        let fields = self.shr_quarters(self.load_quarters(first, second), 0, BITS);
        self.and(fields, self.splat(0xFF >> (8 - BITS)))
    }

    /// Codes with `high` fields above `at` bits of `low` fields.
    #[inline(always)]
    fn join(self, low: Self::V, high: Self::V, at: u32) -> Self::V {
        self.or(low, self.shl(high, at))
    }
}

impl<S: Simd> Planes for S {}
