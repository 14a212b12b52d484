//! Assignment of a graph's nodes to devices, by the measured speed of devices.
//!
//! A placement cuts a graph into segments, runs of nodes of one device. It costs
//!
//! * the time of each node on its device,
//! * for each segment, [the time to begin one](Measured::start),
//! * bringing operands to devices that do not have them, each once.
//!
//! The cheapest placement is looked for by dynamic programming over the nodes in their order (Viterbi, 1967). For
//! each device of the last node, the cheapest placement of the nodes so far is kept. The result is the best placement
//! if each node reads only the one before it. Values from further back lie where the kept placement has them, which
//! may miss the best one; the cost of a placement is exact in this model in any case.

use rustorch_ir::{Graph, Node, Role, ValueId};
use smallvec::SmallVec;

use crate::devices::placement::{DeviceId, Split, Times, is_constant};
use crate::devices::policy::TIE;
use crate::plan::estimate::{EVERYWHERE, HOST, Location, Locations, Measured, bit, duration};

/// The devices that can run a node, with the seconds that it takes there.
pub(crate) type Offers = SmallVec<[(DeviceId, f64); 2]>;

/// The expected time of a graph, whole and in parts.
#[derive(Debug, Default)]
pub(crate) struct Partition {
    /// Time on each measured device; a node that a device cannot run makes a detour to another.
    pub(crate) times: Times,
    /// In parts on several, where that is faster than on any one.
    pub(crate) split: Option<Split>,
}

/// A graph's nodes with their times.
pub(crate) struct Problem<'a> {
    measured: &'a Measured,
    tasks: Vec<Task>,
    /// Nodes of the graph.
    nodes: usize,
    /// Values that a [`Way`] has to know the places of at once.
    slots: usize,
}

/// A node that computes.
struct Task {
    /// Its index in the graph.
    node: usize,
    offers: Offers,
    reads: SmallVec<[Read; 4]>,
    /// Values that it computes and that others read, views of them too.
    makes: SmallVec<[Value; 1]>,
}

/// A value with its number among those whose places are known at once.
#[derive(Clone, Copy)]
struct Value {
    id: ValueId,
    slot: usize,
}

/// A value that a node reads.
struct Read {
    value: Value,
    bytes: usize,
    /// The first place of a value that nothing has read before.
    begins: Option<Location>,
}

/// The value behind a view.
#[derive(Clone, Copy)]
enum Shown {
    /// Values that are made wherever they are read.
    Constant,
    Input(ValueId),
    /// The results of the task with this number.
    Task(usize),
}

/// The nodes so far, placed.
#[derive(Clone)]
struct Way {
    seconds: f64,
    device: Option<DeviceId>,
    /// The places of values that are still to be read.
    places: SmallVec<[Location; 16]>,
    /// The last of its segments.
    segment: Option<usize>,
}

/// Tasks from one on, up to the next segment.
struct Segment {
    first: usize,
    device: DeviceId,
    before: Option<usize>,
}

impl<'a> Problem<'a> {
    /// `places` has the places of the graph's inputs, `offers` the devices that can run a node. A
    /// node without a device is left out.
    pub(crate) fn new(
        graph: &Graph,
        places: &Locations,
        measured: &'a Measured,
        mut offers: impl FnMut(usize, &Node) -> Offers,
    ) -> Self {
        let mut problem = Self {
            measured,
            tasks: Vec::with_capacity(graph.nodes().len()),
            nodes: graph.nodes().len(),
            slots: 0,
        };
        let inputs = (0..graph.inputs().len() as u32).map(|i| Shown::Input(ValueId(i)));
        let mut shows: Vec<Shown> = inputs.collect();
        // For each value the last task that reads it.
        let mut last: Vec<Option<usize>> = vec![None; graph.len()];
        for (index, node) in graph.nodes().iter().enumerate() {
            let shown = match node.op.def().role() {
                Role::View => shows[node.inputs[0].index()],
                Role::Compute if is_constant(node) => Shown::Constant,
                Role::Compute => match offers(index, node) {
                    nobody if nobody.is_empty() => Shown::Constant,
                    offers => problem.push(graph, index, offers, &shows, &mut last),
                },
            };
            shows.resize(shows.len() + node.outputs.len(), shown);
        }
        problem.assign_slots(graph, places, &last);
        problem
    }

