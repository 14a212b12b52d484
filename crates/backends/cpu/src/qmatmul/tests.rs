//! Products of every type of weights at every level of this machine, against sums in f64.

use super::*;
use rustorch_quant::BlockFormat;

/// A fixed sequence of values that look gaussian, with standard deviation 1.
struct Noise(u64);

impl Noise {
    fn next_u64(&mut self) -> u64 {
        // splitmix64, by Sebastiano Vigna, in the public domain.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    fn gaussian(&mut self) -> f32 {
        // Twelve uniform values have variance 1.
        (0..12)
            .map(|_| (self.next_u64() >> 40) as f32 / (1 << 24) as f32)
            .sum::<f32>()
            - 6.0
    }

    fn gaussians(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.gaussian()).collect()
    }
}

fn types() -> impl Iterator<Item = WeightType> {
    let blocks = BlockFormat::ALL.iter().copied().map(WeightType::Block);
    [WeightType::F32, WeightType::F16, WeightType::BF16]
        .into_iter()
        .chain(blocks)
}

/// Weights in memory, and their values.
struct Stored {
    weight_type: WeightType,
    words: Vec<u64>,
    bytes: usize,
    values: Vec<f32>,
    n: usize,
}

impl Stored {
    /// Blocks of random bytes, of those whose values are numbers of about 1.
    fn random(weight_type: WeightType, n: usize, k: usize, noise: &mut Noise) -> Self {
        let gaussians = noise.gaussians(n * k);
        let bytes: Vec<u8> = match weight_type {
            WeightType::F32 => bytemuck::cast_slice(&gaussians).to_vec(),
            WeightType::F16 => gaussians
                .iter()
                .flat_map(|v| half::f16::from_f32(*v).to_le_bytes())
                .collect(),
            WeightType::BF16 => gaussians
                .iter()
                .flat_map(|v| half::bf16::from_f32(*v).to_le_bytes())
                .collect(),
            WeightType::Block(format) => {
                let mut bytes = vec![0; format.row_bytes(k).unwrap() * n];
                for block in bytes.chunks_exact_mut(format.block_bytes()) {
                    random_block(format, block, noise);
                }
                bytes
            }
        };
        let values = match weight_type {
            WeightType::F32 => gaussians,
            WeightType::F16 => halves(&bytes)
                .map(|bits| half::f16::from_bits(bits).to_f32())
                .collect(),
            WeightType::BF16 => halves(&bytes)
                .map(|bits| half::bf16::from_bits(bits).to_f32())
                .collect(),
            WeightType::Block(format) => {
                let mut values = vec![0.0; n * k];
                format.dequantize(&bytes, &mut values).unwrap();
                values
            }
        };
        let mut words = vec![0; bytes.len().div_ceil(8)];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(&bytes);
        Self {
            weight_type,
            words,
            bytes: bytes.len(),
            values,
            n,
        }
    }

    fn weight(&self) -> Weight<'_> {
        let bytes = &bytemuck::cast_slice(&self.words)[..self.bytes];
        Weight::new(self.weight_type, bytes, self.n, self.values.len() / self.n).unwrap()
    }
}

fn random_block(format: BlockFormat, block: &mut [u8], noise: &mut Noise) {
    let mut values = vec![0.0; format.block_len()];
    loop {
        block.fill_with(|| noise.next_u64() as u8);
        format.dequantize(block, &mut values).unwrap();
        let total: f32 = values.iter().map(|value| value.abs()).sum();
        let mean = total / values.len() as f32;
        if (0.125..8.0).contains(&mean) && values.iter().all(|value| value.is_finite()) {
            return;
        }
    }
}

fn halves(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|half| u16::from_le_bytes(*half))
}

fn product(level: Level, threads: usize, w: &Weight<'_>, x: &[f32], t: usize) -> Vec<f32> {
    computed(level, threads, w, (x, t), |linear| linear.run())
}

/// The product of many rows with weights that are unpacked panel by panel.
fn by_slabs(level: Level, w: &Weight<'_>, x: &[f32], t: usize) -> Vec<f32> {
    computed(level, 1, w, (x, t), w.weight_type().kernels().product)
}

