//! The chain of OpenCL and the CPU: taking part, failing over, being absent.

use std::fs;
use std::path::Path;

use rustorch_testing::models::{Header, headers_folder};
use serde_json::{Value, json};

use crate::support::{Run, STORY, find_device, model_arg, program, run, story};

/// There is an OpenCL device.
pub(crate) struct OpenCl;

/// Does the program find one?
pub(crate) fn find() -> Result<OpenCl, String> {
    find_device("opencl").map(|()| OpenCl)
}

pub(crate) fn is_here() -> bool {
    find().is_ok()
}

/// The program with one variable of its environment set.
fn run_with(variable: &str, value: &Path, args: &[&str]) -> Run {
    let mut command = program(args);
    command.env(variable, value);
    command.output().expect("the program runs").into()
}

/// Runs where OpenCL is missing: the CPU takes over, and `devices` says why.
fn absent(variable: &str, value: &Path, why: &str) {
    let told: Value = run_with(variable, value, &STORY).json();
    assert_eq!(told["devices"], json!(["cpu"]));
    assert_eq!(told["fallbacks"], json!([]));
    let devices = run_with(variable, value, &["devices", "--format", "json"]).json();
    let missing = devices["missing"].as_array().unwrap();
    let opencl = missing.iter().find(|m| m["device"] == "opencl").unwrap();
    let reason = opencl["reason"].as_str().unwrap();
    assert!(reason.contains(why), "{reason}");
    let refused = run_with(variable, value, &["-b", "opencl", "-p", "x"]).error(1);
    assert!(refused.contains(reason), "{refused}");
}

pub(crate) fn without_drivers_the_cpu_takes_over() {
    let folder = tempfile::tempdir().unwrap();
    let why = match is_here() {
        true => "no driver that works",
        false => "OpenCL",
    };
    absent("OCL_ICD_VENDORS", folder.path(), why);
    fs::write(folder.path().join("broken.icd"), "libNoSuchDriver.so\n").unwrap();
    absent("OCL_ICD_VENDORS", folder.path(), why);
}

pub(crate) fn gpus_can_be_disabled() {
    absent(
        "RUSTORCH_DISABLE_GPU",
        Path::new("1"),
        "RUSTORCH_DISABLE_GPU is set",
    );
}

pub(crate) fn opencl_tells_the_same_story(_: &OpenCl) {
    let expected = story(&["-b", "cpu"]);
    let told = story(&["-b", "opencl"]);
    assert_eq!(told["ids"], expected["ids"]);
    assert_eq!(told["devices"], json!(["opencl:0"]));
    assert_eq!(told["fallbacks"], json!([]));

    let mixed = story(&["-b", "cpu", "--route", "attention=opencl"]);
    assert_eq!(mixed["ids"], expected["ids"]);
    assert_eq!(mixed["devices"], json!(["cpu", "opencl:0"]));

    let faults = "device=opencl:0;op=attention;nth=9;kind=timeout";
    let failed = story(&["-b", "opencl", "--inject", faults]);
    assert_eq!(failed["ids"], expected["ids"]);
    let fallback = &failed["fallbacks"][0];
    assert_eq!(fallback["from"], "opencl:0");
    assert_eq!(fallback["to"], "cpu");
    assert_eq!(fallback["class"], "timeout");
    assert_eq!(fallback["op"], "attention");

    let strict = run(["-b", "opencl", "-p", "x", "--strict", "--inject", faults]);
    let line = strict.error(1);
    assert!(
        line.contains("opencl:0") && line.contains("attention"),
        "{line}"
    );
}

/// The planned device of each group of layers: `layers 0-2 on cpu`.
fn layers(told: &Value) -> Vec<String> {
    let runs = told["layers"].as_array().unwrap().iter();
    let name = |run: &Value, key: &str| run[key].as_str().unwrap().to_owned();
    runs.map(|run| format!("{} on {}", name(run, "layers"), name(run, "device")))
        .collect()
}

