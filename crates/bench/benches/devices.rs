//! The benchmarks of operations on every device that is here, and of products on all of them:
//!
//! `cargo bench --workspace --bench devices [-- NAME]`
//!
//! Names are `DEVICE/CASE DTYPE/SIZE`; a part of one is enough. A run is compared with the one before.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rustorch_bench::{Bench, CASES};
use rustorch_runtime::DeviceType;
use rustorch_tensor::backends;

fn devices(criterion: &mut Criterion) {
    let mut found = backends(0);
    found.retain(|backend| backend.info().device != DeviceType::Reference);
    let mut benches: Vec<Bench> = found.iter().cloned().map(Bench::on).collect();
    benches.push(Bench::hybrid(found));
    for bench in &benches {
        let mut group = criterion.benchmark_group(bench.name());
        group
            .warm_up_time(Duration::from_millis(200))
            .measurement_time(Duration::from_secs(1));
        for case in CASES.iter().filter(|case| bench.suits(case)) {
            let all = case
                .dtypes
                .iter()
                .flat_map(|d| case.sizes.iter().map(move |s| (*d, *s)));
            for (dtype, size) in all {
                let what = format!("{} {dtype}", case.name);
                // A case that a device cannot run is left out and reported.
                let mut prepared = match bench.prepare(case, size, dtype) {
                    Ok(prepared) => prepared,
                    Err(error) => {
                        eprintln!("{}/{what}/{size}: {error}", bench.name());
                        continue;
                    }
                };
                group.throughput(Throughput::Bytes(prepared.bytes()));
                group.bench_function(BenchmarkId::new(what, size), |bencher| {
                    bencher.iter_custom(|runs| {
                        black_box(prepared.time(runs)).expect("the device does it")
                    });
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, devices);
criterion_main!(benches);