    /// Adds a node, after those that it reads.
    fn push(
        &mut self,
        graph: &Graph,
        node: usize,
        offers: Offers,
        shows: &[Shown],
        last: &mut [Option<usize>],
    ) -> Shown {
        let number = self.tasks.len();
        let mut reads: SmallVec<[Read; 4]> = SmallVec::new();
        for &operand in &graph.nodes()[node].inputs {
            let id = match shows[operand.index()] {
                Shown::Constant => continue,
                // Views of inputs are made where they are read.
                Shown::Input(input) => input,
                Shown::Task(_) => operand,
            };
            if reads.iter().any(|read| read.value.id == id) {
                continue;
            }
            let value = Value { id, slot: 0 };
            if let (None, Shown::Task(maker)) =
                (last[id.index()].replace(number), shows[operand.index()])
            {
                self.tasks[maker].makes.push(value);
            }
            reads.push(Read {
                value,
                bytes: graph.ty(id).bytes(),
                begins: None,
            });
        }
        self.tasks.push(Task {
            node,
            offers,
            reads,
            makes: SmallVec::new(),
        });
        Shown::Task(number)
    }

    /// Numbers the values. Values that are never known at once share a number, so that ways are small.
    fn assign_slots(&mut self, graph: &Graph, places: &Locations, last: &[Option<usize>]) {
        let mut slots: Vec<Option<usize>> = vec![None; graph.len()];
        let mut free = Vec::new();
        let mut count = 0;
        let mut take = |free: &mut Vec<usize>| {
            free.pop().unwrap_or_else(|| {
                count += 1;
                count - 1
            })
        };
        let is_updated = updated(graph);
        for (number, task) in self.tasks.iter_mut().enumerate() {
            let place = |input: usize| places.get(input).copied().unwrap_or(HOST);
            // An input that is everywhere is not moved. Only one copy of a state is up to date.
            task.reads.retain(|read| {
                let at = read.value.id.index();
                let is_input = at < graph.inputs().len();
                !is_input || is_updated[at] || place(at) != EVERYWHERE
            });
            for read in &mut task.reads {
                let at = read.value.id.index();
                read.value.slot = *slots[at].get_or_insert_with(|| {
                    read.begins = Some(place(at));
                    take(&mut free)
                });
            }
            for made in &mut task.makes {
                made.slot = *slots[made.id.index()].insert(take(&mut free));
            }
            let read_last = task.reads.iter().map(|read| read.value);
            let over = read_last.filter(|value| last[value.id.index()] == Some(number));
            free.extend(over.map(|value| value.slot));
        }
        self.slots = count;
    }

    /// The time of the graph, whole and in parts. `splits`: may it be in parts?
    pub(crate) fn solve(&self, splits: bool) -> Partition {
        let alone = |id: DeviceId| {
            // Tasks that it cannot run go to the device where they cost least.
            let stays = |task: &Task| task.offers.iter().any(|(able, _)| *able == id);
            let placed = self.cheapest(|task, device| device == id || !stays(task));
            (id, duration(placed.seconds))
        };
        let times: Times = self.measured.iter().map(|(id, _)| alone(id)).collect();
        let best = times.iter().map(|(_, time)| time.as_secs_f64());
        let best = best.fold(f64::INFINITY, f64::min);
        let split = (splits && self.least() * TIE < best).then(|| self.cheapest(|_, _| true));
        let split = split.filter(|split| split.seconds * TIE < best);
        Partition {
            times,
            split: split.map(|split| Split {
                time: duration(split.seconds),
                segments: split.segments.len(),
                devices: self.devices(&split),
            }),
        }
    }

    /// Seconds of the graph with each node on the device whose index `device` returns.
    pub(crate) fn seconds(&self, device: impl Fn(usize) -> Option<DeviceId>) -> f64 {
        self.cheapest(|task, id| device(task.node).is_none_or(|there| there == id))
            .seconds
    }

    /// Seconds that no placement takes less than.
    fn least(&self) -> f64 {
        let least = |seconds: &mut dyn Iterator<Item = f64>| seconds.fold(f64::INFINITY, f64::min);
        let start = least(&mut self.measured.iter().map(|(id, _)| self.measured.start(id)));
        let each = self.tasks.iter();
        let each = each.map(|task| least(&mut task.offers.iter().map(|(_, seconds)| *seconds)));
        start + each.sum::<f64>()
    }

