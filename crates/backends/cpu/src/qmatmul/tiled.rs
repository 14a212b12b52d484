//! Products with many rows of activations on the matrix unit, [`crate::simd::amx`].
//!
//! A product of tiles takes the same time whatever its depth, so it should be 64 weights deep. Fewer
//! weights share a scale. The activations of a slab may share a scale, and the weights' scales may
//! be integers. These scales are then multiplied into the codes beforehand. The products have up to
//! 14 bits: their low and their high bytes are two tiles, and sums over the slab are exact. The
//! minima's part is a product of small integers in bf16, exact too.
//!
//! Activations may have a scale for every 32, as the weights do. Then the tiles are the two halves
//! of 64 weights. Zeros replace the other half.

use super::activations::{Offset, Rounded, SLAB, lane_of};
use super::gemm::Gemm;
use super::operand::ROWS;
use super::quantized::{self, Blocks, Unpack};
use crate::cache::prefetch;
use crate::simd::amx::{self, Amx, Tiles};
use crate::simd::{Kernel, Simd, from_fn, map};
use bytemuck::{Pod, Zeroable};
use std::mem::offset_of;

/// A product with the matrix unit.
pub(crate) struct Tiled<'a, B: Unpack> {
    pub(crate) amx: Amx,
    pub(crate) gemm: Gemm<'a, Blocks<B>>,
}

/// Panels that stay in a second-level cache while activations come and go: the more, the fewer times
/// these come from beyond it.
pub(crate) const PANELS: usize = 16;
/// Weights along a row in a tile.
const DEPTH: usize = 64;
/// Rows of activations that are multiplied at once: two tiles.
const TOKENS: usize = 2 * amx::ROWS;

/// The slabs of 16 rows of weights.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Panel {
    /// For each 64 weights two tiles, see the module.
    codes: [[amx::Bytes; 2]; SLAB / DEPTH],
    /// Minima as integers in bf16, each twice to meet [`Rounded::split_sums`].
    minima: amx::Bytes,
    /// Each row's scale and minimum: for each 32 weights, or in the first place the slab's units.
    scales: [[[f32; ROWS]; 2]; SLAB / 32],
}

/// Products of two tiles of activations with two tiles of weights.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Products([[amx::Bytes; 2]; 2]);

/// Sums of rows of activations with a panel.
type Sums = [[f32; ROWS]; TOKENS];

impl<B: Unpack> Kernel for Tiled<'_, B> {
    const DOTS: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { amx, mut gemm } = self;
        // SAFETY: these are the thread's only tiles, since nothing here calls code with tiles of its own.
        let mut tiles = unsafe { amx.tiles() };
        let (columns, rows) = (gemm.y.columns(), gemm.y.rows());
        let mut side_by_side = quantized::Panel::zeroed();
        let mut panels = [Panel::zeroed(); PANELS];
        let panels = &mut panels[..columns.div_ceil(ROWS)];
        let mut products = [Products::zeroed(); 2];
        let blocks = rows.div_ceil(TOKENS);
        let (len, zero) = (blocks * panels.len() * size_of::<Sums>(), [0.0; ROWS]);
        gemm.sums.clear();
        gemm.sums.resize(len / size_of_val(&zero), zero);
        for slab in 0..gemm.x.len() / gemm.tokens {
            for (i, panel) in panels.iter_mut().enumerate() {
                let mut filled = None;
                let rows = gemm.rows(slab, i * ROWS, &mut filled);
                for row in rows {
                    // The next slab.
                    prefetch(
                        std::ptr::from_ref(row).wrapping_add(1).cast(),
                        size_of_val(row),
                    );
                }
                let units = Blocks::<B>::gather(s, rows, &mut side_by_side);
                pack::<B, S>(s, &side_by_side, units, panel);
            }
            let sums: &mut [Sums] = bytemuck::cast_slice_mut(gemm.sums);
            for (block, sums) in sums.chunks_exact_mut(panels.len()).enumerate() {
                let rows = block * TOKENS..rows.min((block + 1) * TOKENS);
                let two = rows.len() > amx::ROWS;
                let x = &gemm.x[slab * gemm.tokens + gemm.token + rows.start..];
                // The tokens after these are prefetched in equal parts, one with each panel.
                let (next, part) = (
                    x.as_ptr().wrapping_add(TOKENS).cast::<u8>(),
                    TOKENS * size_of::<Rounded>() / panels.len(),
                );
                let padded: [Rounded; TOKENS];
                // Tiles read past the last row. Products of such rows are dropped.
                let x = match x.first_chunk() {
                    Some(x) => x,
                    None => {
                        padded = from_fn(|i| x[i.min(x.len() - 1)]);
                        &padded
                    }
                };
                let mut unit = Unit {
                    tiles: &mut tiles,
                    x,
                    two,
                };
                for (i, (panel, sums)) in panels.iter().zip(sums).enumerate() {
                    prefetch(next.wrapping_add(i * part), part);
                    multiply::<B, S>(s, &mut unit, panel, sums, &mut products);
                }
            }
        }
        let sums: &[Sums] = bytemuck::cast_slice(gemm.sums);
        for row in 0..rows {
            let sums = &sums[row / TOKENS * panels.len()..][..panels.len()];
            for (y, sums) in gemm.y.row(row).chunks_mut(ROWS).zip(sums) {
                y.copy_from_slice(&sums[row % TOKENS][..y.len()]);
            }
        }
    }
}