pub(crate) fn layers_are_split_as_asked_or_as_they_fit(_: &OpenCl) {
    let expected = story(&["-b", "cpu"]);
    let whole = story(&["-b", "opencl"]);
    assert_eq!(layers(&whole), ["layers 0-5 on opencl:0"]);
    for (args, split) in [
        (
            &["-ngl", "2"][..],
            ["layers 0-3 on cpu", "layers 4-5 on opencl:0"],
        ),
        // A batch of 32 works in 0.7 MiB, a layer has 1 with its cache, the last 3.
        (
            &["-ub", "32", "--gpu-memory", "6M"],
            ["layers 0-4 on cpu", "layer 5 on opencl:0"],
        ),
    ] {
        let args: Vec<&str> = args.iter().chain(&["-b", "opencl"]).copied().collect();
        let told = story(&args);
        assert_eq!(layers(&told), split);
        assert_eq!(told["ids"], expected["ids"]);
        assert_eq!(told["devices"], json!(["cpu", "opencl:0"]));
        assert_eq!(told["fallbacks"], json!([]));
    }
    for (layers_asked, device) in [("0", "cpu"), ("all", "opencl:0"), ("99", "opencl:0")] {
        let told = story(&["-ngl", layers_asked]);
        assert_eq!(layers(&told), [format!("layers 0-5 on {device}")]);
        assert_eq!(told["devices"], json!([device]));
        assert_eq!(told["ids"], expected["ids"]);
    }
    let text = run(STORY[..6].iter().chain(&["-b", "opencl", "-ngl", "2"]));
    let line = text.stderr.lines().next().unwrap();
    assert!(line.starts_with("layers 0-3 on cpu (") && line.contains(" · layers 4-5 on opencl:0"));
    let refused = run(["-p", "x", "-b", "opencl", "--gpu-memory", "1M"]).error(1);
    for part in ["--gpu-memory 1.0 MiB", "needs", "MiB", "-ngl 0"] {
        assert!(refused.contains(part), "{refused}");
    }
}

/// A model of the tests of architectures, as a file.
fn small_model(name: &str) -> String {
    let headers = Header::all(&headers_folder());
    let header = headers.iter().find(|header| header.name == name).unwrap();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("placed-{name}.gguf"));
    header.write(&path).unwrap();
    path.display().to_string()
}

/// The planned device of tensors that are not with their layer: `ffn_down_exps.weight of layer 0 on cpu`.
fn elsewhere(told: &Value) -> Vec<String> {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap().to_owned();
    let mut found = Vec::new();
    for run in told["layers"].as_array().unwrap() {
        for of in run["elsewhere"].as_array().unwrap() {
            for name in of["tensors"].as_array().unwrap() {
                let (name, layers) = (name.as_str().unwrap(), text(run, "layers"));
                found.push(format!("{name} of {layers} on {}", text(of, "device")));
            }
        }
    }
    found
}

pub(crate) fn tensors_go_where_options_send_them(_: &OpenCl) {
    let expected = story(&["-b", "cpu"]);
    let down = "ffn_down.weight of layers 0-5 on cpu";
    for (args, places, homes) in [
        (
            &["-ot", "ffn_down=CPU"][..],
            &[down][..],
            &["layers 0-5 on opencl:0"][..],
        ),
        (
            &["--override-tensor", r"blk\.5\.ffn=cpu,embd=CPU"],
            &[
                "token_embd.weight of layer 0 on cpu",
                "ffn_down.weight of layer 5 on cpu",
                "ffn_gate.weight of layer 5 on cpu",
                "ffn_up.weight of layer 5 on cpu",
                // The head is the same table.
                "token_embd.weight of layer 5 on cpu",
            ],
            &[
                "layer 0 on opencl:0",
                "layers 1-4 on opencl:0",
                "layer 5 on opencl:0",
            ],
        ),
        // All of a layer's matrices take the layer with them; the first pattern of a tensor counts.
        (
            &["-ot", r"blk\.[12]\.=cpu", "-ot", "blk=opencl"],
            &[],
            &[
                "layer 0 on opencl:0",
                "layers 1-2 on cpu",
                "layers 3-5 on opencl:0",
            ],
        ),
    ] {
        let args: Vec<&str> = args.iter().chain(&["-b", "opencl"]).copied().collect();
        let told = story(&args);
        assert_eq!(elsewhere(&told), places, "{args:?}");
        assert_eq!(layers(&told), homes, "{args:?}");
        assert_eq!(told["ids"], expected["ids"]);
        assert_eq!(told["devices"], json!(["cpu", "opencl:0"]));
        assert_eq!(told["fallbacks"], json!([]));
    }
    // A draft model has places of its own.
    let draft = model_arg("classics-13m-Q4_K_M.gguf");
    let guessed = ["-b", "opencl", "-ot", "blk.5.ffn_down=cpu", "-md", &draft];
    assert_eq!(story(&guessed)["ids"], expected["ids"]);
    let there = story(&["-b", "cpu", "-ot", "attn_output=opencl:0"]);
    assert_eq!(there["ids"], expected["ids"]);
    assert_eq!(
        elsewhere(&there),
        ["attn_output.weight of layers 0-5 on opencl:0"]
    );
}

