//! Measuring of benchmarks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustorch_ir::DType;
use rustorch_runtime::{Backend, DeviceType, HostBuffer, Routing, Rules, Runtime, Storage};
use rustorch_tensor::{RusTorchError, RusTorchResult, Tensor, Trace, with_runtime};
use serde::{Deserialize, Serialize};

use crate::case::{Case, Work};

/// Time for which a case is repeated.
const TIME: Duration = Duration::from_millis(100);
/// Time of the runs after which a device's work is waited for, at least.
const BATCH: Duration = Duration::from_millis(2);
/// Least number of batches; the median counts.
const BATCHES: usize = 5;

/// The device, or devices, on which cases are measured.
pub struct Bench {
    runtime: Runtime,
    routing: Routing,
    name: String,
    /// The device, if it is one.
    device: Option<DeviceType>,
    has_own_memory: bool,
}

/// Measured time of a case.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// The case.
    pub case: String,
    /// Device of the measurement.
    pub device: String,
    /// The type of its operands.
    pub dtype: String,
    /// Its size, as described by [`Case::of`].
    pub size: usize,
    /// The median time, from the start of one run to the start of the next.
    pub seconds: f64,
    /// Bytes of operands and result.
    pub bytes: f64,
    /// Multiplications and additions, of products; else 0.
    pub flops: f64,
}

impl Measured {
    /// Bytes of operands and result per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes / self.seconds
    }

    /// Multiplications and additions per second.
    pub fn flops_per_second(&self) -> f64 {
        self.flops / self.seconds
    }
}

impl Bench {
    /// A single device: an operation that it does not support is an error.
    pub fn on(backend: Arc<dyn Backend>) -> Self {
        let info = backend.info().clone();
        Self {
            runtime: Runtime::new([backend]),
            routing: Routing {
                device: info.device,
                strict: true,
                ..Routing::AUTO
            },
            name: info.device.to_string(),
            device: Some(info.device),
            has_own_memory: !info.shares_host_memory && info.device != DeviceType::Cpu,
        }
    }

    /// Devices together, by the rules of the f32 hybrid.
    pub fn hybrid(backends: impl IntoIterator<Item = Arc<dyn Backend>>) -> Self {
        Self {
            runtime: Runtime::new(backends),
            routing: Routing {
                rules: Rules::F32Hybrid,
                ..Routing::AUTO
            },
            name: "hybrid-f32".to_owned(),
            device: None,
            has_own_memory: false,
        }
    }

    /// The device's name, or `hybrid-f32`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the case is useful on this subject. Copies are not, if the device computes in the host's
    /// memory.
    pub fn suits(&self, case: &Case) -> bool {
        let is_copy = matches!(case.work, Work::Upload | Work::Download);
        case.is_hybrid == self.device.is_none() && (!is_copy || self.has_own_memory)
    }

    /// Prepares a case, so that runs do only the measured work.
    ///
    /// # Errors
    /// Fails if the device lacks the operation or reports an error.
    pub fn prepare(&self, case: &Case, size: usize, dtype: DType) -> RusTorchResult<Prepared<'_>> {
        let numbers = |shape: &[usize]| -> RusTorchResult<Tensor> {
            let tensor = Tensor::rand(shape, DType::F32)?
                .mul(2)?
                .sub(1)?
                .to_dtype(dtype)?;
            tensor.eval()?;
            Ok(tensor)
        };
        let (runs, bytes, flops) = with_runtime(&self.runtime, self.routing, || match case.work {
            Work::Compute {
                operands,
                call,
                flops,
            } => {
                let operands = operands(size);
                let operands: Vec<Tensor> = operands
                    .iter()
                    .map(|shape| numbers(shape))
                    .collect::<Result<_, _>>()?;
                let result = call(&operands)?;
                let all = operands.iter().chain([&result]);
                let bytes: usize = all.filter_map(|t| t.dtype().bytes_of(t.shape())).sum();
                let trace = Box::new(Trace::new(&[], &[&result])?);
                let outputs = Vec::new();
                let runs = Runs::Compute { trace, outputs };
                Ok::<_, RusTorchError>((runs, bytes, flops(size)))
            }
            Work::Upload => {
                let bytes = dtype.bytes_of(&[size]).unwrap_or(0);
                let last = Tensor::from_vec(vec![1_u8; bytes], [bytes])?.storage()?;
                let host = self.runtime.host_memory(&last)?;
                let host = host.expect("numbers of the program's are in the host's memory");
                Ok((Runs::Upload { host, last }, bytes, 0.0))
            }
            Work::Download => {
                let storage = numbers(&[size])?.storage()?;
                let bytes = storage.bytes();
                let to = vec![0; bytes];
                Ok((Runs::Download { storage, to }, bytes, 0.0))
            }
        })?;
        Ok(Prepared {
            bench: self,
            runs,
            bytes: bytes as u64,
            flops,
        })
    }

    /// Measures a case.
    ///
    /// # Errors
    /// Fails if the device lacks the operation or reports an error.
    pub fn measure(&self, case: &Case, size: usize, dtype: DType) -> RusTorchResult<Measured> {
        let mut prepared = self.prepare(case, size, dtype)?;
        // The first ones plan, compile and take memory.
        prepared.time(3)?;
        let one = prepared.time(2)?.as_nanos() / 2;
        let batch = (BATCH.as_nanos() / one.max(1)).clamp(1, 1000) as u64;
        let start = Instant::now();
        let mut times = Vec::new();
        while times.len() < BATCHES || start.elapsed() < TIME {
            times.push(prepared.time(batch)?.as_secs_f64() / batch as f64);
        }
        times.sort_by(f64::total_cmp);
        Ok(Measured {
            case: case.name.to_owned(),
            device: self.name.clone(),
            dtype: dtype.to_string(),
            size,
            seconds: times[times.len() / 2],
            bytes: prepared.bytes as f64,
            flops: prepared.flops,
        })
    }
}

