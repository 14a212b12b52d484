//! From devices' activity to files and averages: computing threads only record events, and a
//! separate thread does the rest.

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustorch_runtime::{DeviceType, Event, LaunchTime, Observer};

use crate::averages::Totals;
use crate::chrome::Chrome;
use crate::limits::Limits;
use crate::metrics::GpuBenchmarkMetrics;
use crate::perfetto::Perfetto;
use crate::record::{Gpu, Record, Records, What, since, this_thread};
use crate::timeline::{Sink, Timeline};

/// Longest time that events wait to be written. Mostly the delay is at most some forty milliseconds.
const PERIOD: Duration = Duration::from_millis(60);

/// Events that are written sooner.
const BATCH: usize = 1 << 13;

/// Events that wait to be written, at most: of those beyond only the number is kept, so that memory
/// stays level whatever the disk does.
const WAITING: usize = 1 << 18;

/// Events that are kept in memory, where there is no file.
const KEPT: usize = 1 << 22;

/// The target of traces.
#[derive(Clone, Debug, Default)]
pub(crate) enum Target {
    /// No trace: only averages are kept.
    #[default]
    None,
    /// Memory, to be written later.
    Memory,
    /// A file, as it comes.
    File(PathBuf),
}

/// The format that a file's name asks for: Chrome's where it ends in `.json`, else Perfetto's own.
pub(crate) fn sink(path: &Path) -> Box<dyn Sink> {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_stem);
    let program = program.map_or("rustorch".into(), |name| name.to_string_lossy());
    match path
        .extension()
        .is_some_and(|ending| ending.eq_ignore_ascii_case("json"))
    {
        true => Box::new(Chrome::new(&program)),
        false => Box::new(Perfetto::new(&program)),
    }
}

/// Error of a trace that is incomplete, with advice.
pub(crate) fn unwritten(path: &Path, error: io::Error) -> io::Error {
    let path = path.display();
    let told = format!(
        "the trace {path} cannot be written ({error}): make room there, or name another file"
    );
    io::Error::new(error.kind(), told)
}

/// The record.
#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) totals: Totals,
    /// The record in memory.
    pub(crate) records: Records,
    /// From the beginning to the end.
    pub(crate) time: Duration,
    /// Why the trace could not be written.
    pub(crate) failure: Option<io::Error>,
}

/// Records events.
pub(crate) struct Recorder {
    start: Instant,
    shared: Arc<Shared>,
}

struct Shared {
    buffer: Mutex<Buffer>,
    /// Told when there is much to write, or nothing comes any more.
    wake: Condvar,
}

#[derive(Default)]
struct Buffer {
    records: Records,
    /// Number of events of these.
    events: usize,
    dropped: u64,
    /// Are new events dropped?
    pauses: bool,
    is_over: bool,
}

impl Shared {
    fn buffer(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same as [`Records::push`].
    fn push(&self, record: Record, times: &[LaunchTime]) {
        let mut buffer = self.buffer();
        if buffer.pauses {
            return;
        }
        let (before, count) = (buffer.events, record.count());
        if before + count > WAITING {
            buffer.dropped += count as u64;
            return;
        }
        buffer.events += count;
        buffer.records.push(record, times);
        let is_much = before < BATCH && buffer.events >= BATCH;
        drop(buffer);
        if is_much {
            self.wake.notify_one();
        }
    }
}

impl Observer for Recorder {
    fn saw(&self, event: Event<'_>) {
        let times = match &event {
            Event::Launched(launched) => launched.times,
            _ => &[],
        };
        if let Some(record) = Record::of(&event, self.start) {
            self.shared.push(record, times);
        }
    }
}

impl Recorder {
    /// Begins to write to `target`, for a runtime of these limits; also the thread that does.
    pub(crate) fn start(
        target: &Target,
        limits: Limits,
    ) -> (Arc<Self>, Option<JoinHandle<Recorded>>) {
        let shared = Arc::new(Shared {
            buffer: Mutex::default(),
            wake: Condvar::new(),
        });
        let recorder = Arc::new(Self {
            start: Instant::now(),
            shared: shared.clone(),
        });
        let mut writer = Writer::new(target, limits, recorder.start);
        let named = thread::Builder::new().name("rustorch-profile".to_owned());
        let thread = named.spawn(move || {
            writer.work(&shared);
            writer.end()
        });
        let thread =
            thread.map_err(|e| tracing::warn!("profiling is off: cannot start its thread: {e}"));
        (recorder, thread.ok())
    }

