//! Assignment of a model's layers to devices.

use std::fmt;

use rustorch_runtime::{DeviceInfo, DeviceType, Routing, Rules, Runtime};

use crate::memory::{
    BackendDevice, MemoryNeeds, USABLE, fitting, free_memory, is_same_card, layers_with, room,
};
use crate::placement::{GpuLayers, Placement, PlacementOptions, Ruled};
use crate::session::SessionOptions;
use crate::spec::{TensorSpec, layer_of};
use crate::{LlmError, Model, Session};

/// Experts' weights of a layer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LayerExperts {
    /// Names of the tensors.
    pub tensors: Vec<String>,
    /// Their bytes, which are among those of the layer.
    pub bytes: u64,
}

/// The input of [`select_backend`].
#[derive(Clone, PartialEq, Debug)]
pub struct BackendConfig {
    /// Bytes of each layer: weights, keys and values. The first one includes the embedding table,
    /// the last one the output head.
    pub layers: Vec<u64>,
    /// Bytes of a table that is in both the first and the last one. A device with both has it once.
    pub shared: u64,
    /// The experts of each layer, which may be elsewhere.
    pub experts: Vec<LayerExperts>,
    /// Bytes of intermediate results, on every device that takes part.
    pub working: u64,
    /// The devices, best first.
    pub devices: Vec<BackendDevice>,
    /// The reason of the order: measured times, or the rule.
    pub reason: String,
    /// Free bytes of the host's memory, if known. Devices that share it count it once.
    pub host_free: Option<u64>,
    /// Number of layers on devices other than the CPU.
    pub gpu_layers: GpuLayers,
}

/// The device of a layer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LayerBackend {
    /// The device.
    pub device: DeviceType,
    /// Why there.
    pub reason: String,
    /// Tensors on other devices.
    pub elsewhere: Vec<TensorBackend>,
}

/// The device of some of a layer's tensors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorBackend {
    /// Names of the tensors.
    pub tensors: Vec<String>,
    /// The device.
    pub device: DeviceType,
    /// Why there.
    pub reason: String,
}

impl LayerBackend {
    fn new(device: DeviceType, reason: String) -> Self {
        Self {
            device,
            reason,
            elsewhere: Vec::new(),
        }
    }

    /// Puts a tensor on another device. Tensors of one device and reason are named together.
    fn put(&mut self, name: &str, device: DeviceType, reason: &str) {
        let mut known = self.elsewhere.iter_mut();
        match known.find(|known| known.device == device && known.reason == reason) {
            Some(known) => known.tensors.push(name.to_owned()),
            None => self.elsewhere.push(TensorBackend {
                tensors: vec![name.to_owned()],
                device,
                reason: reason.to_owned(),
            }),
        }
    }

    /// Returns whether it is a variant of another layer, which has the same tensors.
    pub fn is_like(&self, other: &Self) -> bool {
        let alike = |(a, b): (&TensorBackend, &TensorBackend)| {
            a.device == b.device && a.reason == b.reason && a.names().eq(b.names())
        };
        let is_same = self.device == other.device && self.reason == other.reason;
        is_same
            && self.elsewhere.len() == other.elsewhere.len()
            && self.elsewhere.iter().zip(&other.elsewhere).all(alike)
    }
}

impl TensorBackend {
    /// Names of the tensors, without their layer's prefix.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.iter().map(|name| match layer_of(name) {
            Some(_) => name.splitn(3, '.').last().unwrap_or(name),
            None => name,
        })
    }
}

impl BackendConfig {
    /// The input for a session of `model` with these options.
    ///
    /// # Errors
    /// Fails if the options are invalid, or if memory is too small for the cache.
    pub fn new(
        model: &Model,
        runtime: &Runtime,
        options: &SessionOptions,
    ) -> Result<Self, LlmError> {
        let session = Session::new(model, runtime, options.clone())?;
        let preference = session.preference()?;
        let info = |device: &DeviceType| runtime.devices().find(|info| info.device == *device);
        let mut cards: Vec<&DeviceInfo> = Vec::new();
        for card in preference.devices.iter().filter_map(info) {
            if !cards.iter().any(|first| is_same_card(first, card)) {
                cards.push(card);
            }
        }
        let needs = MemoryNeeds::new(model, options)?;
        let mut experts = vec![LayerExperts::default(); needs.layers.len()];
        for tensor in model.tensors().iter().filter(|tensor| tensor.are_experts()) {
            let place = tensor.layer().and_then(|layer| experts.get_mut(layer));
            if let Some(place) = place {
                place.bytes += bytes_of(model, tensor);
                place.tensors.push(tensor.name.clone());
            }
        }
        let host = runtime
            .devices()
            .find(|info| info.device == DeviceType::Cpu);
        let table = model.decoder().shared_table();
        let table = table.and_then(|name| model.gguf().tensor(name));
        let is_twice = needs.layers.len() > 1;
        Ok(Self {
            layers: needs.layers,
            shared: (table.filter(|_| is_twice)).map_or(0, |table| table.bytes() as u64),
            experts,
            working: needs.working,
            devices: (cards.into_iter())
                .filter(|card| card.device != DeviceType::Reference)
                .map(|card| free_memory(runtime, card))
                .collect(),
            reason: preference.reason.to_string(),
            host_free: host.and_then(|host| free_memory(runtime, host).free),
            gpu_layers: GpuLayers::Auto,
        })
    }