fn computed(
    level: Level,
    threads: usize,
    w: &Weight<'_>,
    (x, t): (&[f32], usize),
    run: impl for<'a> FnOnce(Linear<'a>),
) -> Vec<f32> {
    let mut y = vec![f32::NAN; t * w.n()];
    let (pool, mut scratch) = (Pool::new(threads), Scratch::new());
    run(Linear {
        level,
        pool: &pool,
        w,
        x,
        t,
        y: &mut y,
        scratch: &mut scratch,
    });
    y
}

/// The mean squared error over the mean square that results have where nothing cancels: the product
/// of the rows' own squares.
fn nmse(actual: &[f32], expected: &[f64], values: &[f32], x: &[f32], k: usize) -> f64 {
    let square = |v: &[f32]| v.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
    let error: f64 = actual
        .iter()
        .zip(expected)
        .map(|(a, e)| (f64::from(*a) - e).powi(2))
        .sum();
    error * k as f64 / (square(values) * square(x))
}

fn exact(values: &[f32], x: &[f32], t: usize) -> Vec<f64> {
    let k = x.len() / t;
    let dot = |w: &[f32], x: &[f32]| {
        w.iter()
            .zip(x)
            .map(|(w, x)| f64::from(*w) * f64::from(*x))
            .sum()
    };
    x.chunks_exact(k)
        .flat_map(|x| values.chunks_exact(k).map(move |w| dot(w, x)))
        .collect()
}

/// Sizes of rows: less than a slab, a slab, some slabs, some and a part of one.
fn row_sizes(weight_type: WeightType) -> &'static [usize] {
    match weight_type {
        WeightType::Block(format) if format.block_len() == 256 => &[256, 768],
        WeightType::Block(_) => &[32, 256, 288, 736],
        _ => &[1, 17, 256, 700],
    }
}

#[test]
fn products_are_near_the_exact_ones() {
    let mut noise = Noise(1);
    for weight_type in types() {
        // A few activations may round badly, all in all they may not.
        let (each, all) = match weight_type {
            WeightType::Block(_) => (5e-4, 6e-5),
            _ => (1e-11, 1e-12),
        };
        for level in Level::available() {
            let mut errors = Vec::new();
            for &k in row_sizes(weight_type) {
                for n in [1, 16, 53] {
                    let stored = Stored::random(weight_type, n, k, &mut noise);
                    for t in [1, 2, 3, 4, 5, 7, 8, 16, 33] {
                        let x = noise.gaussians(t * k);
                        let actual = product(level, 2, &stored.weight(), &x, t);
                        let expected = exact(&stored.values, &x, t);
                        let error = nmse(&actual, &expected, &stored.values, &x, k);
                        assert!(
                            error < each,
                            "{weight_type} {level}: {error:e} with n {n} k {k} t {t}"
                        );
                        errors.push(error);
                    }
                }
            }
            let mean = errors.iter().sum::<f64>() / errors.len() as f64;
            println!("{weight_type:5} {level:11} {mean:.1e}");
            assert!(mean < all, "{weight_type} {level}: {mean:e}");
        }
    }
}

#[test]
fn levels_ways_and_threads_agree() {
    let mut noise = Noise(2);
    for weight_type in types() {
        let (n, t, k) = (300, 9, 768);
        let stored = Stored::random(weight_type, n, k, &mut noise);
        let x = noise.gaussians(t * k);
        let mut better: Option<(Vec<f32>, &str)> = None;
        for level in Level::available().into_iter().rev() {
            let many = product(level, 1, &stored.weight(), &x, t);
            assert_eq!(
                many,
                product(level, 3, &stored.weight(), &x, t),
                "{weight_type} {level}"
            );
            let few: Vec<f32> = x
                .chunks(3 * k)
                .flat_map(|x| product(level, 2, &stored.weight(), x, 3))
                .collect();
            let one: Vec<f32> = x
                .chunks(k)
                .flat_map(|x| product(level, 3, &stored.weight(), x, 1))
                .collect();
            assert_eq!(few, one, "{weight_type} {level}");
            let exact = many.iter().map(|y| f64::from(*y)).collect::<Vec<_>>();
            let error = nmse(&few, &exact, &stored.values, &x, k);
            assert!(error < 1e-12, "{weight_type} {level}: {error:e}");
            match &better {
                // These two round differently: `plain` has no fused multiply-add, and `amx` rounds fewer times.
                Some((better, name)) if level.name() == "plain" || *name == "amx" => {
                    let error = nmse(better, &exact, &stored.values, &x, k);
                    assert!(error < 1e-12, "{weight_type} {level}: {error:e}");
                }
                Some((better, _)) => assert_eq!(&many, better, "{weight_type} {level}"),
                None => {}
            }
            better = Some((many, level.name()));
        }
    }
}

