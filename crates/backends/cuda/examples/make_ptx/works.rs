//! Models whose kernels come compiled: they have, among them, all kernels of any model.

use rustorch_ir::DType;
use rustorch_llm::quantize::FileType;

use crate::models::{KNOWN, Passes, Shape, Work, shape};

/// Types of weights that well-known models are tried with.
const USUAL: [FileType; 3] = [FileType::Q4KM, FileType::Q8_0, FileType::F16];

/// Widths of models, and widths between the products of their feed-forward parts. Each is in
/// another class of some kernel. Classes differ in lanes along a row, local memory of rows,
/// elements that lanes keep, and sizes of tiles. Widths that make no whole blocks of 256 have mixes
/// of types of their own.
const WIDTHS: [[usize; 2]; 10] = [
    [128, 256],
    [256, 512],
    [512, 1024],
    [896, 896],
    [2048, 4096],
    [4096, 8192],
    [7200, 416],
    [256, 16_384],
    [256, 57_344],
    [16_384, 256],
];

/// More tokens than a device chooses from one by one.
const LARGE_VOCABULARY: Shape = shape("llama", [64, 1, 1, 64, 64, 1 << 18]);

/// The most features of all heads together.
const MOST_FEATURES: usize = 4096;

/// Tokens of passes, of which each is in another class of some kernel's.
const ROWS: [usize; 10] = [1, 2, 4, 8, 9, 16, 32, 128, 512, 2048];

/// Devices that differ in which kernels of products they choose.
const PRODUCTS: &[u32] = &[70, 75, 90, 100, 120];

/// Capabilities that have attention for heads of [`OF_HOPPER`]. `SHARERS` are the numbers of heads
/// that share keys: each is a kernel of its own for tokens.
const HOPPER: &[u32] = &[90];
const OF_HOPPER: [usize; 3] = [64, 128, 256];
const SHARERS: [usize; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// Widths of heads, in the classes that other attention has.
const HEAD_WIDTHS: [usize; 8] = [32, 64, 96, 128, 160, 192, 224, 256];

/// Tokens that there is room for.
const CONTEXT: usize = 4096;

/// All that is compiled: well-known models, what differs in types of weights, and what does not
/// meet them.
pub(crate) fn all() -> Vec<Work> {
    let mut all = Vec::new();
    for file_type in USUAL {
        all.extend(KNOWN.map(|shape| known(shape, file_type)));
    }
    all.push(known(LARGE_VOCABULARY, FileType::F16));
    for &file_type in FileType::ALL {
        all.extend(WIDTHS.iter().flat_map(|&width| of_type(file_type, width)));
    }
    all.extend(HEAD_WIDTHS.iter().flat_map(|&width| of_heads(width)));
    all.extend(OF_HOPPER.iter().flat_map(|&width| of_sharers(width)));
    all
}

/// A well-known model.
fn known(shape: Shape, file_type: FileType) -> Work {
    let passes = Passes {
        last: ROWS.to_vec(),
        all: vec![2],
        chooses: true,
        caches: vec![DType::F16],
        context: CONTEXT,
    };
    Work::new(shape, file_type, passes)
}

/// Products with one mix of types, which depends also on how many heads share keys.
fn of_type(file_type: FileType, [width, ff_width]: [usize; 2]) -> Vec<Work> {
    let heads = width.min(MOST_FEATURES) / 64;
    let shape = |architecture, kv_heads, is_tied| Shape {
        is_tied,
        ..shape(architecture, [width, heads, kv_heads, 64, ff_width, 4096])
    };
    // At least four heads share keys, where there are as many.
    let mut fewer = (1..=heads.div_ceil(4)).rev();
    let few = fewer.find(|n| heads.is_multiple_of(*n)).unwrap_or(1);
    let shapes = [
        shape("llama", heads, true),
        shape("llama", 1, false),
        // With biases.
        shape("qwen2", heads, false),
        shape("qwen2", few, false),
        shape("qwen2", 1, false),
    ];
    let work = |shape| Work {
        shape,
        file_type,
        passes: Passes {
            last: vec![2, 512],
            all: ROWS.to_vec(),
            chooses: false,
            caches: vec![DType::F16],
            context: CONTEXT,
        },
        capabilities: PRODUCTS,
    };
    shapes.map(work).into()
}

/// Attention of heads of a width, with caches of all types, of few keys and of many.
fn of_heads(head_width: usize) -> [Work; 2] {
    [64, CONTEXT].map(|context| {
        let shape = shape("llama", [256, 1, 1, head_width, 256, 256]);
        let passes = Passes {
            last: vec![1, 2, 3, 4, 5, 6, 7, 8, 16],
            all: Vec::new(),
            chooses: false,
            caches: vec![DType::F32, DType::F16, DType::BF16],
            context,
        };
        Work::new(shape, FileType::F16, passes)
    })
}

/// The attention that is Hopper's own, behind all kinds of rotation.
fn of_sharers(head_width: usize) -> Vec<Work> {
    let kinds = [
        ("llama", false),
        ("llama", true),
        ("qwen2", false),
        ("qwen3", false),
    ];
    let shapes = kinds.into_iter().flat_map(|(architecture, has_factors)| {
        SHARERS.map(|sharers| Shape {
            has_factors,
            ..shape(architecture, [256, sharers, 1, head_width, 256, 256])
        })
    });
    let work = |shape| Work {
        shape,
        file_type: FileType::F16,
        passes: Passes {
            last: vec![1, 512],
            all: Vec::new(),
            chooses: false,
            caches: vec![DType::F16, DType::BF16, DType::F32],
            context: CONTEXT,
        },
        capabilities: HOPPER,
    };
    shapes.map(work).collect()
}
