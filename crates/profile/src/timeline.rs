//! Recorded events, laid out on tracks. Formats of files only have to write it down.
//!
//! A device is a track, and so is each thread of the host. Slices of a track do not overlap: if a
//! device works for several threads at the same time, further tracks show that.

use std::mem;
use std::num::NonZero;
use std::sync::Arc;

use rustorch_runtime::{DeviceType, HostWork, LaunchInfo, LaunchTime, Replay};
use smallvec::{SmallVec, smallvec};

use crate::Map;
use crate::launches::PerList;
use crate::limits::Limits;
use crate::record::{Gpu, Record, What, copier, thread_name};

/// A row of the picture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Track {
    pub(crate) name: String,
    pub(crate) kind: TrackKind,
}

/// The contents of a track.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TrackKind {
    /// The work of a device.
    Device,
    /// A thread of the host.
    Thread(u32),
    /// The other tracks of a device with that track.
    Part(TrackId),
    /// A number over time, of the device that has that track.
    Counter(TrackId, Unit),
}

/// The unit of a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Bytes,
    Other,
}

/// The number of a track, from 0 on in the order in which they come.
pub(crate) type TrackId = u32;

/// The common part of slices without inner slices.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Form {
    pub(crate) name: String,
    pub(crate) category: Category,
    /// The notes of each, at most [`NOTES`].
    pub(crate) notes: SmallVec<[NoteName; NOTES]>,
}

/// Notes of a slice, at most.
pub(crate) const NOTES: usize = 3;

/// The number of a form on a track.
pub(crate) type FormId = usize;

/// Makes an enumeration whose values have names.
macro_rules! named {
    ($(#[$about:meta])* $type:ident { $($value:ident $name:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub(crate) enum $type {
            $($value),+
        }

        impl $type {
            pub(crate) const ALL: &[Self] = &[$(Self::$value),+];

            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name),+
                }
            }
        }
    };
}

named! {
    /// The kind of a slice.
    Category {
        Launch "launch",
        Transfer "transfer",
        Plan "plan",
        Compile "compile",
        Run "run",
        User "user",
        Fallback "fallback",
        Profiler "profiler",
    }
}

named! {
    /// The subject of a note.
    NoteName {
        Bytes "bytes",
        BytesRate "MB/s",
        FlopsRate "MFLOP/s",
        Share "% of limit",
        Class "class",
        Reason "reason",
        Op "op",
    }
}

/// The target of events. Times are nanoseconds since the beginning; on each track they do not decrease.
pub(crate) trait Sink: Send {
    /// The track with the next number.
    fn track(&mut self, track: &Track);
    fn begin(&mut self, track: TrackId, at: u64, name: &str, category: Category);
    fn end(&mut self, track: TrackId, at: u64);
    /// Number of a form in slices on a track.
    fn form(&mut self, track: TrackId, form: &Form) -> FormId;
    /// A slice of a form, with the values of its notes; the rest has no meaning.
    fn slice(&mut self, track: TrackId, at: u64, end: u64, form: FormId, values: &[u64; NOTES]);
    fn instant(
        &mut self,
        track: TrackId,
        at: u64,
        name: &str,
        category: Category,
        notes: &[(NoteName, &str)],
    );
    fn counter(&mut self, track: TrackId, at: u64, value: f64);
    /// Nothing comes any more.
    fn finish(&mut self);
    /// The written bytes that were not taken away.
    fn written(&mut self) -> &mut Vec<u8>;
}

/// The identity of tracks.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Key {
    Device(DeviceType),
    /// The second and further tracks of slices of a kind.
    Lane(DeviceType, Kind, usize),
    /// A GPU that is none of the runtime's devices, as far as is known.
    Other(Arc<str>),
    Counter(Gpu, &'static str),
}

/// Slices of a device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Kind {
    Launches,
    Transfers,
}

/// The facts of a launch, or of some that are made at once.
#[derive(Clone)]
struct Site {
    device: Device,
    /// Form on the device's track.
    form: FormId,
    /// Its notes show speeds: the value of each for a duration of a nanosecond; 0 behind the last.
    work: [u64; NOTES],
    notes: SmallVec<[NoteName; NOTES]>,
}

