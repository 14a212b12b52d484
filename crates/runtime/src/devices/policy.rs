//! The order of devices for an operation.
//!
//! The order of reasons: the user's pin, the table of routes, the requested device, the rules of
//! the [`DeviceSelector`]. The planner finds unsupported operations, and tries the devices in
//! order.

mod f32_hybrid;
mod mac_hybrid;

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use rustorch_ir::order::sort_by_key;
use rustorch_ir::passes::Rule;
use rustorch_ir::{DType, OpKind};
use smallvec::SmallVec;

use crate::devices::placement::{Chain, DeviceId, Reason, Split, Times};
use crate::{DeviceInfo, DeviceType, Hardware, OpType, TensorInfo};

/// The CPU's part beside a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GpuExecutionStrategy {
    /// GPUs and neural engines. The CPU runs operations that none of them supports, and nothing in
    /// strict mode.
    GpuOnly,
    /// [`DeviceType::Cpu`] alone, whatever else is requested.
    CpuOnly,
    /// Every device; graphs below a size begin with the CPU.
    Hybrid {
        /// Bytes of a graph's inputs and outputs from which on it is worth a GPU.
        gpu_threshold: usize,
    },
}

impl GpuExecutionStrategy {
    /// Every device, but graphs below 1 MiB begin with the CPU.
    pub const HYBRID: Self = Self::Hybrid {
        gpu_threshold: 1 << 20,
    };

    /// Is the device left out?
    pub(crate) fn excludes(self, info: &DeviceInfo, strict: bool) -> bool {
        match self {
            Self::GpuOnly => strict && info.hardware == Hardware::Processor,
            Self::CpuOnly => info.device != DeviceType::Cpu,
            Self::Hybrid { .. } => false,
        }
    }
}

impl fmt::Display for GpuExecutionStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GpuOnly => "GPU only",
            Self::CpuOnly => "CPU only",
            Self::Hybrid { .. } => "hybrid",
        })
    }
}

/// The rules by which [`DeviceType::Auto`] chooses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Rules {
    /// The rules of the runtime's [`DeviceSelector`], which judges whole graphs.
    #[default]
    Selector,
    /// The f32 hybrid's, operation by operation: products above 10 000 elements go to the first GPU, which is
    /// Metal if there is one. Convolutions and activations go to Core ML, or else to that GPU, and everything
    /// else to the CPU.
    F32Hybrid,
    /// The Mac's rules: convolutions and activations go to Core ML, products and RMSNorm to Metal,
    /// everything else stays with its operands. Small graphs begin with the CPU and large ones with
    /// Metal; measured times of the two take precedence.
    MacHybrid,
}

impl Rules {
    /// Are measured times of this device compared?
    pub(crate) fn compare(self, info: &DeviceInfo) -> bool {
        match self {
            Self::Selector => true,
            Self::F32Hybrid => false,
            Self::MacHybrid => mac_hybrid::compares(info),
        }
    }

    /// Does an operation go where its first operand is computed, if nothing sends it elsewhere?
    pub(crate) fn follows(self, subject: &Subject) -> bool {
        match self {
            Self::Selector | Self::F32Hybrid => subject.op_type.is_none(),
            Self::MacHybrid => mac_hybrid::follows(subject),
        }
    }
}

/// The devices that a graph may use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Routing {
    /// The requested device, which overrules the rules; [`DeviceType::Auto`] for the chain.
    pub device: DeviceType,
    /// The rules if no device is requested.
    pub rules: Rules,
    /// Whether an operation that the first device does not support is an error.
    pub strict: bool,
    /// The CPU's part.
    pub strategy: GpuExecutionStrategy,
    /// May operations be replaced by composites that run better on a device, see
    /// [`fusion`](rustorch_ir::passes::Fusion)?
    pub fuses: bool,
}

impl Routing {
    /// The best device for each operation, and the next one if it lacks the operation or fails.
    pub const AUTO: Self = Self {
        device: DeviceType::Auto,
        rules: Rules::Selector,
        strict: false,
        strategy: GpuExecutionStrategy::HYBRID,
        fuses: true,
    };

    /// Each operation by the f32 hybrid's rules.
    pub const F32_HYBRID: Self = Self {
        rules: Rules::F32Hybrid,
        ..Self::AUTO
    };

    /// Core ML and Metal, by the rules of the Mac's hybrid.
    pub const MAC_HYBRID: Self = Self {
        rules: Rules::MacHybrid,
        ..Self::AUTO
    };
}

impl Default for Routing {
    fn default() -> Self {
        Self::AUTO
    }
}

/// Routes of operations to devices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Route {
    /// A family.
    Type(OpType),
    /// One operation, which takes precedence over its family.
    Kind(OpKind),
}

