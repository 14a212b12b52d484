//! Common beginning of tests on a GPU.

use std::process::ExitCode;
use std::sync::Arc;

use rustorch_gpu::Gpu;
use rustorch_runtime::Backend;
use rustorch_testing::{Suite, Test};

/// Every CUDA device there is.
pub(crate) type Gpus = Vec<Arc<dyn Backend>>;

/// Runs tests on them. Without one they are ignored, unless `RUSTORCH_TEST_CUDA` promises one.
pub(crate) fn run(tests: &[Test<Gpus>]) -> ExitCode {
    let backend = |device| Arc::new(Gpu::new(device)) as Arc<dyn Backend>;
    let devices = rustorch_cuda::devices();
    let gpus = devices.map(|all| all.into_iter().map(backend).collect());
    Suite::new().on(gpus, "RUSTORCH_TEST_CUDA", tests).run()
}
