//! Models of one's own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustorch_conformance::Extent;
use serde_json::Value;

use crate::opencl::OpenCl;
use crate::support::{Run, interrupt, model, program, run};

/// A tiny model, on one thread.
const TINY: &str = "--vocab 300 --layers 1 --width 32 --heads 2 --kv-heads 1 --ff 48 --context 32 --batch 4 \
                    --steps 24 --every 5 --seed 3 -b cpu -t 1";

/// A folder with a text, in which models are trained.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        let text = fs::read(model("classics-eval.txt")).unwrap();
        fs::write(folder.path("text.txt"), &text[..20_000]).unwrap();
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The arguments for training a tiny model there, and these.
    pub(crate) fn args(&self, more: &str) -> Vec<String> {
        let paths = [
            "--text",
            &arg(&self.path("text.txt")),
            "--out",
            &arg(&self.path("m.gguf")),
        ]
        .map(str::to_owned);
        let more: Vec<&str> = more.split_whitespace().collect();
        // Given options replace those of tiny models.
        let tiny: Vec<&str> = TINY.split_whitespace().collect();
        let tiny = tiny
            .chunks_exact(2)
            .filter(|option| !more.contains(&option[0]));
        let words = tiny.flatten().chain(&more).map(|word| (*word).to_owned());
        ["train".to_owned()]
            .into_iter()
            .chain(paths)
            .chain(words)
            .collect()
    }

    pub(crate) fn train(&self, more: &str) -> Run {
        run(self.args(more))
    }

    /// Contents of the model's file.
    fn model(&self) -> Vec<u8> {
        fs::read(self.path("m.gguf")).unwrap()
    }
}

fn arg(path: &Path) -> String {
    path.display().to_string()
}

/// Numbers that a step computes, without its time.
#[derive(Clone, PartialEq, Debug)]
struct Computed(u64, String);

/// The steps that a run told.
fn steps(output: &str) -> Vec<Computed> {
    let step = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        let step = line["step"].as_u64().unwrap();
        assert_eq!(line["tokens"], step * 4 * 32);
        assert!(line["tokens_per_s"].as_f64().unwrap() > 0.0);
        Computed(
            step,
            format!("{} {} {}", line["loss"], line["val_loss"], line["lr"]),
        )
    };
    output.lines().map(step).collect()
}

pub(crate) fn loss(line: &str, key: &str) -> f64 {
    let line: Value = serde_json::from_str(line).unwrap();
    line[key]
        .as_f64()
        .unwrap_or_else(|| panic!("{key} in {line}"))
}

pub(crate) fn the_name_of_its_file_is_not_in_a_model() {
    let folder = Folder::new();
    folder.train("--steps 2").ok();
    let other = folder.path("other.gguf");
    let args = folder.args("--steps 2");
    run(args
        .iter()
        .map(String::as_str)
        .chain(["--out", &arg(&other)]))
    .ok();
    assert_eq!(fs::read(&other).unwrap(), folder.model());

    // A model that is trained further keeps its name.
    let tuned = folder.path("tuned.gguf");
    let (base, tuned_arg) = (arg(&other), arg(&tuned));
    let text = arg(&folder.path("text.txt"));
    let tune = [
        "train",
        "--finetune",
        &base,
        "--text",
        &text,
        "--out",
        &tuned_arg,
        "--steps",
        "1",
        "-b",
        "cpu",
    ];
    run(tune).ok();
    let name = |path: &Path| {
        let model = rustorch_gguf::Gguf::open(path).unwrap();
        model.metadata.str("general.name").unwrap().to_owned()
    };
    assert_eq!(name(&tuned), name(&other));
}

