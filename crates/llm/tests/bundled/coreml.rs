//! The bundled model with an emulated Core ML.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustorch_conformance::Extent;
use rustorch_coreml::cache::Cache;
use rustorch_coreml::{CoreMl, Options, Precision, Settings};
use rustorch_coreml_emulator::{Call, Emulated, Fault};
use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault as Injected, FaultKind, Faulty, When};
use rustorch_ir::{Graph, OpKind, Signature};
use rustorch_llm::golden::largest;
use rustorch_llm::{Model, Session, SessionOptions, perplexity};
use rustorch_runtime::{
    Backend, Compilation, Deadline, DeviceError, DeviceInfo, DeviceMemory, DeviceType,
    FailureClass, Fallback, GpuDevice, Hardware, Program, Routing, Runtime,
};
use rustorch_tokenizer::EncodeOptions;

use crate::common::{Devices, find_metal, find_opencl, load, models};

const PROMPT: [u32; 5] = [0, 48, 1299, 602, 260];
const TOKENS: usize = 3;

/// Weights of the model, about.
const WEIGHTS: u64 = 13_000_000;

const COREML: DeviceType = DeviceType::CoreML(0);
const COREML_HYBRID: DeviceType = DeviceType::CoreMLHybrid {
    coreml_id: 0,
    fallback_gpu: Some(GpuDevice::Metal(0)),
};

/// Core ML of macOS 15 that keeps what it compiles in `folder`.
fn coreml(folder: &Path) -> Arc<CoreMl<Emulated>> {
    coreml_of(15, Precision::F32, folder)
}

fn coreml_of(macos: u32, precision: Precision, folder: &Path) -> Arc<CoreMl<Emulated>> {
    let settings = Settings {
        options: Options {
            precision,
            ..Options::default()
        },
        ..settings(folder)
    };
    Arc::new(CoreMl::new(Emulated::new(macos), 0, settings).unwrap())
}

fn settings(folder: &Path) -> Settings {
    Settings {
        deadline: Deadline::after(Duration::from_secs(600)),
        ..Settings::new(Cache::new(folder, 1 << 30))
    }
}

fn cpu() -> Arc<dyn Backend> {
    Arc::new(Cpu::new(1))
}

/// A device before all others.
fn first(device: DeviceType) -> Routing {
    Routing {
        device,
        ..Routing::AUTO
    }
}

fn generate(model: &Model, runtime: &Runtime, device: DeviceType) -> Vec<u32> {
    generate_by(model, runtime, first(device))
}

/// Greedy tokens, the largest at each step.
fn generate_by(model: &Model, runtime: &Runtime, routing: Routing) -> Vec<u32> {
    let options = SessionOptions {
        context: 32,
        routing,
        ..SessionOptions::default()
    };
    let mut session = Session::new(model, runtime, options).unwrap();
    let mut logits = Vec::new();
    session.feed(&PROMPT, &mut logits).unwrap();
    for _ in 0..TOKENS {
        let token = largest(&logits);
        session.feed(&[token], &mut logits).unwrap();
    }
    session.tokens().to_vec()
}

fn on_the_cpu(model: &Model) -> Vec<u32> {
    generate(model, &Runtime::new([cpu()]), DeviceType::Cpu)
}

/// Devices of the operations that ran.
fn used(runtime: &Runtime) -> Vec<DeviceType> {
    runtime.used_devices().into_iter().map(|d| d.0).collect()
}

/// Bytes of the files in a folder.
fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let bytes = entries.map(|entry| match entry.metadata().unwrap() {
        folder if folder.is_dir() => bytes_in(&entry.path()),
        file => file.len(),
    });
    bytes.sum()
}

/// With weights of halves, and with weights in blocks. They are constants of programs, which have
/// more than 4 bits of each weight of the model.
pub(crate) fn core_ml_chooses_the_tokens_of_the_cpu() {
    for name in ["f16", "Q8_0", "Q4_K_M"] {
        chooses_the_tokens_of_the_cpu(&load(name), WEIGHTS);
    }
}

