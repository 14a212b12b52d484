//! The list of benchmarks.

use rustorch_ir::DType;
use rustorch_tensor::nn::{AvgPoolOptions, ConvOptions, MaxPoolOptions};
use rustorch_tensor::{RusTorchResult, Tensor};

use crate::case::{Case, Work};
use crate::measure::{Bench, Measured};

impl Case {
    /// The benchmark with a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        CASES.iter().find(|case| case.name == name)
    }
}

const ELEMENTS: &[usize] = &[1 << 12, 1 << 18, 1 << 24];
const SIDES: &[usize] = &[64, 256, 1024];
const IMAGES: &[usize] = &[14, 56];
const FLOATS: &[DType] = &[DType::F32, DType::BF16];
const SINGLE: &[DType] = &[DType::F32];

/// Images of a size: how many, and their channels.
const COUNT: usize = 4;
const CHANNELS: usize = 64;

/// A case of one device, whose name the list below gives.
const fn case(
    of: &'static str,
    sizes: &'static [usize],
    dtypes: &'static [DType],
    work: Work,
) -> Case {
    Case {
        name: "",
        of,
        sizes,
        dtypes,
        is_hybrid: false,
        work,
    }
}

/// An operation on the elements of one or two vectors.
const fn elementwise(
    operands: fn(usize) -> Vec<Vec<usize>>,
    call: fn(&[Tensor]) -> RusTorchResult<Tensor>,
) -> Case {
    let work = Work::Compute {
        operands,
        call,
        flops: |_| 0.0,
    };
    case("elements", ELEMENTS, FLOATS, work)
}

const fn product(is_hybrid: bool) -> Case {
    let work = Work::Compute {
        operands: |n| vec![vec![n, n], vec![n, n]],
        call: |t| t[0].matmul(&t[1]),
        flops: |n| 2.0 * (n as f64).powi(3),
    };
    let dtypes = if is_hybrid { SINGLE } else { FLOATS };
    Case {
        is_hybrid,
        ..case("rows and columns", SIDES, dtypes, work)
    }
}

const fn on_images(
    operands: fn(usize) -> Vec<Vec<usize>>,
    call: fn(&[Tensor]) -> RusTorchResult<Tensor>,
    flops: fn(usize) -> f64,
) -> Case {
    let of = "rows and columns of 4 images of 64 channels";
    let work = Work::Compute {
        operands,
        call,
        flops,
    };
    case(of, IMAGES, FLOATS, work)
}

const fn copy(work: Work) -> Case {
    case("elements", ELEMENTS, SINGLE, work)
}

fn one(n: usize) -> Vec<Vec<usize>> {
    vec![vec![n]]
}

fn two(n: usize) -> Vec<Vec<usize>> {
    vec![vec![n], vec![n]]
}

fn images(n: usize) -> Vec<Vec<usize>> {
    vec![vec![COUNT, CHANNELS, n, n]]
}

fn conv2d(t: &[Tensor]) -> RusTorchResult<Tensor> {
    let options = ConvOptions {
        padding: [1; 2].into(),
        ..Default::default()
    };
    t[0].conv2d(&t[1], None, &options)
}

macro_rules! benchmarks {
    ($($(#[$about:meta])* $function:ident $name:literal $case:expr;)+) => {
        /// All benchmarks.
        pub const CASES: &[Case] = &[$(Case { name: $name, ..$case }),+];

        $(
            $(#[$about])*
            ///
            /// # Errors
            /// Fails if the device lacks the operation or reports an error.
            pub fn $function(bench: &Bench, size: usize, dtype: DType) -> RusTorchResult<Measured> {
                bench.measure(&Case { name: $name, ..$case }, size, dtype)
            }
        )+
    };
}

benchmarks! {
    /// Sums of the elements of two vectors of `size`.
    benchmark_gpu_elementwise_add "elementwise_add" elementwise(two, |t| t[0].add(&t[1]));
    /// Products of the elements of two vectors of `size`.
    benchmark_gpu_elementwise_mul "elementwise_mul" elementwise(two, |t| t[0].mul(&t[1]));
    /// Exponentials of the elements of a vector of `size`.
    benchmark_gpu_elementwise_exp "elementwise_exp" elementwise(one, |t| t[0].exp());
    /// GELU of the elements of a vector of `size`.
    benchmark_gpu_elementwise_gelu "elementwise_gelu" elementwise(one, |t| t[0].gelu());
    /// Products of two matrices `[size, size]`.
    benchmark_gpu_matmul "matmul" product(false);
    /// Convolutions of images `[4, 64, size, size]` with 64 windows of 3 × 3.
    benchmark_gpu_conv2d "conv2d" on_images(
        |n| [images(n), vec![vec![CHANNELS, CHANNELS, 3, 3]]].concat(),
        conv2d,
        |n| 2.0 * (COUNT * CHANNELS * CHANNELS * 9 * n * n) as f64,
    );
    /// The largest of each 2 × 2 elements of images `[4, 64, size, size]`.
    benchmark_gpu_max_pool2d "max_pool2d" on_images(
        images,
        |t| t[0].max_pool2d([2; 2], &MaxPoolOptions::default()),
        |_| 0.0,
    );
    /// The mean of each 2 × 2 elements of images `[4, 64, size, size]`.
    benchmark_gpu_avg_pool2d "avg_pool2d" on_images(
        images,
        |t| t[0].avg_pool2d([2; 2], &AvgPoolOptions::default()),
        |_| 0.0,
    );
    /// Copies of `size` elements from the host's memory to the device's.
    benchmark_gpu_host_to_device "host_to_device" copy(Work::Upload);
    /// Copies of `size` elements from the device's memory to the host's.
    benchmark_gpu_device_to_host "device_to_host" copy(Work::Download);
    /// Products of two matrices `[size, size]` of `f32` on several devices, wherever the rules of the f32 hybrid have them
    /// go.
    benchmark_hybrid_matmul "hybrid_matmul" product(true);
}
