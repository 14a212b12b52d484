//! The commands other than generating, each on the bundled model.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{model_arg, run, run_with_input};

pub(crate) fn help_and_version() {
    let help = run(["--help"]).ok();
    for part in [
        "Usage: rustorch-cli",
        "--temp",
        "--ctx-size",
        "quantize",
        "Examples:",
    ] {
        assert!(help.contains(part), "{part}");
    }
    for command in [
        "tokenize",
        "logits",
        "perplexity",
        "bench",
        "batched-bench",
        "run-batch",
        "convert",
        "quantize",
        "run",
        "launch",
        "inspect",
        "devices",
        "explain",
    ] {
        assert!(help.contains(command), "{command}");
        let help = run([command, "--help"]).ok();
        assert!(
            help.contains(&format!("Usage: rustorch-cli {command}")),
            "{help}"
        );
    }
    assert!(run(["--version"]).ok().starts_with("rustorch-cli "));
}

pub(crate) fn tokenize() {
    let args = ["tokenize", "-p", "Alice was beginning to"];
    assert_eq!(run(args).json(), json!([0, 3890, 563, 310, 2459, 279]));
    let no_bos = run(args.iter().copied().chain(["--no-bos"])).json();
    assert_eq!(no_bos, json!([3890, 563, 310, 2459, 279]));
    // Every character of a file or pipe counts, the last line break too.
    let piped = run_with_input(&["tokenize"], b"Alice was beginning to\n").json();
    assert_eq!(piped.as_array().unwrap().len(), 7);

    let special = run(["tokenize", "--no-bos", "-p", "<|end_of_text|>", "--special"]).json();
    assert_eq!(special, json!([1]));
    let plain = run(["tokenize", "--no-bos", "-p", "<|end_of_text|>"]).json();
    assert!(plain.as_array().unwrap().len() > 1, "{plain}");
}

fn rows(json: &Value) -> Vec<Vec<f64>> {
    serde_json::from_value(json["logits"].clone()).unwrap()
}

pub(crate) fn logits_of_every_position_or_the_last() {
    let json = run(["logits", "--ids", "0,48,1299,602"]).json();
    assert_eq!(json["n_vocab"], 4096);
    let all = rows(&json);
    assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [4096; 4]);
    let last = rows(&run(["logits", "--ids", "0,48,1299,602", "--last", "-b", "cpu"]).json());
    assert_eq!(last.len(), 1);
    let difference = |a: f64, b: f64| (a - b).abs();
    let worst = last[0]
        .iter()
        .zip(&all[3])
        .map(|(a, b)| difference(*a, *b))
        .fold(0.0, f64::max);
    assert!(worst < 1e-3, "{worst}");
}

pub(crate) fn logits_need_no_vocabulary() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("random.gguf").display().to_string();
    run([
        "bench",
        "--preset",
        "classics-13m",
        "--quant",
        "q8_0",
        "--save",
        &path,
    ])
    .ok();
    let json = run(["logits", "-m", &path, "--ids", "1,2,3", "--last"]).json();
    assert!(rows(&json)[0].iter().all(|logit| logit.is_finite()));
    let refused = run(["-m", &path, "-p", "text"]).error(1);
    assert!(
        refused.contains("random.gguf") && refused.contains("no vocabulary"),
        "{refused}"
    );
    let refused = run(["tokenize", "-m", &path, "-p", "text"]).error(1);
    assert!(refused.contains("no vocabulary"), "{refused}");
}

pub(crate) fn perplexity_as_llama_cpp_measures_it() {
    let text = model_arg("classics-eval.txt");
    let out = run(["perplexity", "-f", &text, "-c", "256", "--chunks", "2"]).ok();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert!(lines[0].starts_with("[1] "), "{out}");
    let value = lines[2].strip_prefix("PPL = ").expect("the result");
    assert_eq!(value.split_once('.').unwrap().1.len(), 4, "{value}");
    let value: f64 = value.parse().unwrap();
    // About that of the whole text, 22.4.
    assert!((10.0..50.0).contains(&value), "{value}");
}

