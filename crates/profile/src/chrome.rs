//! Chrome's format: a JSON array of events, which `chrome://tracing` and other viewers read, as
//! "Trace Event Format" describes it. Devices are shown as processes, since rows belong to
//! processes.

use std::iter;

use foldhash::fast::RandomState;
use indexmap::IndexSet;
use serde_json::{Map, Value, json};

use crate::timeline::{Category, Form, FormId, NOTES, NoteName, Sink, Track, TrackId, TrackKind};

/// Writes events.
pub(crate) struct Chrome {
    out: Vec<u8>,
    is_begun: bool,
    /// The process and the row of each track, and its name.
    tracks: Vec<(u32, u32, String)>,
    forms: IndexSet<Form, RandomState>,
}

impl Chrome {
    pub(crate) fn new(process: &str) -> Self {
        let mut chrome = Self {
            out: Vec::new(),
            is_begun: false,
            tracks: Vec::new(),
            forms: IndexSet::default(),
        };
        chrome.process(std::process::id(), process);
        chrome
    }

    /// Names a process.
    fn process(&mut self, pid: u32, name: &str) {
        let args = json!({ "name": name });
        self.write(&json!({"ph": "M", "name": "process_name", "pid": pid, "args": args}));
    }

    fn write(&mut self, event: &Value) {
        let before: &[u8] = match self.is_begun {
            true => b",\n",
            false => b"[\n",
        };
        self.is_begun = true;
        self.out.extend_from_slice(before);
        // A vector takes whatever is written to it.
        let _ = serde_json::to_writer(&mut self.out, event);
    }

    fn event(&mut self, track: TrackId, at: u64, phase: &str, more: Map<String, Value>) {
        let (pid, tid, _) = self.tracks[track as usize];
        let ts = at as f64 / 1e3;
        let mut event = json!({"ph": phase, "pid": pid, "tid": tid, "ts": ts});
        if let Value::Object(event) = &mut event {
            event.extend(more);
        }
        self.write(&event);
    }
}

/// The annotations of an event.
fn label<N: Into<Value>>(
    name: &str,
    category: Category,
    notes: impl Iterator<Item = (NoteName, N)>,
) -> Map<String, Value> {
    let mut label = Map::new();
    label.insert("name".to_owned(), name.into());
    label.insert("cat".to_owned(), category.name().into());
    let args: Map<String, Value> = notes
        .map(|(name, value)| (name.name().to_owned(), value.into()))
        .collect();
    if !args.is_empty() {
        label.insert("args".to_owned(), args.into());
    }
    label
}

impl Sink for Chrome {
    fn track(&mut self, track: &Track) {
        let id = self.tracks.len() as TrackId;
        let own = std::process::id();
        let (pid, tid) = match track.kind {
            // Processes have no such numbers.
            TrackKind::Device => (u32::MAX - id, 0),
            TrackKind::Part(of) | TrackKind::Counter(of, _) => (self.tracks[of as usize].0, id),
            TrackKind::Thread(number) => (own, number),
        };
        if track.kind == TrackKind::Device {
            self.process(pid, &track.name);
        }
        if !matches!(track.kind, TrackKind::Counter(..)) {
            let args = json!({ "name": track.name });
            let name = "thread_name";
            self.write(&json!({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}));
        }
        self.tracks.push((pid, tid, track.name.clone()));
    }

    fn begin(&mut self, track: TrackId, at: u64, name: &str, category: Category) {
        let label = label(name, category, iter::empty::<(_, u64)>());
        self.event(track, at, "B", label);
    }

    fn end(&mut self, track: TrackId, at: u64) {
        self.event(track, at, "E", Map::new());
    }

    fn form(&mut self, _: TrackId, form: &Form) -> FormId {
        match self.forms.get_index_of(form) {
            Some(number) => number,
            None => self.forms.insert_full(form.clone()).0,
        }
    }

    fn slice(&mut self, track: TrackId, at: u64, end: u64, form: FormId, values: &[u64; NOTES]) {
        let form = &self.forms[form];
        let notes = form.notes.iter().copied().zip(values.iter().copied());
        let label = label(&form.name, form.category, notes);
        self.event(track, at, "B", label);
        self.end(track, end);
    }

    fn instant(
        &mut self,
        track: TrackId,
        at: u64,
        name: &str,
        category: Category,
        notes: &[(NoteName, &str)],
    ) {
        let mut label = label(name, category, notes.iter().copied());
        label.insert("s".to_owned(), "t".into());
        self.event(track, at, "i", label);
    }

    fn counter(&mut self, track: TrackId, at: u64, value: f64) {
        let name = self.tracks[track as usize].2.clone();
        let mut more = Map::new();
        more.insert("args".to_owned(), json!({ "value": value }));
        more.insert("name".to_owned(), json!(name));
        self.event(track, at, "C", more);
    }

    fn finish(&mut self) {
        self.out.extend_from_slice(b"\n]\n");
    }

    fn written(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }
}