    /// Sets the number of layers on devices other than the CPU. These devices then go first.
    #[must_use]
    pub fn with_gpu_layers(mut self, gpu_layers: GpuLayers) -> Self {
        self.gpu_layers = gpu_layers;
        if let GpuLayers::AtMost(count) = gpu_layers {
            self.devices.sort_by_key(|d| d.device == DeviceType::Cpu);
            self.reason = match count.min(self.layers.len()) {
                1 => "1 layer was asked for".to_owned(),
                count => format!("{count} layers were requested"),
            };
        }
        self
    }

    /// The same, with a tensor of these layers on `device`.
    fn with_elsewhere(
        mut self,
        layers: &[usize],
        name: &str,
        bytes: u64,
        device: DeviceType,
    ) -> Self {
        for &layer in layers {
            if let Some(own) = self.layers.get_mut(layer) {
                *own = own.saturating_sub(bytes);
            }
            if let Some(experts) = self.experts.get_mut(layer)
                && experts.tensors.iter().any(|own| own == name)
            {
                experts.tensors.retain(|own| own != name);
                experts.bytes = experts.bytes.saturating_sub(bytes);
            }
        }
        if layers.len() > 1 {
            self.shared = self.shared.saturating_sub(bytes);
        }
        let less = |free: Option<u64>| free.map(|free| free.saturating_sub(bytes));
        for known in self.devices.iter_mut().filter(|d| d.device == device) {
            known.free = less(known.free);
            if known.shares_host_memory {
                self.host_free = less(self.host_free);
            }
        }
        self
    }

    /// Bytes of each layer without its experts.
    fn without_experts(&self) -> Vec<u64> {
        let layers = self.layers.iter().enumerate();
        let of = |layer: usize| self.experts.get(layer).map_or(0, |experts| experts.bytes);
        layers
            .map(|(i, bytes)| bytes.saturating_sub(of(i)))
            .collect()
    }

    /// Number of layers that devices other than the processor may take.
    fn wanted(&self) -> usize {
        match self.gpu_layers {
            GpuLayers::Auto => self.layers.len(),
            GpuLayers::AtMost(count) => count.min(self.layers.len()),
        }
    }

    /// Bytes of free memory that the best device needs for its first layer. `None` if it has enough, or computes in the
    /// host's memory.
    pub fn lacking(&self) -> Option<u64> {
        let layers = self.without_experts();
        let (device, layer) = (self.devices.first()?, layers.last()?);
        let room = room(device.free?, self.working);
        let is_asked = self.gpu_layers != GpuLayers::AtMost(0);
        let is_lacking = device.device != DeviceType::Cpu && is_asked && room < *layer;
        is_lacking.then(|| ((layer + self.working) as f64 / USABLE).ceil() as u64)
    }

    /// Returns whether everything stays where the runtime would put it.
    pub fn is_met_by(&self, chosen: &[LayerBackend]) -> bool {
        let first = self.devices.first().map(|first| first.device);
        (chosen.iter()).all(|layer| Some(layer.device) == first && layer.elsewhere.is_empty())
    }
}

/// The device of each layer of a model, with the reason: the best device takes as many layers as
/// its free memory holds. It takes the last layers, since the output head is much work and the
/// embedding table none. The next device continues. Layers that fit nowhere stay on the CPU, which
/// reads the file on demand.
///
/// The processor gets experts before layers if GPUs have no room: a token reads few experts.
///
/// Empty if there is no device.
pub fn select_backend(config: &BackendConfig) -> Vec<LayerBackend> {
    let whole = Rooms::new(config);
    let (chosen, _) = whole.layers(config, &config.layers);
    let is_first = (config.devices.first()).is_some_and(|first| first.device == DeviceType::Cpu);
    let on_gpus = (chosen.iter()).filter(|layer| layer.device != DeviceType::Cpu);
    let has_experts = config.experts.iter().any(|experts| experts.bytes > 0);
    if is_first || !has_experts || on_gpus.count() >= config.wanted() {
        return chosen;
    }
    let rooms = Rooms::new(config);
    let (mut chosen, mut rooms) = rooms.layers(config, &config.without_experts());
    rooms.experts(config, &mut chosen);
    chosen
}

