//! Times by activity, as in PyTorch's `key_averages`.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use rustorch_runtime::{DeviceType, LaunchInfo, LaunchTime, Replay};
use serde::Serialize;

use crate::Map;
use crate::launches::PerList;
use crate::limits::Limits;
use crate::record::{Record, What, copier};

/// The key of a [`KeyAverage`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Launches of a device.
    Launch,
    /// Copies from one memory to another.
    Transfer,
    /// Host activity: planning, compiling, runs, and ranges of the user's.
    Host,
}

/// All activities of one name, on one device.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KeyAverage {
    /// The operations of a launch, the route of a copy, or the name of the host's activity.
    pub name: String,
    /// The name.
    pub kind: Kind,
    /// The device; `None` for the host's own.
    #[serde(serialize_with = "device")]
    pub device: Option<DeviceType>,
    /// Number of times.
    pub calls: u64,
    /// The total time, in nanoseconds. Launches that a device received at once share the time in
    /// proportion to their single times.
    pub total_ns: u64,
    /// The total time without nested activities.
    pub self_ns: u64,
    /// Bytes read and written, or copied.
    pub bytes: u64,
    /// Multiplications and additions in products.
    pub flops: u64,
    /// Share of the device's [measured](crate::Limit) limit; `None` if it was not measured.
    pub share_of_limit: Option<f64>,
}

fn device<S: serde::Serializer>(
    device: &Option<DeviceType>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match device {
        Some(device) => serializer.collect_str(device),
        None => serializer.serialize_none(),
    }
}

impl KeyAverage {
    /// The total time.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total_ns)
    }

    /// The time of one activity.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.total_ns / self.calls.max(1))
    }

    /// Bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        per_second(self.bytes, self.total_ns)
    }

    /// Operations per second.
    pub fn flops_per_second(&self) -> f64 {
        per_second(self.flops, self.total_ns)
    }
}

fn per_second(work: u64, ns: u64) -> f64 {
    match ns {
        0 => 0.0,
        ns => work as f64 / ns as f64 * 1e9,
    }
}

/// The activities, by name and device, longest first. Launches come before transfers, and transfers
/// before the host's activities.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct KeyAverages(pub Vec<KeyAverage>);

impl KeyAverages {
    /// Time of a device's work on launches.
    pub fn busy(&self, device: DeviceType) -> Duration {
        let its = self.launches().filter(|row| row.device == Some(device));
        its.map(KeyAverage::total).sum()
    }

    fn launches(&self) -> impl Iterator<Item = &KeyAverage> {
        self.0.iter().filter(|row| row.kind == Kind::Launch)
    }

    /// A row.
    pub fn find(&self, name: &str) -> Option<&KeyAverage> {
        self.0.iter().find(|row| row.name == name)
    }
}

