//! Attention gives the same bits with any number of threads, however its work is shared among
//! them.

use std::sync::Arc;

use half::{bf16, f16};
use rustorch_cpu::Cpu;
use rustorch_ir::ops::Attention;
use rustorch_ir::{BlockFormat, DType, Graph, TensorType};
use rustorch_runtime::{Backend, HostBuffer, Routing, Runtime, Storage};

const HEADS: usize = 6;
const WIDTH: usize = 64;

/// Numbers from -1 to 1.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let number = |i: u32| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0;
    (seed..).take(count).map(number).collect()
}

/// The numbers in a dtype that caches have.
fn encode(x: &[f32], dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F32 => x.iter().flat_map(|x| x.to_ne_bytes()).collect(),
        DType::F16 => (x.iter().flat_map(|&x| f16::from_f32(x).to_ne_bytes())).collect(),
        DType::BF16 => (x.iter().flat_map(|&x| bf16::from_f32(x).to_ne_bytes())).collect(),
        DType::Block(format) => {
            let mut bytes = vec![0; dtype.bytes_of(&[x.len()]).unwrap()];
            format.quantize(x, &mut bytes).unwrap();
            bytes
        }
        _ => panic!("no cache is {dtype}"),
    }
}

/// `t` new tokens after `past` others.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    kv_heads: usize,
    t: usize,
    past: usize,
    window: Option<usize>,
}

/// The result for tokens of a sequence, with room for some more. A token's query, key and value follow from its
/// position.
fn attention(threads: usize, sizes: Sizes, dtype: DType) -> Vec<u8> {
    let Sizes {
        kv_heads,
        t,
        past,
        window,
    } = sizes;
    let room = past + t + 7;
    let cache = TensorType::new([kv_heads, room, WIDTH], dtype);
    let mut graph = Graph::new();
    let operands = [
        TensorType::new([HEADS, t, WIDTH], DType::F32),
        cache.clone(),
        cache,
        TensorType::new([1], DType::I32),
    ]
    .map(|ty| graph.input(ty).unwrap());
    let op = Attention {
        scale: 0.125.into(),
        causal: true,
        soft_cap: None,
        mask: false,
        past: true,
        window,
        log_sum_exp: false,
    };
    let result = graph.push(op, &operands).unwrap();
    graph.output(result);

    let runtime = Runtime::new([Arc::new(Cpu::new(threads)) as Arc<dyn Backend>]);
    let of_heads = |heads: usize, positions: std::ops::Range<usize>, seed: u32| -> Vec<f32> {
        let of_position = |head: usize, position: usize| {
            numbers(WIDTH, seed + ((head << 16 | position) * WIDTH) as u32)
        };
        let rows = (0..heads).flat_map(|head| positions.clone().map(move |at| (head, at)));
        rows.flat_map(|(head, at)| of_position(head, at)).collect()
    };
    let inputs = [
        encode(&of_heads(HEADS, past..past + t, 1), DType::F32),
        encode(&of_heads(kv_heads, 0..room, 2), dtype),
        encode(&of_heads(kv_heads, 0..room, 3), dtype),
        i32::try_from(past).unwrap().to_ne_bytes().to_vec(),
    ]
    .map(|bytes| Storage::from_host(HostBuffer::copy_of(&bytes).unwrap()));
    let executable = runtime.prepare(graph, Routing::default());
    let output = executable.run(&inputs).unwrap().remove(0);
    let mut bytes = vec![0; output.bytes()];
    runtime.read(&output, 0, &mut bytes).unwrap();
    bytes
}

#[test]
fn results_do_not_depend_on_the_threads() {
    let q8_0 = DType::Block(BlockFormat::Q8_0);
    for dtype in [DType::F32, DType::F16, DType::BF16, q8_0] {
        // A token, a few, and prompts: with few keys and with parts of many.
        for (t, past, window) in [
            (1, 5, None),
            (1, 1030, None),
            (1, 1030, Some(500)),
            (4, 700, None),
            (37, 0, Some(20)),
            (200, 333, None),
        ] {
            for kv_heads in [1, 3] {
                let sizes = Sizes {
                    kv_heads,
                    t,
                    past,
                    window,
                };
                let one = attention(1, sizes, dtype);
                for x in one.chunks_exact(4) {
                    let x = f32::from_ne_bytes(x.try_into().unwrap());
                    assert!(x.is_finite(), "{dtype}, {sizes:?}: {x}");
                }
                assert!(one.iter().any(|&byte| byte != 0));
                for threads in [2, 3] {
                    assert!(
                        attention(threads, sizes, dtype) == one,
                        "{dtype}, {sizes:?}, {threads} threads"
                    );
                }
            }
        }
    }
}

#[test]
fn a_few_tokens_have_the_results_of_each_alone() {
    for dtype in [DType::F32, DType::F16] {
        for (past, window) in [
            (700, None),
            (254, Some(130)),
            (254, Some(2)),
            (700, Some(300)),
        ] {
            let sizes = |t, past| Sizes {
                kv_heads: 2,
                t,
                past,
                window,
            };
            let together = attention(2, sizes(4, past), dtype);
            for token in 0..4 {
                let alone = attention(2, sizes(1, past + token), dtype);
                let rows = together.chunks_exact(4 * WIDTH).skip(token).step_by(4);
                assert!(
                    rows.eq(alone.chunks_exact(4 * WIDTH)),
                    "{dtype}, {token} after {past}, {window:?}"
                );
            }
        }
    }
}
