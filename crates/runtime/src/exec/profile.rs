//! Times of a plan's launches.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustorch_ir::{Graph, Op, Role};
use smallvec::SmallVec;

use crate::devices::costs::work::Work;
use crate::observer::{Event, LaunchInfo, LaunchTime, LaunchTimes, Observers, Replay};
use crate::platform::Instant;
use crate::{DeviceError, DeviceType, Nodes, Probe, Watcher};

/// Runs of a plan with launches one by one for observers, if the device otherwise makes them at once:
/// the first one, which may be the only one, and the second, which compiles and loads nothing any more.
const ONE_BY_ONE: u32 = 2;

/// Times of a plan's launches over its runs.
#[derive(Default)]
pub(crate) struct Profile {
    /// By the nodes' indices in the plan's graph.
    times: BTreeMap<Nodes, Duration>,
    runs: u32,
}

impl Profile {
    /// Counts a run of all segments that is over.
    pub(crate) fn count_run(&mut self) {
        self.runs += 1;
    }

    /// The launches that were timed, with the mean time of each.
    pub(crate) fn launches(&self) -> impl Iterator<Item = (&Nodes, Duration)> {
        let runs = self.runs.max(1);
        self.times
            .iter()
            .map(move |(nodes, time)| (nodes, *time / runs))
    }
}

/// The observers' description of a segment's launches.
#[derive(Default)]
pub(crate) struct Launches {
    /// The nodes of each, as the program reported them, in the order of the launches.
    nodes: Option<Arc<[Nodes]>>,
    /// The description of each launch.
    known: Arc<Vec<Arc<LaunchInfo>>>,
    /// Time of the device on each in the last timed run.
    times: Vec<LaunchTime>,
    timed_runs: u32,
    replay: Option<Arc<Replay>>,
}

impl Launches {
    /// Should they be made one by one, though the device does not do so by itself?
    pub(crate) fn are_to_be_timed(&self) -> bool {
        self.timed_runs < ONE_BY_ONE
    }

    /// Do `observers` want the time of all launches together?
    pub(crate) fn watcher(&mut self, device: DeviceType, observers: &Observers) -> Watcher {
        let replay = self.replay.get_or_insert_with(|| {
            let times = self.times.iter();
            let times = times.map(|launch| Duration::from_nanos(launch.time));
            let launches = self.known.iter().cloned().zip(times).collect();
            Arc::new(Replay { device, launches })
        });
        let (replay, observers) = (replay.clone(), observers.clone());
        Arc::new(move |begin, time| {
            observers.saw(Event::Replayed {
                replay: &replay,
                begin,
                time,
            });
        })
    }
}

/// Notes the times of a segment's launches.
pub(crate) struct Timer<'a> {
    /// Index of the segment's first node in the plan's graph.
    first: usize,
    /// Start of the run.
    begin: Instant,
    times: Option<RefCell<&'a mut BTreeMap<Nodes, Duration>>>,
    told: Option<RefCell<Telling<'a>>>,
}

/// Tells of launches.
struct Telling<'a> {
    observers: &'a Observers,
    graph: &'a Graph,
    device: DeviceType,
    launches: &'a mut Launches,
}

impl<'a> Timer<'a> {
    /// Times the launches of a run, which begins now, of a segment whose first node has the index `first`.
    pub(crate) fn new(first: usize) -> Self {
        Self {
            first,
            begin: Instant::now(),
            times: None,
            told: None,
        }
    }

    /// Adds the times to `profile`.
    pub(crate) fn noting(self, profile: &'a mut Profile) -> Self {
        let times = Some(RefCell::new(&mut profile.times));
        Self { times, ..self }
    }

    /// Tells `observers` of them, as those of a device.
    pub(crate) fn telling(
        self,
        observers: &'a Observers,
        graph: &'a Graph,
        device: DeviceType,
        launches: &'a mut Launches,
    ) -> Self {
        launches.timed_runs = launches.timed_runs.saturating_add(1);
        launches.times.clear();
        launches.replay = None;
        let told = Some(RefCell::new(Telling {
            observers,
            graph,
            device,
            launches,
        }));
        Self { told, ..self }
    }