pub(crate) fn quantize_and_run_the_result() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.gguf").display().to_string();
    let f16 = model_arg("classics-13m-f16.gguf");
    let run_it = run(["quantize", &f16, &path, "Q4_K_M"]);
    assert!(run_it.stderr.contains("56 tensors"), "{}", run_it.stderr);
    run_it.ok();
    let bundled = std::fs::read(model_arg("classics-13m-Q4_K_M.gguf")).unwrap();
    assert!(std::fs::read(&path).unwrap() == bundled, "the bytes differ");

    let other = folder.path().join("other.gguf").display().to_string();
    let again = run(["quantize", &path, &other, "Q8_0"]).error(1);
    assert!(again.contains("Q6_K already"), "{again}");
    run([
        "quantize",
        &path,
        &other,
        "Q8_0",
        "--allow-requantize",
        "-t",
        "1",
    ])
    .ok();
    run(["-m", &other, "-p", "The king", "-n", "2"]).ok();
}

pub(crate) fn a_folder_of_transformers_runs_and_becomes_a_file() {
    let folder = model_arg("../crates/train/tests/goldens/llama");
    let out = tempfile::tempdir().unwrap();
    let path = |name: &str| out.path().join(name).display().to_string();
    let (file, small) = (path("model.gguf"), path("small.gguf"));
    let converted = run(["convert", &folder, &file]);
    assert!(
        converted.stderr.contains("21 tensors"),
        "{}",
        converted.stderr
    );
    converted.ok();
    let logits = |model: &str| run(["logits", "-m", model, "--ids", "1,2,3", "-b", "cpu"]).json();
    assert_eq!(logits(&folder), logits(&file));
    let text = |model: &str| run(["-m", model, "-p", "It was", "-n", "4", "--temp", "0"]).ok();
    assert_eq!(text(&folder), text(&file));
    // A file of the folder stands for it.
    assert_eq!(
        logits(&format!("{folder}/model.safetensors")),
        logits(&file)
    );
    run(["quantize", &folder, &small, "Q8_0"]).ok();
    run(["inspect", &folder]).ok();

    let error = run(["convert", &file, &small]).error(2);
    assert!(error.contains("is not a folder"), "{error}");
    let error = run(["convert", &folder, &path("")]).error(1);
    assert!(error.contains("a directory"), "{error}");
    let error = run(["-m", &path(""), "-p", "a"]).error(1);
    assert!(
        error.contains("config.json: cannot read the file"),
        "{error}"
    );
}

