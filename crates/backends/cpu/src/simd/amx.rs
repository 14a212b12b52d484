//! AMX, Intel's matrix unit: eight tiles of 16 rows of 64 bytes, and instructions that multiply
//! two and add to a third.
//!
//! A product reads `a`, rows of left operands, and `b`. Word (4 bytes) `j` of row `i` of `b` has
//! elements of column `j`. They meet word `i` of the rows of `a`. A word is four bytes, or two
//! bf16. Word `j` of row `i` of `c` grows by row `i` of `a` times column `j` of `b`. It takes 16
//! cycles however few of the rows are meant.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18
//! (tiles, the configuration) and volume 2 (instructions); the permission that Linux asks for:
//! its documentation, `arch/x86/xstate.rst`.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::marker::PhantomData;
use std::sync::OnceLock;

use super::{Avx512, Kernel, Simd};

/// Rows of a tile.
pub(crate) const ROWS: usize = 16;
/// Bytes in a row of a tile.
pub(crate) const ROW_BYTES: usize = 64;

/// The bytes of a tile in memory, row after row. Faster where aligned to 64 bytes.
pub(crate) type Bytes = [[u8; ROW_BYTES]; ROWS];

/// A machine with AMX for bytes and bf16 beside AVX-512, whose system lets this process use it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amx(Avx512);

impl Amx {
    /// Asks the system once.
    pub(crate) fn detect() -> Option<Self> {
        static AMX: OnceLock<Option<Amx>> = OnceLock::new();
        *AMX.get_or_init(|| {
            let vectors = Avx512::detect()?;
            (has_instructions() && is_permitted()).then_some(Self(vectors))
        })
    }

    /// The machine's vector unit.
    pub(crate) fn vectors(self) -> Avx512 {
        self.0
    }

    /// Runs a kernel with the instructions of the vector unit.
    pub(crate) fn run<K: Kernel>(self, kernel: K) {
        self.0.run(kernel);
    }

    /// Gives this thread its tiles, all of full size, until the result is dropped: a thread without
    /// is switched to and from faster. It takes some tens of cycles.
    ///
    /// # Safety
    /// The thread has no other `Tiles` at the same time.
    pub(crate) unsafe fn tiles(self) -> Tiles {
        /// The operand of `ldtilecfg`.
        #[repr(C, align(64))]
        struct Configuration {
            palette: u8,
            start_row: u8,
            reserved: [u8; 14],
            row_bytes: [u16; 16],
            rows: [u8; 16],
        }
        const FULL: Configuration = {
            let mut full = Configuration {
                palette: 1,
                start_row: 0,
                reserved: [0; 14],
                row_bytes: [0; 16],
                rows: [0; 16],
            };
            let mut tile = 0;
            while tile < 8 {
                full.row_bytes[tile] = ROW_BYTES as u16;
                full.rows[tile] = ROWS as u8;
                tile += 1;
            }
            full
        };
        // SAFETY: `self` proves that the machine has tiles and the system permits them, and the
        // operand is a valid configuration of 64 bytes. Rust has no use for tiles of its own.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &FULL, options(nostack, preserves_flags, readonly));
        }
        Tiles(PhantomData)
    }
}

/// CPUID and XCR0: processor and system know tiles, bytes in them and bf16.
fn has_instructions() -> bool {
    const BF16_TILE_INT8: u32 = 1 << 22 | 1 << 24 | 1 << 25;
    const OSXSAVE: u32 = 1 << 27;
    const TILE_STATES: u32 = 1 << 17 | 1 << 18;
    if __cpuid_count(0, 0).eax < 7
        || __cpuid_count(7, 0).edx & BF16_TILE_INT8 != BF16_TILE_INT8
        || __cpuid_count(1, 0).ecx & OSXSAVE == 0
    {
        return false;
    }
    let states: u32;
    // SAFETY: OSXSAVE says that the instruction is there, and register 0 always is.
    unsafe {
        asm!(
            "xgetbv",
            in("ecx") 0,
            out("eax") states,
            out("edx") _,
            options(nomem, nostack, preserves_flags),
        );
    }
    states & TILE_STATES == TILE_STATES
}

