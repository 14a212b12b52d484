//! Accuracy of each device's functions: one table.

use rustorch_ir::ops::{BinaryOp, UnaryOp};
use rustorch_ir::{DType, DeviceType};
use rustorch_runtime::{DeviceInfo, Hardware};

use crate::composite::Composite;
use crate::precision::{Precision, is_narrow};

/// The documents that say how exact functions are.
///
/// * The processor: `crates/backends/cpu/src/math.rs`, whose tests hold functions to its table. Functions of the C
///   library are within 1 ulp in double precision.
/// * OpenCL: The OpenCL C specification 3.0, 7.4, relative error as ulps, full profile.
/// * Metal: Metal shading language specification 4, 8.4, without fast math. `erf` is of our own, within 2 ulp.
/// * CUDA: CUDA C++ programming guide 13, 16.1, standard functions.
/// * Core ML: Apple documents no figures. Metal's are taken, for it may run on the GPU. Halves are computed in halves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Document {
    Cpu,
    OpenCl,
    Metal,
    Cuda,
    CoreMl,
}

/// Accuracy of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accuracy {
    document: Document,
}

/// Limit of a function's error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Limit {
    /// Units in the last place of the result.
    pub(crate) ulps: f64,
    /// The result that these units are of, where it is smaller: functions with zeros lose digits beside them.
    pub(crate) least: f64,
}

/// The largest errors in ulp, by document: processor, OpenCL, Metal, CUDA.
type Row = [f64; 4];

/// A result that is rounded once.
const ROUNDED: Row = [0.5; 4];

impl Accuracy {
    /// The documented accuracy of a device.
    pub(crate) fn of(info: &DeviceInfo) -> Self {
        let document = match info.device {
            _ if info.hardware == Hardware::NeuralEngine => Document::CoreMl,
            // Functions in WGSL are made for the limits of OpenCL.
            DeviceType::OpenCL(_) | DeviceType::WebGpu(_) => Document::OpenCl,
            DeviceType::Metal(_) => Document::Metal,
            DeviceType::Cuda(_) => Document::Cuda,
            _ => Document::Cpu,
        };
        Self { document }
    }

    /// The digits that a kernel has for a value of `dtype`, in a composite or alone. Apple's GPUs have no double
    /// precision. Other GPUs' kernels of composites use it only beside operands in double precision.
    pub(crate) fn kernels(self, dtype: DType, composite: Option<Composite>) -> Precision {
        let single = Precision::of(DType::F32);
        let narrowest = composite.map(|composite| composite.narrowest);
        let has_doubles = composite.is_none_or(|composite| composite.has_doubles);
        let is_double = Precision::of(dtype) == Precision::of(DType::F64);
        match self.document {
            Document::CoreMl | Document::Metal if is_double => single,
            Document::OpenCl | Document::Cuda if is_double && !has_doubles => single,
            Document::CoreMl => Precision::of(narrowest.filter(|&d| is_narrow(d)).unwrap_or(dtype)),
            _ if is_narrow(dtype) => single,
            _ => Precision::of(dtype),
        }
    }

    /// Are halves computed in halves?
    pub(crate) fn halves(self) -> bool {
        self.document == Document::CoreMl
    }

    /// Do products of many rows read quantised weights as bf16? Tensor cores do
    /// (`crates/backends/gpu/kernels/cuda/gemm.cu`).
    pub(crate) fn reads_blocks_in_bf16(self) -> bool {
        self.document == Document::Cuda
    }

    /// The largest result that may be 0 instead. GPUs and AMX may take numbers that are not normal for 0, as the
    /// processor's exponential of negative numbers does.
    pub(crate) fn vanishing(self, dtype: DType) -> f64 {
        self.kernels(dtype, None).smallest()
    }

