//! Operations on many tensors at once: every case on the processor and on OpenCL devices, since a sample has few of them.

use std::ops::ControlFlow;
use std::sync::Arc;

use rustorch_conformance::Suite;
use rustorch_cpu::Cpu;
use rustorch_gpu::Gpu;
use rustorch_ir::OpKind;
use rustorch_runtime::Backend;

fn conforms(backend: Arc<dyn Backend>) {
    let kinds = |kind| matches!(kind, OpKind::Foreach | OpKind::ForeachReduce);
    let report = Suite::full(kinds).run(backend, || ControlFlow::Continue(()));
    println!("{report}");
    report.assert_complete();
}

#[test]
fn the_processor_conforms() {
    conforms(Arc::new(Cpu::new(2)));
}

#[test]
fn opencl_conforms() {
    for device in rustorch_opencl::devices().unwrap_or_default() {
        conforms(Arc::new(Gpu::new(device)));
    }
}
