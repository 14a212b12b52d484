//! Operations that are bound to one device.

use rustorch_macros::track_calls;
use rustorch_runtime::{DeviceType, GpuDevice};

use crate::api::nn::{AvgPoolOptions, ConvOptions, ConvTransposeOptions, MaxPoolOptions};
use crate::device::manager::DeviceManager;
use crate::error::RusTorchResult;
use crate::{Tensor, with_device};

/// One type for each line, bound to a device.
macro_rules! executors {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])*
        ///
        /// Operands are copied to its device, wherever they were. Failing operations fall back to
        /// the next device.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $name(DeviceType);

        impl $name {
            /// Bound to `gpu`.
            ///
            /// # Errors
            /// Fails if the device does not exist.
            pub fn new(gpu: GpuDevice) -> RusTorchResult<Self> {
                let device = gpu.into();
                DeviceManager::new().require(device)?;
                Ok(Self(device))
            }

            /// Bound to the best working GPU.
            ///
            /// # Errors
            /// Fails if there is none.
            pub fn best() -> RusTorchResult<Self> {
                Ok(Self(DeviceManager::new().best_gpu()?.device))
            }

            /// The device.
            pub fn device(&self) -> DeviceType {
                self.0
            }

            /// Calls `f` with operands that are there.
            fn run<const N: usize>(
                self,
                operands: [&Tensor; N],
                f: impl FnOnce([Tensor; N]) -> RusTorchResult<Tensor>,
            ) -> RusTorchResult<Tensor> {
                let mut there = operands.map(Tensor::clone);
                for operand in &mut there {
                    *operand = operand.to_device(self.0)?;
                }
                with_device(self.0, || f(there))?
            }
        })*
    };
}

executors! {
    /// Products of matrices on one GPU.
    GpuMatrixExecutor;
    /// Products of batches of matrices on one GPU.
    GpuBatchMatrixExecutor;
    /// Convolutions of images on one GPU.
    GpuConvolutionExecutor;
    /// Pooling of images on one GPU.
    GpuPoolingExecutor;
}

#[track_calls]
impl GpuMatrixExecutor {
    /// [`Tensor::matmul`].
    ///
    /// # Errors
    /// The errors of that method.
    pub fn matmul(&self, a: &Tensor, b: &Tensor) -> RusTorchResult<Tensor> {
        self.run([a, b], |[a, b]| a.matmul(&b))
    }

    /// [`Tensor::mv`] of `[m, k]` and `[k]`: `[m]`.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn matvec(&self, matrix: &Tensor, vector: &Tensor) -> RusTorchResult<Tensor> {
        self.run([matrix, vector], |[matrix, vector]| matrix.mv(&vector))
    }
}

#[track_calls]
impl GpuBatchMatrixExecutor {
    /// [`Tensor::bmm`] of `[b, m, k]` and `[b, k, n]`: `[b, m, n]`.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn batch_matmul(&self, a: &Tensor, b: &Tensor) -> RusTorchResult<Tensor> {
        self.run([a, b], |[a, b]| a.bmm(&b))
    }
}

#[track_calls]
impl GpuConvolutionExecutor {
    /// [`Tensor::conv2d`] of an image `[c, h, w]` or a batch of them, without a bias.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn conv2d(
        &self,
        x: &Tensor,
        weight: &Tensor,
        options: &ConvOptions<2>,
    ) -> RusTorchResult<Tensor> {
        self.run([x, weight], |[x, weight]| x.conv2d(&weight, None, options))
    }

    /// [`Tensor::conv_transpose2d`] without a bias.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn conv2d_transpose(
        &self,
        x: &Tensor,
        weight: &Tensor,
        options: &ConvTransposeOptions<2>,
    ) -> RusTorchResult<Tensor> {
        self.run([x, weight], |[x, weight]| {
            x.conv_transpose2d(&weight, None, options)
        })
    }
}

#[track_calls]
impl GpuPoolingExecutor {
    /// [`Tensor::max_pool2d`].
    ///
    /// # Errors
    /// The errors of that method.
    pub fn max_pool2d(
        &self,
        x: &Tensor,
        kernel: [usize; 2],
        options: &MaxPoolOptions<2>,
    ) -> RusTorchResult<Tensor> {
        self.run([x], |[x]| x.max_pool2d(kernel, options))
    }

    /// [`Tensor::avg_pool2d`].
    ///
    /// # Errors
    /// The errors of that method.
    pub fn avg_pool2d(
        &self,
        x: &Tensor,
        kernel: [usize; 2],
        options: &AvgPoolOptions<2>,
    ) -> RusTorchResult<Tensor> {
        self.run([x], |[x]| x.avg_pool2d(kernel, options))
    }
}
