//! The page, and the devices that it shows.

use std::fs;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustorch_server::Keys;

use crate::client::Running;

/// Bytes that the page may have, compressed.
const MOST: usize = 150_000;

#[test]
fn every_file_is_served() {
    let server = Running::shared();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    let mut packed = 0;
    for file in fs::read_dir(folder).unwrap() {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        let reply = server.get(&format!("/page/{name}"));
        assert_eq!(reply.status, 200, "{name}");
        assert_eq!(
            reply.text,
            fs::read_to_string(file.path()).unwrap(),
            "{name}"
        );
        let format = match name.rsplit('.').next().unwrap() {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            "html" => "text/html; charset=utf-8",
            other => panic!("{name}: no format for {other}"),
        };
        assert_eq!(reply.header("content-type"), Some(format), "{name}");
        let allowed = (name == "worker.js").then_some("/");
        assert_eq!(reply.header("service-worker-allowed"), allowed, "{name}");
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(reply.text.as_bytes()).unwrap();
        packed += encoder.finish().unwrap().len();
    }
    assert!((10_000..MOST).contains(&packed), "{packed} bytes");
    let index = server.get("/");
    assert_eq!(index.text, server.get("/page/index.html").text);
    let policy = index.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self';"),
        "{policy}"
    );
    // The page names files that are there, and no place elsewhere.
    let links = index
        .text
        .split('"')
        .filter(|text| text.starts_with("/page/"));
    assert!(links.clone().count() > 10);
    for link in links {
        assert_eq!(server.get(link).status, 200, "{link}");
    }
    assert!(!index.text.contains("://"));
    assert_eq!(server.get("/page/none.js").status, 404);
    assert_eq!(server.get("/page/..%2fCargo.toml").status, 404);
}

#[test]
fn the_page_needs_no_key() {
    let server = Running::new(Keys::of("secret"), 1, 1, 128);
    assert_eq!(server.get("/").status, 200);
    assert_eq!(server.get("/page/main.js").status, 200);
    assert_eq!(server.get("/rustorch/devices").status, 401);
}

#[test]
fn devices_are_shown() {
    let shown = Running::shared().get("/rustorch/devices").ok();
    let runtime = rustorch_tensor::runtime();
    let devices = shown["devices"].as_array().unwrap();
    assert_eq!(devices.len(), runtime.devices().count());
    for (shown, device) in devices.iter().zip(runtime.devices()) {
        assert_eq!(shown["name"], device.name.as_str());
        assert!(["cpu", "gpu", "npu"].contains(&shown["kind"].as_str().unwrap()));
        assert_eq!(shown["memory_bytes"].as_u64(), device.memory_bytes);
    }
    assert_eq!(
        shown["fallbacks"].as_array().unwrap().len(),
        runtime.fallbacks().len()
    );
}