pub(crate) fn a_text_becomes_a_model() {
    let folder = Folder::new();
    let told = folder.train("-o json").ok();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 24);
    // The loss begins near ln 300, that of a model that knows nothing, and falls.
    let first = loss(lines[0], "loss");
    assert!((5.5..5.9).contains(&first), "{first}");
    assert!(loss(lines[23], "loss") < first - 0.2);
    assert!(loss(lines[23], "val_loss") < loss(lines[4], "val_loss"));
    let curve = fs::read_to_string(folder.path("m.svg")).unwrap();
    assert!(curve.starts_with("<svg") && curve.contains(">validation<"));
    assert!(!folder.path("m.checkpoint").exists());

    let file = arg(&folder.path("m.gguf"));
    let story = run([
        "-m",
        &file,
        "-p",
        "The ",
        "-n",
        "8",
        "--ignore-eos",
        "-b",
        "cpu",
        "--format",
        "json",
    ])
    .json();
    assert_eq!(story["ids"].as_array().unwrap().len(), 8);
    // Begins with the token that begins texts.
    assert_eq!(story["prompt_ids"][0], 0);
    let scored = run([
        "perplexity",
        "-m",
        &file,
        "-f",
        &arg(&folder.path("text.txt")),
        "-c",
        "32",
        "-b",
        "cpu",
    ])
    .ok();
    let perplexity: f64 = scored
        .lines()
        .last()
        .unwrap()
        .strip_prefix("PPL = ")
        .unwrap()
        .parse()
        .unwrap();
    assert!(perplexity < 300.0, "{perplexity}");
    assert_eq!(
        run(["quantize", &file, &arg(&folder.path("q.gguf")), "Q8_0"]).status,
        0
    );
}

/// PyTorch's losses are those of `scripts/peer-train.py`.
pub(crate) fn losses_are_those_of_pytorch() {
    let expected: Vec<f64> =
        serde_json::from_str(include_str!("../goldens/train-losses.json")).unwrap();
    let folder = Folder::new();
    let told = folder
        .train("--steps 200 --lr 0.003 --warmup 20 --every 200 -o json")
        .ok();
    let losses: Vec<f64> = told.lines().map(|line| loss(line, "loss")).collect();
    assert_eq!(losses.len(), expected.len());
    for (step, (own, expected)) in (1..).zip(losses.iter().zip(&expected)) {
        assert!(
            (own / expected - 1.0).abs() < 5e-3,
            "step {step}: {own}, PyTorch's {expected}"
        );
    }
}

pub(crate) fn progress_is_told_to_people() {
    let folder = Folder::new();
    let told = folder.train("").ok();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 10, "{told}");
    assert!(lines[0].starts_with("step 5 of 24: loss 5."), "{told}");
    assert!(
        lines[8].starts_with("step 24 of 24: ") && lines[8].contains("validation "),
        "{told}"
    );
    assert!(
        lines[0].contains(" % of the limit, ") && lines[0].ends_with(" left"),
        "{told}"
    );
    assert!(lines[9].starts_with("  \""), "{told}");
}

pub(crate) fn a_batch_that_fits_is_chosen_and_gone_on_with() {
    let folder = Folder::new();
    let told = folder.train(&format!(
        "--batch auto --steps 3 --every 1 --checkpoint {}",
        arg(&folder.path("c"))
    ));
    let chosen = told
        .stderr
        .lines()
        .find(|line| line.contains("fits in memory"));
    // There are fewer than 256 samples in the text.
    let samples = chosen.unwrap_or_else(|| panic!("{}", told.stderr));
    let batch: u32 = samples
        .split_whitespace()
        .find_map(|word| word.parse().ok())
        .unwrap();
    assert!(
        batch.is_power_of_two() && (32..=256).contains(&batch),
        "{samples}"
    );
    told.ok();
    // The same batch, whatever fits now.
    let resumed = folder.train(&format!(
        "--batch auto --steps 3 --every 1 --resume --checkpoint {}",
        arg(&folder.path("c"))
    ));
    assert!(
        !resumed.stderr.contains("fits in memory"),
        "{}",
        resumed.stderr
    );
    resumed.ok();
}