pub(crate) fn chooses_the_tokens_of_the_cpu(model: &Model, weights: u64) {
    let folder = tempfile::tempdir().unwrap();
    let coreml = coreml(folder.path());
    let runtime = Runtime::new([coreml.clone() as Arc<dyn Backend>, cpu()]);
    let tokens = generate(model, &runtime, COREML);
    assert_eq!(tokens, on_the_cpu(model));
    assert!(used(&runtime).contains(&COREML));
    let fallbacks = runtime.fallbacks();
    assert_eq!(fallbacks.len(), 0, "{fallbacks:?}");
    let kept = bytes_in(folder.path());
    assert!(kept > weights / 2, "{kept} bytes of programs");
}

/// Core ML's compiler does not end before the first tokens are there.
pub(crate) fn the_first_token_does_not_wait_for_core_mls_compiler() {
    let (model, folder) = (load("Q8_0"), tempfile::tempdir().unwrap());
    let expected = on_the_cpu(&model);
    let open = || {
        let api = Emulated::new(15).compiling_slowly(Compilation {
            program: Duration::from_secs(20),
            least_operations: 2,
        });
        api.hold(Call::Compile);
        Arc::new(CoreMl::new(api, 0, settings(folder.path())).unwrap())
    };
    let devices =
        |coreml: &Arc<CoreMl<Emulated>>| Runtime::new([coreml.clone() as Arc<dyn Backend>, cpu()]);
    let coreml = open();
    let runtime = devices(&coreml);
    let options = SessionOptions {
        context: 32,
        routing: Routing {
            device: COREML,
            ..Routing::AUTO
        },
        ..SessionOptions::default()
    };
    let mut session = Session::new(&model, &runtime, options).unwrap();
    let mut logits = Vec::new();
    session.feed(&PROMPT, &mut logits).unwrap();
    for step in 0..TOKENS {
        if step == 0 {
            assert_eq!(used(&runtime), [DeviceType::Cpu]);
            assert_eq!(coreml.api().calls(Call::Load), 0);
            coreml.api().release();
        }
        let token = largest(&logits);
        session.feed(&[token], &mut logits).unwrap();
        runtime.wait_for_compilation();
    }
    assert_eq!(session.tokens(), expected);
    assert!(used(&runtime).contains(&COREML), "{:?}", used(&runtime));
    assert_eq!(runtime.fallbacks(), []);
    drop(session);

    // The next program has it all from the cache, so that it asks no compiler.
    let coreml = open();
    let runtime = devices(&coreml);
    assert_eq!(generate(&model, &runtime, COREML), expected);
    assert!(used(&runtime).contains(&COREML));
    assert_eq!(coreml.api().calls(Call::Compile), 0);
}

/// All layers with their keys and values, from ids to logits, are one program: one for the prompt
/// and one for each token. It needs no system that knows states.
pub(crate) fn a_whole_transformer_is_one_program() {
    for (macos, name) in [(12, "f16"), (14, "Q4_K_M"), (15, "Q8_0")] {
        let (model, folder) = (load(name), tempfile::tempdir().unwrap());
        let coreml = coreml_of(macos, Precision::F32, folder.path());
        let runtime = Runtime::new([coreml.clone() as Arc<dyn Backend>, cpu()]);
        let tokens = generate(&model, &runtime, COREML);
        assert_eq!(tokens, on_the_cpu(&model), "{name}");
        assert_eq!(used(&runtime), [COREML], "{name}");
        let calls = [Call::Compile, Call::Predict].map(|call| coreml.api().calls(call));
        assert_eq!(calls, [2, 1 + TOKENS], "{name}");
        // Both have the same weights, which are kept once.
        assert_eq!(folder.path().join("files").read_dir().unwrap().count(), 1);
    }
}