pub(crate) fn inspect() {
    let text = run(["inspect"]).ok();
    for part in [
        "general.architecture = \"llama\"",
        "blk.5.ffn_up.weight",
        "[4096, 512]",
        "Q6_K",
        "56 tensors",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = run([
        "inspect",
        &model_arg("classics-13m-f16.gguf"),
        "--format",
        "json",
    ])
    .json();
    assert_eq!(json["version"], 3);
    assert_eq!(json["metadata"]["llama.context_length"], 1024);
    assert_eq!(
        json["metadata"]["tokenizer.ggml.tokens"]
            .as_array()
            .unwrap()
            .len(),
        4096
    );
    let tensors = json["tensors"].as_array().unwrap();
    let embedding = tensors
        .iter()
        .find(|t| t["name"] == "token_embd.weight")
        .unwrap();
    assert_eq!(embedding["type"], "F16");
    assert_eq!(embedding["shape"], json!([4096, 512]));
    assert_eq!(embedding["bytes"], 4096 * 512 * 2);
}

pub(crate) fn inspect_reports_the_memory_of_a_context() {
    let text = run(["inspect", "-c", "1024"]).ok();
    // 6 layers of 4 heads of keys and values of 64 features in f16.
    for part in ["context of 1024 tokens", "KV cache f16", "cpu", "fits in"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let memory = |context: &str| {
        let json = run(["inspect", "-c", context, "--format", "json"]).json();
        json["memory"].clone()
    };
    let (own, double) = (memory("0"), memory("2048"));
    assert_eq!(own["context"], 1024);
    let caches = |memory: &Value| -> Vec<(String, u64)> {
        serde_json::from_value(memory["cache"].clone()).unwrap()
    };
    let bytes = |memory: &Value, name: &str| {
        let all = caches(memory);
        all.iter().find(|(known, _)| known == name).unwrap().1
    };
    let metadata = &run(["inspect", "--format", "json"]).json()["metadata"];
    let key = |name: &str| metadata[format!("llama.{name}")].as_u64().unwrap();
    let width = key("embedding_length") / key("attention.head_count");
    let elements = 2 * key("block_count") * 1024 * key("attention.head_count_kv") * width;
    assert_eq!(bytes(&own, "f16"), 2 * elements);
    assert_eq!(bytes(&own, "f32"), 4 * elements);
    assert_eq!(bytes(&own, "q8_0"), elements / 32 * 34);
    assert_eq!(bytes(&double, "f16"), 4 * elements);
    let part = |name: &str| own[name].as_u64().unwrap();
    let sum = part("weights") + part("working") + 2 * elements;
    assert_eq!(part("total"), sum);
    let cpu = |memory: &Value| {
        memory["devices"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone()
    };
    assert_eq!(cpu(&own)["fits"], true);

    // More than any machine has.
    let huge = memory("1000000000");
    assert_eq!(cpu(&huge)["fits"], false);
    let advice = cpu(&huge)["advice"].as_str().unwrap().to_owned();
    assert!(
        advice.starts_with("-c ") && advice.ends_with(" fits"),
        "{advice}"
    );
    let impossible = run(["inspect", "-c", "99999999999999999"]).error(1);
    assert!(impossible.contains("smaller context"), "{impossible}");
}

pub(crate) fn a_model_that_does_not_fit_is_reported_before_it_is_loaded() {
    let run = run(["-p", "x", "-n", "1", "-b", "cpu", "-c", "1000000000"]);
    let line = run
        .stderr
        .lines()
        .find(|line| line.contains("memory is short"));
    let line = line.expect("a warning");
    for part in ["weights ", "KV cache ", "at -c 1000000000", " fits"] {
        assert!(line.contains(part), "no {part:?} in: {line}");
    }
}

pub(crate) fn devices_found_and_missing() {
    let text = run(["devices"]).ok();
    assert!(text.contains("cpu") && text.contains("reference"), "{text}");
    let json = run(["devices", "--format", "json"]).json();
    let names = |list: &Value| -> BTreeSet<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|device| device["device"].as_str().unwrap().to_owned())
            .collect()
    };
    let found = names(&json["devices"]);
    assert!(
        found.contains("cpu") && found.contains("reference"),
        "{found:?}"
    );
    let missing = names(&json["missing"]);
    assert!(missing.is_disjoint(&found));
    for device in json["missing"].as_array().unwrap() {
        let name = device["device"].as_str().unwrap();
        assert!(
            device["reason"].is_string() && device["cure"].is_string(),
            "{device}"
        );
        let refused = run(["-b", name, "-p", "The"]).error(1);
        assert!(
            refused.contains(device["reason"].as_str().unwrap()),
            "{refused}"
        );
        assert!(
            refused.contains(device["cure"].as_str().unwrap()),
            "{refused}"
        );
    }
    let cpu = json["devices"]
        .as_array()
        .unwrap()
        .iter()
        .find(|d| d["device"] == "cpu")
        .unwrap();
    let dtypes = cpu["dtypes"].as_array().unwrap();
    assert!(
        dtypes.contains(&json!("f32")) && dtypes.contains(&json!("Q4_K")),
        "{cpu}"
    );
    assert!(!cpu["operations"]["full"].as_array().unwrap().is_empty());
}

pub(crate) fn explain_places_every_operation() {
    let text = run(["explain", "-p", "The king", "-b", "cpu"]).ok();
    assert!(
        text.contains("decode: 1 at a time") && text.contains("attention"),
        "{text}"
    );
    // A fused operation is named with what it replaced.
    let fused = text.lines().find(|line| line.contains("fused_linear"));
    assert!(
        fused.is_some_and(|line| line.ends_with("(for rms_norm, 3 linear)")),
        "{text}"
    );
    assert!(!text.contains("passes over the graph"), "{text}");
    // With -v each pass is named with what it changed.
    let text = run(["explain", "-p", "The king", "-b", "cpu", "-v"]).ok();
    for line in [
        "passes over the graph of decode:",
        "  recorded: repeats: no change of ",
        "  planned: placement: ",
        "  planned: fusion: ",
        " rms_norm, 3 linear -> fused_linear",
        "  planned: channels last: no change of ",
        "  planned: late updates: no change of ",
        "  lowered: chains, lifetimes, joins in place, results over operands: ",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    let json = run([
        "explain",
        "-p",
        "The king",
        "--format",
        "json",
        "-b",
        "reference",
    ])
    .json();
    let passes = json.as_array().unwrap();
    assert_eq!(
        passes.iter().map(|p| &p["pass"]).collect::<Vec<_>>(),
        ["prompt", "decode"]
    );
    for pass in passes {
        let operations = pass["operations"].as_array().unwrap();
        assert!(!operations.is_empty());
        // Times of operations are part of the pass's time.
        let times = operations
            .iter()
            .map(|row| row["measured_us"].as_f64().unwrap());
        let [sum, wall] = ["measured_us", "wall_us"].map(|key| pass[key].as_f64().unwrap());
        assert!(
            (times.sum::<f64>() - sum).abs() < 1.0 && sum < wall,
            "{pass}"
        );
        for operation in operations {
            assert_eq!(operation["device"], "reference", "{operation}");
            let reason = operation["reason"].as_str().unwrap();
            assert!(!reason.is_empty(), "{operation}");
            // A part within a chain of elementwise operations reads and writes no memory: nothing is
            // expected of it by itself.
            let [expected, measured] =
                ["expected_us", "measured_us"].map(|key| operation[key].as_f64().unwrap());
            let is_part = reason.starts_with("part of ");
            assert!((expected > 0.0 || is_part) && measured > 0.0, "{operation}");
            assert_eq!(operation["moved_bytes"], 0, "{operation}");
        }
    }
}

pub(crate) fn batched_bench_counts_the_tokens_of_all_texts() {
    let args = [
        "batched-bench",
        "-npp",
        "6",
        "-ntg",
        "3,4",
        "-npl",
        "1,3",
        "-t",
        "1",
        "-b",
        "cpu",
        "-o",
        "jsonl",
    ];
    let done = run(args);
    let rows = done.stdout.lines().map(serde_json::from_str);
    let rows: Vec<Value> = rows.collect::<Result<_, _>>().expect("JSON a line");
    let count = |row: &Value| ["pp", "tg", "pl", "n_kv"].map(|field| row[field].as_u64().unwrap());
    let counts: Vec<_> = rows.iter().map(count).collect();
    assert_eq!(
        counts,
        [[6, 3, 1, 9], [6, 3, 3, 27], [6, 4, 1, 10], [6, 4, 3, 30]]
    );
    for row in &rows {
        let number = |field: &str| row[field].as_f64().unwrap();
        let [pp, tg, pl] = ["pp", "tg", "pl"].map(number);
        assert!((number("speed_pp") - pl * pp / number("t_pp")).abs() < 1e-6);
        assert!((number("speed_tg") - pl * tg / number("t_tg")).abs() < 1e-6);
        assert!((number("t") - number("t_pp") - number("t_tg")).abs() < 1e-9);
        assert_eq!(row["n_kv_max"], 30);
    }
}

pub(crate) fn bench_rows_have_the_fields_of_llama_bench() {
    let args = [
        "bench", "-p", "8", "-n", "4", "-d", "0,16", "-r", "2", "-t", "1", "-b", "cpu", "-b", "64",
    ];
    let json = run(args.iter().copied().chain(["-o", "json"])).json();
    let rows = json.as_array().unwrap();
    let test =
        |row: &Value| ["n_prompt", "n_gen", "n_depth"].map(|field| row[field].as_u64().unwrap());
    let tests: Vec<_> = rows.iter().map(test).collect();
    assert_eq!(tests, [[8, 0, 0], [0, 4, 0], [8, 0, 16], [0, 4, 16]]);
    for row in rows {
        assert_eq!(row["model_n_params"], 13_113_856);
        assert_eq!(row["model_type"], "llama 13.1 M Q4_K_M");
        assert_eq!(row["n_threads"], 1);
        assert_eq!(row["n_batch"], 64);
        assert_eq!(row["type_k"], "f16");
        assert_eq!(row["backend"], "cpu");
        assert_eq!(row["devices"], json!(["cpu"]));
        let samples = row["samples_ts"].as_array().unwrap();
        assert_eq!(samples.len(), 2);
        let sum: f64 = samples.iter().map(|s| s.as_f64().unwrap()).sum();
        let mean = row["avg_ts"].as_f64().unwrap();
        assert!((sum / 2.0 - mean).abs() < 1e-6 * mean, "{row}");
        assert!(
            row["stddev_ts"].is_number() && row["avg_ns"].is_u64(),
            "{row}"
        );
        assert!(row["memory_bandwidth"].as_f64().unwrap() > 0.0);
        assert_eq!(row["bandwidth_share"].is_number(), row["n_gen"] != 0);
    }
    // Two keys and values for a layer, of 2 heads of 64, in halves; in the middle 2 more tokens.
    let read = |row: &Value| row["bytes_per_token"].as_f64().unwrap();
    assert_eq!(
        read(&rows[3]) - read(&rows[1]),
        16.0 * (6 * 2 * 2 * 64 * 2) as f64
    );
}

pub(crate) fn bench_measures_operations() {
    let args = "bench --ops elementwise_add,hybrid_matmul,host_to_device -b cpu -t 1 -o json";
    let json = run(args.split(' ')).json();
    let rows = json["measured"].as_array().unwrap();
    // All rows are of the processor alone, which copies nothing.
    assert_eq!(rows.len(), 6, "{json}");
    for row in rows {
        assert_eq!(
            (&row["device"], &row["case"]),
            (&json!("cpu"), &json!("elementwise_add"))
        );
        let bytes = if row["dtype"] == "f32" { 4.0 } else { 2.0 };
        let elements = row["size"].as_f64().unwrap();
        assert_eq!(row["bytes"].as_f64().unwrap(), 3.0 * bytes * elements);
        assert!(row["seconds"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(json["failed"], json!([]));
    // The same by turns, as lines of standard input ask.
    let on_request: Vec<&str> = args.split(" ").chain(["--on-request"]).collect();
    let told = run_with_input(&on_request, b"0 3\n4 1\n").ok();
    let lines: Vec<Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0][0], json!(["cpu", "elementwise_add", "f32", 4096]));
    assert_eq!((lines[0].as_array().unwrap().len(), lines.len()), (6, 3));
    assert!(
        lines[1..]
            .iter()
            .all(|seconds| seconds.as_f64().unwrap() > 0.0)
    );
    let line = run_with_input(&on_request, b"6 1\n").error(1);
    assert!(line.contains("expected CASE RUNS"), "{line}");
    let unknown = run(["bench", "--ops", "sparkle"]).error(2);
    assert!(
        unknown.contains("sparkle") && unknown.contains("matmul"),
        "{unknown}"
    );
}

pub(crate) fn bench_measures_steps_of_training() {
    let args =
        "bench --train resnet-18,gpt2-20m --batch 2 --length 32 --steps 1 --hottest 3 -b cpu";
    let args: Vec<&str> = args.split(' ').collect();
    let printed = run([&args[..], &["-o", "json"]].concat()).ok();
    let json: serde_json::Value = serde_json::from_str(&printed).unwrap();
    for (row, unit, each) in [(0, "images", 2.0), (1, "tokens", 64.0)] {
        let row = &json["measured"][row];
        let figure = |name: &str| row[name].as_f64().unwrap();
        assert_eq!(row["unit"], unit);
        let per_second = figure("per_second");
        assert!((per_second * figure("seconds") / each - 1.0).abs() < 1e-9);
        // Parameters, their gradients and the two moments.
        assert!(figure("peak_bytes") > 16.0 * figure("parameters"));
        let losses = row["losses"].as_array().unwrap();
        let losses: Vec<f64> = losses.iter().map(|l| l.as_f64().unwrap()).collect();
        assert!(losses[2] < losses[0], "{losses:?}");
        let launches = row["launches"].as_array().unwrap();
        assert!(launches.iter().any(|l| l["flops"].as_f64().unwrap() > 0.0));
    }
    let unknown = run(["bench", "--train", "gpt5"]).error(2);
    assert!(
        unknown.contains("gpt5") && unknown.contains("resnet-50"),
        "{unknown}"
    );
}

pub(crate) fn bench_makes_models_of_known_shapes() {
    let table = run([
        "bench",
        "--preset",
        "classics-13m",
        "--quant",
        "q6_k",
        "-p",
        "4",
        "-n",
        "2",
        "-r",
        "1",
    ])
    .ok();
    let tests = ["pp4", "tg2"].map(|test| table.lines().filter(|line| line.contains(test)).count());
    assert_eq!(tests, [1, 1], "{table}");
    assert!(
        table.contains("llama 13.1 M Q6_K") && table.contains("GB/s"),
        "{table}"
    );
}
