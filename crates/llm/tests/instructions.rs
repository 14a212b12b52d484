//! How many instructions the processor takes for what it does around kernels, held to `instructions.json`: clocks are
//! too noisy to see a few per cent, and counts are the same on every run.
//!
//! Counts need valgrind, on Linux on x86-64. They are those of one compiler, C library and valgrind, which the file
//! names: elsewhere the tests are ignored. After a change on purpose, count anew by
//!
//! ```sh
//! RUSTORCH_INSTRUCTIONS=write cargo test --release --workspace --test instructions
//! ```

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use rustorch_cpu::Cpu;
use rustorch_gguf::Gguf;
use rustorch_ir::ops::UnaryOp;
use rustorch_ir::{DType, Graph, TensorType};
use rustorch_llm::sampler::{SamplerChain, SamplerConfig};
use rustorch_llm::{Model, load_tokenizer};
use rustorch_profile::ProfilerOptions;
use rustorch_runtime::{Backend, HostBuffer, Routing, Runtime, Storage};
use rustorch_tensor::{AttentionOptions, RusTorchResult, Tensor, Trace, with_runtime};
use rustorch_testing::instructions::{self, rustorch_counted, tools};
use rustorch_testing::{Suite, tests};
use rustorch_tokenizer::EncodeOptions;
use serde::{Deserialize, Serialize};

/// Says what the program does instead of testing: `write` counts anew; a case's name runs that.
const VARIABLE: &str = "RUSTORCH_INSTRUCTIONS";
/// By how much a count may differ, as a part of it. Maps are hashed by other numbers in each run, which is a hundredth of that.
const TOLERANCE: f64 = 0.01;
/// The same of a run that is profiled: it tells of its launches every few milliseconds, so that a slow machine does so more often.
const TOLERANCE_BY_TIME: f64 = 0.03;

