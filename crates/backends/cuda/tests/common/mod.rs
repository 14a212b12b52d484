//! What tests on a GPU begin with.

use std::sync::Arc;

use rustorch_gpu::Gpu;
use rustorch_runtime::Backend;

/// Every CUDA device there is. None is no failure, unless `RUSTORCH_TEST_CUDA` promises one.
pub(crate) fn gpus() -> Vec<Arc<dyn Backend>> {
    let devices = rustorch_cuda::devices().unwrap_or_else(|absent| {
        let required = std::env::var_os("RUSTORCH_TEST_CUDA").is_some();
        assert!(!required, "a CUDA device was promised: {absent}");
        println!("skipped, since there is no CUDA device: {absent}");
        Vec::new()
    });
    (devices.into_iter())
        .map(|device| Arc::new(Gpu::new(device)) as Arc<dyn Backend>)
        .collect()
}