    /// Limit of the error of a function of one element; `None` if it is exact.
    pub(crate) fn unary(self, op: UnaryOp, dtype: DType) -> Option<Limit> {
        use UnaryOp as F;
        let row = match op {
            F::Neg | F::Sign | F::Floor | F::Ceil | F::Round | F::Trunc | F::IsNan | F::Not => {
                return None;
            }
            F::Conj | F::Real | F::Imag => return None,
            F::Abs if !dtype.is_complex() => return None,
            // Complex functions use the hypotenuse, Smith's division and a product of functions.
            F::Abs => [1.0, 4.0, 4.0, 3.0],
            F::Reciprocal if dtype.is_complex() => [4.0; 4],
            F::Exp if dtype.is_complex() => [4.0, 10.0, 10.0, 6.0],
            F::Reciprocal => [0.5, 2.5, 0.5, 0.5],
            F::Sqrt => [0.5, 3.0, 0.5, 0.5],
            F::Rsqrt => [1.5, 2.0, 2.0, 2.0],
            F::Exp => [1.2, 3.0, 4.0, 2.0],
            F::Exp2 => [1.2, 3.0, 4.0, 2.0],
            F::Expm1 => [1.0, 3.0, 3.0, 1.0],
            F::Log => [0.8, 3.0, 4.0, 1.0],
            F::Log2 => [1.0, 3.0, 4.0, 1.0],
            F::Log10 => [1.0, 3.0, 4.0, 2.0],
            F::Log1p => [1.0, 2.0, 2.0, 1.0],
            F::Sin | F::Cos => [1.6, 4.0, 4.0, 2.0],
            F::Tan => [3.6, 5.0, 6.0, 4.0],
            F::Tanh => [2.0, 5.0, 5.0, 2.0],
            F::Sinh => [1.0, 4.0, 4.0, 3.0],
            F::Cosh => [1.0, 4.0, 4.0, 2.0],
            F::Asin | F::Acos => [1.0, 4.0, 4.0, 2.0],
            F::Atan => [1.0, 5.0, 5.0, 2.0],
            F::Asinh => [1.0, 4.0, 4.0, 3.0],
            F::Acosh => [1.0, 4.0, 4.0, 4.0],
            F::Atanh => [1.0, 5.0, 5.0, 3.0],
            F::Erf => [1.3, 16.0, 2.0, 2.0],
            // Written once for all devices, in crates/ir/src/special.
            F::Erfc | F::Erfcx | F::Erfinv | F::Ndtri => [1.0, 8.0, 8.0, 8.0],
            F::I0e | F::I1e | F::K0e | F::K1e => [1.0, 8.0, 8.0, 8.0],
            F::Lgamma | F::Digamma => [1.0, 8.0, 8.0, 8.0],
            // Near their zeros, these functions have fewer digits than their arguments.
            F::BesselJ0 | F::BesselJ1 | F::BesselY0 | F::BesselY1 | F::AiryAi => {
                return Some(self.limit([2.0, 16.0, 16.0, 16.0], dtype, 1.0));
            }
        };
        Some(self.limit(row, dtype, 0.0))
    }

    /// Limit of the error of a function of two elements; `None` if it is exact.
    pub(crate) fn binary(self, op: BinaryOp, dtype: DType) -> Option<Limit> {
        use BinaryOp as F;
        let row = match op {
            F::Maximum | F::Minimum | F::And | F::Or | F::Xor | F::NextAfter | F::Complex => {
                return None;
            }
            F::ShiftLeft | F::ShiftRight | F::Gcd | F::CopySign | F::Fmod => return None,
            F::Remainder | F::FloorDivide => return None,
            // Errors are in units of the factors' moduli, since a product's parts may be sums that cancel.
            F::Mul if dtype.is_complex() => [2.0; 4],
            F::Div if dtype.is_complex() => [6.0, 12.0, 6.0, 6.0],
            F::Add | F::Sub | F::Mul | F::Ldexp => ROUNDED,
            F::Div => [0.5, 2.5, 0.5, 0.5],
            F::Pow => [0.6, 16.0, 16.0, 4.0],
            F::Atan2 => [1.0, 6.0, 6.0, 3.0],
            F::Hypot => [1.0, 4.0, 4.0, 3.0],
            // A factor is `exp(a ln x - x - lgamma(a))`. Its relative error grows with the size of the
            // exponent.
            F::GammaInc | F::GammaIncC => [1.0, 256.0, 256.0, 256.0],
            F::Zeta => [1.0, 64.0, 64.0, 64.0],
            // Recurrences of a dozen steps, whose terms may cancel.
            F::ChebyshevT
            | F::ChebyshevU
            | F::ChebyshevV
            | F::ChebyshevW
            | F::HermiteH
            | F::HermiteHe
            | F::LaguerreL
            | F::LegendreP => return Some(self.limit([1.0, 64.0, 64.0, 64.0], dtype, 1.0)),
        };
        Some(self.limit(row, dtype, 0.0))
    }

    /// Limit of the error of the functions for random numbers, relative to 1.
    pub(crate) fn normal(self) -> f64 {
        self.of_row([8.0; 4])
    }

    fn of_row(self, row: Row) -> f64 {
        let [cpu, opencl, metal, cuda] = row;
        match self.document {
            Document::Cpu => cpu,
            Document::OpenCl => opencl,
            Document::Metal | Document::CoreMl => metal,
            Document::Cuda => cuda,
        }
    }

    fn limit(self, row: Row, dtype: DType, least: f64) -> Limit {
        // The definition has been rounded, too: C's library is within an ulp.
        let is_double = Precision::of(dtype) == Precision::of(DType::F64);
        let own = self.of_row(row);
        let ulps = match is_double && row != ROUNDED {
            true => own + 1.0,
            false => own,
        };
        Limit { ulps, least }
    }
}
