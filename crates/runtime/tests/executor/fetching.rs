//! Bytes come to the host while a device works on: who asks for them waits, or does not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use rustorch_ir::ErrorKind;
use rustorch_runtime::{FailureClass, Fetched, RunError, Runtime};

use crate::fake::{Fake, State};
use crate::{GPU, graph, neg, on, storage};

/// A result of a device that sends its bytes, on their way to the host.
fn fetched(is_closed: bool) -> (Runtime, Arc<State>, Fetched) {
    let gpu = Fake::gpu(GPU);
    let state = gpu.state();
    state.sends.store(true, Ordering::SeqCst);
    if is_closed {
        state.way.close();
    }
    let runtime = Runtime::new([gpu.backend()]);
    let executable = runtime.prepare(graph(2, neg), on(GPU));
    let result = executable.run(&[storage(&[1.0, 2.0])]).unwrap().remove(0);
    let fetched = runtime.fetch(&result);
    (runtime, state, fetched)
}

fn poll(fetched: &mut Fetched) -> Poll<Result<[f32; 2], RunError>> {
    let mut values = [0f32; 2];
    let polled = fetched.poll(bytemuck::cast_slice_mut(&mut values));
    polled.map_ok(|()| values)
}

#[test]
fn asking_does_not_wait() {
    let (_runtime, state, mut fetched) = fetched(true);
    assert!(poll(&mut fetched).is_pending());
    assert!(poll(&mut fetched).is_pending());
    state.way.open();
    assert_eq!(poll(&mut fetched), Poll::Ready(Ok([-1.0, -2.0])));
    // It is still there for who asks again.
    assert_eq!(poll(&mut fetched), Poll::Ready(Ok([-1.0, -2.0])));
}

#[test]
fn reading_waits_until_the_bytes_are_there() {
    let (_runtime, state, fetched) = fetched(true);
    let mut values = [0f32; 2];
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            state.way.open();
        });
        fetched.read(bytemuck::cast_slice_mut(&mut values)).unwrap();
    });
    assert_eq!(values, [-1.0, -2.0]);
}

#[test]
fn a_device_that_is_lost_on_the_way_is_reported() {
    let (runtime, state, mut fetched) = fetched(true);
    assert!(poll(&mut fetched).is_pending());
    state.lost.store(true, Ordering::SeqCst);
    let Poll::Ready(Err(error)) = poll(&mut fetched) else {
        panic!("no bytes can arrive");
    };
    assert_eq!(error.kind(), ErrorKind::DataLost, "{error}");
    let classes: Vec<_> = (runtime.fallbacks().iter().map(|f| f.error.class)).collect();
    assert_eq!(classes, [FailureClass::Lost]);
}

#[test]
fn a_device_that_sends_nothing_is_read_at_once() {
    let gpu = Fake::gpu(GPU);
    let runtime = Runtime::new([gpu.backend()]);
    let executable = runtime.prepare(graph(2, neg), on(GPU));
    let result = executable.run(&[storage(&[1.0, 2.0])]).unwrap().remove(0);
    let mut fetched = runtime.fetch(&result);
    assert_eq!(poll(&mut fetched), Poll::Ready(Ok([-1.0, -2.0])));
}
