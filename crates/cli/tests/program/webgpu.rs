//! The chain of WebGPU and the CPU, in a build with that feature.

use serde_json::{Value, json};

use crate::support::{find_device, story};

/// There is a WebGPU device.
pub(crate) struct WebGpu;

/// Does the program find one?
pub(crate) fn find() -> Result<WebGpu, String> {
    find_device("webgpu").map(|()| WebGpu)
}

pub(crate) fn webgpu_generates_the_same_story(_: &WebGpu) {
    let expected = story(&["-b", "cpu"]);
    let story_here = story(&["-b", "webgpu"]);
    assert_eq!(story_here["ids"], expected["ids"]);
    let devices = story_here["devices"].as_array().unwrap();
    assert!(devices.contains(&json!("webgpu:0")), "{devices:?}");
}

pub(crate) fn a_lost_webgpu_device_moves_the_story_on(_: &WebGpu) {
    let expected = story(&["-b", "cpu"]);
    for kind in ["lost", "timeout", "oom", "compile"] {
        let faults = format!("device=webgpu:0;op=linear;nth=9;kind={kind}");
        let failed = story(&["-b", "webgpu", "--inject", &faults]);
        assert_eq!(failed["ids"], expected["ids"], "{kind}");
        let fallbacks = failed["fallbacks"].as_array().unwrap();
        let is_ours = |f: &&Value| f["from"] == "webgpu:0" && f["op"] == "linear";
        assert!(
            fallbacks.iter().any(|f| is_ours(&f)),
            "{kind}: {fallbacks:?}"
        );
    }
}