    /// The run is over. `ran` is the number of computed nodes, if there are any. A run without
    /// reported launches counts as one.
    pub(crate) fn finish(self, ran: Option<usize>) {
        let Some(told) = self.told else { return };
        let mut told = told.into_inner();
        if let (Some(nodes), true) = (ran, told.launches.times.is_empty()) {
            let computes = |&at: &usize| {
                let op = &told.graph.nodes()[self.first + at].op;
                op.def().role() == Role::Compute
            };
            let nodes: Nodes = (0..nodes).filter(computes).collect();
            if !nodes.is_empty() {
                let known = told.launches.nodes.clone();
                let known = known.filter(|known| **known == [nodes.clone()]);
                let nodes = known.unwrap_or_else(|| Arc::new([nodes]));
                let whole = LaunchTime::new(Duration::ZERO, self.begin.elapsed());
                told.tell(&nodes, 0, &[whole], self.first, self.begin);
            }
        }
    }
}

impl Telling<'_> {
    /// Reports some of `launches`, of a segment whose first node has the index `segment`, in a run that began
    /// then.
    fn tell(
        &mut self,
        launches: &Arc<[Nodes]>,
        first: usize,
        times: &[LaunchTime],
        segment: usize,
        begin: Instant,
    ) {
        let Launches { nodes, known, .. } = &mut *self.launches;
        // Mostly they are those of the run before.
        if !nodes
            .as_ref()
            .is_some_and(|nodes| Arc::ptr_eq(nodes, launches))
        {
            let described = launches.iter().map(|launch| {
                let nodes: Nodes = launch.iter().map(|node| segment + node).collect();
                Arc::new(describe(self.graph, &nodes, self.device))
            });
            *known = Arc::new(described.collect());
            *nodes = Some(launches.clone());
        }
        self.launches.times.extend_from_slice(times);
        self.observers.saw(Event::Launched(LaunchTimes {
            launches: &self.launches.known,
            first,
            begin,
            times,
        }));
    }
}

impl Probe for Timer<'_> {
    fn before(&self, _: usize, _: &Op) -> Result<(), DeviceError> {
        Ok(())
    }

    fn timed_since(&self) -> Option<Instant> {
        Some(self.begin)
    }

    fn took(&self, launches: &Arc<[Nodes]>, first: usize, times: &[LaunchTime]) {
        if let Some(sums) = &self.times {
            let mut sums = sums.borrow_mut();
            for (nodes, launch) in launches.iter().skip(first).zip(times) {
                let nodes = nodes.iter().map(|node| self.first + node);
                *sums.entry(nodes.collect()).or_default() += Duration::from_nanos(launch.time);
            }
        }
        if let Some(told) = &self.told {
            let mut told = told.borrow_mut();
            told.tell(launches, first, times, self.first, self.begin);
        }
    }
}

/// Lets a run pass whose launches are made at once, and has the whole of it timed.
pub(crate) struct Whole(pub(crate) Watcher);

impl Probe for Whole {
    fn before(&self, _: usize, _: &Op) -> Result<(), DeviceError> {
        Ok(())
    }

    fn watcher(&self) -> Option<Watcher> {
        Some(self.0.clone())
    }
}

/// The description of a launch of these nodes. Values passed between them do not reach memory.
fn describe(graph: &Graph, nodes: &[usize], device: DeviceType) -> LaunchInfo {
    let all = || nodes.iter().map(|&at| &graph.nodes()[at]);
    let names: SmallVec<[&'static str; 4]> = all().map(|node| node.op.function()).collect();
    let work = all().map(|node| Work::of(graph, node));
    let (bytes, macs) = work.fold((0.0, 0.0), |(bytes, macs), work| {
        (bytes + work.bytes, macs + work.macs)
    });
    let (_, inner) = nodes.split_last().unwrap_or((&0, &[]));
    let handed_on = inner.iter().map(|&at| graph.nodes()[at].result(0));
    let saved = handed_on.map(|value| {
        let reads = all().flat_map(|node| &node.inputs).filter(|&&v| v == value);
        (1 + reads.count()) * graph.ty(value).bytes()
    });
    LaunchInfo {
        name: describe_names(&names),
        device,
        bytes: (bytes - saved.sum::<usize>() as f64).max(0.0) as u64,
        flops: (2.0 * macs) as u64,
    }
}

/// Names in order, with how many there are of each.
pub(crate) fn describe_names(names: &[impl AsRef<str> + PartialEq]) -> String {
    let runs = names.chunk_by(|a, b| a == b).map(|run| match run.len() {
        1 => run[0].as_ref().to_owned(),
        n => format!("{n} {}", run[0].as_ref()),
    });
    runs.collect::<Vec<_>>().join(", ")
}
