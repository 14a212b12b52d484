//! The chain of WebGPU and the CPU, in a build with that feature.

use serde_json::{Value, json};

use crate::support::run;

const STORY: [&str; 8] = [
    "-p",
    "Once upon a time there was a king who",
    "-n",
    "4",
    "--temp",
    "0",
    "--format",
    "json",
];

fn story(more: &[&str]) -> Value {
    run(STORY.iter().chain(more)).json()
}

/// There is a WebGPU device.
pub(crate) struct WebGpu;

/// Does the program find one?
pub(crate) fn find() -> Result<WebGpu, String> {
    let found = run(["devices", "--format", "json"]).json();
    let is_webgpu = |d: &Value| d["device"] == "webgpu:0";
    if found["devices"].as_array().unwrap().iter().any(is_webgpu) {
        return Ok(WebGpu);
    }
    let mut missing = found["missing"].as_array().unwrap().iter();
    let why = missing.find(|m| m["device"] == "webgpu");
    Err(why.map_or("no WebGPU device".to_owned(), |why| {
        why["reason"].to_string()
    }))
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
