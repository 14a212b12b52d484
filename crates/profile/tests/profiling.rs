//! Traces and averages of runs, read back from what was written.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustorch_cpu::Cpu;
use rustorch_faulty::{Fault, Faulty};
use rustorch_ir::{DType, Graph, TensorType};
use rustorch_profile::{Kind, Profile, ProfilerOptions, schedule};
use rustorch_reference::Reference;
use rustorch_runtime::{Backend, DeviceType, Executable, HostBuffer, Routing, Runtime, Storage};

/// Products in a graph.
const CHAIN: usize = 40;

fn runtime() -> Runtime {
    let backends: [Arc<dyn Backend>; 2] = [Arc::new(Cpu::new(1)), Arc::new(Reference::new())];
    Runtime::new(backends)
}

/// A chain of `length` products of `size` × `size` matrices.
fn chain(runtime: &Runtime, length: usize, size: usize, device: DeviceType) -> Executable {
    let mut graph = Graph::new();
    let x = graph
        .input(TensorType::new([size, size], DType::F32))
        .unwrap();
    let mut y = x;
    for _ in 0..length {
        y = graph.matmul(y, x).unwrap();
    }
    graph.output(y);
    let routing = Routing {
        device,
        ..Routing::AUTO
    };
    runtime.prepare(graph, routing)
}

fn operand(size: usize) -> Storage {
    Storage::from_host(HostBuffer::copy_of(&vec![0; size * size * 4]).unwrap())
}

/// A trace of so many runs.
fn traced(path: &Path, runs: usize, device: DeviceType) -> Profile {
    let runtime = runtime();
    let executable = chain(&runtime, CHAIN, 8, device);
    let profiler = ProfilerOptions::new().trace(path).start(&runtime);
    let x = operand(8);
    for _ in 0..runs {
        let _span = runtime.span("a range");
        executable.run(std::slice::from_ref(&x)).unwrap();
    }
    profiler.finish()
}

/// Value of a protocol buffer's field.
#[derive(Clone, Debug)]
enum Value {
    Number(u64),
    Bytes(Vec<u8>),
}

/// The fields of a message, as the wire has them.
struct Fields(Vec<(u64, Value)>);

impl Fields {
    fn read(mut bytes: &[u8]) -> Self {
        let varint = |bytes: &mut &[u8]| {
            let mut value = 0;
            for shift in (0..).step_by(7) {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                value |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            value
        };
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = match key & 7 {
                0 => Value::Number(varint(&mut bytes)),
                1 => {
                    let (number, rest) = bytes.split_at(8);
                    bytes = rest;
                    Value::Number(u64::from_le_bytes(number.try_into().unwrap()))
                }
                2 => {
                    let length = varint(&mut bytes) as usize;
                    let (message, rest) = bytes.split_at(length);
                    bytes = rest;
                    Value::Bytes(message.to_vec())
                }
                wire => panic!("a wire type {wire}"),
            };
            fields.push((key >> 3, value));
        }
        Self(fields)
    }

    fn all(&self, field: u64) -> impl Iterator<Item = &Value> {
        let its = self.0.iter().filter(move |(number, _)| *number == field);
        its.map(|(_, value)| value)
    }

    fn number(&self, field: u64) -> Option<u64> {
        self.all(field).find_map(|value| match value {
            Value::Number(number) => Some(*number),
            Value::Bytes(_) => None,
        })
    }

    fn messages(&self, field: u64) -> impl Iterator<Item = Fields> {
        self.all(field).filter_map(|value| match value {
            Value::Bytes(bytes) => Some(Fields::read(bytes)),
            Value::Number(_) => None,
        })
    }

    fn text(&self, field: u64) -> Option<String> {
        self.all(field).find_map(|value| match value {
            Value::Bytes(bytes) => Some(String::from_utf8(bytes.clone()).unwrap()),
            Value::Number(_) => None,
        })
    }
}

/// A slice, an instant or a number, as the numbers of `perfetto_trace.proto` tell it.
#[derive(Debug)]
struct Seen {
    track: String,
    name: String,
    at: u64,
    /// 0 of instants and numbers.
    time: u64,
    notes: HashMap<String, String>,
}

/// State of a sequence of packets so far.
#[derive(Default)]
struct Sequence {
    clock: u64,
    track: u64,
    /// By the field of `InternedData`, and the number.
    names: HashMap<(u64, u64), String>,
    open: Vec<Seen>,
}