/// Linux wants to be asked before a process first uses tiles. The answer holds for all of its
/// threads.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: i64 = 0x1023;
    const TILE_DATA: i64 = 18;
    let result: i64;
    // SAFETY: the call changes nothing but what the process may use. The kernel overwrites `rcx`
    // and `r11`.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result == 0
}

/// Other systems' way to ask is not known here.
#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

/// The tiles of the thread that made it, named by their numbers, 0 to 7. They begin as zeros.
pub(crate) struct Tiles(PhantomData<*const ()>);

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the machine has the instruction, or there were no tiles.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

/// Adds to tile `C` the product of tiles `A` and `B`.
macro_rules! products {
    ($($(#[$doc:meta])* fn $name:ident = $instruction:literal;)+) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name<const C: u8, const A: u8, const B: u8>(&mut self) {
            const { assert!(C < 8 && A < 8 && B < 8 && C != A && C != B && A != B) };
            // SAFETY: `self` proves that this thread has tiles. Compiled code uses none, so they
            // keep their contents from one block of assembly to the next; blocks that are not
            // `pure` stay in order.
            unsafe {
                asm!(
                    concat!($instruction, " tmm{}, tmm{}, tmm{}"),
                    const C,
                    const A,
                    const B,
                    options(nomem, nostack, preserves_flags),
                );
            }
        }
    )+};
}

impl Tiles {
    /// Fills tile `C` with zeros.
    #[inline(always)]
    pub(crate) fn zero<const C: u8>(&mut self) {
        const { assert!(C < 8) };
        // SAFETY: as in `products`.
        unsafe { asm!("tilezero tmm{}", const C, options(nomem, nostack, preserves_flags)) };
    }

    /// Reads tile `C` from memory.
    #[inline(always)]
    pub(crate) fn load<const C: u8>(&mut self, bytes: &Bytes) {
        // SAFETY: the rows are those of `bytes`.
        unsafe { self.load_rows::<C>(bytes.as_ptr().cast(), ROW_BYTES) };
    }

    /// Reads tile `C` from memory that need not stay in a first-level cache.
    #[inline(always)]
    pub(crate) fn load_once<const C: u8>(&mut self, bytes: &Bytes) {
        const { assert!(C < 8) };
        // SAFETY: the rows are those of `bytes`; the rest as in `products`.
        unsafe {
            asm!(
                "tileloaddt1 tmm{}, [{} + {}*1]",
                const C,
                in(reg) bytes,
                in(reg) ROW_BYTES,
                options(nostack, preserves_flags, readonly),
            );
        }
    }

    /// Reads tile `C` from rows whose starts lie `stride` bytes apart.
    ///
    /// # Safety
    /// The 16 rows of 64 bytes from `start` on may be read.
    #[inline(always)]
    pub(crate) unsafe fn load_rows<const C: u8>(&mut self, start: *const u8, stride: usize) {
        const { assert!(C < 8) };
        // SAFETY: the memory by the caller; the rest as in `products`.
        unsafe {
            asm!(
                "tileloadd tmm{}, [{} + {}*1]",
                const C,
                in(reg) start,
                in(reg) stride,
                options(nostack, preserves_flags, readonly),
            );
        }
    }

    /// Writes tile `C` to memory.
    #[inline(always)]
    pub(crate) fn store<const C: u8>(&mut self, bytes: &mut Bytes) {
        // SAFETY: the rows are those of `bytes`.
        unsafe { self.store_rows::<C>(bytes.as_mut_ptr().cast(), ROW_BYTES) };
    }

