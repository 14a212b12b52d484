//! On a device that computes in the host's memory, nothing is copied: neither weights nor inputs
//! nor outputs nor the cache.

use rustorch_llm::golden::largest;
use rustorch_llm::{Session, SessionOptions};
use rustorch_runtime::Runtime;

use crate::common::{Devices, first, load};

pub(crate) fn a_device_in_host_memory_copies_no_byte(devices: &Devices) {
    for device in devices {
        let info = device.info();
        if !info.shares_host_memory {
            println!("skipped: {} has memory of its own", info.device);
            continue;
        }
        let model = load("Q4_K_M");
        let options = SessionOptions {
            context: 64,
            routing: first(device),
            ..SessionOptions::default()
        };
        let runtime = Runtime::new([device.clone()]);
        let mut session = Session::new(&model, &runtime, options).unwrap();
        let mut logits = Vec::new();
        session.feed(&[0, 48, 1299, 602, 260], &mut logits).unwrap();
        for _ in 0..8 {
            let token = largest(&logits);
            session.feed(&[token], &mut logits).unwrap();
        }
        let memory = runtime.memory();
        let accesses = memory.accesses(info.device).unwrap();
        assert!(accesses.accesses > 0, "{accesses:?}");
        let copied: u64 = memory.routes().iter().map(|route| route.moved.bytes).sum();
        assert_eq!(copied, 0, "{:?}", memory.routes());
    }
}