impl Site {
    /// The same on another track.
    fn on(&self, track: TrackId, name: &str, sink: &mut dyn Sink) -> Self {
        Self {
            form: sink.form(track, &launch_form(name, &self.notes)),
            ..self.clone()
        }
    }
}

/// A device of the runtime's.
#[derive(Clone, Copy)]
struct Device {
    device: DeviceType,
    track: TrackId,
}

/// Lays records out.
pub(crate) struct Timeline {
    sink: Box<dyn Sink>,
    limits: Limits,
    tracks: Map<Key, TrackId>,
    launches: PerList<Vec<Arc<LaunchInfo>>, Arc<[Site]>>,
    replays: PerList<Replay, Site>,
    /// End of the last slice of each track.
    ends: Vec<u64>,
    /// The facts of each thread by its number, if it was seen.
    threads: Vec<Option<Thread>>,
}

/// The facts of a thread of the host.
struct Thread {
    track: TrackId,
    /// Number of open slices.
    open: u32,
}

impl Timeline {
    pub(crate) fn new(sink: Box<dyn Sink>, limits: Limits) -> Self {
        Self {
            sink,
            limits,
            tracks: Map::default(),
            launches: PerList::default(),
            replays: PerList::default(),
            ends: Vec::new(),
            threads: Vec::new(),
        }
    }

    /// The written bytes that were not taken away.
    pub(crate) fn written(&mut self) -> &mut Vec<u8> {
        self.sink.written()
    }

    /// Ends whatever is open.
    pub(crate) fn finish(&mut self, at: u64) {
        self.close(at);
        self.sink.finish();
    }

    fn close(&mut self, at: u64) {
        let all = self.threads.iter_mut().flatten();
        let mut open: Vec<_> = all
            .map(|its| (its.track, mem::take(&mut its.open)))
            .collect();
        open.sort_unstable();
        for (track, count) in open {
            if count == 0 {
                continue;
            }
            let at = self.not_before(track, at);
            (0..count).for_each(|_| self.sink.end(track, at));
        }
    }

    /// Adds a record; `times` are those of its launches, if it is of some.
    pub(crate) fn add(&mut self, record: &Record, times: &[LaunchTime]) {
        let Record { at, thread, .. } = *record;
        match &record.what {
            What::Launched {
                launches, first, ..
            } => self.launches(launches, *first, at, times),
            What::Replayed { replay, time } => {
                let mut site = self.replay(replay);
                let track = self.free(&site.device, Kind::Launches, at);
                if track != site.device.track {
                    site = site.on(track, &replay_name(replay), &mut *self.sink);
                }
                self.slice(track, at, *time, site.form, &rates(&site.work, *time));
            }
            What::Moved {
                from,
                to,
                bytes,
                time,
            } => {
                let device = self.device(copier(*from, *to));
                let track = self.free(&device, Kind::Transfers, at);
                let form = Form {
                    name: format!("{from} → {to}"),
                    category: Category::Transfer,
                    notes: smallvec![NoteName::Bytes, NoteName::BytesRate],
                };
                let form = self.sink.form(track, &form);
                let [rate, ..] = rates(&[bytes.saturating_mul(1000), 0, 0], *time);
                self.slice(track, at, *time, form, &[*bytes, rate, 0]);
            }
            What::Begun { work, name } => {
                let its = self.thread(thread);
                its.open += 1;
                let track = its.track;
                let at = self.not_before(track, at);
                self.sink.begin(track, at, name, category(*work));
            }
            What::Ended => {
                let its = self.thread(thread);
                // A span that began before the observer was added has no beginning here.
                if let Some(open) = its.open.checked_sub(1) {
                    its.open = open;
                    let track = its.track;
                    let at = self.not_before(track, at);
                    self.sink.end(track, at);
                }
            }
            What::Memory { device, bytes } => {
                let gpu = Gpu::Device(*device);
                self.counter(gpu, "memory", Unit::Bytes, at, *bytes as f64);
            }
            What::Figure { gpu, name, value } => {
                let unit = match name.ends_with("bytes") {
                    true => Unit::Bytes,
                    false => Unit::Other,
                };
                self.counter(gpu.clone(), name, unit, at, *value);
            }
            What::FellBack(fallback) => {
                let track = self.thread(thread).track;
                let at = self.not_before(track, at);
                let error = &fallback.error;
                let (device, class) = (error.device.to_string(), error.class.to_string());
                let to = fallback.to.map_or("nobody".to_owned(), |to| to.to_string());
                let name = format!("fallback: {device} → {to}");
                let mut notes = vec![
                    (NoteName::Class, &*class),
                    (NoteName::Reason, &error.message),
                ];
                notes.extend(error.op.map(|op| (NoteName::Op, op)));
                (self.sink).instant(track, at, &name, Category::Fallback, &notes);
            }
            What::Cut => self.close(at),
            What::Dropped(count) => {
                let track = self.thread(thread).track;
                let at = self.not_before(track, at);
                let name = format!("{count} events were not kept");
                self.sink.instant(track, at, &name, Category::Profiler, &[]);
            }
        }
    }