/// The bytes that a run said a step takes.
fn planned(told: &Run) -> f64 {
    let line = told
        .stderr
        .lines()
        .find_map(|line| line.split_once("; a step takes "));
    let (_, size) = line.unwrap_or_else(|| panic!("{}", told.stderr));
    let (number, unit) = size.split_once(' ').unwrap();
    let power = ["B", "KiB", "MiB", "GiB"]
        .iter()
        .position(|u| *u == unit)
        .unwrap();
    number.parse::<f64>().unwrap() * 1024_f64.powi(power as i32)
}

/// The losses of a run's steps.
fn losses(told: Run) -> Vec<f64> {
    let told = told.ok();
    told.lines().map(|line| loss(line, "loss")).collect()
}

const LAYERS: &str = "--layers 4 --context 64 --steps 6 -o json";

/// Gradients of logits by chunks are added up in another order. Nothing else is rounded otherwise.
pub(crate) fn less_memory_changes_no_loss() {
    let whole = Folder::new().train(LAYERS);
    let bytes = planned(&whole);
    let expected = losses(whole);
    for part in [0.9, 0.7] {
        let (folder, again) = (Folder::new(), Folder::new());
        let given = format!("{LAYERS} --memory {}", (part * bytes) as u64);
        let less = folder.train(&given);
        // The planned size is rounded to a tenth of a mebibyte.
        assert!(
            planned(&less) <= part * bytes + 0.05 * 1024_f64.powi(2),
            "{}",
            less.stderr
        );
        let own = losses(less);
        assert_eq!(own.len(), expected.len());
        for (own, expected) in own.iter().zip(&expected) {
            assert!((own / expected - 1.0).abs() < 1e-5, "{own}, not {expected}");
        }
        assert_eq!(own, losses(again.train(&given)));
        assert_eq!(folder.model(), again.model());
    }
    let least = Folder::new()
        .train(&format!("{LAYERS} --memory 64K"))
        .error(1);
    for part in [
        "memory budget of 64.0 KiB",
        "at the least, with values computed again",
    ] {
        assert!(least.contains(part), "{least}");
    }
}

pub(crate) fn nothing_of_the_processor_waits_on_the_host() {
    let (plain, own) = (Folder::new(), Folder::new());
    let expected = losses(plain.train(LAYERS));
    let told = own.train(&format!("{LAYERS} --offload-activations"));
    assert!(
        told.stderr.contains("nothing is offloaded"),
        "{}",
        told.stderr
    );
    assert_eq!(losses(told), expected);
    assert_eq!(own.model(), plain.model());
}

/// Values that wait in the host's memory leave more of the device's, and losses and file as they are.
pub(crate) fn values_wait_on_the_host(_: &OpenCl) {
    let (plain, own) = (Folder::new(), Folder::new());
    let given = format!("{LAYERS} -b opencl");
    let expected = plain.train(&given);
    let told = own.train(&format!("{given} --offload-activations"));
    assert!(
        told.stderr
            .contains(" of activations are offloaded to host memory"),
        "{}",
        told.stderr
    );
    assert!(planned(&told) < planned(&expected), "{}", told.stderr);
    assert_eq!(losses(told), losses(expected));
    assert_eq!(own.model(), plain.model());
}

/// Steps go on from the last checkpoint when the device of the weights is lost, on the next device.
pub(crate) fn a_lost_device_costs_steps_and_no_run(_: &OpenCl) {
    let folder = Folder::new();
    let lost = "--steps 8 --every 3 -o json -b opencl --inject device=opencl:0;op=foreach;nth=12;kind=lost";
    let told = folder.train(lost);
    assert!(
        told.stderr.contains(" was lost: ") && told.stderr.contains("; continuing from step "),
        "{}",
        told.stderr
    );
    let output = told.ok();
    let lines: Vec<u64> = output
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["step"]
                .as_u64()
                .unwrap()
        })
        .collect();
    // Some steps are told twice, none is left out.
    let mut steps = lines.clone();
    steps.sort_unstable();
    steps.dedup();
    assert_eq!(steps, (1..=8).collect::<Vec<_>>());
    assert!(lines.len() > 8, "{lines:?}");
    let straight = Folder::new().train("--steps 8 --every 3 -o json").ok();
    let last = |output: &str| loss(output.lines().last().unwrap(), "loss");
    assert!((last(&output) / last(&straight) - 1.0).abs() < 1e-3);
}