/// Keys and values are copied into states before the first token, and again where another program has
/// written to them; a session that goes back reads what it had.
pub(crate) fn programs_that_keep_the_cache_choose_the_same_tokens() {
    let model = load("f16");
    let run = |macos, precision, states| {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            options: Options {
                precision,
                states,
                ..Options::default()
            },
            ..settings(folder.path())
        };
        let coreml = Arc::new(CoreMl::new(Emulated::new(macos), 0, settings).unwrap());
        let runtime = Runtime::new([coreml.clone() as Arc<dyn Backend>, cpu()]);
        let options = SessionOptions {
            context: 32,
            routing: Routing {
                device: COREML,
                ..Routing::AUTO
            },
            ..SessionOptions::default()
        };
        let mut session = Session::new(&model, &runtime, options).unwrap();
        let (mut logits, mut all, mut fills) = (Vec::new(), Vec::new(), Vec::new());
        let mut feed = |session: &mut Session, tokens: &[u32]| {
            session.feed(tokens, &mut logits).unwrap();
            all.push(logits.clone());
            fills.push(coreml.api().calls(Call::Fill));
            largest(&logits)
        };
        let mut token = feed(&mut session, &PROMPT);
        for _ in 0..2 {
            token = feed(&mut session, &[token]);
        }
        // Two rows at a time are another program.
        token = feed(&mut session, &[token, 5]);
        for _ in 0..2 {
            token = feed(&mut session, &[token]);
        }
        let mut begun = session.tokens()[..6].to_vec();
        begun.push(7);
        assert_eq!(session.keep_prefix(&begun), 6);
        token = feed(&mut session, &[7]);
        // A prediction that is refused memory may have changed its states.
        coreml.api().fail(Call::Predict, 0, Fault::OutOfMemory);
        feed(&mut session, &[token]);
        assert_eq!(used(&runtime), [COREML]);
        assert_eq!(runtime.fallbacks().len(), 1, "{:?}", runtime.fallbacks());
        (all, fills)
    };
    let caches = 2 * model.spec().layers.len();
    for precision in [Precision::F32, Precision::F16] {
        let (expected, fills) = run(15, precision, false);
        assert!(fills.iter().all(|&fills| fills == 0));
        let (logits, fills) = run(15, precision, true);
        assert!(logits == expected, "{precision}");
        assert_eq!(fills, [0, 1, 1, 1, 2, 2, 2, 3].map(|n| n * caches));
    }
    // A system that does not know them.
    let (_, fills) = run(14, Precision::F16, true);
    assert!(fills.iter().all(|&fills| fills == 0));
}

/// Tokens of the evaluation text in chunks of a context, of which a few are tried.
const CHUNK: usize = 128;

/// By programs of Core ML's in halves: of some chunks of the text, with `RUSTORCH_TEST_FULL` of all.
pub(crate) fn half_precision_keeps_the_perplexity() {
    keeps_the_perplexity(6, None);
}

/// By such programs and Metal, which share the work.
pub(crate) fn half_precision_of_the_mac_hybrid_keeps_the_perplexity(metal: &Devices) {
    keeps_the_perplexity(2, Some(&metal[0]));
}

/// `sample`: how many chunks of the text are tried, of which there have to be two.
fn keeps_the_perplexity(sample: usize, metal: Option<&Arc<dyn Backend>>) {
    let (model, folder) = (load("f16"), tempfile::tempdir().unwrap());
    let text = std::fs::read_to_string(models().join("classics-eval.txt")).unwrap();
    let tokenizer = model.tokenizer().unwrap();
    let tokens = tokenizer.encode(&text, EncodeOptions::default());
    let chunks = Extent::of_tests().choose(tokens.chunks_exact(CHUNK), sample);
    let measured = |runtime: &Runtime, routing: Routing| {
        let options = SessionOptions {
            context: CHUNK,
            routing,
            ..SessionOptions::default()
        };
        let mut session = Session::new(&model, runtime, options).unwrap();
        let tokens = chunks.concat();
        let result = perplexity(&mut session, &tokens, tokenizer.bos(), None, |_| ()).unwrap();
        assert_eq!(result.chunks, chunks.len());
        result.value
    };
    let expected = measured(&Runtime::new([cpu()]), Routing::AUTO);
    let coreml: Arc<dyn Backend> = coreml_of(15, Precision::F16, folder.path());
    let (routing, devices) = match metal {
        Some(metal) => (Routing::MAC_HYBRID, vec![COREML, metal.info().device]),
        None => (first(COREML), vec![COREML]),
    };
    let runtime = Runtime::new([coreml].into_iter().chain(metal.cloned()).chain([cpu()]));
    let value = measured(&runtime, routing);
    println!("perplexity {value:.4} in halves, {expected:.4} on the processor");
    assert_eq!(used(&runtime), devices);
    let off = (value / expected - 1.0).abs();
    assert!(
        off < 0.003,
        "{value} in halves, {expected} on the processor"
    );
}