/// Room that devices have left.
struct Rooms {
    /// Bytes that each device has given.
    taken: Vec<u64>,
    host_free: Option<u64>,
}

impl Rooms {
    fn new(config: &BackendConfig) -> Self {
        Self {
            taken: vec![0; config.devices.len()],
            host_free: config.host_free,
        }
    }

    /// Gives layers of these bytes to the devices, and returns the rest of the room.
    fn layers(mut self, config: &BackendConfig, layers: &[u64]) -> (Vec<LayerBackend>, Self) {
        let mut chosen = Vec::with_capacity(layers.len());
        let mut gpu_layers = config.wanted();
        let mut why = config.reason.clone();
        for (index, device) in config.devices.iter().enumerate() {
            let left = &layers[..layers.len() - chosen.len()];
            let is_gpu = device.device != DeviceType::Cpu;
            let wanted = match is_gpu {
                true => &left[left.len() - gpu_layers.min(left.len())..],
                false => left,
            };
            let host = self.host_free.filter(|_| device.shares_host_memory);
            let free = [device.free, host].into_iter().flatten().min();
            let room = free.map(|free| room(free, config.working));
            let all = wanted.iter().sum::<u64>().saturating_sub(config.shared);
            let (count, bytes) = match wanted.len() == layers.len() {
                true if room.is_none_or(|room| all <= room) => (wanted.len(), all),
                _ => fitting(wanted, room),
            };
            if is_gpu {
                gpu_layers -= count;
            }
            self.taken[index] = bytes;
            if device.shares_host_memory {
                // A full host has no room for other devices either.
                let is_full = count < wanted.len() && host == free;
                self.host_free = self.host_free.map(|free| match is_full {
                    true => 0,
                    false => free.saturating_sub(bytes),
                });
            }
            let space = match free {
                Some(free) => format!("{} of {} free", Bytes(bytes), Bytes(free)),
                None => Bytes(bytes).to_string(),
            };
            chosen.extend(
                (0..count).map(|_| LayerBackend::new(device.device, format!("{why}; {space}"))),
            );
            if count < wanted.len() {
                let (device, all) = (device.device, wanted.len());
                why = format!("{device} has room for {count} of {all} layers");
            }
        }
        let mut all = config.devices.iter();
        let cpu = all.find(|d| d.device == DeviceType::Cpu);
        let last_resort = cpu.or(config.devices.last());
        if let Some(device) = last_resort.filter(|_| chosen.len() < layers.len()) {
            let reason = format!("{why}; layers that fit nowhere are read when they are needed");
            let layer = LayerBackend::new(device.device, reason);
            chosen.resize(layers.len(), layer);
        }
        chosen.reverse();
        (chosen, self)
    }

    /// Gives the experts of layers on GPUs, from the last on, to GPUs with room: the layer's own one first. The
    /// processor gets the others.
    fn experts(&mut self, config: &BackendConfig, chosen: &mut [LayerBackend]) {
        let mut is_short = false;
        let pairs = config.experts.iter().zip(chosen.iter_mut());
        for (experts, layer) in pairs.rev() {
            if layer.device == DeviceType::Cpu || experts.bytes == 0 {
                continue;
            }
            let own = |i: &usize| config.devices[*i].device != layer.device;
            let mut gpus: Vec<usize> = (0..config.devices.len()).collect();
            gpus.retain(|&i| config.devices[i].device != DeviceType::Cpu);
            gpus.sort_by_key(own);
            let found = gpus
                .into_iter()
                .find(|&i| self.has_room(config, i, experts.bytes));
            // Experts of earlier layers do not overtake: the last layers' are on GPUs.
            let found = found.filter(|_| !is_short);
            is_short = found.is_none();
            let device = match found {
                Some(i) => {
                    self.taken[i] += experts.bytes;
                    if config.devices[i].shares_host_memory {
                        self.host_free =
                            (self.host_free).map(|free| free.saturating_sub(experts.bytes));
                    }
                    config.devices[i].device
                }
                None => DeviceType::Cpu,
            };
            if device != layer.device {
                let reason = format!("{} has no room for them", layer.device);
                (experts.tensors.iter()).for_each(|name| layer.put(name, device, &reason));
            }
        }
    }

    /// Has the device room for this many more bytes?
    fn has_room(&self, config: &BackendConfig, index: usize, bytes: u64) -> bool {
        let device = &config.devices[index];
        let own = device
            .free
            .map(|free| room(free, config.working).saturating_sub(self.taken[index]));
        let host = self.host_free.filter(|_| device.shares_host_memory);
        let left = [own, host].into_iter().flatten().min();
        left.is_none_or(|left| bytes <= left)
    }
}