/// A text of some times the memory that the program may have for its data.
#[cfg(target_os = "linux")]
pub(crate) fn a_text_may_be_larger_than_memory() {
    use std::io::Write;

    let (limit_kib, bytes) = match Extent::of_tests() {
        Extent::Full => (64 << 10, 384 << 20),
        Extent::Sample(_) => (40 << 10, 64 << 20),
    };
    let folder = Folder::new();
    let prose = fs::read_to_string(model("classics-eval.txt")).unwrap();
    let mut text = std::io::BufWriter::new(fs::File::create(folder.path("text.txt")).unwrap());
    for i in 0..bytes / prose.len() {
        // Not all parts are the same.
        let start = (i % 1000 * 100..).find(|&at| prose.is_char_boundary(at));
        text.write_all(&prose.as_bytes()[start.unwrap()..]).unwrap();
    }
    drop(text);
    let program = program(folder.args("--steps 2 -o json"));
    let mut limited = Command::new("sh");
    limited
        .args([
            "-c",
            &format!("ulimit -d {limit_kib} && exec \"$0\" \"$@\""),
        ])
        .arg(program.get_program())
        .args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let told: Run = limited.output().unwrap().into();
    assert_eq!(steps(&told.ok()).len(), 2);
}

/// Starts a run, and kills it when it has told `lines` steps, after a while.
fn kill_after(mut child: Child, lines: usize, pause: Duration) -> String {
    let mut told = String::new();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..lines {
        reader.read_line(&mut told).unwrap();
    }
    thread::sleep(pause);
    child.kill().unwrap();
    child.wait().unwrap();
    // Lines that were written meanwhile count as well. An unfinished line does not.
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line.ends_with('\n') {
        told.push_str(&std::mem::take(&mut line));
    }
    told
}

pub(crate) fn a_run_that_is_killed_goes_on_as_if_it_had_not_been() {
    let straight = Folder::new();
    let expected = steps(&straight.train("-o json").ok());
    // Moments: steps that are told, and what passes then.
    let moments = (0..20).map(|i| (i * 5 % 9, Duration::from_millis(i as u64 * 17 % 60)));
    let folder = Folder::new();
    let mut told = BTreeMap::new();
    let mut learn = |output: &str| {
        for step in steps(output) {
            assert_eq!(expected[step.0 as usize - 1], step);
            told.insert(step.0, step);
        }
    };
    for (lines, pause) in Extent::of_tests().choose(moments, 3) {
        let mut command = program(folder.args("--resume -o json"));
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        learn(&kill_after(child, lines, pause));
    }
    learn(&folder.train("--resume -o json").ok());
    assert_eq!(folder.model(), straight.model());
    let curve = |folder: &Folder| fs::read(folder.path("m.svg")).unwrap();
    assert_eq!(curve(&folder), curve(&straight));
    // It did not begin anew each time, and told all that it did not have to tell again.
    assert!(told.contains_key(&24));
}

pub(crate) fn halves_learn_what_single_precision_learns() {
    let losses = |steps: &[Computed]| -> Vec<f64> {
        let loss = |step: &Computed| step.1.split(' ').next().unwrap().parse().unwrap();
        steps.iter().map(loss).collect()
    };
    let single = losses(&steps(&Folder::new().train("-o json").ok()));
    for precision in ["bf16", "f16"] {
        let options = format!("--precision {precision} -o json");
        let straight = Folder::new();
        let expected = steps(&straight.train(&options).ok());
        let halves = losses(&expected);
        assert_ne!(halves, single, "{precision}");
        for (half, single) in halves.iter().zip(&single) {
            assert!((half - single).abs() < 0.01 * single, "{half} and {single}");
        }
        // The scale of losses is in checkpoints, too.
        let folder = Folder::new();
        let command = program(folder.args(&options))
            .stdout(Stdio::piped())
            .spawn();
        kill_after(command.unwrap(), 12, Duration::ZERO);
        let rest = steps(&folder.train(&format!("--resume {options}")).ok());
        assert_eq!(rest[..], expected[expected.len() - rest.len()..]);
        assert_eq!(folder.model(), straight.model(), "{precision}");
    }
}