pub(crate) fn experts_stay_on_the_processor_if_asked_or_if_memory_is_short(_: &OpenCl) {
    let file = small_model("qwen3moe-moe");
    let run = |command: &str, more: &[&str]| {
        let line = format!("{command} -m {file} -c 64 -ctk f32 -ctv f32");
        run(line.split(' ').chain(more.iter().copied()))
    };
    let logits = |more: &[&str]| {
        let told = run("logits --ids 1,2,3,4,5 --last", more).json();
        let row = told["logits"][0].as_array().unwrap().iter();
        row.map(|x| x.as_f64().unwrap()).collect::<Vec<f64>>()
    };
    let explained = |more: &[&str]| run("explain --format json", more).json()[0].clone();
    let near = |a: &[f64], b: &[f64]| {
        let largest = b.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
        let pairs = a.iter().zip(b);
        assert!(pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) < 1e-5 * largest);
    };
    let expected = logits(&["-b", "opencl"]);
    let experts = |layers: &str| {
        ["down", "gate", "up"].map(|part| format!("ffn_{part}_exps.weight of {layers} on cpu"))
    };
    for (args, layers) in [
        (&["--cpu-moe"][..], "layers 0-1"),
        (&["-cmoe"], "layers 0-1"),
        (&["--n-cpu-moe", "1"], "layer 0"),
        (&["-ncmoe", "9"], "layers 0-1"),
        (&["-ot", "ffn_.*_exps=CPU"], "layers 0-1"),
    ] {
        let args: Vec<&str> = args.iter().chain(&["-b", "opencl"]).copied().collect();
        assert_eq!(elsewhere(&explained(&args)), experts(layers), "{args:?}");
        near(&logits(&args), &expected);
    }
    let lines = run("explain", &["-b", "opencl", "--cpu-moe"]).ok();
    let line = "ffn_down_exps.weight, ffn_gate_exps.weight, ffn_up_exps.weight of layers 0-1 on cpu: --cpu-moe";
    assert!(lines.lines().any(|found| found == line), "{lines}");
}