    /// Some of a list of launches, in a run that began then.
    fn launches(
        &mut self,
        all: &Arc<Vec<Arc<LaunchInfo>>>,
        first: usize,
        begin: u64,
        times: &[LaunchTime],
    ) {
        let mut sites = self.sites(all);
        let (Some(site), [head, ..]) = (sites.get(first), times) else {
            return;
        };
        let device = site.device;
        let track = self.free(&device, Kind::Launches, begin.saturating_add(head.since));
        if track != device.track {
            let named = all.iter().zip(&*sites);
            let there = named.map(|(launch, site)| site.on(track, &launch.name, &mut *self.sink));
            sites = there.collect();
        }
        for (site, &LaunchTime { since, time }) in sites[first..].iter().zip(times) {
            let at = begin.saturating_add(since);
            self.slice(track, at, time, site.form, &rates(&site.work, time));
        }
    }

    /// The forms of a list of launches.
    fn sites(&mut self, launches: &Arc<Vec<Arc<LaunchInfo>>>) -> Arc<[Site]> {
        if let Some(sites) = self.launches.get(launches) {
            return sites.clone();
        }
        let all = launches.iter();
        let sites = all.map(|l| self.site(l.device, &l.name, l.bytes, l.flops));
        let sites: Arc<[Site]> = sites.collect();
        let known = self.launches.insert(launches, launches.len(), sites);
        known.clone()
    }

    /// The form of launches that are made at once.
    fn replay(&mut self, replay: &Arc<Replay>) -> Site {
        if let Some(site) = self.replays.get(replay) {
            return site.clone();
        }
        let total = |each: fn(&LaunchInfo) -> u64| -> u64 {
            replay.launches.iter().map(|(launch, _)| each(launch)).sum()
        };
        let (bytes, flops) = (total(|l| l.bytes), total(|l| l.flops));
        let site = self.site(replay.device, &replay_name(replay), bytes, flops);
        let known = self.replays.insert(replay, replay.launches.len(), site);
        known.clone()
    }

    /// The form of a device's first work.
    fn site(&mut self, device: DeviceType, name: &str, bytes: u64, flops: u64) -> Site {
        let limit = self.limits.of_device(device);
        let least = limit.and_then(|limit| limit.least_seconds(bytes as f64, flops as f64));
        let least = least.map(|seconds| (1e9 * 100.0 * seconds) as u64);
        // Work beyond the range of the number gets no speed.
        let all = [
            (NoteName::BytesRate, bytes.checked_mul(1000)),
            (NoteName::FlopsRate, flops.checked_mul(1000)),
            (NoteName::Share, least),
        ];
        let (mut work, mut notes) = ([0; NOTES], SmallVec::new());
        let known = all.into_iter().filter_map(|(name, its)| Some((name, its?)));
        for (place, (name, its)) in work.iter_mut().zip(known.filter(|(_, its)| *its > 0)) {
            *place = its;
            notes.push(name);
        }
        let device = self.device(device);
        Site {
            device,
            form: self.sink.form(device.track, &launch_form(name, &notes)),
            work,
            notes,
        }
    }