/// The product that every row has with its expert, in groups of the rows that chose it. Many rows go by slabs, and
/// never by tiles of floats: experts do so on every level.
fn grouped(
    level: Level,
    stored: &Stored,
    (x, sharing): (&[f32], usize),
    chosen: &[usize],
) -> Vec<f32> {
    let (w, count) = (stored.weight(), chosen.iter().max().unwrap() + 1);
    let (n, k) = (w.n() / count, w.k());
    let bytes = w.bytes().len() / count;
    let mut y = vec![f32::NAN; chosen.len() * n];
    for expert in 0..count {
        let rows: Vec<usize> = (0..chosen.len()).filter(|&i| chosen[i] == expert).collect();
        if rows.is_empty() {
            continue;
        }
        let x: Vec<f32> = (rows.iter())
            .flat_map(|row| x[row / sharing * k..][..k].iter().copied())
            .collect();
        let own = Weight::new(w.weight_type(), &w.bytes()[expert * bytes..][..bytes], n, k);
        let (own, t) = (own.unwrap(), rows.len());
        let results = match t {
            ..=MAX_FEW => product(level, 1, &own, &x, t),
            _ => by_slabs(level, &own, &x, t),
        };
        for (row, result) in rows.iter().zip(results.chunks(n)) {
            y[row * n..][..n].copy_from_slice(result);
        }
    }
    y
}

#[test]
fn rows_that_choose_experts_have_their_products() {
    let mut noise = Noise(4);
    for weight_type in types() {
        let k = *row_sizes(weight_type).last().unwrap();
        let (experts, n) = (5, 37);
        let stored = Stored::random(weight_type, experts * n, k, &mut noise);
        // One row for all slots, a row for each slot, few and many rows of an expert, and none.
        for (t, slots, sharing) in [(1, 4, 4), (1, 1, 1), (3, 2, 1), (20, 2, 2), (29, 1, 1)] {
            let rows = t * slots;
            let mut chosen: Vec<usize> =
                (0..rows).map(|_| (noise.next_u64() % 3) as usize).collect();
            chosen[0] = experts - 1;
            let x = noise.gaussians(rows / sharing * k);
            for level in Level::available() {
                let expected = grouped(level, &stored, (&x, sharing), &chosen);
                for threads in [1, 3] {
                    let mut y = vec![f32::NAN; rows * n];
                    let product = Experts {
                        w: stored.weight(),
                        n,
                        x: &x,
                        sharing,
                        chosen: &chosen,
                        y: &mut y,
                    };
                    product.multiply(&Pool::new(threads), level, &mut Scratch::new());
                    assert_eq!(y, expected, "{weight_type} {level} {t} {slots} {threads}");
                }
            }
        }
    }
}

#[test]
fn empty_sizes() {
    let (pool, mut scratch) = (Pool::new(2), Scratch::new());
    for (n, k, t) in [(0, 32, 3), (4, 0, 3), (4, 32, 0), (0, 0, 0)] {
        let bytes = vec![0_u16; n * k / 32 * 17];
        let weight_type = WeightType::Block(BlockFormat::Q8_0);
        let w = Weight::new(weight_type, bytemuck::cast_slice(&bytes), n, k).unwrap();
        let mut y = vec![f32::NAN; t * n];
        linear(&pool, &w, &vec![1.0; t * k], t, &mut y, &mut scratch);
        assert_eq!(y, vec![0.0; t * n]);
    }
}

#[test]
fn what_is_not_a_number_stays_so() {
    let mut noise = Noise(3);
    for weight_type in types() {
        let stored = Stored::random(weight_type, 5, 512, &mut noise);
        for t in [1, 6, 20] {
            let mut x = noise.gaussians(t * 512);
            x[300] = f32::NAN;
            for level in Level::available() {
                let y = product(level, 1, &stored.weight(), &x, t);
                assert!(y[..5].iter().all(|y| y.is_nan()), "{weight_type} {level}");
                assert!(
                    y[5..].iter().all(|y| y.is_finite()),
                    "{weight_type} {level}"
                );
            }
        }
    }
}