/// Work that is repeated.
enum Runs {
    Compute {
        trace: Box<Trace>,
        outputs: Vec<Storage>,
    },
    Upload {
        host: HostBuffer,
        last: Storage,
    },
    Download {
        storage: Storage,
        to: Vec<u8>,
    },
}

/// A prepared case.
pub struct Prepared<'b> {
    bench: &'b Bench,
    runs: Runs,
    bytes: u64,
    flops: f64,
}

impl Prepared<'_> {
    /// Bytes of operands and result.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Runs it `runs` times, waits for the device, and returns the time.
    ///
    /// # Errors
    /// Fails if the device fails.
    pub fn time(&mut self, runs: u64) -> RusTorchResult<Duration> {
        let start = Instant::now();
        for _ in 0..runs {
            self.run()?;
        }
        let runtime = &self.bench.runtime;
        if let Runs::Compute { outputs, .. } = &self.runs {
            for output in outputs {
                runtime.read(output, 0, &mut [0])?;
            }
        }
        Ok(start.elapsed())
    }

    fn run(&mut self) -> RusTorchResult<()> {
        let Bench {
            runtime, device, ..
        } = self.bench;
        match &mut self.runs {
            Runs::Compute { trace, outputs } => trace.run_into(&[], outputs)?,
            Runs::Upload { host, last } => {
                // A storage remembers where it has been.
                *last = Storage::from_host(host.clone());
                runtime.place(last, device.unwrap_or(DeviceType::Auto))?;
            }
            Runs::Download { storage, to } => runtime.read(storage, 0, to)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustorch_tensor::host;

    use super::*;
    use crate::{CASES, benchmark_gpu_conv2d};

    #[test]
    fn every_case_is_measured() {
        let cpu = Bench::on(host(1).remove(0));
        let both = Bench::hybrid(host(1));
        for case in CASES {
            assert!(case.sizes.is_sorted());
            assert_eq!(Case::named(case.name).unwrap().of, case.of);
            let Some(bench) = [&cpu, &both].into_iter().find(|bench| bench.suits(case)) else {
                continue;
            };
            let measured = bench.measure(case, 8, DType::F32).unwrap();
            assert_eq!((&*measured.case, measured.size), (case.name, 8));
            assert!(measured.seconds > 0.0 && measured.bytes > 0.0);
        }
        let copied: Vec<&str> = CASES
            .iter()
            .filter(|case| !cpu.suits(case) && !both.suits(case))
            .map(|case| case.name)
            .collect();
        assert_eq!(copied, ["host_to_device", "device_to_host"]);
    }

    #[test]
    fn work_is_counted() {
        let cpu = Bench::on(host(1).remove(0));
        let measured = benchmark_gpu_conv2d(&cpu, 6, DType::F32).unwrap();
        assert_eq!(measured.flops, 2.0 * 4.0 * 64.0 * 64.0 * 9.0 * 36.0);
        let elements = 2 * 4 * 64 * 36 + 64 * 64 * 9;
        assert_eq!(measured.bytes, 4.0 * elements as f64);
    }
}