    /// Something happens now, on this thread.
    fn note(&self, what: What) {
        self.shared.push(record(self.start, what), &[]);
    }

    /// Drops new events, or no longer.
    pub(crate) fn pause(&self, pauses: bool) {
        self.note(What::Cut);
        self.shared.buffer().pauses = pauses;
    }

    /// Time since the beginning.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// A driver's figures of a GPU, and the GPU's device if that is known.
    pub(crate) fn figures(&self, device: Option<DeviceType>, told: &GpuBenchmarkMetrics) {
        let gpu = match (device, &told.pci) {
            (Some(device), _) => Gpu::Device(device),
            (None, Some(pci)) => Gpu::Other(format!("{} {pci}", told.name).into()),
            (None, None) => Gpu::Other(told.name.as_str().into()),
        };
        for (name, value) in told.figures() {
            let gpu = gpu.clone();
            self.note(What::Figure { gpu, name, value });
        }
    }

    /// Nothing comes any more.
    pub(crate) fn close(&self) {
        self.shared.buffer().is_over = true;
        self.shared.wake.notify_one();
    }
}

/// An event of now, on this thread.
fn record(start: Instant, what: What) -> Record {
    Record {
        at: since(start, Instant::now()),
        thread: this_thread(),
        what,
    }
}

/// Writes recorded events.
struct Writer {
    start: Instant,
    totals: Totals,
    /// The record, if it is kept.
    kept: Option<Records>,
    /// Room for more events.
    room: usize,
    file: Option<(Timeline, File, PathBuf)>,
    failure: Option<io::Error>,
}

impl Writer {
    fn new(target: &Target, limits: Limits, start: Instant) -> Self {
        let mut writer = Self {
            start,
            totals: Totals::default(),
            kept: matches!(target, Target::Memory).then(Records::default),
            room: KEPT,
            file: None,
            failure: None,
        };
        if let Target::File(path) = target {
            match File::create(path) {
                Ok(file) => {
                    let timeline = Timeline::new(sink(path), limits);
                    writer.file = Some((timeline, file, path.clone()));
                }
                Err(e) => writer.fail(path, e),
            }
        }
        writer
    }

    /// The run goes on without a trace, after one warning.
    fn fail(&mut self, path: &Path, error: io::Error) {
        let error = unwritten(path, error);
        tracing::warn!("{error}; the program continues without the trace");
        self.file = None;
        self.failure = Some(error);
    }

    /// Writes until nothing comes any more.
    fn work(&mut self, shared: &Shared) {
        // Two buffers take turns, so threads that compute never touch fresh memory.
        let mut records = Records::default();
        loop {
            let (dropped, is_over) = {
                let is_quiet = |buffer: &mut Buffer| !buffer.is_over && buffer.events < BATCH;
                let waited = (shared.wake).wait_timeout_while(shared.buffer(), PERIOD, is_quiet);
                let (mut buffer, _) = waited.unwrap_or_else(PoisonError::into_inner);
                mem::swap(&mut buffer.records, &mut records);
                buffer.events = 0;
                (mem::take(&mut buffer.dropped), buffer.is_over)
            };
            if dropped > 0 {
                tracing::warn!(
                    "the trace lacks {dropped} events, which came faster than they could be written"
                );
                records.push(record(self.start, What::Dropped(dropped)), &[]);
            }
            self.add(&records);
            // Memory that a slow disk made the buffer take is given back.
            records.clear(2 * BATCH);
            self.flush();
            if is_over {
                return;
            }
        }
    }

    /// Takes all records.
    fn add(&mut self, records: &Records) {
        for (record, times) in records.iter() {
            self.totals.add(record, times);
            if let Some((timeline, ..)) = &mut self.file {
                timeline.add(record, times);
            }
            if let Some(kept) = &mut self.kept {
                let left = self.room.checked_sub(record.count());
                self.room = left.unwrap_or(0);
                if left.is_some() {
                    kept.push(record.clone(), times);
                }
            }
        }
    }

    fn flush(&mut self) {
        let Some((timeline, file, path)) = &mut self.file else {
            return;
        };
        let written = timeline.written();
        let result = file.write_all(written);
        written.clear();
        if let Err(e) = result {
            let path = path.clone();
            self.fail(&path, e);
        }
    }

    fn end(mut self) -> Recorded {
        if let Some((timeline, ..)) = &mut self.file {
            timeline.finish(since(self.start, Instant::now()));
        }
        self.flush();
        Recorded {
            totals: self.totals,
            records: self.kept.unwrap_or_default(),
            time: self.start.elapsed(),
            failure: self.failure,
        }
    }
}
