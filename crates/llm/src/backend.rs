//! Which device computes which layer of a model.

use std::fmt;

use rustorch_runtime::{DeviceInfo, DeviceType, Hardware, PoolUsage, Routing, Rules, Runtime};

use crate::kv_cache::cache_bytes;
use crate::session::SessionOptions;
use crate::{LlmError, Model, Session};

/// Of a device's free memory, the share that weights and caches may take.
const USABLE: f64 = 0.9;

/// How many layers devices other than the processor take together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum GpuLayers {
    /// As many as fit, where such a device is the best choice.
    #[default]
    Auto,
    /// This many, from the last one on; fewer if they do not fit, all if the model has fewer.
    AtMost(usize),
}

/// What [`select_backend`] decides by.
#[derive(Clone, PartialEq, Debug)]
pub struct BackendConfig {
    /// Bytes of each layer: its weights, keys and values. To the first one belongs the
    /// embedding table, to the last one the output head.
    pub layers: Vec<u64>,
    /// Bytes of intermediate results, on every device that takes part.
    pub working: u64,
    /// The devices, best first.
    pub devices: Vec<BackendDevice>,
    /// Why the first one is: measured times, or the rule that put it there.
    pub reason: String,
    /// Bytes of the host's memory that are free, where it is known: what devices that share
    /// it have together.
    pub host_free: Option<u64>,
    /// How many layers go to other devices than the processor.
    pub gpu_layers: GpuLayers,
}

/// A device that may take layers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackendDevice {
    /// Which one.
    pub device: DeviceType,
    /// Bytes of its memory that are free, where it is known.
    pub free: Option<u64>,
    /// Does it use weights where they are, in the host's memory?
    pub shares_host_memory: bool,
}

/// Where a layer is computed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LayerBackend {
    /// The device.
    pub device: DeviceType,
    /// Why there.
    pub reason: String,
}

impl BackendConfig {
    /// What there is to decide about a session of `model` with these options.
    ///
    /// # Errors
    /// The options make no sense, or there is no memory for the cache.
    pub fn new(
        model: &Model,
        runtime: &Runtime,
        options: &SessionOptions,
    ) -> Result<Self, LlmError> {
        let session = Session::new(model, runtime, options.clone())?;
        let preference = session.preference()?;
        let memory = runtime.memory().pools();
        let free = |device: DeviceType| {
            let pool = memory
                .iter()
                .find(|pool: &&PoolUsage| pool.device == device);
            pool.and_then(|pool| pool.free)
        };
        let info = |device: &DeviceType| runtime.devices().find(|info| info.device == *device);
        let mut cards: Vec<&DeviceInfo> = Vec::new();
        for card in preference.devices.iter().filter_map(info) {
            if !cards.iter().any(|first| is_same_card(first, card)) {
                cards.push(card);
            }
        }
        let device = |info: &DeviceInfo| BackendDevice {
            device: info.device,
            free: free(info.device),
            shares_host_memory: info.shares_host_memory,
        };
        let (context, batch) = (session.context(), options.batch);
        let c = model.config();
        let features = 4 * c.width + 3 * c.ff_width + 3 * c.heads * c.key_width;
        let row = size_of::<f32>() * features;
        Ok(Self {
            layers: layers(model, context, options),
            working: (batch.saturating_mul(row) + size_of::<f32>() * c.vocab) as u64,
            devices: (cards.into_iter())
                .filter(|card| card.device != DeviceType::Reference)
                .map(device)
                .collect(),
            reason: preference.reason.to_string(),
            host_free: free(DeviceType::Cpu),
            gpu_layers: GpuLayers::Auto,
        })
    }

    /// With another number of layers for other devices than the processor. Who gives it wants
    /// these devices to go first.
    #[must_use]
    pub fn with_gpu_layers(mut self, gpu_layers: GpuLayers) -> Self {
        self.gpu_layers = gpu_layers;
        if let GpuLayers::AtMost(count) = gpu_layers {
            self.devices.sort_by_key(|d| d.device == DeviceType::Cpu);
            self.reason = match count.min(self.layers.len()) {
                1 => "1 layer was asked for".to_owned(),
                count => format!("{count} layers were asked for"),
            };
        }
        self
    }

    /// Bytes of free memory that the best device needs for the first layer that it would get;
    /// `None` if it has enough, or does not compute in memory of its own.
    pub fn lacking(&self) -> Option<u64> {
        let (device, layer) = (self.devices.first()?, self.layers.last()?);
        let room = room(device.free?, self.working);
        let is_asked = self.gpu_layers != GpuLayers::AtMost(0);
        let is_lacking = device.device != DeviceType::Cpu && is_asked && room < *layer;
        is_lacking.then(|| ((layer + self.working) as f64 / USABLE).ceil() as u64)
    }