/// A number of bytes for people.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 as f64 / f64::from(1 << 20) {
            mib if mib < 1024.0 => write!(f, "{mib:.0} MiB"),
            mib => write!(f, "{:.1} GiB", mib / 1024.0),
        }
    }
}

impl SessionOptions {
    /// These options with the devices of tensors and layers as [`select_backend`] chooses them, and the choice.
    ///
    /// # Errors
    /// The same errors as [`BackendConfig::new`]. Also fails if a rule matches no tensor of the model.
    pub fn placed(
        mut self,
        model: &Model,
        runtime: &Runtime,
        wishes: &PlacementOptions,
    ) -> Result<(Self, Vec<LayerBackend>), LlmError> {
        self.placement = Placement::default();
        let ruled = wishes.ruled(model.tensors())?;
        let Routing {
            device,
            rules,
            strict,
            ..
        } = self.routing;
        let is_fixed = match device {
            DeviceType::Auto => false,
            DeviceType::Cpu | DeviceType::Reference => true,
            _ => strict && wishes.gpu_layers == GpuLayers::Auto,
        };
        let devices = runtime.devices().map(|info| info.device);
        let choice = devices.filter(|d| *d != DeviceType::Reference).count();
        if rules == Rules::F32Hybrid || choice < 2 || (is_fixed && ruled.is_empty()) {
            return Ok((self, Vec::new()));
        }
        let unasked = BackendConfig::new(model, runtime, &self)?;
        let mut config = unasked.clone().with_gpu_layers(wishes.gpu_layers);
        let last = config.layers.len().saturating_sub(1);
        let shared = model.decoder().shared_table();
        for Ruled { tensor, device, .. } in &ruled {
            let layers: Vec<usize> = layers_with(&tensor.name, shared, last).collect();
            let bytes = bytes_of(model, tensor);
            config = config.with_elsewhere(&layers, &tensor.name, bytes, *device);
        }
        let mut chosen = match is_fixed {
            true => {
                let layer = LayerBackend::new(device, "it was asked for".to_owned());
                vec![layer; config.layers.len()]
            }
            false => select_backend(&config),
        };
        put_as_ruled(model, &ruled, &mut chosen);
        // Pins where they change nothing would hide the reasons of operations.
        if !unasked.is_met_by(&chosen) {
            self.placement = placement(&chosen, &ruled);
        }
        Ok((self, chosen))
    }
}

/// Bytes of a tensor in the model's file.
fn bytes_of(model: &Model, tensor: &TensorSpec) -> u64 {
    let info = model.gguf().tensor(&tensor.name);
    info.map_or(0, |info| info.bytes() as u64)
}

/// Puts tensors where rules want them. A layer all of whose matrices are on one device is there itself.
fn put_as_ruled(model: &Model, ruled: &[Ruled], chosen: &mut [LayerBackend]) {
    let last = chosen.len().saturating_sub(1);
    let shared = model.decoder().shared_table();
    for (index, layer) in chosen.iter_mut().enumerate() {
        let is_own = |tensor: &TensorSpec| tensor.layer() == Some(index);
        let matrices = model.tensors().iter();
        let matrices = matrices.filter(|t| is_own(t) && t.role().is_some()).count();
        let own: Vec<&Ruled> = ruled.iter().filter(|r| is_own(r.tensor)).collect();
        let first = own.first().filter(|_| own.len() == matrices);
        let first = first.filter(|first| own.iter().all(|r| r.device == first.device));
        if let Some(first) = first {
            *layer = LayerBackend::new(first.device, first.rule.to_owned());
        }
        let home = layer.device;
        let with = ruled
            .iter()
            .filter(|r| layers_with(&r.tensor.name, shared, last).any(|layer| layer == index));
        for Ruled {
            tensor,
            device,
            rule,
        } in with.filter(|r| r.device != home)
        {
            layer.put(&tensor.name, *device, rule);
        }
    }
}

/// The devices of tensors and layers.
fn placement(chosen: &[LayerBackend], ruled: &[Ruled]) -> Placement {
    let layers = chosen.iter().map(|layer| layer.device).collect();
    let elsewhere = chosen.iter().flat_map(|layer| &layer.elsewhere);
    let elsewhere = elsewhere.flat_map(|e| e.tensors.iter().map(|name| (name, e.device)));
    let ruled = ruled.iter().map(|r| (&r.tensor.name, r.device));
    (elsewhere.chain(ruled)).fold(Placement::of_layers(layers), |placement, (name, device)| {
        placement.with(name, device)
    })
}

#[cfg(test)]
mod tests;