pub(crate) fn ctrl_c_keeps_what_was_learnt() {
    let folder = Folder::new();
    let mut command = program(folder.args("-o json"));
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = String::new();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..3 {
        reader.read_line(&mut told).unwrap();
    }
    interrupt(&child);
    reader.read_to_string(&mut told).unwrap();
    let ended: Run = child.wait_with_output().unwrap().into();
    assert_eq!(ended.status, 130, "{}", ended.stderr);
    let last = steps(&told).pop().unwrap().0;
    assert!(ended.stderr.contains(&format!(
        "stopped after step {last} of 24; add --resume to continue"
    )));
    // Without it nothing that was learnt is lost.
    let refused = folder.train("").error(2);
    assert!(
        refused.contains(&format!(
            "checkpoint of step {last}; continue with --resume"
        )),
        "{refused}"
    );
    let rest = steps(&folder.train("--resume -o json").ok());
    assert_eq!(rest[0].0, last + 1);
    let straight = Folder::new();
    straight.train("").ok();
    assert_eq!(folder.model(), straight.model());
}

pub(crate) fn a_checkpoint_of_another_run_is_refused_and_a_damaged_one_passed_over() {
    let folder = Folder::new();
    let kept = format!("--checkpoint {}", arg(&folder.path("kept")));
    let whole = folder.train(&format!("{kept} -o json")).ok();
    let names = || {
        let files = fs::read_dir(folder.path("kept"))
            .unwrap()
            .map(|file| file.unwrap().file_name());
        let mut names: Vec<String> = files.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name.starts_with("step-"));
        names.sort();
        names
    };
    assert_eq!(
        names(),
        ["step-00000020.safetensors", "step-00000024.safetensors"]
    );
    let other = folder.train(&format!("{kept} --resume --lr 0.01")).error(1);
    for part in [
        "step-00000024.safetensors",
        "lr was 0.001 and is 0.01",
        "--checkpoint",
    ] {
        assert!(other.contains(part), "{other}");
    }
    let last = folder.path("kept/step-00000024.safetensors");
    let bytes = fs::read(&last).unwrap();
    fs::write(&last, &bytes[..bytes.len() / 2]).unwrap();
    let resumed = folder.train(&format!("{kept} --resume -o json"));
    assert!(
        resumed
            .stderr
            .contains("continuing from the checkpoint before it"),
        "{}",
        resumed.stderr
    );
    let expected: Vec<Computed> = steps(&whole).split_off(20);
    assert_eq!(steps(&resumed.ok()), expected);
}

pub(crate) fn a_checkpoint_that_cannot_be_written_ends_nothing() {
    let folder = Folder::new();
    let kept = folder.path("kept");
    fs::create_dir_all(kept.join("step-00000010.safetensors.d")).unwrap();
    // A folder is where the file should be.
    fs::create_dir_all(kept.join("step-00000005.safetensors")).unwrap();
    let told = folder.train(&format!("--checkpoint {} --resume -o json", arg(&kept)));
    assert!(
        told.stderr
            .contains("warning: cannot write the checkpoint of step 5: "),
        "{}",
        told.stderr
    );
    assert!(
        told.stderr.contains("training continues"),
        "{}",
        told.stderr
    );
    let straight = Folder::new();
    assert_eq!(steps(&told.ok()), steps(&straight.train("-o json").ok()));
    assert_eq!(folder.model(), straight.model());
}

/// A model to be trained further, and what is to be learnt: answers in one style.
fn base(folder: &Folder) -> String {
    fs::remove_file(folder.path("m.gguf")).ok();
    folder.train("").ok();
    let path = folder.path("base.gguf");
    fs::rename(folder.path("m.gguf"), &path).unwrap();
    let line = |i: usize| {
        let messages = serde_json::json!([
            { "role": "user", "content": format!("Question {i}") },
            { "role": "assistant", "content": "aye aye aye" },
        ]);
        serde_json::json!({ "messages": messages }).to_string() + "\n"
    };
    fs::write(
        folder.path("chat.jsonl"),
        (0..40).map(line).collect::<String>(),
    )
    .unwrap();
    arg(&path)
}