/// A case: its name, and a function that prepares and returns the counted work.
type Case = (&'static str, fn() -> Box<dyn FnMut()>);

const CASES: [Case; 8] = [
    ("planner", planner),
    ("replay", replay),
    ("profiled", profiled),
    ("one operation", one_operation),
    ("recording", recording),
    ("tokenizer", tokenizer),
    ("gguf", gguf),
    ("sampler", sampler),
];

/// Running the layers after they were profiled, which is compared with `replay`.
const ONCE_PROFILED: Case = ("once profiled", once_profiled);
/// Share by which a run may grow after one profiled run. Two counts of the same run differ by as much.
const NOTHING: f64 = 0.001;

/// A program of so many parts, and its name.
type Growing = (&'static str, fn(usize) -> RusTorchResult<()>);

/// Programs that take as many instructions for each of their parts, however many there are.
const GROWING: [Growing; 5] = [
    ("recorded", recorded),
    ("differentiated", differentiated),
    ("handles", handles),
    ("views", views),
    ("writes", writes),
];
/// The sizes that are compared.
const SIZES: [usize; 3] = [10, 100, 1000];
/// Share of instructions that a part may take more in a large program than in a small one: lists grow, and
/// maps of many values are found in caches less often.
const GROWTH: f64 = 0.3;

/// Operations that share their operands, one after the other.
fn recorded(count: usize) -> RusTorchResult<()> {
    let mut h = Tensor::from_slice(&[0.5_f32; 256], [8, 32])?;
    for _ in 0..count {
        h = (h.sigmoid()? * h.tanh()? + &h)?;
    }
    h.eval().map(drop)
}

/// The same, with gradients.
fn differentiated(count: usize) -> RusTorchResult<()> {
    let leaf = Tensor::from_slice(&[0.5_f32; 256], [8, 32])?.requires_grad_(true)?;
    let mut h = leaf.clone();
    for _ in 0..count {
        h = (h.sigmoid()? * h.tanh()? + &h)?;
    }
    h.sum_all()?.backward()?;
    leaf.grad().expect("a gradient").eval().map(drop)
}

/// Many results of the same tensor, which are held.
fn handles(count: usize) -> RusTorchResult<()> {
    let mut x = Tensor::from_slice(&[0.5_f32; 4], [4])?;
    let held: RusTorchResult<Vec<Tensor>> = (0..count).map(|_| x.neg()).collect();
    let held = held?;
    // They read what is written over.
    x.add_(1)?.eval()?;
    assert!(held.iter().all(Tensor::is_ready));
    Ok(())
}

/// Many views of what was not computed, each of which is read.
fn views(count: usize) -> RusTorchResult<()> {
    let x = Tensor::from_slice(&vec![0.5_f32; count], [count])?.neg()?;
    let parts: RusTorchResult<Vec<Tensor>> = (0..count).map(|i| x.narrow(0, i, 1)).collect();
    for part in parts? {
        part.eval()?;
    }
    Ok(())
}

/// Many writes over one tensor, whose clone is read at last.
fn writes(count: usize) -> RusTorchResult<()> {
    let mut x = Tensor::from_slice(&[0.5_f32; 4], [4])?;
    let clone = x.clone();
    for _ in 0..count {
        x.mul_(0.5)?;
    }
    clone.eval().map(drop)
}

/// Fails if a part of a large program takes more instructions than one of a small program.
fn large_programs_take_as_much_for_each_part(_: &Counts) {
    let mut grown = Vec::new();
    for (name, _) in GROWING {
        let counts = SIZES.map(|size| count(&format!("{name} {size}")));
        // Instructions that a program of any size takes are left out.
        let part =
            |at: usize| (counts[at + 1] - counts[at]) as f64 / (SIZES[at + 1] - SIZES[at]) as f64;
        if part(1) > part(0) * (1.0 + GROWTH) {
            grown.push(format!(
                "{name}: {:.0} and then {:.0} for each part",
                part(0),
                part(1)
            ));
        }
    }
    assert!(grown.is_empty(), "{}", grown.join("\n"));
}

/// The program of a name and a size.
fn growing(case: &str) -> Option<Box<dyn FnMut()>> {
    let (name, size) = case.split_once(' ')?;
    let (_, program) = GROWING.into_iter().find(|(known, _)| *known == name)?;
    let (size, runtime) = (size.parse().ok()?, runtime());
    Some(Box::new(move || {
        let done = with_runtime(&runtime, Routing::AUTO, || program(size));
        done.expect("a result");
    }))
}

fn runtime() -> Runtime {
    Runtime::new([Arc::new(Cpu::new(1)) as Arc<dyn Backend>])
}

/// A few layers of a transformer, with weights of zeros.
fn layers(x: &Tensor, weight: &Tensor) -> RusTorchResult<Tensor> {
    let mut x = x.clone();
    let width = x.shape()[1];
    for _ in 0..8 {
        let normed = x.rms_norm([width], None, 1e-5)?;
        let heads = |x: &Tensor| x.linear(weight, None)?.reshape([1, 4, 4, width / 4]);
        let [q, k, v] = [heads(&normed)?, heads(&normed)?, heads(&normed)?];
        let mixed = q.scaled_dot_product_attention(&k, &v, AttentionOptions::default())?;
        x = x.add(&mixed.reshape([4, width])?.linear(weight, None)?)?;
        let normed = x.layer_norm([width], None, None, 1e-5)?;
        let gate = normed.linear(weight, None)?.silu()?;
        let wide = gate.mul(&normed.linear(weight, None)?)?;
        x = x.add(&wide.linear(weight, None)?)?;
    }
    x.softmax(1)
}

fn trace(runtime: &Runtime) -> Trace {
    with_runtime(runtime, Routing::AUTO, || {
        let weight = Tensor::zeros([16, 16], DType::F32)?;
        weight.eval()?;
        let x = Tensor::placeholder([4, 16], DType::F32)?;
        Trace::new(&[&x], &[&layers(&x, &weight)?])
    })
    .expect("a recording")
}

fn zeros(bytes: usize) -> Storage {
    Storage::from_host(HostBuffer::zeroed(bytes).expect("a few bytes"))
}

/// Planning the layers.
fn planner() -> Box<dyn FnMut()> {
    let trace = trace(&runtime());
    Box::new(move || {
        black_box(trace.executable().placement().expect("a plan"));
    })
}

/// Running them again, of which little is kernels: matrices are small.
fn replay() -> Box<dyn FnMut()> {
    replay_on(&runtime())
}

fn replay_on(runtime: &Runtime) -> Box<dyn FnMut()> {
    let (trace, input, mut outputs) = (trace(runtime), [zeros(4 * 16 * 4)], Vec::new());
    Box::new(move || trace.run_into(&input, &mut outputs).expect("a result"))
}

/// The same, when nobody looks on any more.
fn once_profiled() -> Box<dyn FnMut()> {
    let runtime = runtime();
    let mut run = replay_on(&runtime);
    let profiler = ProfilerOptions::new().start(&runtime);
    run();
    let profile = profiler.finish();
    let averages = profile.key_averages();
    assert!(averages.find("fused_linear").is_some(), "{averages}");
    run
}

/// The same while it is profiled: what the thread takes that computes.
fn profiled() -> Box<dyn FnMut()> {
    let runtime = runtime();
    let mut run = replay_on(&runtime);
    let profiler = ProfilerOptions::new().start(&runtime);
    Box::new(move || {
        let _looks_on = &profiler;
        run();
    })
}

/// A graph of one operation, which is known.
fn one_operation() -> Box<dyn FnMut()> {
    let mut graph = Graph::new();
    let x = graph
        .input(TensorType::new([4], DType::F32))
        .expect("an input");
    let y = graph.unary(UnaryOp::Neg, x).expect("an operation");
    graph.output(y);
    let (runtime, input) = (runtime(), [zeros(16)]);
    Box::new(move || {
        let outputs = runtime.run(&graph, &input, Routing::AUTO);
        black_box(outputs.expect("a result"));
    })
}

/// Computing a tensor by operations that are recorded again each time, and known.
fn recording() -> Box<dyn FnMut()> {
    let runtime = runtime();
    let x = with_runtime(&runtime, Routing::AUTO, || {
        Tensor::from_slice(&[1.0_f32; 4], [4])
    });
    let x = x.expect("a tensor");
    Box::new(move || {
        let result = with_runtime(&runtime, Routing::AUTO, || {
            x.add(1.5)?.mul(&x)?.eval().map(drop)
        });
        result.expect("a result");
    })
}

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models")
}

fn bundled() -> Gguf {
    Gguf::open(models().join("classics-13m-Q4_K_M.gguf")).expect("the bundled model")
}

/// Cutting 8 KiB of a book into tokens.
fn tokenizer() -> Box<dyn FnMut()> {
    let tokenizer = load_tokenizer(&bundled()).expect("a tokenizer");
    let tokenizer = tokenizer.expect("a tokenizer");
    let text = fs::read_to_string(models().join("classics-eval.txt")).expect("a text");
    let text: String = text.chars().take(8 << 10).collect();
    let options = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    Box::new(move || {
        black_box(tokenizer.encode(&text, options));
    })
}

/// Reading what is in front of the bundled model's tensors, and taking these for a model.
fn gguf() -> Box<dyn FnMut()> {
    Box::new(|| {
        black_box(Model::load(bundled()).expect("a model"));
    })
}

/// Choosing tokens by llama.cpp's chain of samplers, among 4,096.
fn sampler() -> Box<dyn FnMut()> {
    let config = SamplerConfig {
        seed: Some(42),
        ..SamplerConfig::default()
    }
    .repeat_penalty(1.1);
    let mut chain = SamplerChain::new(&config).expect("a chain");
    let mut state = 7_u32;
    let mut logit = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / 1_048_576.0 - 8.0
    };
    let logits: Vec<f32> = (0..4096).map(|_| logit()).collect();
    Box::new(move || {
        let token = chain.sample(&logits).expect("a token");
        chain.accept(token);
    })
}

