//! The same logits, however the tokens come and wherever layers are.

use std::sync::Arc;

use rustorch_conformance::Extent;
use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, FaultKind, Faulty, When};
use rustorch_llm::spec::TensorSpec;
use rustorch_llm::{
    BackendConfig, LlmError, MemoryNeeds, Model, Placement, PlacementOptions, Session,
    SessionOptions, TensorRule,
};
use rustorch_runtime::{Backend, DeviceType, Routing, Runtime};
use rustorch_testing::models::{Header, TOKENS};

use crate::common::{Devices, cpu, difference, feed, headers, load, logits, none_of, options};

/// Sums in another order round elsewhere, and no more than that.
pub(crate) const NEAR: f32 = 1e-5;

/// Compares with the logits of one batch on the CPU.
fn same(headers: &[Header], way: impl Fn(&Model) -> Result<Vec<f32>, LlmError>) {
    let problems = headers.iter().filter_map(|header| {
        let model = load(header).unwrap();
        let expected = logits(&model, &cpu(), options()).unwrap();
        let name = &header.name;
        match way(&model) {
            Ok(found) => {
                let difference = difference(&found, &expected);
                let problem = || format!("{name}: differs by {difference:.1e} of the largest");
                (difference > NEAR).then(problem)
            }
            Err(error) => Some(format!("{name}: {error}")),
        }
    });
    none_of(&problems.collect::<Vec<_>>());
}

fn in_batches(model: &Model, batch: usize) -> Result<Vec<f32>, LlmError> {
    let options = SessionOptions { batch, ..options() };
    logits(model, &cpu(), options)
}

pub(crate) fn in_pieces() {
    same(&headers(), |model| in_batches(model, 17));
}

pub(crate) fn token_by_token() {
    same(&headers(), |model| in_batches(model, 1));
}

pub(crate) fn after_truncation() {
    same(&headers(), |model| {
        let runtime = cpu();
        let mut session = Session::new(model, &runtime, options())?;
        let (mut rows, mut others) = (Vec::new(), Vec::new());
        let (first, rest) = TOKENS.split_at(13);
        feed(&mut session, first, &mut rows)?;
        feed(&mut session, &[5; 20], &mut others)?;
        session.truncate(first.len());
        feed(&mut session, rest, &mut rows)?;
        Ok(rows)
    });
}

/// A device is lost in the middle of a batch; another one goes on.
pub(crate) fn after_a_loss() {
    same(&headers(), |model| {
        let inner: Arc<dyn Backend> = Arc::new(Cpu::new(1));
        let fault = Fault {
            device: DeviceType::Cpu,
            op: None,
            when: When::Nth(9),
            kind: FaultKind::Lost,
        };
        let faulty = Arc::new(Faulty::new(inner, [fault]));
        let runtime = Runtime::new([faulty as Arc<dyn Backend>, Arc::new(Cpu::new(1))]);
        let rows = logits(model, &runtime, batches_of(25))?;
        assert_eq!(runtime.fallbacks().len(), 1);
        Ok(rows)
    });
}

/// A device is lost, and the other one has no memory while it computes the tokens again. The next calls go on.
pub(crate) fn after_a_failure_while_rebuilding() {
    const BATCH: usize = 5;
    const FAILURES: u64 = 3;
    same(&headers(), |model| {
        let faults = |nth: &[u64], kind| {
            let fault = |&nth: &u64| Fault {
                device: DeviceType::Cpu,
                op: None,
                when: When::Nth(nth),
                kind,
            };
            nth.iter().map(fault).collect::<Vec<_>>()
        };
        let faulty = |faults| Arc::new(Faulty::new(Arc::new(Cpu::new(1)), faults));
        // Launches of a pass: the device is lost in the fourth.
        let calm = faulty(Vec::new());
        let runtime = Runtime::new([calm.clone() as Arc<dyn Backend>]);
        let mut session = Session::new(model, &runtime, batches_of(BATCH))?;
        feed(&mut session, &TOKENS[..3 * BATCH], &mut Vec::new())?;
        let lost = faulty(faults(&[calm.launches() + 1], FaultKind::Lost));
        // A failed launch is tried once more.
        let nths: Vec<_> = (2..2 + 2 * FAILURES).collect();
        let full = faulty(faults(&nths, FaultKind::OutOfMemory));
        let runtime = Runtime::new([lost as Arc<dyn Backend>, full]);
        let mut session = Session::new(model, &runtime, batches_of(BATCH))?;
        let (mut rows, mut failures) = (Vec::new(), 0);
        while session.tokens().len() < TOKENS.len() {
            let rest = &TOKENS[session.tokens().len()..];
            match feed(&mut session, rest, &mut rows) {
                Ok(()) => {}
                Err(_) if failures < FAILURES => failures += 1,
                Err(error) => return Err(error),
            }
        }
        assert!(failures > 0);
        // The loss, and each refusal.
        assert!(runtime.fallbacks().len() > 1);
        Ok(rows)
    });
}

