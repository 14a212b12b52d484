//! Speed of products with weights of every type: streaming them for one row of activations, against
//! plain reading, and multiplying them with 512 rows. The best of some runs, as others may share
//! the machine.
//!
//! `cargo bench -p rustorch-cpu --bench qmatmul -- [THREADS] [TYPE…]`, types as in `Q4_K` or `f16`;
//! `RUSTORCH_CPU_LEVEL` chooses the vector instructions.

use rustorch_cpu::Level;
use rustorch_cpu::pool::{Pool, default_threads};
use rustorch_cpu::qmatmul::{Scratch, Weight, WeightType, linear};
use rustorch_quant::BlockFormat;
use std::hint::black_box;
use std::time::Instant;

/// More weights than caches hold, as in a model.
const STREAMED: usize = 512 << 20;
const K: usize = 2048;
const N: usize = 2048;
const TOKENS: usize = 512;
const RUNS: usize = 7;

fn main() {
    // `cargo bench` adds a flag.
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    args.retain(|arg| !arg.starts_with('-'));
    let threads = args.first().and_then(|arg| arg.parse().ok());
    let names = &args[usize::from(threads.is_some())..];
    let pool = Pool::new(threads.unwrap_or_else(default_threads));
    let floats = [WeightType::F32, WeightType::F16, WeightType::BF16];
    let blocks = BlockFormat::ALL.iter().map(|f| WeightType::Block(*f));

    // All types read this byte as part of small normal numbers.
    let words = vec![0x1111_1111_1111_1111_u64; STREAMED / 8];
    let bytes: &[u8] = bytemuck::cast_slice(&words);
    let read = best(|| {
        pool.run(64, &|chunk| {
            let words = &words[chunk * words.len() / 64..][..words.len() / 64];
            black_box(words.iter().fold(0, |sum: u64, word| sum ^ word));
        });
    });
    let read = STREAMED as f64 / read / 1e9;
    println!("{} threads, {}", pool.threads(), Level::current());
    println!("reading {read:.1} GB/s");

    let mut scratch = Scratch::new();
    for weight_type in floats.into_iter().chain(blocks) {
        if !names.is_empty() && !names.contains(&weight_type.to_string()) {
            continue;
        }
        let row = row_bytes(weight_type);
        let mut time = |n: usize, tokens: usize| {
            let weight = Weight::new(weight_type, &bytes[..n * row], n, K).expect("whole rows");
            let x: Vec<f32> = (0..tokens * K).map(|i| (i as f32).sin()).collect();
            let mut y = vec![0.0; tokens * n];
            best(|| linear(&pool, &weight, &x, tokens, &mut y, &mut scratch))
        };
        let rows = STREAMED / row;
        let streamed = (rows * row) as f64 / time(rows, 1) / 1e9;
        let multiplied = (N * K * TOKENS) as f64 / time(N, TOKENS) / 1e9;
        println!(
            "{weight_type:5} 1 row {streamed:5.1} GB/s ({:3.0} % of reading), {TOKENS} rows {multiplied:6.1} GMAC/s",
            100.0 * streamed / read,
        );
    }
}

fn row_bytes(weight_type: WeightType) -> usize {
    match weight_type {
        WeightType::F32 => 4 * K,
        WeightType::F16 | WeightType::BF16 => 2 * K,
        WeightType::Block(format) => format.row_bytes(K).expect("K fills blocks"),
    }
}

/// The shortest of some runs, in seconds.
fn best(mut run: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    };
    (0..RUNS).map(time).fold(f64::INFINITY, f64::min)
}