    /// The first track of a kind of slices that is free at time `at`.
    fn free(&mut self, device: &Device, kind: Kind, at: u64) -> TrackId {
        let mut track = match kind {
            Kind::Launches => device.track,
            Kind::Transfers => self.lane(device, kind, 0),
        };
        let mut lane = 0;
        while self.ends[track as usize] > at {
            lane += 1;
            track = self.lane(device, kind, lane);
        }
        track
    }

    fn slice(&mut self, track: TrackId, at: u64, time: u64, form: FormId, values: &[u64; NOTES]) {
        let end = at.saturating_add(time);
        self.ends[track as usize] = end;
        self.sink.slice(track, at, end, form, values);
    }

    fn lane(&mut self, whole: &Device, kind: Kind, lane: usize) -> TrackId {
        let Device { device, track } = *whole;
        let name = || match (kind, lane) {
            (Kind::Launches, n) => format!("{device} ({})", n + 1),
            (Kind::Transfers, 0) => format!("{device} transfers"),
            (Kind::Transfers, n) => format!("{device} transfers ({})", n + 1),
        };
        self.track(Key::Lane(device, kind, lane), name, TrackKind::Part(track))
    }

    fn device(&mut self, device: DeviceType) -> Device {
        let key = Key::Device(device);
        Device {
            device,
            track: self.track(key, || device.to_string(), TrackKind::Device),
        }
    }

    fn thread(&mut self, thread: u32) -> &mut Thread {
        let at = thread as usize;
        if self.threads.len() <= at {
            self.threads.resize_with(at + 1, || None);
        }
        self.threads[at].get_or_insert_with(|| Thread {
            track: add_track(
                &mut *self.sink,
                &mut self.ends,
                thread_name(thread),
                TrackKind::Thread(thread),
            ),
            open: 0,
        })
    }

    fn counter(&mut self, gpu: Gpu, name: &'static str, unit: Unit, at: u64, value: f64) {
        let whole = match &gpu {
            Gpu::Device(device) => self.device(*device).track,
            Gpu::Other(other) => {
                let key = Key::Other(other.clone());
                self.track(key, || other.to_string(), TrackKind::Device)
            }
        };
        let its = || match &gpu {
            Gpu::Device(device) => format!("{device} {name}"),
            Gpu::Other(other) => format!("{other} {name}"),
        };
        let key = Key::Counter(gpu.clone(), name);
        let track = self.track(key, its, TrackKind::Counter(whole, unit));
        let at = self.not_before(track, at);
        self.sink.counter(track, at, value);
    }

    /// The track of a key; a new one gets the name that `name` returns.
    fn track(&mut self, key: Key, name: impl FnOnce() -> String, kind: TrackKind) -> TrackId {
        let known = self.tracks.entry(key);
        *known.or_insert_with(|| add_track(&mut *self.sink, &mut self.ends, name(), kind))
    }

    /// The moment, or the last one on the track if that is later: clocks are read before events are
    /// put in order.
    fn not_before(&mut self, track: TrackId, at: u64) -> u64 {
        let end = &mut self.ends[track as usize];
        *end = at.max(*end);
        *end
    }
}

/// Another track, behind those whose `ends` are known.
fn add_track(sink: &mut dyn Sink, ends: &mut Vec<u64>, name: String, kind: TrackKind) -> TrackId {
    let track = ends.len() as TrackId;
    ends.push(0);
    sink.track(&Track { name, kind });
    track
}

/// The form of launches, with their name.
fn launch_form(name: &str, notes: &[NoteName]) -> Form {
    Form {
        name: name.to_owned(),
        category: Category::Launch,
        notes: notes.into(),
    }
}

fn replay_name(replay: &Replay) -> String {
    match replay.launches.len() {
        0 => "replay".to_owned(),
        n => format!("replay of {n} launches"),
    }
}