/// Functions of elements are Core ML's, all else is Metal's, and nothing is copied between the two.
/// If compiling takes long, single operations are not worth a program.
pub(crate) fn the_mac_hybrid_chooses_the_tokens_of_the_cpu(metal: &Devices) {
    let metal = &metal[0];
    let both = [COREML, metal.info().device];
    let slow = Compilation {
        program: Duration::from_secs(1),
        least_operations: 2,
    };
    for (name, api, devices) in [
        ("f16", Emulated::new(15), &both[..]),
        ("Q8_0", Emulated::new(12), &both),
        ("Q8_0", Emulated::new(15).compiling_slowly(slow), &both[1..]),
    ] {
        let (model, folder) = (load(name), tempfile::tempdir().unwrap());
        let coreml = Arc::new(CoreMl::new(api, 0, settings(folder.path())).unwrap());
        let runtime = Runtime::new([coreml.clone() as Arc<dyn Backend>, metal.clone(), cpu()]);
        runtime.set_background_compilation(false);
        let tokens = generate_by(&model, &runtime, Routing::MAC_HYBRID);
        assert_eq!(tokens, on_the_cpu(&model), "{name}");
        assert_eq!(used(&runtime), devices, "{name}");
        assert_eq!(runtime.fallbacks().len(), 0, "{:?}", runtime.fallbacks());
        let memory = runtime.memory();
        let copied: u64 = memory.routes().iter().map(|route| route.moved.bytes).sum();
        assert_eq!((copied, coreml.copied()), (0, 0), "{name}");
    }
}

/// Some calls of each kind fail; with `RUSTORCH_TEST_FULL` all of them.
pub(crate) fn every_fault_at_every_call_of_core_ml() {
    let (model, warm) = (load("f16"), tempfile::tempdir().unwrap());
    let expected = on_the_cpu(&model);
    let counts = {
        let coreml = coreml(warm.path());
        let runtime = Runtime::new([coreml.clone() as Arc<dyn Backend>, cpu()]);
        generate(&model, &runtime, COREML);
        [Call::Compile, Call::Load, Call::Array, Call::Predict]
            .map(|call| (call, coreml.api().calls(call)))
    };
    let faults = [
        Fault::Code(0),
        Fault::Code(1),
        Fault::Code(3),
        Fault::Code(11),
        Fault::OutOfMemory,
        Fault::Hang,
    ];
    for (call, count) in counts {
        assert!(count > 0, "{call:?}");
        for nth in Extent::of_tests().choose(0..count, 2) {
            for fault in Extent::of_tests().choose(faults, 2) {
                strike(&model, &expected, warm.path(), (call, nth, fault));
            }
        }
    }
}

/// One call does not succeed.
fn strike(model: &Model, expected: &[u32], warm: &Path, (call, nth, fault): (Call, usize, Fault)) {
    // Arrays are made where nobody waits with a limit.
    if (call, fault) == (Call::Array, Fault::Hang) {
        return;
    }
    let what = format!("{fault:?} at {call:?} {nth}");
    let cold = tempfile::tempdir().unwrap();
    let mut settings = settings(match call {
        Call::Compile => cold.path(),
        // Programs that are compiled already are not compiled again.
        _ => warm,
    });
    if fault == Fault::Hang {
        settings.deadline = Deadline::after(Duration::from_secs(20));
    }
    let coreml = Arc::new(CoreMl::new(Emulated::new(15), 0, settings).unwrap());
    coreml.api().fail(call, nth, fault);
    let runtime = Runtime::new([coreml as Arc<dyn Backend>, cpu()]);
    assert_eq!(generate(model, &runtime, COREML), expected, "{what}");
    let fallbacks = runtime.fallbacks();
    let class = match fault {
        Fault::Code(_) => FailureClass::Unsupported,
        Fault::OutOfMemory => FailureClass::OutOfMemory { never_fits: false },
        Fault::Hang => FailureClass::Timeout,
        Fault::Abort => panic!("nobody survives that"),
    };
    // A cached program that Core ML refuses is compiled again, if nobody uses it.
    if let ((Call::Load, Fault::Code(_)), []) = ((call, fault), &fallbacks[..]) {
        return;
    }
    assert_eq!(fallbacks.len(), 1, "{what}: {fallbacks:?}");
    assert_eq!(fallbacks[0].error.device, COREML, "{what}");
    assert_eq!(fallbacks[0].error.class, class, "{what}");
}