    /// The cheapest placement found with each node on one of the `allowed` devices. These have to be among the
    /// devices that can run it.
    fn cheapest(&self, allowed: impl Fn(&Task, DeviceId) -> bool) -> Placed {
        let mut segments: Vec<Segment> = Vec::new();
        let mut ways: SmallVec<[Way; 4]> = SmallVec::new();
        ways.push(Way {
            seconds: 0.0,
            device: None,
            places: SmallVec::from_elem(0, self.slots),
            segment: None,
        });
        for (number, task) in self.tasks.iter().enumerate() {
            let offers = task.offers.iter().copied();
            let step = |(device, seconds)| {
                let costs = ways
                    .iter()
                    .map(|way| way.seconds + self.added(way, task, device));
                let (from, cost) = first_least(costs)?;
                let mut way = ways[from].clone();
                way.seconds = cost + seconds;
                if way.device != Some(device) {
                    segments.push(Segment {
                        first: number,
                        device,
                        before: way.segment,
                    });
                    (way.device, way.segment) = (Some(device), Some(segments.len() - 1));
                }
                way.pass(task, device);
                Some(way)
            };
            let next = offers.filter(|&(device, _)| allowed(task, device));
            let next: SmallVec<[Way; 4]> = next.filter_map(step).collect();
            // If no device is allowed, the task is left out.
            if !next.is_empty() {
                ways = next;
            }
        }
        let Some((best, seconds)) = first_least(ways.iter().map(|way| way.seconds)) else {
            return Placed::default();
        };
        let mut placed = Placed {
            seconds,
            segments: Vec::new(),
        };
        let mut at = ways[best].segment;
        while let Some(segment) = at.map(|at| &segments[at]) {
            placed.segments.push((segment.first, segment.device));
            at = segment.before;
        }
        placed.segments.reverse();
        placed
    }

    /// Seconds that it takes to begin with a task, after a way: a segment, and its operands.
    fn added(&self, way: &Way, task: &Task, device: DeviceId) -> f64 {
        let start = match way.device == Some(device) {
            true => 0.0,
            false => self.measured.start(device),
        };
        let bring = |read: &Read| self.measured.bring(read.bytes, way.place(read), device);
        start + task.reads.iter().map(bring).sum::<f64>()
    }

    /// The device of each of the graph's nodes; `None` for those that go where they are read.
    fn devices(&self, placed: &Placed) -> Vec<Option<DeviceId>> {
        let mut devices = vec![None; self.nodes];
        let ends = placed.segments.iter().skip(1).map(|(first, _)| *first);
        let ends = ends.chain([self.tasks.len()]);
        for (&(first, device), end) in placed.segments.iter().zip(ends) {
            for task in &self.tasks[first..end] {
                devices[task.node] = Some(device);
            }
        }
        devices
    }
}

/// A placement.
#[derive(Default)]
struct Placed {
    seconds: f64,
    /// For each segment, its first task and its device.
    segments: Vec<(usize, DeviceId)>,
}

impl Way {
    fn place(&self, read: &Read) -> Location {
        read.begins.unwrap_or(self.places[read.value.slot])
    }

    /// Goes on with a task.
    fn pass(&mut self, task: &Task, device: DeviceId) {
        for read in &task.reads {
            self.places[read.value.slot] = match self.place(read) {
                // A state stays with the first that touches it.
                EVERYWHERE => bit(device),
                place => place | bit(device) | HOST,
            };
        }
        for made in &task.makes {
            self.places[made.slot] = bit(device);
        }
    }
}

/// The inputs that the graph updates, among all.
fn updated(graph: &Graph) -> Vec<bool> {
    let mut updated = vec![false; graph.inputs().len()];
    for node in graph.nodes() {
        for (_, operand) in node.overwrites() {
            if let Some(state) = graph.state_root(node.inputs[operand]) {
                updated[state.index()] = true;
            }
        }
    }
    updated
}

/// The least number, the first of several, with its index.
fn first_least(numbers: impl Iterator<Item = f64>) -> Option<(usize, f64)> {
    numbers.enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b))
}