/// The amount of each work in this number of nanoseconds, rounded.
fn rates(work: &[u64; NOTES], time: u64) -> [u64; NOTES] {
    let mut rates = [0; NOTES];
    if let Some(nanoseconds) = NonZero::new(time) {
        let each = work.iter().take_while(|work| **work > 0);
        for (rate, work) in rates.iter_mut().zip(each) {
            *rate = work.saturating_add(time / 2) / nanoseconds;
        }
    }
    rates
}

fn category(work: HostWork) -> Category {
    match work {
        HostWork::Plan => Category::Plan,
        HostWork::Compile => Category::Compile,
        HostWork::Run => Category::Run,
        HostWork::Range => Category::User,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use rustorch_runtime::{DeviceError, FailureClass, Fallback};

    use super::*;

    /// Records written text, a line each.
    #[derive(Default)]
    struct Notes {
        tracks: Vec<String>,
        forms: Vec<String>,
        out: Vec<u8>,
        lines: Arc<Mutex<Vec<String>>>,
    }

    impl Notes {
        fn note(&mut self, track: TrackId, what: String) {
            let track = &self.tracks[track as usize];
            self.lines.lock().unwrap().push(format!("{track}: {what}"));
        }
    }

    impl Sink for Notes {
        fn track(&mut self, track: &Track) {
            self.tracks.push(track.name.clone());
        }

        fn begin(&mut self, track: TrackId, at: u64, name: &str, _: Category) {
            self.note(track, format!("{at} begin {name}"));
        }

        fn end(&mut self, track: TrackId, at: u64) {
            self.note(track, format!("{at} end"));
        }

        fn form(&mut self, _: TrackId, form: &Form) -> FormId {
            self.forms.push(form.name.clone());
            self.forms.len() - 1
        }

        fn slice(&mut self, track: TrackId, at: u64, end: u64, form: FormId, _: &[u64; NOTES]) {
            let name = self.forms[form].clone();
            self.begin(track, at, &name, Category::Launch);
            self.end(track, end);
        }

        fn instant(
            &mut self,
            track: TrackId,
            at: u64,
            name: &str,
            _: Category,
            notes: &[(NoteName, &str)],
        ) {
            let notes = notes.iter().map(|(name, note)| (name.name(), note));
            let notes: Vec<_> = notes.collect();
            self.note(track, format!("{at} {name} {notes:?}"));
        }

        fn counter(&mut self, track: TrackId, at: u64, value: f64) {
            self.note(track, format!("{at} {value}"));
        }

        fn finish(&mut self) {}

        fn written(&mut self) -> &mut Vec<u8> {
            &mut self.out
        }
    }

    const GPU: DeviceType = DeviceType::OpenCL(0);

    /// The output of records, each with its moment, all of one unnamed thread.
    fn written(records: Vec<(u64, What)>) -> Vec<String> {
        let records = records.into_iter().map(|(at, what)| (at, what, vec![]));
        written_with_times(records.collect())
    }

    /// The same, each with the times of its launches.
    fn written_with_times(records: Vec<(u64, What, Vec<LaunchTime>)>) -> Vec<String> {
        let notes = Notes::default();
        let lines = notes.lines.clone();
        let mut timeline = Timeline::new(Box::new(notes), Limits::default());
        for (at, what, times) in records {
            // Threads are counted from 1 on.
            let thread = 0;
            timeline.add(&Record { at, thread, what }, &times);
        }
        timeline.finish(1000);
        let lines = lines.lock().unwrap();
        lines
            .iter()
            .map(|line| line.replace("thread 0", "thread"))
            .collect()
    }

    fn matmul() -> Arc<LaunchInfo> {
        Arc::new(LaunchInfo {
            name: "matmul".to_owned(),
            device: GPU,
            bytes: 0,
            flops: 0,
        })
    }

    /// Products; those before the `first` were reported before.
    fn launches(at: u64, first: usize, times: &[(u64, u64)]) -> (u64, What, Vec<LaunchTime>) {
        let what = What::Launched {
            launches: Arc::new(vec![matmul(); first + times.len()]),
            first,
            count: times.len(),
        };
        let times = times.iter();
        let times = times.map(|&(since, time)| LaunchTime { since, time });
        (at, what, times.collect())
    }

    fn moved(from: DeviceType, to: DeviceType, time: u64) -> What {
        let bytes = 8;
        What::Moved {
            from,
            to,
            bytes,
            time,
        }
    }

    #[test]
    fn what_a_device_does_at_the_same_time_is_on_further_tracks() {
        let cpu = DeviceType::Cpu;
        let lines = written_with_times(vec![
            launches(10, 1, &[(0, 20)]),
            launches(15, 0, &[(0, 20)]),
            launches(27, 0, &[(3, 5), (9, 2)]),
            (40, moved(cpu, GPU, 10), vec![]),
            (45, moved(GPU, cpu, 10), vec![]),
        ]);
        let expected = [
            "opencl:0: 10 begin matmul",
            "opencl:0: 30 end",
            "opencl:0 (2): 15 begin matmul",
            "opencl:0 (2): 35 end",
            "opencl:0: 30 begin matmul",
            "opencl:0: 35 end",
            "opencl:0: 36 begin matmul",
            "opencl:0: 38 end",
            "opencl:0 transfers: 40 begin cpu → opencl:0",
            "opencl:0 transfers: 50 end",
            "opencl:0 transfers (2): 45 begin opencl:0 → cpu",
            "opencl:0 transfers (2): 55 end",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn rates_are_rounded_and_end_where_no_work_is() {
        assert_eq!(rates(&[5, 4, 0], 2), [3, 2, 0]);
        assert_eq!(rates(&[5, 0, 4], 3), [2, 0, 0]);
        assert_eq!(rates(&[5, 4, 3], 0), [0, 0, 0]);
    }

    #[test]
    fn launches_at_once_are_one_slice() {
        let replay = |count| {
            let launches = vec![(matmul(), Duration::ZERO); count];
            let device = GPU;
            let replay = Arc::new(Replay { device, launches });
            What::Replayed { replay, time: 5 }
        };
        let lines = written(vec![(0, replay(2)), (5, replay(0))]);
        let expected = [
            "opencl:0: 0 begin replay of 2 launches",
            "opencl:0: 5 end",
            "opencl:0: 5 begin replay",
            "opencl:0: 10 end",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn what_is_open_ends_where_records_are_cut_and_at_the_end() {
        let begun = |name: &str| What::Begun {
            work: HostWork::Range,
            name: name.into(),
        };
        let lines = written(vec![
            (0, What::Ended), // The span began before the observer was added.
            (1, begun("a")),
            (2, begun("b")),
            (3, What::Cut),
            (4, What::Ended),
            (6, begun("c")),
            (5, What::Dropped(7)), // A clock is read before its record is put in order.
        ]);
        let expected = [
            "thread: 1 begin a",
            "thread: 2 begin b",
            "thread: 3 end",
            "thread: 3 end",
            "thread: 6 begin c",
            "thread: 6 7 events were not kept []",
            "thread: 1000 end",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn fallbacks_and_figures_are_told_with_what_is_known() {
        let mut error = DeviceError::new(GPU, FailureClass::Lost, "no room");
        let to = Some(DeviceType::Cpu);
        let alone = Fallback {
            error: error.clone(),
            to: None,
        };
        error.op = Some("matmul");
        let class = error.class.to_string();
        let named = Gpu::Other("card 00:01".into());
        let figure = |gpu, name, value| What::Figure { gpu, name, value };
        let lines = written(vec![
            (1, What::FellBack(Box::new(Fallback { error, to }))),
            (2, What::FellBack(Box::new(alone))),
            (3, figure(named, "gpu_temperature_celsius", 41.5)),
            (
                4,
                What::Memory {
                    device: GPU,
                    bytes: 64,
                },
            ),
        ]);
        let reasons = format!(r#"("class", "{class}"), ("reason", "no room")"#);
        let expected = [
            format!(r#"thread: 1 fallback: opencl:0 → cpu [{reasons}, ("op", "matmul")]"#),
            format!("thread: 2 fallback: opencl:0 → nobody [{reasons}]"),
            "card 00:01 gpu_temperature_celsius: 3 41.5".to_owned(),
            "opencl:0 memory: 4 64".to_owned(),
        ];
        assert_eq!(lines, expected);
    }
}