impl From<OpType> for Route {
    fn from(op_type: OpType) -> Self {
        Self::Type(op_type)
    }
}

impl From<OpKind> for Route {
    fn from(kind: OpKind) -> Self {
        Self::Kind(kind)
    }
}

/// The rules choose between devices whose times differ by less. A graph that would be faster by less in parts
/// stays whole.
pub(crate) const TIE: f64 = 1.05;

/// The choice of [`Rules::Selector`].
///
/// With [measured](crate::Runtime::set_costs) devices, a graph goes to the device of the least
/// expected time, transfers included. Its segments go to several devices if that is expected to be
/// faster. For nearly equal times, and for devices that were not measured, the rules below apply.
///
/// A graph is judged as a whole, by the bytes of its inputs and outputs: a step of a language model has
/// gigabytes of weights. It must not move between devices just because its activations are small.
///
/// | bytes | order |
/// | --- | --- |
/// | below [`GpuExecutionStrategy::Hybrid`]'s threshold | CPU, then the chain |
/// | up to `large_bytes` | the chain: Core ML, GPUs, CPU |
/// | above | GPUs, then the chain |
///
/// Core ML gets only operations that it is good at. The dtypes are `f16` and `f32`. Linear algebra,
/// convolutions and activations have up to rank 5, reductions and norms up to rank 4. Moves of data
/// between those are offered, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceSelector {
    /// Number of bytes of a graph above which a GPU goes before Core ML.
    pub large_bytes: usize,
    /// Whether measured times are compared, if there are any.
    pub compares: bool,
    /// Whether GPUs go before Core ML, at any size and with any measurement.
    pub gpus_first: bool,
}

impl Default for DeviceSelector {
    fn default() -> Self {
        Self {
            large_bytes: 100 << 20,
            compares: true,
            gpus_first: false,
        }
    }
}

impl DeviceSelector {
    /// The default rules, but with GPUs before Core ML.
    pub fn gpus_first() -> Self {
        Self {
            gpus_first: true,
            ..Self::default()
        }
    }
}

/// The input of the rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) kind: Option<OpKind>,
    /// Family of the operation; `None` for operations that only move data.
    pub(crate) op_type: Option<OpType>,
    /// Type of the result.
    pub(crate) dtype: DType,
    /// The largest of operands and result.
    pub(crate) rank: usize,
    /// The size of the largest operand or result.
    pub(crate) elements: usize,
    pub(crate) custom_kernel: bool,
    /// The bytes of the whole graph.
    pub(crate) bytes: usize,
    /// The expected time of the whole graph on measured devices.
    pub(crate) times: &'a Times,
    /// The graph in parts, if that is better, with the device of this operation.
    pub(crate) split: Option<(&'a Split, DeviceId)>,
}

impl DeviceSelector {
    /// Sorts devices that are in the platform's order.
    fn sort(&self, offer: &mut Offer, routing: Routing, subject: &Subject, all: &Chain) {
        let is_coreml = |id| is_coreml(all.info(id).device);
        offer
            .ids
            .retain(|&mut id| !is_coreml(id) || coreml_takes(subject));
        self.sort_by_size(offer, routing, subject, all);
        if self.compares {
            sort_by_time(offer, routing, subject, all);
        }
        if self.gpus_first {
            put_behind_gpus(offer, is_coreml, all);
        }
    }

    fn sort_by_size(&self, offer: &mut Offer, routing: Routing, subject: &Subject, all: &Chain) {
        let info = |id: DeviceId| all.info(id);
        let threshold = match routing.strategy {
            GpuExecutionStrategy::Hybrid { gpu_threshold } => gpu_threshold,
            GpuExecutionStrategy::GpuOnly | GpuExecutionStrategy::CpuOnly => 0,
        };
        let first: fn(&DeviceInfo) -> bool = match subject.bytes {
            n if n < threshold => |info| info.device == DeviceType::Cpu,
            n if n > self.large_bytes => |info| info.hardware == Hardware::Gpu,
            _ => return,
        };
        // Says nothing where there is nothing to choose between.
        let chosen = offer.ids.iter().position(|&id| first(info(id)));
        if chosen.is_some_and(|at| at > 0) {
            offer.reason = Reason::Policy(match subject.bytes < threshold {
                true => "too small for a GPU",
                false => "large enough for the best GPU",
            });
            put_first(&mut offer.ids, &|id| first(info(id)));
        }
    }
}