    /// Writes tile `C` to rows whose starts lie `stride` bytes apart.
    ///
    /// # Safety
    /// The 16 rows of 64 bytes from `start` on may be written.
    #[inline(always)]
    pub(crate) unsafe fn store_rows<const C: u8>(&mut self, start: *mut u8, stride: usize) {
        const { assert!(C < 8) };
        // SAFETY: the memory by the caller; the rest as in `products`.
        unsafe {
            asm!(
                "tilestored [{} + {}*1], tmm{}",
                in(reg) start,
                in(reg) stride,
                const C,
                options(nostack, preserves_flags),
            );
        }
    }

    products! {
        /// Adds to the i32 of tile `C` the product of bytes with sign.
        fn dot_ss = "tdpbssd";
        /// Adds to the i32 of tile `C` the product of bytes, those of `A` with sign.
        fn dot_su = "tdpbsud";
        /// Adds to the f32 of tile `C` the product of bf16. Denormal numbers count as zero.
        fn dot_bf16 = "tdpbf16ps";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;
    use std::array::from_fn;

    fn tiles() -> Option<Tiles> {
        // SAFETY: tests take theirs once.
        Amx::detect().map(|amx| unsafe { amx.tiles() })
    }

    fn bytes(seed: usize) -> Bytes {
        from_fn(|i| from_fn(|j| (i * 101 + j * 57 + i * j * 13 + seed) as u8))
    }

    /// The expected product of bytes.
    fn expected(a: impl Fn(usize, usize) -> i32, b: impl Fn(usize, usize) -> i32) -> Bytes {
        let sum = |i, j| (0..64).map(|k| a(i, k) * b(k / 4, 4 * j + k % 4)).sum();
        bytemuck::cast::<[[i32; 16]; 16], _>(from_fn(|i| from_fn(|j| sum(i, j))))
    }

    #[test]
    fn products_of_bytes() {
        let Some(mut tiles) = tiles() else { return };
        let (a, b) = (bytes(1), bytes(200));
        tiles.load::<6>(&a);
        tiles.load::<7>(&b);
        tiles.zero::<0>();
        tiles.dot_ss::<0, 6, 7>();
        tiles.dot_su::<1, 6, 7>();
        let mut c = [bytes(0); 2];
        tiles.store::<0>(&mut c[0]);
        tiles.store::<1>(&mut c[1]);
        let signed = |m: Bytes| move |i: usize, j: usize| i32::from(m[i][j] as i8);
        assert_eq!(c[0], expected(signed(a), signed(b)));
        assert_eq!(c[1], expected(signed(a), |i, j| i32::from(b[i][j])));
    }

    #[test]
    fn products_of_bf16_with_strides() {
        let Some(mut tiles) = tiles() else { return };
        let value = |i: usize, j: usize| bf16::from_f32((i * 7 % 5) as f32 - (j * 3 % 11) as f32);
        let (mut a, mut b) = ([[bf16::ZERO; 48]; 16], [[bf16::ZERO; 48]; 16]);
        for i in 0..16 {
            for j in 0..32 {
                (a[i][j], b[i][j]) = (value(i, j), value(j + 5, i));
            }
        }
        let mut c = [[0.0_f32; 24]; 16];
        // SAFETY: all rows have 64 bytes and more.
        unsafe {
            tiles.load_rows::<2>(a.as_ptr().cast(), 96);
            tiles.load_rows::<3>(b.as_ptr().cast(), 96);
            tiles.dot_bf16::<4, 2, 3>();
            tiles.store_rows::<4>(c.as_mut_ptr().cast(), 96);
        }
        for i in 0..16 {
            for j in 0..16 {
                let dot: f32 = (0..32)
                    .map(|k| a[i][k].to_f32() * b[k / 2][2 * j + k % 2].to_f32())
                    .sum();
                assert_eq!(c[i][j], dot, "{i} {j}");
            }
            assert_eq!(c[i][16..], [0.0; 8]);
        }
    }
}
