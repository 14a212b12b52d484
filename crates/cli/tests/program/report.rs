//! `report`: comparisons that are complete, and true where that can be told.

use serde_json::Value;

use crate::opencl::is_here;
use crate::support::{model_arg, run};

pub(crate) fn types_on_the_cpu_and_f32_beside_others() {
    let text = model_arg("classics-eval.txt");
    let args = [
        "report",
        "-b",
        "cpu",
        "--types",
        "Q4_K_M,F32",
        "-r",
        "1",
        "--only",
        "models,f32",
        "-o",
        "-",
    ];
    let more = ["-f", &text, "--chunks", "2", "--format", "json"];
    let report = run(args.iter().chain(&more)).json();
    let rows = report["models"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{report}");
    for row in rows {
        for speed in ["prompt", "generation"] {
            assert!(row[speed].as_f64().unwrap() > 0.0, "{row}");
        }
    }
    let perplexity = rows[0]["perplexity"].as_f64().unwrap();
    assert!((10.0..40.0).contains(&perplexity), "{perplexity}");
    assert_eq!(rows[0]["random_weights"], false);
    assert!(
        rows[0]["logits_largest"].as_f64().unwrap() < 0.4,
        "{rows:?}"
    );
    assert_eq!(rows[1]["random_weights"], true);
    assert_eq!(rows[1]["perplexity"], Value::Null);
    let weights = |row: &Value| row["weight_bytes"].as_u64().unwrap();
    assert!(weights(&rows[1]) > 5 * weights(&rows[0]), "{rows:?}");

    let compared = report["hybrid"]["measured"]["rows"].as_array().unwrap();
    let named = |name: &str| compared.iter().find(|r| r["variant"] == name).unwrap();
    assert_eq!(named("hybrid-f32")["conversions"], 0);
    if is_here() {
        assert!(
            named("converting")["conversions"].as_u64().unwrap() > 0,
            "{compared:?}"
        );
        assert!(
            named("converting")["time_saved"].is_number(),
            "{compared:?}"
        );
    }
    assert!(
        named("f16 cache")["cache_bytes"].as_u64() < named("hybrid-f32")["cache_bytes"].as_u64()
    );
}

pub(crate) fn a_page_shows_it_beside_an_older_one() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new, page] = ["old.json", "new.json", "page.html"]
        .map(|name| folder.path().join(name).display().to_string());
    let measured = [
        "-b",
        "cpu",
        "--types",
        "Q4_K_M",
        "-r",
        "1",
        "--only",
        "memory,models",
    ];
    let report = |more: &[&str]| run(["report"].iter().chain(&measured).chain(more)).ok();
    report(&["-o", &old]);
    report(&["-o", &new, "--html", &page, "--before", &old]);
    let html = std::fs::read_to_string(&page).unwrap();
    for part in [
        "<h2>Before and after</h2>",
        "Q4_K_M, generation",
        "<h2>Memory over time</h2>",
        "-b cpu: cpu at most",
        "<h2>Backends and types</h2>",
        "</html>",
    ] {
        assert!(html.contains(part), "{part}");
    }
    // It needs nothing from elsewhere.
    for foreign in ["http:", "https:", "<script", "<link", "src="] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&new).unwrap()).unwrap();
    let points = json["memory"]["runs"][0]["devices"]["cpu"]
        .as_array()
        .unwrap();
    let bytes = |point: &Value| point[1].as_u64().unwrap();
    assert!(points.iter().map(bytes).max() > Some(1 << 20), "{points:?}");
    assert!(points.is_sorted_by_key(|point| point[0].as_f64().unwrap().to_bits()));
    let line = run(["report", "--html", &page, "--before", &page]).error(1);
    assert!(
        line.contains("--before") && line.contains("not a JSON report"),
        "{line}"
    );
    let line = run(["report", "--html", "/no/such/page.html"]).error(1);
    assert!(line.contains("/no/such/page.html"), "{line}");
}

pub(crate) fn what_cannot_be_compared_is_told() {
    let line = run(["report", "-b", "cuda:7"]).error(1);
    assert!(line.contains("-b cuda:7"), "{line}");
    let line = run(["report", "--types", "Q4_X"]).error(2);
    assert!(line.contains("Q4_X"), "{line}");
    let line = run(["report", "-f", "/no/such.txt"]).error(1);
    assert!(line.contains("/no/such.txt"), "{line}");
}