/// Puts the devices that were measured in the order of their times, in the places that they have together. In a
/// graph in parts, the operation's own device goes before the others.
fn sort_by_time(offer: &mut Offer, routing: Routing, subject: &Subject, all: &Chain) {
    let Subject { times, split, .. } = subject;
    // With a strategy of GPUs only, the processor's place is settled already.
    let is_free = |id: DeviceId| {
        let gpu_only = routing.strategy == GpuExecutionStrategy::GpuOnly;
        !gpu_only || all.info(id).hardware != Hardware::Processor
    };
    let time = |id: DeviceId| {
        let found = times.iter().find(|(known, _)| *known == id && is_free(id));
        found.map(|(_, time)| *time)
    };
    let measured = offer.ids.iter().filter_map(|&id| Some((id, time(id)?)));
    let mut measured: Times = measured.collect();
    let Some(least) = measured.iter().map(|(_, time)| *time).min() else {
        return;
    };
    if measured.len() < 2 {
        return;
    }
    let tie = least.mul_f64(TIE);
    let is_elsewhere = |id| split.is_some_and(|(_, device)| id != device);
    sort_by_key(&mut measured, |&(id, time)| {
        let time = if time <= tie { least } else { time };
        (is_elsewhere(id), time)
    });
    let mut sorted = measured.iter();
    for id in offer.ids.iter_mut().filter(|id| time(**id).is_some()) {
        if let Some((next, _)) = sorted.next() {
            *id = *next;
        }
    }
    let ((first, here), others) = (measured[0], &measured[1..]);
    if offer.ids[0] != first {
        return;
    }
    let named = |&(id, time): &(DeviceId, Duration)| (all.info(id).device, time);
    offer.reason = match split {
        None => Reason::Measured {
            here,
            others: others.iter().map(named).collect(),
        },
        Some((split, _)) => {
            let mut alone: Vec<_> = times.iter().map(named).collect();
            sort_by_key(&mut alone, |(_, time)| *time);
            Reason::Split {
                time: split.time,
                segments: split.segments,
                alone,
            }
        }
    };
}

/// Puts the devices of `is_first` before the others, which keep their order.
fn put_first(ids: &mut [DeviceId], is_first: &dyn Fn(DeviceId) -> bool) {
    sort_by_key(ids, |&id| !is_first(id));
}

/// Puts the devices of `is_late` behind the last GPU, if they stood before it.
fn put_behind_gpus(offer: &mut Offer, is_late: impl Fn(DeviceId) -> bool, all: &Chain) {
    let is_gpu = |&id: &DeviceId| all.info(id).hardware == Hardware::Gpu;
    let Some(last) = offer.ids.iter().rposition(is_gpu) else {
        return;
    };
    if is_late(offer.ids[0]) {
        offer.reason = Reason::Policy("GPUs go before Core ML");
    }
    put_first(&mut offer.ids[..=last], &|id| !is_late(id));
}

fn is_coreml(device: DeviceType) -> bool {
    matches!(device, DeviceType::CoreML(_))
}

/// Returns whether Core ML suits an operation of this family on such a tensor.
pub fn supports_coreml(op_type: OpType, tensor: &TensorInfo) -> bool {
    let ty = &tensor.ty;
    !tensor.custom_kernel && is_for_coreml(Some(op_type), ty.dtype, ty.rank())
}

/// Does Core ML suit this operation?
pub(crate) fn coreml_takes(subject: &Subject) -> bool {
    !subject.custom_kernel && is_for_coreml(subject.op_type, subject.dtype, subject.rank)
}

/// The rule of that: the families, and for each the highest rank. `None` only moves data.
fn is_for_coreml(op_type: Option<OpType>, dtype: DType, rank: usize) -> bool {
    let most = match op_type {
        None | Some(OpType::LinearAlgebra | OpType::Convolution | OpType::Activation) => 5,
        Some(OpType::Reduction | OpType::Normalization) => 4,
        Some(
            OpType::ComplexMath
            | OpType::Distribution
            | OpType::CustomKernel
            | OpType::DistributedOps,
        ) => return false,
    };
    matches!(dtype, DType::F16 | DType::F32) && rank <= most
}

/// A device's place in the platform's chain.
pub(crate) fn place_in_chain(info: &DeviceInfo) -> usize {
    match (info.device, info.hardware) {
        (DeviceType::Reference, _) => 7,
        (DeviceType::Cpu, _) => 5,
        // The processor through another driver.
        (_, Hardware::Processor) | (DeviceType::Auto, _) => 6,
        // Whoever adds a device wants it to be used.
        (DeviceType::CoreML(_) | DeviceType::CoreMLHybrid { .. } | DeviceType::Other(..), _) => 0,
        (DeviceType::Metal(_), _) => 1,
        (DeviceType::Cuda(_), _) => 2,
        (DeviceType::WebGpu(_), _) => 3,
        (DeviceType::OpenCL(_), _) => 4,
    }
}