pub(crate) fn places_that_make_no_sense_are_refused(_: &OpenCl) {
    let file = small_model("qwen3moe-moe");
    for (args, status, parts) in [
        (
            &["-ot", "(=cpu"][..],
            2,
            &["-ot (=cpu", "not a regular expression"][..],
        ),
        (&["-ot", "exps"], 2, &["exps", "PATTERN=DEVICE"]),
        (&["-ot", "exps=gpu"], 2, &["exps=gpu", "unknown device"]),
        (
            &["-ot", "exps=opencl:9"],
            1,
            &["-ot exps=opencl:9", "opencl:0"],
        ),
        (&["-ot", "mamba=cpu"], 1, &["-ot mamba=cpu", "no matrix"]),
        (&["-ot", "norm=cpu"], 1, &["-ot norm=cpu", "no matrix"]),
        (&["--n-cpu-moe", "-1"], 2, &["--n-cpu-moe", "-1"]),
        (
            &["--cpu-moe", "--route", "linear=cpu"],
            2,
            &["--cpu-moe", "--route", "one of them"],
        ),
    ] {
        let line = format!("logits -m {file} --ids 1");
        let error = run(line.split(' ').chain(args.iter().copied())).error(status);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let dense = run(["-p", "x", "--cpu-moe"]).error(1);
    assert!(
        dense.contains("--cpu-moe: the model has no experts"),
        "{dense}"
    );
}

/// Memory runs out though the plan counted on it, and under a limit unknown to the plan.
pub(crate) fn running_out_of_memory_moves_on(_: &OpenCl) {
    let expected = story(&["-b", "cpu"]);
    for nth in ["1", "77", "200"] {
        let faults = format!("device=opencl:0;nth={nth};kind=oom");
        let told = story(&["-b", "opencl", "-ngl", "3", "--inject", &faults]);
        assert_eq!(told["ids"], expected["ids"]);
        assert_eq!(told["fallbacks"][0]["class"], "out of memory");
    }
    // Routed by hand, nothing is planned.
    let args = [
        "-b",
        "opencl",
        "--route",
        "attention=opencl",
        "--gpu-memory",
        "20K",
    ];
    let told = story(&args);
    assert_eq!(told["ids"], expected["ids"]);
    let fallback = &told["fallbacks"][0];
    assert!(
        fallback["message"].as_str().unwrap().contains("a limit of"),
        "{fallback}"
    );
}

pub(crate) fn bench_measures_the_device_that_computes(_: &OpenCl) {
    let args = "bench -p 8 -n 4 -d 8 -r 1 -b opencl -o json";
    let json = run(args.split(' ')).json();
    for row in json.as_array().unwrap() {
        let number = |field: &str| {
            row[field]
                .as_f64()
                .unwrap_or_else(|| panic!("{field}: {row}"))
        };
        assert_eq!(row["limits_of"], "opencl:0");
        let prompts = row["n_gen"] == 0;
        assert_eq!(row["bandwidth_share"].is_null(), prompts);
        assert_eq!(row["matrix_share"].is_null(), !prompts);
        let (limit, amount, share) = match prompts {
            // All products of 8 tokens but the head's, of which there is one row; and 8 × 8 + 36
            // pairs of tokens.
            true => {
                let in_layers = 512 * (512 + 2 * 128 + 512 + 3 * 768);
                let products = 8 * 6 * in_layers + 4096 * 512 + 100 * 6 * 8 * 128;
                assert_eq!(number("operations"), 2.0 * products as f64);
                ("matrix_rate", "operations", "matrix_share")
            }
            false => ("memory_bandwidth", "bytes_per_token", "bandwidth_share"),
        };
        let tokens = if prompts { 8.0 } else { 1.0 };
        let reached = number(amount) / tokens * number("avg_ts");
        let expected = number(share) * number(limit);
        assert!((reached / expected - 1.0).abs() < 1e-3, "{row}");
    }
    let table = run("bench -p 8 -n 4 -r 1 -b opencl".split(' ')).ok();
    for part in ["copied on opencl:0", "in bf16 on opencl:0", "of peak rate"] {
        assert!(table.contains(part), "{part}: {table}");
    }
}

pub(crate) fn a_kernel_cache_that_is_of_no_use_costs_only_time(_: &OpenCl) {
    let folder = tempfile::tempdir().unwrap();
    let args: Vec<&str> = STORY.iter().chain(&["-b", "opencl"]).copied().collect();
    let cached = |folder: &Path| run_with("RUSTORCH_CACHE_DIR", folder, &args);
    let expected = cached(folder.path()).json();
    let kernels = folder.path().join("kernels");
    let files: Vec<_> = fs::read_dir(&kernels)
        .unwrap()
        .map(|f| f.unwrap().path())
        .collect();
    assert!(files.len() > 5, "{files:?}");
    for file in &files {
        let mut bytes = fs::read(file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(file, bytes).unwrap();
    }
    let damaged = cached(folder.path());
    assert!(damaged.stderr.contains("damaged"), "{}", damaged.stderr);
    assert_eq!(damaged.json()["ids"], expected["ids"]);
    let rebuilt = cached(folder.path());
    assert!(!rebuilt.stderr.contains("damaged"), "{}", rebuilt.stderr);
    assert_eq!(rebuilt.json()["ids"], expected["ids"]);
    // A file where the folder should be.
    let refusing = cached(&files[0]);
    let warnings = refusing.stderr.matches("kernels are not cached").count();
    assert_eq!(warnings, 1, "{}", refusing.stderr);
    assert_eq!(refusing.json()["ids"], expected["ids"]);
}