/// Sessions with this batch, on a processor first.
fn batches_of(batch: usize) -> SessionOptions {
    SessionOptions {
        batch,
        routing: Routing {
            device: DeviceType::Cpu,
            ..Routing::AUTO
        },
        ..options()
    }
}

pub(crate) fn layers_on_two_devices(devices: &Devices) {
    for device in devices {
        let chosen = Extent::of_tests().choose(headers(), 8);
        same(&chosen, |model| {
            let runtime = Runtime::new([device.clone(), Arc::new(Cpu::new(1))]);
            let mut layers = vec![DeviceType::Cpu; model.spec().layers.len()];
            layers[1..].fill(device.info().device);
            let rows = logits(
                model,
                &runtime,
                SessionOptions {
                    placement: Placement::of_layers(layers),
                    ..options()
                },
            )?;
            assert_eq!(runtime.used_devices().len(), 2);
            Ok(rows)
        });
    }
}

/// Does the model read experts? A file may have some that are of no use.
fn has_experts(header: &Header) -> bool {
    let model = load(header).unwrap();
    model.tensors().iter().any(TensorSpec::are_experts)
}

/// The logits on a device and the processor, with tensors where rules put them. At least one tensor is put elsewhere.
fn ruled(device: &Arc<dyn Backend>, model: &Model, rules: Vec<TensorRule>) -> Vec<f32> {
    let runtime = Runtime::new([device.clone(), Arc::new(Cpu::new(1))]);
    let asked = SessionOptions {
        routing: Routing {
            device: device.info().device,
            ..Routing::AUTO
        },
        ..options()
    };
    let wishes = PlacementOptions {
        rules,
        ..PlacementOptions::default()
    };
    let (options, chosen) = asked.placed(model, &runtime, &wishes).unwrap();
    // A rule for all tensors of a layer moves the layer.
    let gpu = device.info().device;
    let mut layers = chosen.iter();
    assert!(layers.any(|layer| layer.device != gpu || !layer.elsewhere.is_empty()));
    let rows = logits(model, &runtime, options).unwrap();
    let mut used: Vec<_> = runtime.used_devices().iter().map(|u| u.0).collect();
    used.sort_by_key(DeviceType::to_string);
    assert_eq!(used, [DeviceType::Cpu, device.info().device]);
    rows
}

pub(crate) fn experts_on_the_processor(devices: &Devices) {
    let with_experts: Vec<_> = headers().into_iter().filter(has_experts).collect();
    for device in devices {
        let chosen = Extent::of_tests().choose(with_experts.clone(), 6);
        same(&chosen, |model| {
            let rule = TensorRule::experts("--cpu-moe", usize::MAX);
            Ok(ruled(device, model, vec![rule]))
        });
    }
}