/// Operations of the bundled model's programs.
const OPERATIONS: [OpKind; 8] = [
    OpKind::Embedding,
    OpKind::RmsNorm,
    OpKind::Linear,
    OpKind::Rope,
    OpKind::UpdateSlice,
    OpKind::Attention,
    OpKind::Activation,
    OpKind::Binary,
];

/// Whatever operation it is that Core ML refuses, at each of its launches, it goes on with the others.
pub(crate) fn a_core_ml_that_refuses_an_operation_changes_no_token() {
    let model = load("f16");
    let expected = on_the_cpu(&model);
    for kind in Extent::of_tests().choose(OPERATIONS, 3) {
        let (folder, name) = (tempfile::tempdir().unwrap(), kind.name());
        let fault = Injected {
            device: COREML,
            op: Some(kind),
            when: When::Probability { p: 1.0, seed: 0 },
            kind: FaultKind::Unsupported,
        };
        let coreml: Arc<dyn Backend> = Arc::new(Faulty::new(coreml(folder.path()), [fault]));
        let runtime = Runtime::new([coreml, cpu()]);
        assert_eq!(generate(&model, &runtime, COREML), expected, "{name}");
        assert!(
            used(&runtime).contains(&COREML),
            "{name}: {:?}",
            used(&runtime)
        );
        let fallbacks = runtime.fallbacks();
        assert!(!fallbacks.is_empty(), "{name}");
        for Fallback { error, .. } in fallbacks {
            assert_eq!(error.op, Some(name), "{error}");
        }
    }
}

/// Emulated Metal and an OpenCL device.
pub(crate) fn find_both() -> Result<[Arc<dyn Backend>; 2], String> {
    let metal = find_metal().map_err(|e| e.to_string())?.remove(0);
    let opencl = find_opencl().map_err(|e| e.to_string())?.remove(0);
    Ok([metal, Arc::new(AsGpu::of(opencl))])
}

/// A device that says that it is a GPU.
struct AsGpu(DeviceInfo, Arc<dyn Backend>);

impl AsGpu {
    fn of(inner: Arc<dyn Backend>) -> Self {
        let info = DeviceInfo {
            hardware: Hardware::Gpu,
            ..inner.info().clone()
        };
        Self(info, inner)
    }
}

impl Backend for AsGpu {
    fn info(&self) -> &DeviceInfo {
        &self.0
    }

    fn supports(&self, signature: &Signature) -> bool {
        self.1.supports(signature)
    }

    fn memory(&self) -> &dyn DeviceMemory {
        self.1.memory()
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        self.1.compile(graph)
    }
}

/// Each device is lost with its first launch.
pub(crate) fn the_chain_is_walked_to_its_end(devices: &[Arc<dyn Backend>; 2]) {
    let (model, folder) = (load("f16"), tempfile::tempdir().unwrap());
    let [metal, opencl] = devices.clone();
    let coreml: Arc<dyn Backend> = coreml(folder.path());
    let chain = [coreml, metal, opencl].map(|inner| -> Arc<dyn Backend> {
        let fault = Injected {
            device: inner.info().device,
            op: None,
            when: When::Nth(1),
            kind: FaultKind::Lost,
        };
        Arc::new(Faulty::new(inner, [fault]))
    });
    let runtime = Runtime::new(chain.into_iter().chain([cpu()]));
    assert_eq!(
        generate(&model, &runtime, COREML_HYBRID),
        on_the_cpu(&model)
    );
    let walked: Vec<_> = (runtime.fallbacks().iter())
        .map(|f| (f.error.device, f.error.class, f.to))
        .collect();
    let [metal, opencl] = [DeviceType::Metal(0), DeviceType::OpenCL(0)];
    let lost = FailureClass::Lost;
    assert_eq!(
        walked,
        [
            (COREML, lost, Some(metal)),
            (metal, lost, Some(opencl)),
            (opencl, lost, Some(DeviceType::Cpu)),
        ]
    );
    assert_eq!(used(&runtime), [DeviceType::Cpu]);
}