/// The events of a trace.
fn perfetto(bytes: &[u8]) -> Vec<Seen> {
    let mut sequences: HashMap<u64, Sequence> = HashMap::new();
    let mut tracks: HashMap<u64, String> = HashMap::new();
    let mut seen = Vec::new();
    for packet in Fields::read(bytes).messages(1) {
        let sequence = sequences.entry(packet.number(10).unwrap()).or_default();
        for track in packet.messages(60) {
            let thread = track.messages(4).next().and_then(|thread| thread.text(5));
            let name = track.text(2).or(thread).unwrap_or_default();
            tracks.insert(track.number(1).unwrap(), name);
        }
        for defaults in packet.messages(59) {
            // A clock that counts from packet to packet, and begins with the trace.
            assert_eq!(defaults.number(58), Some(64));
            let event = defaults.messages(11).next().unwrap();
            sequence.track = event.number(11).unwrap();
            let clocks: Vec<Fields> = packet
                .messages(6)
                .flat_map(|s| s.messages(1).collect::<Vec<_>>())
                .collect();
            let steps = clocks
                .iter()
                .find(|clock| clock.number(1) == Some(64))
                .unwrap();
            assert_eq!((steps.number(2), steps.number(3)), (Some(0), Some(1)));
            assert_eq!(packet.number(13), Some(1));
        }
        for interned in packet.messages(12) {
            for field in [1, 2, 3, 29] {
                for entry in interned.messages(field) {
                    let key = (field, entry.number(1).unwrap());
                    sequence.names.insert(key, entry.text(2).unwrap());
                }
            }
        }
        let Some(event) = packet.messages(11).next() else {
            continue;
        };
        sequence.clock += packet.number(8).unwrap();
        let name = event
            .number(10)
            .map(|iid| sequence.names[&(2, iid)].clone());
        let notes = event.messages(4).map(|note| {
            let name = sequence.names[&(3, note.number(1).unwrap())].clone();
            let text = || sequence.names[&(29, note.number(17).unwrap())].clone();
            let value = note.number(3).map_or_else(text, |n| n.to_string());
            (name, value)
        });
        let this = Seen {
            track: tracks[&sequence.track].clone(),
            name: name.unwrap_or_default(),
            at: sequence.clock,
            time: 0,
            notes: notes.collect(),
        };
        match event.number(9).unwrap() {
            1 => sequence.open.push(this),
            2 => {
                let mut slice = sequence.open.pop().expect("a beginning");
                slice.time = sequence.clock - slice.at;
                seen.push(slice);
            }
            3 | 4 => seen.push(this),
            other => panic!("an event of type {other}"),
        }
    }
    assert!(sequences.values().all(|sequence| sequence.open.is_empty()));
    seen
}

#[test]
fn the_launches_of_a_device_are_its_busy_time() {
    let folder = tempfile::tempdir().unwrap();
    for (device, track) in [
        (DeviceType::Cpu, "cpu"),
        (DeviceType::Reference, "reference"),
    ] {
        let path = folder.path().join(format!("{track}.pftrace"));
        let profile = traced(&path, 3, device);
        assert!(profile.failure().is_none());
        let seen = perfetto(&fs::read(&path).unwrap());
        let launches: Vec<&Seen> = seen.iter().filter(|s| s.track == track).collect();
        assert_eq!(launches.len(), 3 * CHAIN);
        assert!(launches.iter().all(|launch| launch.name == "matmul"));
        let mflops = |launch: &Seen| launch.notes["MFLOP/s"].parse::<f64>().unwrap();
        for launch in &launches {
            // 8 × 8 × 8 multiplications and additions.
            let expected = 1024.0 / launch.time as f64 * 1e3;
            assert!((mflops(launch) - expected).abs() <= 0.5, "{launch:?}");
        }
        let busy: u64 = launches.iter().map(|launch| launch.time).sum();
        let averages = profile.key_averages();
        assert_eq!(averages.busy(device).as_nanos(), u128::from(busy));
        let row = averages.find("matmul").unwrap();
        assert_eq!((row.calls, row.kind), (3 * CHAIN as u64, Kind::Launch));
        assert_eq!(row.flops, 3 * CHAIN as u64 * 1024);
        // The host's runs contain them.
        let runs: Vec<&Seen> = seen.iter().filter(|s| s.name == "run").collect();
        let ranges: Vec<&Seen> = seen.iter().filter(|s| s.name == "a range").collect();
        assert_eq!((runs.len(), ranges.len()), (3, 3));
        for (run, range) in runs.iter().zip(&ranges) {
            assert!(range.at <= run.at && run.time <= range.time);
            let its = launches
                .iter()
                .filter(|l| run.at <= l.at && l.at + l.time <= run.at + run.time);
            assert_eq!(its.count(), CHAIN);
        }
        for name in ["plan", &format!("compile for {track}")] {
            assert_eq!(seen.iter().filter(|s| s.name == name).count(), 1, "{name}");
        }
    }
}

#[test]
fn a_step_of_a_hundred_launches_takes_less_than_5_kilobytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("steps.pftrace");
    let runtime = runtime();
    let executable = chain(&runtime, 100, 32, DeviceType::Cpu);
    let profiler = ProfilerOptions::new().trace(&path).start(&runtime);
    let x = operand(32);
    for _ in 0..100 {
        executable.run(std::slice::from_ref(&x)).unwrap();
    }
    profiler.finish();
    let bytes = fs::metadata(&path).unwrap().len();
    assert!(bytes < 100 * 5000, "{bytes}");
}