/// A device without room for all experts keeps the layers, and the experts of the last ones.
pub(crate) fn experts_leave_a_small_device(devices: &Devices) {
    let with_experts: Vec<_> = headers().into_iter().filter(has_experts).collect();
    for device in devices {
        let chosen = Extent::of_tests().choose(with_experts.clone(), 2);
        same(&chosen, |model| {
            let gpu = device.info().device;
            let runtime = Runtime::new([device.clone(), Arc::new(Cpu::new(1))]);
            let asked = SessionOptions {
                routing: Routing {
                    device: gpu,
                    ..Routing::AUTO
                },
                ..options()
            };
            let config = BackendConfig::new(model, &runtime, &asked)?;
            let bytes: u64 = config.layers.iter().sum();
            let first = config
                .experts
                .iter()
                .find(|experts| experts.bytes > 0)
                .unwrap();
            let room = bytes - first.bytes / 2 + config.working;
            runtime.memory().set_limit(gpu, room * 10 / 9 + 8);
            let (options, chosen) = asked.placed(model, &runtime, &PlacementOptions::default())?;
            assert!(chosen.iter().all(|layer| layer.device == gpu), "{chosen:?}");
            let elsewhere = chosen.iter().flat_map(|layer| &layer.elsewhere);
            let names = elsewhere.flat_map(|e| e.tensors.clone());
            assert_eq!(names.collect::<Vec<_>>(), first.tensors);
            logits(model, &runtime, options)
        });
    }
}

/// Single products of every kind, and the tables, on the other device.
pub(crate) fn tensors_on_two_devices(devices: &Devices) {
    const PATTERNS: [&str; 5] = [
        "token_embd|output",
        r"attn_(q|k|v|kv|qkv)(_a|_b|_a_mqa)?\.|ssm_in|in_proj",
        r"ffn_(up|gate_up)|attn_v\.|ssm_(in|x|beta|ba)\.",
        r"ffn_down|ffn_gate_inp|attn_gate|attn_output|ssm_out",
        r"blk\.1\.|attn_output",
    ];
    for device in devices {
        let chosen = Extent::of_tests().choose(headers(), 2 * PATTERNS.len());
        for (header, pattern) in chosen.iter().zip(PATTERNS.iter().cycle()) {
            same(std::slice::from_ref(header), |model| {
                let cpu = DeviceType::Cpu;
                let rule = TensorRule::matching("-ot", pattern, cpu)?;
                Ok(ruled(device, model, vec![rule]))
            });
        }
    }
}

/// A table that is the head, too, counts once on a device with all layers. A rule for it is one for both of its uses.
pub(crate) fn a_shared_table_is_one_tensor(devices: &Devices) {
    const TABLE: &str = "token_embd.weight";
    let is_shared = |header: &Header| {
        let has = |name: &str| header.tensors.iter().any(|(own, _)| own == name);
        has(TABLE) && !has("output.weight")
    };
    let mut headers = headers();
    headers.retain(is_shared);
    assert!(!headers.is_empty());
    for device in devices {
        let gpu = device.info().device;
        same(&Extent::of_tests().choose(headers.clone(), 3), |model| {
            let runtime = Runtime::new([device.clone(), Arc::new(Cpu::new(1))]);
            let routing = Routing {
                device: gpu,
                ..Routing::AUTO
            };
            let asked = SessionOptions {
                routing,
                ..options()
            };
            let config = BackendConfig::new(model, &runtime, &asked)?;
            let needs = MemoryNeeds::new(model, &asked)?;
            let table = model.gguf().tensor(TABLE).unwrap().bytes() as u64;
            assert_eq!(config.shared, table);
            let sum: u64 = config.layers.iter().sum();
            assert_eq!(sum - table, needs.weights + needs.cache);
            // Room for one table, and not for two.
            let room = sum - table / 2 + config.working;
            runtime.memory().set_limit(gpu, room * 10 / 9 + 8);
            let (_, chosen) =
                asked
                    .clone()
                    .placed(model, &runtime, &PlacementOptions::default())?;
            assert!(chosen.iter().all(|layer| layer.device == gpu), "{chosen:?}");
            let wishes = PlacementOptions {
                rules: vec![TensorRule::matching("-ot", "^token_embd", DeviceType::Cpu)?],
                ..PlacementOptions::default()
            };
            // Room for no table at all.
            runtime.memory().set_limit(gpu, (room - table) * 10 / 9 + 8);
            let (options, chosen) = asked.placed(model, &runtime, &wishes)?;
            let ends = [&chosen[0], &chosen[chosen.len() - 1]];
            for end in ends {
                assert_eq!(
                    (end.device, &*end.elsewhere[0].tensors),
                    (gpu, &[TABLE.to_owned()][..])
                );
            }
            logits(model, &runtime, options)
        });
    }
}