/// Trains a model further, with these options.
fn tune(folder: &Folder, model: &str, more: &str) -> Run {
    let (out, chat) = (
        arg(&folder.path("tuned.gguf")),
        arg(&folder.path("chat.jsonl")),
    );
    let given = [
        "train",
        "--finetune",
        model,
        "--out",
        &out,
        "--context",
        "128",
        "--batch",
        "4",
        "-b",
        "cpu",
        "-t",
        "1",
    ];
    let more = more.replace("CHAT", &chat);
    run(given.into_iter().chain(more.split_whitespace()))
}

pub(crate) fn a_model_learns_to_answer() {
    let folder = Folder::new();
    let model = base(&folder);
    let context = tune(&folder, &model, "--chat CHAT --steps 1").error(2);
    assert!(
        context.contains("--context 128 is more than the model's 32"),
        "{context}"
    );
    let bundled = crate::support::model_arg("classics-13m-f16.gguf");
    let merged = arg(&folder.path("merged.gguf"));
    let tuned = tune(
        &folder,
        &bundled,
        &format!("--chat CHAT --lora 4 --merged {merged} --steps 10 --every 1 --lr 0.01 -o json"),
    );
    let written = format!("tuned.gguf, the merged model to {merged} and the loss curve to");
    assert!(tuned.stderr.contains(&written), "{}", tuned.stderr);
    let told = tuned.ok();
    let lines: Vec<&str> = told.lines().collect();
    // Half of what it did not know of held-out answers, and more, is learnt.
    assert!(
        loss(lines[9], "val_loss") < 0.5 * loss(lines[0], "val_loss"),
        "{told}"
    );
    // The adapter and the model that has it in its weights say the same.
    let adapter = arg(&folder.path("tuned.gguf"));
    let logits = |args: &[&str]| -> Vec<f64> {
        let run = run(["logits", "--ids", "0,5,300,7", "--last", "-b", "cpu"]
            .iter()
            .chain(args));
        let json = run.json();
        serde_json::from_value(json["logits"][0].clone()).unwrap()
    };
    let [with, within] = [
        logits(&["-m", &bundled, "--lora", &adapter]),
        logits(&["-m", &merged]),
    ];
    let apart = with
        .iter()
        .zip(&within)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max);
    assert!(apart < 0.05, "{apart}");
    let plain = logits(&["-m", &bundled]);
    assert!(plain.iter().zip(&with).any(|(a, b)| (a - b).abs() > 0.5));
}

pub(crate) fn all_weights_of_a_model_learn_a_text() {
    let folder = Folder::new();
    let model = base(&folder);
    let text = folder.path("other.txt");
    fs::write(&text, "She said so, and so she did. ".repeat(300)).unwrap();
    let more = format!(
        "--text {} --context 32 --steps 20 --lr 0.01 -o json",
        arg(&text)
    );
    let out = arg(&folder.path("tuned.gguf"));
    let given = [
        "train",
        "--finetune",
        &model,
        "--out",
        &out,
        "--batch",
        "4",
        "--every",
        "5",
        "-b",
        "cpu",
        "-t",
        "1",
    ];
    let told = run(given.into_iter().chain(more.split_whitespace())).ok();
    let lines: Vec<&str> = told.lines().collect();
    assert!(
        loss(lines[19], "val_loss") < 0.8 * loss(lines[4], "val_loss"),
        "{told}"
    );
    assert_eq!(
        run(["-m", &out, "-p", "She", "-n", "4", "-b", "cpu"]).status,
        0
    );
}