#[test]
fn chrome_gets_json_with_the_same_slices() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.JSON");
    traced(&path, 2, DeviceType::Cpu);
    let events: Vec<serde_json::Value> = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let count = |phase: &str, name: &str| {
        let its = events
            .iter()
            .filter(|e| e["ph"] == phase && e["name"] == name);
        its.count()
    };
    assert_eq!(count("B", "matmul"), 2 * CHAIN);
    assert_eq!(count("B", "a range"), 2);
    let phases = |phase: &str| events.iter().filter(|e| e["ph"] == phase).count();
    assert_eq!(phases("B"), phases("E"));
    let launch = events.iter().find(|e| e["name"] == "matmul").unwrap();
    assert!(launch["args"]["MB/s"].is_u64(), "{launch}");
}

#[test]
fn what_is_kept_is_saved_in_either_format() {
    let runtime = runtime();
    let executable = chain(&runtime, CHAIN, 8, DeviceType::Cpu);
    let profiler = ProfilerOptions::new().keep().start(&runtime);
    executable.run(&[operand(8)]).unwrap();
    let profile = profiler.finish();
    executable.run(&[operand(8)]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kept.pftrace");
    profile.save(&path).unwrap();
    let seen = perfetto(&fs::read(&path).unwrap());
    // Work after the end is not recorded.
    assert_eq!(seen.iter().filter(|s| s.track == "cpu").count(), CHAIN);
    let nowhere = folder.path().join("no/such/folder");
    let error = profile.save(&nowhere).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    assert!(
        error.to_string().contains(&nowhere.display().to_string()),
        "{error}"
    );
    let table = profile.key_averages().to_string();
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[0].starts_with("name") && lines[0].contains("GFLOP/s"),
        "{table}"
    );
    assert!(
        lines[1].starts_with("matmul") && lines[1].contains(" cpu "),
        "{table}"
    );
}

#[test]
fn files_that_cannot_be_written_stop_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut paths = vec![folder.path().join("no/such/folder.pftrace")];
    if cfg!(target_os = "linux") {
        // A disk that is always full.
        paths.push("/dev/full".into());
    }
    for path in paths {
        let profile = traced(&path, 3, DeviceType::Cpu);
        let failure = profile.failure().expect("a file that cannot be written");
        assert!(
            failure.to_string().contains(&path.display().to_string()),
            "{failure}"
        );
        let calls = profile.key_averages().find("matmul").unwrap().calls;
        assert_eq!(calls, 3 * CHAIN as u64);
    }
}

#[test]
fn only_active_steps_of_a_schedule_count() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("steps.pftrace");
    let runtime = runtime();
    let executable = chain(&runtime, CHAIN, 8, DeviceType::Cpu);
    let options = ProfilerOptions::new().trace(&path);
    let mut profiler = options.schedule(schedule(1, 1, 2)).start(&runtime);
    let x = operand(8);
    for _ in 0..9 {
        executable.run(std::slice::from_ref(&x)).unwrap();
        profiler.step();
    }
    let profile = profiler.finish();
    let calls = profile.key_averages().find("matmul").unwrap().calls;
    // Steps 2, 3, 6 and 7.
    assert_eq!(calls, 4 * CHAIN as u64);
    let seen = perfetto(&fs::read(&path).unwrap());
    let steps = seen.iter().filter(|s| s.name.starts_with("ProfilerStep#"));
    let names: Vec<&str> = steps.map(|step| step.name.as_str()).collect();
    let expected = [2, 3, 6, 7].map(|n| format!("ProfilerStep#{n}"));
    assert_eq!(names, expected);
}

#[test]
fn fallbacks_are_told_with_their_reasons() {
    let fault: Fault = "device=cpu;op=matmul;nth=3;kind=lost".parse().unwrap();
    let cpu = Faulty::new(Arc::new(Cpu::new(1)), [fault]);
    let backends: [Arc<dyn Backend>; 2] = [Arc::new(cpu), Arc::new(Reference::new())];
    let runtime = Runtime::new(backends);
    let executable = chain(&runtime, CHAIN, 8, DeviceType::Auto);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pftrace");
    let profiler = ProfilerOptions::new().trace(&path).start(&runtime);
    executable.run(&[operand(8)]).unwrap();
    profiler.finish();
    let seen = perfetto(&fs::read(&path).unwrap());
    let told: Vec<&Seen> = seen
        .iter()
        .filter(|s| s.name.starts_with("fallback"))
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].name, "fallback: cpu → reference");
    let notes = &told[0].notes;
    assert_eq!(notes["reason"], "injected: device lost");
    assert_eq!(
        (notes["class"].as_str(), notes["op"].as_str()),
        ("device lost", "matmul")
    );
    let on = |track: &str| seen.iter().filter(|s| s.track == track).count();
    assert_eq!((on("cpu"), on("reference")), (2, CHAIN));
}