/// Counts, and what they were counted with.
#[derive(PartialEq, Serialize, Deserialize)]
struct Counts {
    with: Vec<String>,
    instructions: BTreeMap<String, u64>,
}

impl Counts {
    fn path() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/instructions.json")
    }

    fn read() -> Self {
        let text = fs::read(Self::path()).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

/// Whether this is the program whose instructions are counted.
fn is_comparable(known: &Counts, tools: &[String]) -> Result<(), String> {
    if cfg!(debug_assertions) {
        return Err("counts are of `--release`".to_owned());
    }
    if env::var_os("LLVM_PROFILE_FILE").is_some() {
        return Err("this program counts by itself what was covered".to_owned());
    }
    match known.with == tools {
        true => Ok(()),
        false => Err(format!(
            "counted with {}, and here is {}",
            known.with.join(", "),
            tools.join(", ")
        )),
    }
}

/// The instructions of a case.
fn count(case: &str) -> u64 {
    instructions::count(VARIABLE, case)
}

/// How much more, as a part, a case takes than it did; and that as a line.
fn change(case: &str, is: u64, was: u64) -> (f64, String) {
    let change = is as f64 / was as f64 - 1.0;
    let line = format!(
        "{case:16} {was:12} is now {is:12}: {:+.2} %",
        100.0 * change
    );
    (change, line)
}

/// Fails if a case takes more instructions than it did, or fewer, which is to be kept.
fn nothing_takes_more_instructions_than_it_did(known: &Counts) {
    let changed = CASES.into_iter().filter_map(|(case, _)| {
        let (change, line) = change(case, count(case), known.instructions[case]);
        let tolerance = match case {
            "profiled" => TOLERANCE_BY_TIME,
            _ => TOLERANCE,
        };
        (change.abs() > tolerance).then_some(line)
    });
    let changed: Vec<String> = changed.collect();
    assert!(
        changed.is_empty(),
        "{}\nIf that is meant: {VARIABLE}=write cargo test --release --workspace --test instructions",
        changed.join("\n")
    );
}

/// Fails if a run takes more instructions than one of a process in which nobody ever looked on.
fn a_profiler_that_is_off_costs_nothing(_: &Counts) {
    let never = count("replay");
    let (once, _) = ONCE_PROFILED;
    let (more, told) = change(once, count(once), never);
    assert!(more.abs() < NOTHING, "{told}");
    // It was looked on: that is what the others do without.
    let (during, told) = change("profiled", count("profiled"), never);
    assert!(during > 3.0 * NOTHING, "{told}");
}

/// Counts all cases, prints them beside what they were, and writes them down.
fn write() -> ExitCode {
    let with = match tools() {
        Ok(tools) => tools,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let known = Counts::read();
    let mut instructions = BTreeMap::new();
    for (case, _) in CASES {
        let is = count(case);
        let was = known.instructions.get(case).copied().unwrap_or(is);
        println!("{}", change(case, is, was).1);
        instructions.insert(case.to_owned(), is);
    }
    let counts = Counts { with, instructions };
    let text = serde_json::to_string_pretty(&counts).unwrap() + "\n";
    fs::write(Counts::path(), text).unwrap();
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    match env::var(VARIABLE).as_deref() {
        Err(_) => {}
        Ok("write") => return write(),
        Ok(name) => {
            let mut all = CASES.iter().chain([&ONCE_PROFILED]);
            let case = all.find(|(case, _)| *case == name);
            let known = case.map(|(_, prepare)| (prepare(), [3, 50]));
            let run = known.or_else(|| Some((growing(name)?, [1, 1])));
            let (mut run, [first, counted]) =
                run.unwrap_or_else(|| panic!("{VARIABLE}={name}: no such case"));
            // The first ones take memory and remember.
            (0..first).for_each(|_| run());
            (0..counted).for_each(|_| rustorch_counted(&mut *run));
            return ExitCode::SUCCESS;
        }
    }
    let tests = tests![
        nothing_takes_more_instructions_than_it_did,
        a_profiler_that_is_off_costs_nothing,
        large_programs_take_as_much_for_each_part,
    ];
    let known = Counts::read();
    let comparable = tools().map(|tools| is_comparable(&known, &tools));
    match comparable {
        // Valgrind was promised, not the compiler that the counts are of.
        Ok(Err(other)) => Suite::new().on(Err(other), "", tests),
        Ok(Ok(())) => Suite::new().on(Ok::<_, String>(known), PROMISE, tests),
        Err(missing) => Suite::new().on(Err(missing), PROMISE, tests),
    }
    .run()
}

const PROMISE: &str = "RUSTORCH_TEST_VALGRIND";