/// Makes a panel from the slabs of rows side by side.
#[inline(always)]
fn pack<B: Unpack, S: Simd>(
    s: S,
    rows: &quantized::Panel,
    units: [[f32; ROWS]; 2],
    panel: &mut Panel,
) {
    let zero = B::OFFSET.zero_point::<S>();
    let tiles = panel.codes.iter_mut().zip(rows.codes.as_chunks().0);
    if Blocks::<B>::SCHEME.scaled < SLAB {
        for (tiles, rows) in tiles {
            let rows: &amx::Bytes = rows;
            for (i, row) in rows.iter().enumerate() {
                tiles[i / 8][i] = map(*row, |code| code.wrapping_sub(zero));
            }
        }
        for (group, scales) in panel.scales.iter_mut().enumerate() {
            let lane = lane_of(2 * group);
            *scales = [rows.scales[lane], rows.minima[lane]];
        }
        return;
    }
    panel.scales[0] = units;
    let low_bytes = s.splat_i32(0x00FF_00FF);
    let mut factors = [[s.splat(0); 2]; SLAB / 16];
    for (sixteen, factors) in factors.iter_mut().enumerate() {
        let scales = map(rows.scales[lane_of(sixteen)], |scale| scale as i32);
        let offsets = map(scales, |scale| -i32::from(zero) * scale);
        *factors = [twice(s, offsets), twice(s, scales)];
    }
    for (i, (tiles, codes)) in tiles.enumerate() {
        let codes: &amx::Bytes = codes;
        for (j, codes) in codes.iter().enumerate() {
            let [offsets, scales] = factors[4 * i + j / 4];
            let codes = s.load(codes);
            let even = s.mul_add_16(offsets, s.and(codes, low_bytes), scales);
            let odd = s.mul_add_16(offsets, s.shr_halves(codes, 8, 8), scales);
            let low = s.or(s.and(even, low_bytes), s.shl(odd, 8));
            s.store(low, &mut tiles[0][j]);
            if B::PRODUCT_BYTES == 2 {
                let even = s.shr_halves(even, 8, 8);
                let high = s.or(even, s.xor(odd, s.and(odd, low_bytes)));
                s.store(high, &mut tiles[1][j]);
            }
        }
    }
    if let Offset::Minimum = B::OFFSET {
        for (tile, minima) in panel.minima.iter_mut().zip(&rows.minima) {
            *tile = bytemuck::cast(map(*minima, |minimum| {
                minimum.to_bits() | minimum.to_bits() >> 16
            }));
        }
    }
}

/// The low halves of lanes, each twice.
#[inline(always)]
fn twice<S: Simd>(s: S, lanes: [i32; ROWS]) -> S::V {
    let lanes = map(lanes, |lane| lane & 0xFFFF | lane << 16);
    s.load(bytemuck::cast_ref(&lanes))
}

/// The unit's part of a product of a panel with activations. Tiles 0 and 1 have products of the two
/// tiles of codes with the first 16 rows of activations. Tiles 2 and 3 have the products with the
/// others.
struct Unit<'a> {
    tiles: &'a mut Tiles,
    x: &'a [Rounded; TOKENS],
    /// Whether the second 16 rows of activations are multiplied too.
    two: bool,
}