    /// Does everything go where it would go anyway?
    pub fn is_met_by(&self, chosen: &[LayerBackend]) -> bool {
        let first = self.devices.first().map(|first| first.device);
        chosen.iter().all(|layer| Some(layer.device) == first)
    }
}

/// Is it a graphics card that another driver shows too? Its memory is there once.
fn is_same_card(first: &DeviceInfo, second: &DeviceInfo) -> bool {
    let is_gpu = |info: &DeviceInfo| info.hardware == Hardware::Gpu;
    let driver = |info: &DeviceInfo| std::mem::discriminant(&info.device);
    is_gpu(first) && is_gpu(second) && first.name == second.name && driver(first) != driver(second)
}

/// Bytes of each layer, see [`BackendConfig::layers`].
fn layers(model: &Model, context: usize, options: &SessionOptions) -> Vec<u64> {
    let c = model.config();
    let cache = cache_bytes(c, context, options.cache_dtype).unwrap_or(usize::MAX);
    let mut layers = vec![cache as u64; c.layers];
    let last = c.layers.saturating_sub(1);
    let is_tied = model.gguf().tensor("output.weight").is_none();
    let own = model.gguf().tensors().iter();
    for tensor in own.chain(model.adapters().tensors()) {
        let layer = tensor.name.strip_prefix("blk.");
        let layer = layer.and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        let of_embedding = tensor.name.starts_with("token_embd");
        let mut add = |layer: usize| {
            if let Some(bytes) = layers.get_mut(layer) {
                *bytes += tensor.bytes() as u64;
            }
        };
        match layer {
            Some(layer) => add(layer),
            None if of_embedding => {
                add(0);
                if is_tied && last > 0 {
                    add(last);
                }
            }
            None => add(last),
        }
    }
    layers
}

/// The device of each layer of a model, and why: the best device takes as many layers as its
/// free memory holds, from the last one on, for the output head is much work and the embedding
/// table none; the next device goes on. What fits nowhere is left to the processor, which reads
/// the file as it goes.
///
/// Empty if there is no device.
pub fn select_backend(config: &BackendConfig) -> Vec<LayerBackend> {
    let mut chosen = Vec::with_capacity(config.layers.len());
    let mut host_free = config.host_free;
    let mut gpu_layers = match config.gpu_layers {
        GpuLayers::Auto => usize::MAX,
        GpuLayers::AtMost(count) => count,
    };
    let mut why = config.reason.clone();
    for device in &config.devices {
        let left = &config.layers[..config.layers.len() - chosen.len()];
        let is_gpu = device.device != DeviceType::Cpu;
        let wanted = match is_gpu {
            true => &left[left.len() - gpu_layers.min(left.len())..],
            false => left,
        };
        let host = host_free.filter(|_| device.shares_host_memory);
        let free = [device.free, host].into_iter().flatten().min();
        let (count, bytes) = fitting(wanted, free.map(|free| room(free, config.working)));
        if is_gpu {
            gpu_layers -= count;
        }
        if device.shares_host_memory {
            // Where the host has no more room, no other device finds any.
            let is_full = count < wanted.len() && host == free;
            host_free = host_free.map(|free| match is_full {
                true => 0,
                false => free.saturating_sub(bytes),
            });
        }
        let space = match free {
            Some(free) => format!("{} of {} free", Bytes(bytes), Bytes(free)),
            None => Bytes(bytes).to_string(),
        };
        chosen.extend((0..count).map(|_| LayerBackend {
            device: device.device,
            reason: format!("{why}; {space}"),
        }));
        if count < wanted.len() {
            let (device, all) = (device.device, wanted.len());
            why = format!("{device} has room for {count} of {all} layers");
        }
    }
    let mut all = config.devices.iter();
    let cpu = all.find(|d| d.device == DeviceType::Cpu);
    let last_resort = cpu.or(config.devices.last());
    if let Some(device) = last_resort.filter(|_| chosen.len() < config.layers.len()) {
        let reason = format!("{why}; what fits nowhere is read as it is needed");
        let device = device.device;
        chosen.resize(config.layers.len(), LayerBackend { device, reason });
    }
    chosen.reverse();
    chosen
}

/// Bytes of free memory that layers may take.
fn room(free: u64, working: u64) -> u64 {
    ((free as f64 * USABLE) as u64).saturating_sub(working)
}

