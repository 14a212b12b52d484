//! When a device fails, the next one takes over, and the runtime reports it.

use rustorch::prelude::*;
use rustorch::{DeviceManager, OpType, hybrid_operation, is_device_error};

pub(crate) fn main() -> RusTorchResult<()> {
    let manager = DeviceManager::new();
    for device in manager.list() {
        println!("{}: {}", device.device, device.name);
    }
    for absent in manager.absent() {
        println!("{}: {}", absent.device, absent.reason);
    }

    // Not every device has factorisations; wherever it is asked for, the answer is the same.
    let a = Tensor::eye(3, DType::F32)?.mul(4.0)?;
    for device in manager.list() {
        let root = rustorch::linalg::cholesky(&a.to_device(device.device)?, false)?;
        assert_eq!(root.diagonal(0, 0, 1)?.to_vec::<f32>()?, [2.0; 3]);
    }
    for fallback in runtime().fallbacks() {
        println!("{fallback}");
    }

    // A mistake is no reason to try another device.
    let mistake = a.matmul(&tensor![1.0, 2.0]).unwrap_err();
    assert!(!is_device_error(&mistake));

    // Work of one's own goes from device to device, too.
    let sum = hybrid_operation(OpType::Reduction, &a, |device| {
        println!("trying {device}");
        a.sum(None, false)?.item()
    })?;
    assert_eq!(sum, 12.0);
    Ok(())
}
