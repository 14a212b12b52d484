//! How long the launches of a plan take.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustorch_ir::{Graph, Op, Role};
use smallvec::SmallVec;

use crate::costs::work::Work;
use crate::journal::lock;
use crate::observer::{Event, LaunchInfo, Observers, Replay};
use crate::{DeviceError, DeviceType, Probe, Watcher};

/// Runs of a plan whose launches are made one by one for who looks on, where a device else makes
/// them at once: the first one, which may be the only one, and the second, which compiles and loads
/// nothing any more.
const ONE_BY_ONE: u32 = 2;

/// The nodes that a launch computes, by their indices in the plan's graph: several if elementwise
/// ones are fused.
pub(crate) type Launched = SmallVec<[usize; 2]>;

/// Times of a plan's launches over its runs.
#[derive(Default)]
pub(crate) struct Profile {
    times: BTreeMap<Launched, Duration>,
    runs: u32,
}

impl Profile {
    /// A run of all segments is over.
    pub(crate) fn count_run(&mut self) {
        self.runs += 1;
    }

    /// The launches that were timed, with the mean time of each.
    pub(crate) fn launches(&self) -> impl Iterator<Item = (&Launched, Duration)> {
        let runs = self.runs.max(1);
        self.times
            .iter()
            .map(move |(nodes, time)| (nodes, *time / runs))
    }
}

/// What those who look on are told of a segment's launches.
#[derive(Default)]
pub(crate) struct Launches {
    /// In the order in which they are made.
    known: Vec<(Launched, Arc<LaunchInfo>)>,
    /// Those of the last run that was timed.
    times: Vec<Duration>,
    timed_runs: u32,
    replay: Option<Arc<Replay>>,
}

impl Launches {
    /// Is it time to make them one by one, where that is not what the device does by itself?
    pub(crate) fn are_to_be_timed(&self) -> bool {
        self.timed_runs < ONE_BY_ONE
    }

    /// Who tells `observers` how long the device works on all of them together.
    pub(crate) fn watcher(&mut self, device: DeviceType, observers: &Observers) -> Watcher {
        let replay = self.replay.get_or_insert_with(|| {
            let known = self.known.iter().map(|(_, launch)| launch.clone());
            let launches = known.zip(self.times.iter().copied()).collect();
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
    times: Option<Mutex<&'a mut BTreeMap<Launched, Duration>>>,
    told: Option<Mutex<Telling<'a>>>,
}

/// Tells of launches.
struct Telling<'a> {
    observers: &'a Observers,
    graph: &'a Graph,
    device: DeviceType,
    launches: &'a mut Launches,
    /// How many were told of in this run.
    count: usize,
}

impl<'a> Timer<'a> {
    /// Times the launches of a segment of `graph`, whose first node has the index `first`.
    pub(crate) fn new(first: usize) -> Self {
        Self {
            first,
            times: None,
            told: None,
        }
    }

    /// Adds the times to `profile`.
    pub(crate) fn noting(self, profile: &'a mut Profile) -> Self {
        let times = Some(Mutex::new(&mut profile.times));
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
        let told = Some(Mutex::new(Telling {
            observers,
            graph,
            device,
            launches,
            count: 0,
        }));
        Self { told, ..self }
    }

    /// The run of these nodes is over, which began then: if the device told nothing of launches, it
    /// was one.
    pub(crate) fn finish(self, nodes: usize, begin: Instant) {
        let Some(told) = self.told else { return };
        let mut told = told.into_inner().unwrap_or_else(|e| e.into_inner());
        if told.count == 0 {
            let nodes = self.first..self.first + nodes;
            let computing = |&at: &usize| told.graph.nodes()[at].op.def().role() == Role::Compute;
            let nodes: Launched = nodes.filter(computing).collect();
            if !nodes.is_empty() {
                told.tell(nodes.iter().copied(), begin, begin.elapsed());
            }
        }
    }
}

impl Telling<'_> {
    fn tell(&mut self, nodes: impl Iterator<Item = usize> + Clone, begin: Instant, time: Duration) {
        let Launches { known, times, .. } = &mut *self.launches;
        // Mostly they are the same in each run: no list is made of them.
        let is_known = |(its, _): &(Launched, _)| its.iter().copied().eq(nodes.clone());
        if !known.get(self.count).is_some_and(is_known) {
            known.truncate(self.count);
            let nodes: Launched = nodes.collect();
            let launch = Arc::new(describe(self.graph, &nodes, self.device));
            known.push((nodes, launch));
        }
        times.push(time);
        self.observers.saw(Event::Launched {
            launch: &known[self.count].1,
            begin,
            time,
        });
        self.count += 1;
    }
}

impl Probe for Timer<'_> {
    fn before(&self, _: usize, _: &Op) -> Result<(), DeviceError> {
        Ok(())
    }

    fn is_timed(&self) -> bool {
        true
    }

    fn took(&self, nodes: &[usize], begin: Instant, time: Duration) {
        let nodes = nodes.iter().map(|node| self.first + node);
        if let Some(times) = &self.times {
            *lock(times).entry(nodes.clone().collect()).or_default() += time;
        }
        if let Some(told) = &self.told {
            lock(told).tell(nodes, begin, time);
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

/// What a launch of these nodes is. What they hand on to each other does not reach memory.
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