/// The user's settings, besides a run's [`Routing`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Policy {
    pub(crate) selector: DeviceSelector,
    pub(crate) routes: HashMap<Route, DeviceType>,
    /// Rules of fusion that are tried before those of `ir`.
    pub(crate) fusions: Vec<Rule>,
}

/// The devices that an operation is offered to.
#[derive(Debug)]
pub(crate) struct Offer {
    /// Best first.
    pub(crate) ids: SmallVec<[DeviceId; 8]>,
    /// The reason for the first one.
    pub(crate) reason: Reason,
    /// The requested devices that cannot be offered, with the reasons.
    pub(crate) passed: Vec<String>,
}

impl Policy {
    /// The route of an operation, or else of its family.
    pub(crate) fn route(
        &self,
        kind: impl Into<Option<OpKind>>,
        op_type: Option<OpType>,
    ) -> Option<DeviceType> {
        (kind.into().map(Route::Kind).into_iter())
            .chain(op_type.map(Route::Type))
            .find_map(|route| self.routes.get(&route).copied())
    }

    /// The devices for one operation, pinned or not.
    pub(crate) fn offer(
        &self,
        all: &Chain,
        routing: Routing,
        pin: Option<DeviceType>,
        subject: &Subject,
    ) -> Offer {
        let route = self.route(subject.kind, subject.op_type);
        let wishes = [
            pin.map(|device| (device, Reason::Pinned(device))),
            route.map(|device| (device, Reason::Routed(device))),
            Some((routing.device, Reason::Asked(routing.device))),
        ];
        let mut wishes = (wishes.into_iter().flatten())
            .filter(|(device, _)| *device != DeviceType::Auto)
            .peekable();
        let Some((_, reason)) = wishes.peek() else {
            let mut offer = self.by_rules(all, routing, subject);
            if routing.strict {
                offer.ids.truncate(1);
            }
            return offer;
        };
        let mut offer = Offer {
            ids: SmallVec::new(),
            reason: reason.clone(),
            passed: Vec::new(),
        };
        for (device, _) in wishes {
            offer.add(device, all, routing, subject);
            if routing.strict {
                return offer;
            }
        }
        for id in self.by_rules(all, routing, subject).ids {
            offer.push(id);
        }
        offer
    }

    /// The devices that the strategy allows, in the order of the rules.
    fn by_rules(&self, all: &Chain, routing: Routing, subject: &Subject) -> Offer {
        let Routing {
            rules,
            strict,
            strategy,
            ..
        } = routing;
        let allowed = |id: &DeviceId| !strategy.excludes(all.info(*id), strict);
        let mut offer = Offer {
            ids: all.ids().filter(allowed).collect(),
            reason: Reason::Preferred,
            passed: Vec::new(),
        };
        match rules {
            Rules::Selector => self.selector.sort(&mut offer, routing, subject, all),
            Rules::F32Hybrid => f32_hybrid::sort(&mut offer, subject, all),
            Rules::MacHybrid => {
                mac_hybrid::sort(&self.selector, &mut offer, routing, subject, all);
            }
        }
        offer
    }
}

impl Offer {
    fn push(&mut self, id: DeviceId) {
        if !self.ids.contains(&id) {
            self.ids.push(id);
        }
    }

    /// Appends the devices of that name, or notes why there is none.
    fn add(&mut self, wish: DeviceType, all: &Chain, routing: Routing, subject: &Subject) {
        for name in names(wish, all) {
            if is_coreml(name) && !coreml_takes(subject) {
                self.passed
                    .push(format!("{name}: not what Core ML is good for"));
                continue;
            }
            let mut found = all
                .ids()
                .filter(|&id| all.info(id).device == name)
                .peekable();
            if found.peek().is_none() {
                self.passed.push(format!("{name}: not on this machine"));
            }
            for id in found {
                match routing.strategy.excludes(all.info(id), routing.strict) {
                    true => (self.passed).push(format!(
                        "{name}: left out by the strategy {}",
                        routing.strategy
                    )),
                    false => self.push(id),
                }
            }
        }
    }
}

/// The devices that a name stands for, first to last.
fn names(wish: DeviceType, all: &Chain) -> SmallVec<[DeviceType; 2]> {
    let DeviceType::CoreMLHybrid {
        coreml_id,
        fallback_gpu,
    } = wish
    else {
        return [wish].into_iter().collect();
    };
    let mut infos = all.ids().map(|id| all.info(id));
    let next = infos.find(|info| info.hardware == Hardware::Gpu);
    let gpu = (fallback_gpu.map(DeviceType::from)).or(next.map(|info| info.device));
    [DeviceType::CoreML(coreml_id)]
        .into_iter()
        .chain(gpu)
        .collect()
}