impl fmt::Display for KeyAverages {
    /// A table. Shares are of the time of all rows of that kind. For the host they are of the rows'
    /// own time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |kind| -> u64 {
            let its = self.0.iter().filter(|row| row.kind == kind);
            its.map(|row| row.self_ns).sum()
        };
        let sums = [Kind::Launch, Kind::Transfer, Kind::Host].map(|kind| (kind, sum(kind)));
        let rows = self.0.iter().map(|row| {
            let all = sums.iter().find(|(kind, _)| *kind == row.kind);
            let all = all.map_or(0, |(_, all)| *all).max(1);
            let rate = |work: u64| match work {
                0 => "-".to_owned(),
                work => format!("{:.2}", per_second(work, row.total_ns) / 1e9),
            };
            let share = row.share_of_limit;
            [
                row.name.clone(),
                row.device
                    .map_or("host".to_owned(), |device| device.to_string()),
                format!("{:.1} %", 100.0 * row.self_ns as f64 / all as f64),
                time(row.self_ns),
                time(row.total_ns),
                row.calls.to_string(),
                time(row.total_ns / row.calls.max(1)),
                rate(row.bytes),
                rate(row.flops),
                share.map_or("-".to_owned(), |share| format!("{:.0} %", 100.0 * share)),
            ]
        });
        let header = [
            "name", "device", "self %", "self", "total", "calls", "mean", "GB/s", "GFLOP/s",
            "of limit",
        ];
        let lines: Vec<[String; 10]> = [header.map(str::to_owned)]
            .into_iter()
            .chain(rows)
            .collect();
        let width = |column: usize| {
            let widths = lines.iter().map(|line| line[column].chars().count());
            widths.max().unwrap_or(0)
        };
        let widths: [usize; 10] = std::array::from_fn(width);
        for line in &lines {
            for (column, (cell, width)) in line.iter().zip(widths).enumerate() {
                match column {
                    0 => write!(f, "{cell:<width$}")?,
                    1 => write!(f, "  {cell:<width$}")?,
                    _ => write!(f, "  {cell:>width$}")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

fn time(ns: u64) -> String {
    match ns as f64 {
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// The key of rows.
type Key = (Kind, Option<DeviceType>, Arc<str>);

/// Adds up events.
#[derive(Default)]
pub(crate) struct Totals {
    rows: Map<Key, KeyAverage>,
    /// Activity that is not in `rows` yet: each launch of a list, and those that were made at once.
    launches: PerList<Vec<Arc<LaunchInfo>>, Vec<Launched>>,
    replays: PerList<Replay, Launched>,
    /// The open ranges of each thread, innermost last.
    open: Map<u32, Vec<Open>>,
}

/// Number and time of a launch.
#[derive(Clone, Copy, Default)]
struct Launched {
    calls: u64,
    time: u64,
}

impl Launched {
    fn add(&mut self, time: u64) {
        self.calls += 1;
        self.time += time;
    }
}

/// Something that a thread has begun.
struct Open {
    name: Arc<str>,
    since: u64,
    /// The time of the ranges inside it.
    inner: u64,
}

impl Totals {
    /// Adds a record; `times` are those of its launches, if it is of some.
    pub(crate) fn add(&mut self, record: &Record, times: &[LaunchTime]) {
        match &record.what {
            What::Launched {
                launches, first, ..
            } => {
                let known = match self.launches.get(launches) {
                    Some(known) => known,
                    None => {
                        self.make_room();
                        let count = launches.len();
                        let known = vec![Launched::default(); count];
                        self.launches.insert(launches, count, known)
                    }
                };
                for (launched, launch) in known.iter_mut().skip(*first).zip(times) {
                    launched.add(launch.time);
                }
            }
            What::Replayed { replay, time } => {
                let known = match self.replays.get(replay) {
                    Some(known) => known,
                    None => {
                        self.make_room();
                        let count = replay.launches.len();
                        self.replays.insert(replay, count, Launched::default())
                    }
                };
                known.add(*time);
            }
            What::Moved {
                from,
                to,
                bytes,
                time,
            } => {
                let device = copier(*from, *to);
                let name = format!("{from} → {to}");
                let row = row(&mut self.rows, Kind::Transfer, Some(device), name.into());
                row.add(1, *time, *bytes, 0);
            }
            What::Begun { name, .. } => {
                self.open.entry(record.thread).or_default().push(Open {
                    name: name.clone(),
                    since: record.at,
                    inner: 0,
                });
            }
            What::Ended => {
                let open = self.open.entry(record.thread).or_default();
                let Some(ended) = open.pop() else { return };
                let total = record.at.saturating_sub(ended.since);
                if let Some(outer) = open.last_mut() {
                    outer.inner += total;
                }
                let row = row(&mut self.rows, Kind::Host, None, ended.name);
                row.add(1, total, 0, 0);
                row.self_ns -= ended.inner.min(total);
            }
            What::Cut => self.open.clear(),
            What::Memory { .. } | What::FellBack(_) | What::Figure { .. } | What::Dropped(_) => {}
        }
    }

    /// For a list of launches that comes for the first time.
    #[cold]
    fn make_room(&mut self) {
        if self.launches.is_full() || self.replays.is_full() {
            let mut rows = mem::take(&mut self.rows);
            self.add_launches(&mut rows);
            self.rows = rows;
            self.launches.clear();
            self.replays.clear();
        }
    }

    fn add_launches(&self, rows: &mut Map<Key, KeyAverage>) {
        let add = |rows: &mut _, launch: &LaunchInfo, calls, time| {
            let row = row(
                rows,
                Kind::Launch,
                Some(launch.device),
                launch.name.as_str().into(),
            );
            row.add(calls, time, calls * launch.bytes, calls * launch.flops);
        };
        for (launches, known) in self.launches.iter() {
            let made = launches.iter().zip(known).filter(|(_, its)| its.calls > 0);
            made.for_each(|(launch, its)| add(rows, launch, its.calls, its.time));
        }
        for (replay, known) in self.replays.iter() {
            let Launched { calls, time } = *known;
            let all: u128 = replay.launches.iter().map(|(_, t)| t.as_nanos()).sum();
            if all == 0 {
                let row = row(rows, Kind::Launch, Some(replay.device), "replay".into());
                row.add(calls, time, 0, 0);
                continue;
            }
            for (launch, its) in &replay.launches {
                let share = u128::from(time) * its.as_nanos() / all;
                add(rows, launch, calls, share as u64);
            }
        }
    }

    /// The activity so far, beside the limits of devices.
    pub(crate) fn averages(&self, limits: &Limits) -> KeyAverages {
        let mut rows = self.rows.clone();
        self.add_launches(&mut rows);
        let mut rows: Vec<KeyAverage> = rows.into_values().collect();
        for row in rows.iter_mut().filter(|row| row.kind == Kind::Launch) {
            let limit = row.device.and_then(|device| limits.of_device(device));
            let seconds = row.total_ns as f64 / 1e9;
            row.share_of_limit =
                limit.and_then(|limit| limit.share(row.bytes as f64, row.flops as f64, seconds));
        }
        let order = |row: &KeyAverage| {
            let device = row.device.map(|device| device.to_string());
            (
                row.kind as u8,
                u64::MAX - row.self_ns,
                device,
                row.name.clone(),
            )
        };
        rows.sort_by_cached_key(order);
        KeyAverages(rows)
    }
}

fn row(
    rows: &mut Map<Key, KeyAverage>,
    kind: Kind,
    device: Option<DeviceType>,
    name: Arc<str>,
) -> &mut KeyAverage {
    let row = rows.entry((kind, device, name));
    row.or_insert_with_key(|(_, _, name)| KeyAverage {
        name: name.to_string(),
        kind,
        device,
        calls: 0,
        total_ns: 0,
        self_ns: 0,
        bytes: 0,
        flops: 0,
        share_of_limit: None,
    })
}

impl KeyAverage {
    fn add(&mut self, calls: u64, time: u64, bytes: u64, flops: u64) {
        self.calls += calls;
        self.total_ns += time;
        self.self_ns += time;
        self.bytes += bytes;
        self.flops += flops;
    }
}