impl Unit<'_> {
    /// Reads the bytes at an offset of the rows of activations into tiles 4 and 5.
    #[inline(always)]
    fn load(&mut self, offset: usize) {
        assert!(offset + amx::ROW_BYTES <= size_of::<Rounded>());
        let x: *const u8 = self.x.as_ptr().cast();
        let stride = size_of::<Rounded>();
        // SAFETY: the bytes lie within the 32 rows.
        unsafe {
            self.tiles.load_rows::<4>(x.add(offset), stride);
            if self.two {
                self.tiles
                    .load_rows::<5>(x.add(amx::ROWS * stride + offset), stride);
            }
        }
    }

    #[inline(always)]
    fn zero(&mut self) {
        self.tiles.zero::<0>();
        self.tiles.zero::<1>();
        self.tiles.zero::<2>();
        self.tiles.zero::<3>();
    }

    /// Multiplies codes. The codes of the first tile have a sign if `signed`. The codes of the
    /// second tile always have one, and are left out if there is but `one`.
    #[inline(always)]
    fn multiply(&mut self, step: usize, codes: &[amx::Bytes; 2], signed: bool, one: bool) {
        self.load(offset_of!(Rounded, codes) + step * amx::ROW_BYTES);
        self.tiles.load::<6>(&codes[0]);
        if signed {
            self.tiles.dot_ss::<0, 4, 6>();
        } else {
            self.tiles.dot_su::<0, 4, 6>();
        }
        if self.two && signed {
            self.tiles.dot_ss::<2, 5, 6>();
        } else if self.two {
            self.tiles.dot_su::<2, 5, 6>();
        }
        if !one {
            self.tiles.load::<7>(&codes[1]);
            self.tiles.dot_ss::<1, 4, 7>();
            if self.two {
                self.tiles.dot_ss::<3, 5, 7>();
            }
        }
    }

    /// Multiplies minima, alone.
    #[inline(always)]
    fn multiply_minima(&mut self, minima: &amx::Bytes, products: &mut Products) {
        self.load(offset_of!(Rounded, split_sums));
        self.tiles.load::<6>(minima);
        self.tiles.zero::<0>();
        self.tiles.dot_bf16::<0, 4, 6>();
        self.tiles.store::<0>(&mut products.0[0][0]);
        if self.two {
            self.tiles.zero::<2>();
            self.tiles.dot_bf16::<2, 5, 6>();
            self.tiles.store::<2>(&mut products.0[1][0]);
        }
    }

    #[inline(always)]
    fn store(&mut self, products: &mut Products) {
        self.tiles.store::<0>(&mut products.0[0][0]);
        self.tiles.store::<1>(&mut products.0[0][1]);
        if self.two {
            self.tiles.store::<2>(&mut products.0[1][0]);
            self.tiles.store::<3>(&mut products.0[1][1]);
        }
    }
}

/// Adds the products of a panel with slabs of activations to their sums.
#[inline(always)]
fn multiply<B: Unpack, S: Simd>(
    s: S,
    unit: &mut Unit<'_>,
    panel: &Panel,
    sums: &mut Sums,
    products: &mut [Products; 2],
) {
    let is_minimum = matches!(B::OFFSET, Offset::Minimum);
    let tiles = 1 + usize::from(unit.two);
    let (sums, _) = sums.as_chunks_mut::<{ amx::ROWS }>();
    let (x, _) = unit.x.as_chunks::<{ amx::ROWS }>();
    if Blocks::<B>::SCHEME.scaled < SLAB {
        for (step, codes) in panel.codes.iter().enumerate() {
            unit.zero();
            unit.multiply(step, codes, true, false);
            unit.store(&mut products[0]);
            let groups = [2 * step, 2 * step + 1];
            let [first, second] = map(groups, |group| &panel.scales[group]);
            let factors = [
                [s.load_f32(&first[0]), s.load_f32(&first[1])],
                [s.load_f32(&second[0]), s.load_f32(&second[1])],
            ];
            for tile in 0..tiles {
                let codes = &products[0].0[tile];
                for (i, (sum, x)) in sums[tile].iter_mut().zip(&x[tile]).enumerate() {
                    let mut lanes = s.load_f32(sum);
                    for (j, [scales, minima]) in factors.into_iter().enumerate() {
                        let lane = lane_of(2 * groups[j]);
                        let mut product = s.mul(s.to_f32(s.load(&codes[j][i])), scales);
                        if is_minimum {
                            product = s.mul_sub(product, minima, s.splat_f32(x.sums[lane]));
                        }
                        lanes = s.mul_add(lanes, product, s.splat_f32(x.scales[lane]));
                    }
                    s.store_f32(lanes, sum);
                }
            }
        }
        return;
    }
    let one = B::PRODUCT_BYTES == 1;
    unit.zero();
    for (step, codes) in panel.codes.iter().enumerate() {
        unit.multiply(step, codes, one, one);
    }
    unit.store(&mut products[0]);
    if is_minimum {
        unit.multiply_minima(&panel.minima, &mut products[1]);
    }
    let [scales, minima] = &panel.scales[0];
    let (scales, minima) = (s.load_f32(scales), s.load_f32(minima));
    let byte = s.splat_f32(256.0);
    for tile in 0..tiles {
        let (codes, minimum) = (&products[0].0[tile], &products[1].0[tile][0]);
        for (i, (sum, x)) in sums[tile].iter_mut().zip(&x[tile]).enumerate() {
            let mut product = s.to_f32(s.load(&codes[0][i]));
            if !one {
                product = s.mul_add(product, s.to_f32(s.load(&codes[1][i])), byte);
            }
            product = s.mul(product, scales);
            if is_minimum {
                let sums = s.load_f32(bytemuck::cast_ref(&minimum[i]));
                product = s.mul_sub(product, minima, sums);
            }
            let lanes = s.mul_add(s.load_f32(sum), product, s.splat_f32(x.scales[0]));
            s.store_f32(lanes, sum);
        }
    }
}
