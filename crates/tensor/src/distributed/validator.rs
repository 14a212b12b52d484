//! Results and speed of a group.

use std::time::Duration;

use rustorch_comm::ReduceOp;
use rustorch_ir::{DType, OpError};
use rustorch_macros::track_calls;
use rustorch_runtime::platform::Instant;

use super::group::CommunicationGroup;
use crate::Tensor;
use crate::error::RusTorchResult;

/// Checks the collectives of a group, and measures its speed against one device's. All ranks call its methods.
#[derive(Clone, Debug)]
pub struct MultiGpuValidator {
    group: CommunicationGroup,
}

/// A measured time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MultiGpuBenchmark {
    /// Ranks that shared the work.
    pub ranks: usize,
    /// Rows of the batch.
    pub rows: usize,
    /// The time of a step: the median of the slowest rank's.
    pub time: Duration,
}

impl MultiGpuBenchmark {
    /// Rows per second.
    pub fn rows_per_second(&self) -> f64 {
        self.rows as f64 / self.time.as_secs_f64()
    }
}

/// Measured steps. One more goes before them.
const STEPS: usize = 5;

#[track_calls(MultiGpuValidator)]
impl MultiGpuValidator {
    /// The validator of a group.
    pub fn new(group: &CommunicationGroup) -> Self {
        Self {
            group: group.clone(),
        }
    }

    /// Compares the results of all collectives, and of a gradient, with those computed on this rank alone.
    ///
    /// # Errors
    /// A result is another one, or the ranks cannot finish.
    pub fn validate(&self) -> RusTorchResult<()> {
        let (rank, ranks) = (self.group.rank(), self.group.size());
        let of = |rank: usize| {
            let start = 100 * rank as i64;
            Tensor::arange_with(start, start + 4 * ranks as i64, 1, DType::F32)
        };
        let x = of(rank)?;
        let all: Vec<Tensor> = (0..ranks).map(of).collect::<RusTorchResult<_>>()?;
        let whole = Tensor::cat(&all.iter().collect::<Vec<_>>(), 0)?;
        let sum = whole.reshape([ranks, 4 * ranks])?.sum(0, false)?;
        let mine = |x: &Tensor| x.narrow(0, 4 * rank, 4);
        let parts = all.iter().map(mine).collect::<RusTorchResult<Vec<_>>>()?;
        let exchanged = Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)?;
        let group = &self.group;
        let reduced = group.all_reduce(&x, ReduceOp::Sum)?;
        self.compare("all_reduce", &reduced, &sum)?;
        self.compare("all_gather", &group.all_gather(&x)?, &whole)?;
        let scattered = group.reduce_scatter(&x, ReduceOp::Sum)?;
        self.compare("reduce_scatter", &scattered, &mine(&sum)?)?;
        self.compare(
            "broadcast",
            &group.broadcast(&x, ranks - 1)?,
            &all[ranks - 1],
        )?;
        self.compare("all_to_all", &group.all_to_all(&x)?, &exchanged)?;
        let mut leaf = x.detach();
        leaf.requires_grad_(true)?;
        let weighted = group
            .all_reduce(&leaf, ReduceOp::Sum)?
            .mul(rank as f64 + 1.0)?;
        weighted.sum_all()?.backward()?;
        let gradient = leaf.grad().unwrap_or(x.zeros_like()?);
        let expected = Tensor::full(x.shape(), (ranks * (ranks + 1) / 2) as f64, DType::F32)?;
        self.compare("gradient of all_reduce", &gradient, &expected)?;
        group.barrier()
    }

    fn compare(&self, what: &str, got: &Tensor, expected: &Tensor) -> RusTorchResult<()> {
        let (got, expected) = (got.to_vec::<f32>()?, expected.to_vec::<f32>()?);
        if got == expected {
            return Ok(());
        }
        let rank = self.group.rank();
        let expected = format!("{what} on rank {rank} to give {expected:?}");
        Err(OpError::new("validate", expected, format_args!("{got:?}")).into())
    }

    /// The time of a step of training, without a group: the products of `rows` rows with a matrix `[width, width]`,
    /// and the gradient of the matrix. Each rank measures its own device.
    ///
    /// # Errors
    /// A computation fails, or a rank is missing.
    pub fn benchmark_single_gpu(
        &self,
        rows: usize,
        width: usize,
    ) -> RusTorchResult<MultiGpuBenchmark> {
        self.measure(&CommunicationGroup::solo(), rows, width)
    }

    /// The time of the same step with its rows divided among the ranks, and the gradients reduced.
    ///
    /// # Errors
    /// A computation fails, or a rank is missing.
    pub fn benchmark_multi_gpu(
        &self,
        rows: usize,
        width: usize,
    ) -> RusTorchResult<MultiGpuBenchmark> {
        self.measure(&self.group, rows, width)
    }

    fn measure(
        &self,
        group: &CommunicationGroup,
        rows: usize,
        width: usize,
    ) -> RusTorchResult<MultiGpuBenchmark> {
        let (rank, ranks) = (group.rank(), group.size());
        let own = rows / ranks + usize::from(rank < rows % ranks);
        let x = Tensor::ones([own, width], DType::F32)?;
        let weight = Tensor::ones([width, width], DType::F32)?;
        let step = || -> RusTorchResult<Duration> {
            self.group.barrier()?;
            let start = Instant::now();
            let y = x.matmul(&weight)?;
            let gradient = group.all_reduce(&x.t()?.matmul(&y)?, ReduceOp::Sum)?;
            // Reading waits for the device.
            gradient.select(0, 0)?.select(0, 0)?.item()?;
            Ok(start.elapsed())
        };
        step()?;
        let mut times = Vec::new();
        for _ in 0..STEPS {
            let own = Tensor::full([0usize; 0], step()?.as_secs_f64(), DType::F64)?;
            times.push(self.group.all_reduce(&own, ReduceOp::Max)?.item()?);
        }
        times.sort_by(f64::total_cmp);
        Ok(MultiGpuBenchmark {
            ranks,
            rows,
            time: Duration::from_secs_f64(times[STEPS / 2]),
        })
    }
}
