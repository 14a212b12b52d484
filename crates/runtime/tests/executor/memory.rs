//! Reports of devices about their memory, and which of them are believed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustorch_runtime::{DeviceType, Runtime};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::fake::{Fake, cpu};
use crate::{GPU, graph, neg, on, storage};

/// Counts warnings.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The free memory of a GPU of a gibibyte that says `told`, asked twice, and the warnings.
fn free(told: Option<u64>) -> (Option<u64>, usize) {
    let fake = Fake::gpu(GPU);
    *fake.state().free.lock().unwrap() = told;
    let runtime = Runtime::new([fake.backend(), cpu()]);
    let input = storage(&[1.0; 256]);
    let executable = runtime.prepare(graph(256, neg), on(GPU));
    let result = executable.run(std::slice::from_ref(&input));
    let warnings = Warnings::default();
    let pool = tracing::subscriber::with_default(warnings.clone(), || {
        runtime.memory().pools();
        runtime.memory().pools()
    });
    let pool = pool.iter().find(|pool| pool.device == GPU).unwrap();
    assert_eq!(pool.in_use, 2048, "input and result");
    drop((input, result));
    (pool.free, warnings.0.load(Ordering::SeqCst))
}

#[test]
fn a_device_that_knows_its_free_memory_is_believed() {
    for told in [1, 5000, 1 << 30] {
        assert_eq!(free(Some(told)), (Some(told), 0));
    }
    assert_eq!(free(None), (Some((1 << 30) - 2048), 0));
}

#[test]
fn one_that_tells_nonsense_costs_a_warning_and_what_is_left_counts() {
    for told in [0, (1 << 30) + 1, u64::MAX] {
        assert_eq!(free(Some(told)), (Some((1 << 30) - 2048), 1), "{told}");
    }
}

#[test]
fn the_processor_tells_what_the_system_has() {
    let pools = Runtime::new([cpu()]).memory().pools();
    let pool = pools.iter().find(|p| p.device == DeviceType::Cpu).unwrap();
    assert!(
        pool.free > Some(0) && pool.free <= pool.capacity,
        "{pool:?}"
    );
}