/// How many layers fit, from the last one on, and their bytes.
fn fitting(layers: &[u64], room: Option<u64>) -> (usize, u64) {
    let mut sum = 0;
    let sums = layers.iter().rev().map(|bytes| {
        sum += bytes;
        sum
    });
    let fits = |bytes: &u64| room.is_none_or(|room| *bytes <= room);
    let fitting: Vec<u64> = sums.take_while(fits).collect();
    (fitting.len(), fitting.last().copied().unwrap_or(0))
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
    /// These options with the device of each layer as [`select_backend`] chooses it, and what
    /// it chose. Nothing where the [`Routing`] names the processor or is the f32 hybrid's, or
    /// where there is but one device to choose. Another device that it names goes first; if it
    /// is strict, alone, unless a number of layers is given.
    ///
    /// # Errors
    /// As [`BackendConfig::new`].
    pub fn select_layers(
        mut self,
        model: &Model,
        runtime: &Runtime,
        gpu_layers: GpuLayers,
    ) -> Result<(Self, Vec<LayerBackend>), LlmError> {
        self.layers.clear();
        let Routing {
            device,
            rules,
            strict,
            ..
        } = self.routing;
        let is_fixed = match device {
            DeviceType::Auto => false,
            DeviceType::Cpu | DeviceType::Reference => true,
            _ => strict && gpu_layers == GpuLayers::Auto,
        };
        let devices = runtime.devices().map(|info| info.device);
        let choice = devices.filter(|d| *d != DeviceType::Reference).count();
        if is_fixed || rules == Rules::F32Hybrid || choice < 2 {
            return Ok((self, Vec::new()));
        }
        let config = BackendConfig::new(model, runtime, &self)?;
        let chosen = select_backend(&config.clone().with_gpu_layers(gpu_layers));
        // Pins where they change nothing would hide the reasons of operations.
        if !config.is_met_by(&chosen) {
            self.layers = chosen.iter().map(|layer| layer.device).collect();
        }
        Ok((self, chosen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: DeviceType = DeviceType::Cuda(0);
    const SECOND: DeviceType = DeviceType::Cuda(1);
    const CPU: DeviceType = DeviceType::Cpu;
    const GIB: u64 = 1 << 30;

    fn own(device: DeviceType, free: u64) -> BackendDevice {
        BackendDevice {
            device,
            free: Some(free),
            shares_host_memory: false,
        }
    }

    fn shared(device: DeviceType) -> BackendDevice {
        BackendDevice {
            device,
            free: None,
            shares_host_memory: true,
        }
    }

    /// Ten layers of a gibibyte.
    fn config(devices: &[BackendDevice], host_free: u64) -> BackendConfig {
        BackendConfig {
            layers: vec![GIB; 10],
            working: GIB / 2,
            devices: devices.to_vec(),
            reason: "measured: 1.0 ms here, 2.0 ms on cpu".to_owned(),
            host_free: Some(host_free),
            gpu_layers: GpuLayers::Auto,
        }
    }

    /// How many layers each device has, in the order of the layers.
    fn runs(chosen: &[LayerBackend]) -> Vec<(DeviceType, usize)> {
        let runs = chosen.chunk_by(|a, b| a.device == b.device);
        runs.map(|run| (run[0].device, run.len())).collect()
    }

    #[test]
    fn a_card_that_two_drivers_show_is_one() {
        let card = |device, name: &str| DeviceInfo {
            device,
            hardware: Hardware::Gpu,
            shares_host_memory: false,
            name: name.to_owned(),
            memory_bytes: None,
            details: Vec::new(),
        };
        let cuda = card(GPU, "NVIDIA H200");
        assert!(is_same_card(
            &cuda,
            &card(DeviceType::OpenCL(0), "NVIDIA H200")
        ));
        // Two of a kind are two.
        assert!(!is_same_card(&cuda, &card(SECOND, "NVIDIA H200")));
        assert!(!is_same_card(
            &cuda,
            &card(DeviceType::OpenCL(0), "Intel Arc")
        ));
    }

    #[test]
    fn what_fits_goes_to_the_best_device() {
        let config = config(&[own(GPU, 20 * GIB), shared(CPU)], 64 * GIB);
        let chosen = select_backend(&config);
        assert_eq!(runs(&chosen), [(GPU, 10)]);
        assert!(config.is_met_by(&chosen));
        assert_eq!(
            chosen[0].reason,
            "measured: 1.0 ms here, 2.0 ms on cpu; 10.0 GiB of 20.0 GiB free"
        );
    }

    #[test]
    fn the_rest_goes_to_the_next() {
        // 0.9 × 8 − 0.5 are room for 6, 0.9 × 3 − 0.5 for 2.
        let devices = [own(GPU, 8 * GIB), own(SECOND, 3 * GIB), shared(CPU)];
        let config = config(&devices, 64 * GIB);
        let chosen = select_backend(&config);
        assert_eq!(runs(&chosen), [(CPU, 2), (SECOND, 2), (GPU, 6)]);
        assert!(!config.is_met_by(&chosen));
        assert_eq!(
            chosen[3].reason,
            "cuda:0 has room for 6 of 10 layers; 2.0 GiB of 3.0 GiB free"
        );
        assert_eq!(
            chosen[0].reason,
            "cuda:1 has room for 2 of 4 layers; 2.0 GiB of 64.0 GiB free"
        );
    }

    #[test]
    fn so_many_layers_as_were_asked_for() {
        let devices = [shared(CPU), own(GPU, 8 * GIB), own(SECOND, 8 * GIB)];
        let config = config(&devices, 64 * GIB);
        let with = |count| {
            let config = config.clone().with_gpu_layers(GpuLayers::AtMost(count));
            select_backend(&config)
        };
        assert_eq!(runs(&with(0)), [(CPU, 10)]);
        assert_eq!(runs(&with(4)), [(CPU, 6), (GPU, 4)]);
        assert_eq!(runs(&with(8)), [(CPU, 2), (SECOND, 2), (GPU, 6)]);
        assert_eq!(runs(&with(99)), [(SECOND, 4), (GPU, 6)]);
        assert_eq!(
            with(4)[9].reason,
            "4 layers were asked for; 4.0 GiB of 8.0 GiB free"
        );
        // The processor would be better: that it is not has to be said.
        assert!(!config.is_met_by(&with(99)));
        // Even with no room left for the processor's, no other device gets more.
        let full = BackendConfig {
            host_free: Some(0),
            ..config.clone()
        };
        let full = full.with_gpu_layers(GpuLayers::AtMost(1));
        assert_eq!(runs(&select_backend(&full)), [(CPU, 9), (GPU, 1)]);
    }

    #[test]
    fn what_one_layer_would_need() {
        let with = |free| config(&[own(GPU, free), shared(CPU)], 64 * GIB);
        let needed = with(GIB).lacking().unwrap();
        assert_eq!(needed, (1.5 * GIB as f64 / 0.9).ceil() as u64);
        assert_eq!(with(needed).lacking(), None);
        assert!(with(needed - 2).lacking().is_some());
        assert_eq!(runs(&select_backend(&with(needed))), [(CPU, 9), (GPU, 1)]);
        let none = with(GIB).with_gpu_layers(GpuLayers::AtMost(0));
        assert_eq!(none.lacking(), None);
    }

    #[test]
    fn a_device_without_room_is_passed_over() {
        let chosen = select_backend(&config(&[own(GPU, GIB), shared(CPU)], 64 * GIB));
        assert_eq!(runs(&chosen), [(CPU, 10)]);
        assert!(
            chosen[0]
                .reason
                .starts_with("cuda:0 has room for 0 of 10 layers")
        );
    }

    #[test]
    fn devices_that_share_memory_share_its_limit() {
        let opencl = DeviceType::OpenCL(0);
        // Room for 6 in all, and not for each.
        let chosen = select_backend(&config(&[shared(CPU), shared(opencl)], 8 * GIB));
        assert_eq!(runs(&chosen), [(CPU, 10)]);
        assert!(
            chosen[0].reason.contains("fits nowhere"),
            "{}",
            chosen[0].reason
        );
        // Memory of a device's own takes the pressure off.
        let chosen = select_backend(&config(&[shared(CPU), own(GPU, 20 * GIB)], 8 * GIB));
        assert_eq!(runs(&chosen), [(GPU, 4), (CPU, 6)]);
    }

    #[test]
    fn unequal_layers_and_unknown_memory() {
        let unknown = BackendDevice {
            free: None,
            ..own(GPU, 0)
        };
        let chosen = select_backend(&config(&[unknown], 0));
        assert_eq!(runs(&chosen), [(GPU, 10)]);
        let mut config = config(&[own(GPU, 8 * GIB), shared(CPU)], 64 * GIB);
        // The head alone is too large.
        config.layers[9] = 7 * GIB;
        assert_eq!(runs(&select_backend(&config)), [(CPU, 10)]);
        config.layers.clear();
        assert!(select_backend(&config).is_empty());
        config.layers.push(1);
        config.devices.clear();
        assert!(select_backend(&config).is_empty());
    }
}