/// A new model with experts learns, runs, and is trained further.
pub(crate) fn other_architectures_learn() {
    let folder = Folder::new();
    let keys = [
        "expert_count=int:4",
        "expert_used_count=int:2",
        "expert_feed_forward_length=int:32",
    ];
    let keys = keys.map(|key| format!("qwen3moe.{key}")).join(",");
    let more = format!("-o json --architecture qwen3moe --override-kv {keys}");
    let told = folder.train(&more).ok();
    let losses: Vec<f64> = told.lines().map(|line| loss(line, "loss")).collect();
    assert!(losses[losses.len() - 1] < losses[0] - 0.1, "{losses:?}");
    let out = arg(&folder.path("m.gguf"));
    let inspected = run(["inspect", &out]).ok();
    assert!(inspected.contains("qwen3moe"), "{inspected}");
    run(["-m", &out, "-p", "She", "-n", "4", "-b", "cpu"]).ok();
    let missing = folder.train("--architecture gpt2").error(2);
    assert!(
        missing.contains("gpt2.attention.layer_norm_epsilon"),
        "{missing}"
    );
    let unknown = folder.train("--architecture nothing").error(2);
    assert!(
        unknown.contains("architecture \"nothing\" is not supported"),
        "{unknown}"
    );
}

pub(crate) fn what_cannot_be_trained_is_told() {
    let folder = Folder::new();
    let text = folder.path("text.txt");
    let refused = |more: &str, status: i32, parts: &[&str]| {
        let line = folder.train(more).error(status);
        for part in parts {
            assert!(line.contains(part), "no {part:?} in: {line}");
        }
    };
    refused("--width 33", 2, &["--width 33", "multiple of 4"]);
    refused("--kv-heads 3", 2, &["--kv-heads 3", "2 heads"]);
    refused("--layers 0", 2, &["at least 1"]);
    refused("--context 0", 2, &["--context 0"]);
    refused("--batch 0", 2, &["--batch 0"]);
    refused("--batch many", 2, &["many", "or auto"]);
    refused("--gpus 2", 2, &["-b", "--gpus", "omit -b"]);
    refused("--gpus 0", 2, &["--gpus", "without a GPU"]);
    refused(
        "--ranks 5",
        2,
        &["--batch 4: 5 ranks cannot divide it; give at least 5"],
    );
    refused(
        "--ranks 2 --batch auto",
        2,
        &["--batch auto is for one rank"],
    );
    refused("--lr=-1", 2, &["--lr -1"]);
    refused("--min-lr 1", 2, &["--min-lr 1", "--lr 0.001"]);
    refused("--vocab 100", 1, &["vocabulary of 100", "258"]);
    refused("--val /no/such.txt", 1, &["/no/such.txt", "check the path"]);
    refused("--context 4096", 2, &["too short", "4096", "--context"]);
    let diverged = folder.train("--lr 1e9 --clip 0");
    assert_eq!(diverged.status, 1);
    let told = diverged.stderr.lines().last().unwrap();
    assert!(
        told.starts_with("error: the loss of step ") && told.contains("--lr"),
        "{told}"
    );
    let short = folder.path("short.txt");
    fs::write(&short, "Too short.").unwrap();
    let val = format!("--val {}", arg(&short));
    refused(&val, 2, &["short.txt", "too short", "--context"]);
    fs::write(&short, "").unwrap();
    refused(&val, 1, &["short.txt", "empty"]);
    fs::create_dir(folder.path("m.gguf")).unwrap();
    refused("", 2, &["m.gguf", "directory"]);
    fs::remove_dir(folder.path("m.gguf")).unwrap();
    refused("--memory much", 2, &["--memory", "such as 500M"]);
    fs::write(&text, "").unwrap();
    refused("", 1, &["text.txt", "empty"]);
    fs::write(&text, b"text \xff text").unwrap();
    refused("", 1, &["text.txt", "byte 5", "UTF-8"]);
    fs::write(&text, "The same words, the same words. ".repeat(200)).unwrap();
    let fewer = folder.train("");
    assert!(
        fewer.stderr.contains("the texts give ") && fewer.stderr.contains("rather than 300"),
        "{}",
        fewer.stderr
    );
    fewer.ok();
}
