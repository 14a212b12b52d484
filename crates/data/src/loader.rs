//! Loading of batches in order.

use std::any::Any;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use rustorch_runtime::{DeviceType, Routing};
use rustorch_tensor::{runtime, with_runtime};

use crate::dataset::{Batch, Dataset, check_index, empty};
use crate::error::{DataError, DataResult, called, called_at};
use crate::sampler::{BatchSampler, RandomSampler, Sampler, SequentialSampler};

/// Options of batches, as in `torch.utils.data.DataLoader`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Batch size.
    pub batch_size: usize,
    /// Seed of a random order, which differs in each epoch. Without a seed, samples come in the
    /// order of their indices.
    pub shuffle: Option<u64>,
    /// Drops the last samples of an epoch, if they are too few for a batch.
    pub drop_last: bool,
    /// Number of threads that make batches, at most the number of batches. With 0, batches are made when they are
    /// requested. A panic in a thread is an error of its batch.
    #[doc(alias = "num_workers")]
    pub workers: usize,
    /// Number of batches that each thread prepares, besides its current one.
    #[doc(alias = "prefetch_factor")]
    pub prefetch: usize,
    /// The device that batches are copied to. Workers copy while earlier batches are in use; for
    /// CUDA through page-locked memory. Without a device, batches stay on the host until another
    /// device reads them.
    #[doc(alias = "pin_memory")]
    pub device: Option<DeviceType>,
}

impl Default for LoaderOptions {
    fn default() -> Self {
        Self {
            batch_size: 1,
            shuffle: None,
            drop_last: false,
            workers: 0,
            prefetch: 2,
            device: None,
        }
    }
}

/// The order of batches.
enum BatchOrder {
    /// Samples in an order, split into batches of one size.
    Samples(BatchSampler<Box<dyn Sampler>>),
    Batches(Box<dyn Sampler<Vec<usize>>>),
}

impl BatchOrder {
    fn len(&self) -> usize {
        match self {
            Self::Samples(sampler) => sampler.len(),
            Self::Batches(sampler) => sampler.len(),
        }
    }

    fn epoch(&self, epoch: u64) -> EpochBatches {
        match self {
            Self::Samples(sampler) => {
                let (order, size) = sampler.samples(epoch);
                EpochBatches::Even { order, size }
            }
            Self::Batches(sampler) => EpochBatches::Given(sampler.epoch(epoch)),
        }
    }
}

/// The batches of an epoch. Batches of one size are slices of one order: their own vectors would
/// take as much memory again.
enum EpochBatches {
    Even { order: Vec<usize>, size: usize },
    Given(Vec<Vec<usize>>),
}

impl EpochBatches {
    fn len(&self) -> usize {
        match self {
            Self::Even { order, size } => order.len().div_ceil(*size),
            Self::Given(batches) => batches.len(),
        }
    }

    /// The samples of a batch.
    fn samples(&self, batch: usize) -> &[usize] {
        match self {
            Self::Even { order, size } => {
                let start = batch * size;
                &order[start..order.len().min(start + size)]
            }
            Self::Given(batches) => &batches[batch],
        }
    }
}

/// A function that makes a batch of samples.
type Collate = dyn Fn(Vec<Batch>) -> DataResult<Batch> + Send + Sync;

/// Position of a loader: enough to continue there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoaderState {
    /// Number of finished epochs.
    pub epoch: u64,
    /// Number of batches of the current epoch that were returned.
    pub batch: usize,
}

/// Returns the batches of a data set, epoch by epoch. Each iteration over it returns the batches of
/// one epoch.
///
/// Batches and their order depend only on the options' seed and the state, not on the number of
/// workers. A sampler replaces the seed.
pub struct DataLoader<D> {
    dataset: Arc<D>,
    options: LoaderOptions,
    sampler: BatchOrder,
    /// Is it not the one of the options?
    is_own: bool,
    collate: Option<Arc<Collate>>,
    state: LoaderState,
    /// The batches of the current epoch.
    epoch: Option<Arc<EpochBatches>>,
    /// Batches that workers made ahead; the workers' batches come in turn.
    workers: Vec<Receiver<DataResult<Batch>>>,
    /// Batches that were taken from them.
    taken: usize,
    /// Place of the call that made the loader. Errors of a loop name it: Rust hides the line of the loop.
    made: &'static Location<'static>,
}

impl<D: Dataset + 'static> DataLoader<D> {
    /// A loader that begins at the first batch.
    ///
    /// # Errors
    /// Fails for a batch size of 0. Also fails if the last batch is dropped and no whole batch is
    /// left.
    #[track_caller]
    pub fn new(dataset: D, options: LoaderOptions) -> DataResult<Self> {
        let made = Location::caller();
        called_at("DataLoader.new", made, Self::made(dataset, options, made))
    }

    fn made(
        dataset: D,
        options: LoaderOptions,
        made: &'static Location<'static>,
    ) -> DataResult<Self> {
        let (batch, samples) = (options.batch_size, dataset.len());
        let least = if options.drop_last { batch } else { 1 };
        if samples < least {
            return Err(DataError::Other(format!(
                "expected a data set of at least {least} samples, got {samples}"
            )));
        }
        let order: Box<dyn Sampler> = match options.shuffle {
            Some(seed) => Box::new(RandomSampler::new(samples, seed)),
            None => Box::new(SequentialSampler::new(samples)),
        };
        Ok(Self {
            dataset: Arc::new(dataset),
            sampler: BatchOrder::Samples(BatchSampler::of(order, batch, options.drop_last)?),
            is_own: false,
            options,
            collate: None,
            state: LoaderState::default(),
            epoch: None,
            workers: Vec::new(),
            taken: 0,
            made,
        })
    }

    /// Sets the order of samples by a sampler: PyTorch's `sampler`.
    ///
    /// # Errors
    /// Fails if `shuffle` or another sampler is set too.
    #[track_caller]
    pub fn sampler(self, sampler: impl Sampler + 'static) -> DataResult<Self> {
        let (size, drop_last) = (self.options.batch_size, self.options.drop_last);
        let samples: Box<dyn Sampler> = Box::new(sampler);
        let order = BatchSampler::of(samples, size, drop_last);
        let loader = order.and_then(|order| self.ordered(BatchOrder::Samples(order)));
        called("DataLoader.sampler", loader)
    }

    /// Sets the batches by a sampler: PyTorch's `batch_sampler`.
    ///
    /// # Errors
    /// Fails if `shuffle`, `batch_size`, `drop_last` or another sampler is set too.
    #[track_caller]
    pub fn batch_sampler(self, sampler: impl Sampler<Vec<usize>> + 'static) -> DataResult<Self> {
        let order = BatchOrder::Batches(Box::new(sampler));
        let loader = match self.options.batch_size > 1 || self.options.drop_last {
            true => Err(DataError::Other(
                "expected a batch_sampler or `batch_size` and `drop_last`, got both; leave the options out".to_owned(),
            )),
            false => self.ordered(order),
        };
        called("DataLoader.batch_sampler", loader)
    }

    fn ordered(mut self, order: BatchOrder) -> DataResult<Self> {
        if self.options.shuffle.is_some() {
            return Err(DataError::Other(
                "expected a sampler or `shuffle`, got both; leave `shuffle` out".to_owned(),
            ));
        }
        if self.is_own {
            return Err(DataError::Other("expected one sampler, got two".to_owned()));
        }
        (self.sampler, self.is_own) = (order, true);
        self.stop();
        Ok(self)
    }

    /// Sets the function that makes a batch of samples, in place of
    /// [`default_collate`](crate::default_collate). Workers call it, too.
    #[must_use]
    pub fn collate_fn(
        mut self,
        collate: impl Fn(Vec<Batch>) -> DataResult<Batch> + Send + Sync + 'static,
    ) -> Self {
        self.collate = Some(Arc::new(collate));
        self.stop();
        self
    }

    /// The data.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// The number of batches in an epoch.
    #[doc(alias = "len")]
    pub fn batches(&self) -> usize {
        self.sampler.len()
    }

    /// Position of the loader.
    pub fn state(&self) -> LoaderState {
        self.state
    }

    /// Continues at this position.
    ///
    /// # Errors
    /// Fails if the batch's number is beyond the epoch.
    #[track_caller]
    pub fn set_state(&mut self, state: LoaderState) -> DataResult<()> {
        let (batch, batches) = (state.batch, self.batches());
        if batch > batches {
            let problem = format!(
                "expected a batch up to {batches}, got {batch}; is the state of another data set?"
            );
            return called("DataLoader.set_state", Err(DataError::Other(problem)));
        }
        self.state = state;
        self.stop();
        Ok(())
    }

    /// The next batch; after the last one of an epoch, the first of the next epoch.
    ///
    /// # Errors
    /// Fails if a sample cannot be read or made, or if a sampler gives an epoch without batches.
    #[track_caller]
    pub fn next_batch(&mut self) -> DataResult<Batch> {
        let batch = self.advance().or_else(|| self.advance());
        let batch = batch.unwrap_or_else(|| {
            Err(DataError::Other(
                "expected a sampler with batches, got an epoch without".to_owned(),
            ))
        });
        called("DataLoader.next_batch", batch)
    }

    /// The next batch of the epoch. After its last one there is none, and another epoch begins.
    fn advance(&mut self) -> Option<DataResult<Batch>> {
        let epoch = self.epoch();
        if self.state.batch >= epoch.len() {
            self.stop();
            self.state = LoaderState {
                epoch: self.state.epoch.wrapping_add(1),
                batch: 0,
            };
            return None;
        }
        if self.workers.is_empty()
            && self.options.workers > 0
            && let Err(error) = self.start(&epoch)
        {
            return Some(Err(error));
        }
        let batch = match self.workers.len() {
            0 => self.maker().made(epoch.samples(self.state.batch)),
            workers => {
                let received = self.workers[self.taken % workers].recv();
                self.taken += 1;
                received.unwrap_or_else(|_| {
                    Err(DataError::Other("a worker has ended too early".to_owned()))
                })
            }
        };
        self.state.batch += 1;
        Some(batch)
    }

    fn stop(&mut self) {
        // Their next batch has no receiver, at which they end.
        self.workers.clear();
        self.epoch = None;
    }

    fn epoch(&mut self) -> Arc<EpochBatches> {
        let (sampler, epoch) = (&self.sampler, self.state.epoch);
        let batches = || Arc::new(sampler.epoch(epoch));
        self.epoch.get_or_insert_with(batches).clone()
    }

    /// Starts workers on the rest of the epoch.
    fn start(&mut self, epoch: &Arc<EpochBatches>) -> DataResult<()> {
        let (options, first, end) = (self.options, self.state.batch, epoch.len());
        let left = end - first;
        let workers = options.workers.min(left);
        self.taken = 0;
        for worker in 0..workers {
            let (give, take) = sync_channel(options.prefetch.clamp(1, left));
            let (maker, batches) = (self.maker(), epoch.clone());
            // The worker uses this thread's runtime, which computes and holds tensors.
            let runtime = runtime();
            let work = move || {
                with_runtime(&runtime, Routing::AUTO, || {
                    for batch in (first + worker..end).step_by(workers) {
                        let indices = batches.samples(batch);
                        let make = || maker.made(indices);
                        // Nobody sees what a panic leaves half done, since the batch is dropped.
                        let batch = catch_unwind(AssertUnwindSafe(make));
                        if give
                            .send(batch.unwrap_or_else(|panic| Err(told(&*panic, indices))))
                            .is_err()
                        {
                            break;
                        }
                    }
                });
            };
            let started = thread::Builder::new()
                .name("rustorch-data".to_owned())
                .spawn(work);
            started.map_err(|error| {
                self.workers.clear();
                DataError::Other(format!(
                    "{workers} workers cannot be started: {error}; ask for fewer"
                ))
            })?;
            self.workers.push(take);
        }
        Ok(())
    }

    /// The maker of the current epoch's batches.
    fn maker(&self) -> Maker<D> {
        Maker {
            dataset: self.dataset.clone(),
            collate: self.collate.clone(),
            device: self.options.device,
            epoch: self.state.epoch,
        }
    }
}

/// The message of a worker's panic.
fn told(panic: &(dyn Any + Send), indices: &[usize]) -> DataError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text: Vec<&str> = text.unwrap_or("no text").split_whitespace().collect();
    let text = text.join(" ");
    let samples = match indices {
        [first, .., last] => format!("samples {first} to {last} in their order"),
        _ => format!("sample {indices:?}"),
    };
    DataError::Other(format!("a worker panicked while it made {samples}: {text}"))
}

/// Makes the batches of an epoch.
struct Maker<D> {
    dataset: Arc<D>,
    collate: Option<Arc<Collate>>,
    device: Option<DeviceType>,
    epoch: u64,
}

impl<D: Dataset> Maker<D> {
    /// A batch, on its device.
    fn made(&self, indices: &[usize]) -> DataResult<Batch> {
        let (dataset, epoch) = (&*self.dataset, self.epoch);
        if indices.is_empty() {
            return Err(empty());
        }
        let samples = dataset.len();
        indices
            .iter()
            .try_for_each(|&index| check_index(index, samples))?;
        let mut batch = match &self.collate {
            Some(collate) => {
                let samples = indices.iter().map(|&index| dataset.get_in(epoch, index));
                collate(samples.collect::<DataResult<_>>()?)?
            }
            None => dataset.get_batch_in(epoch, indices)?,
        };
        if batch.is_empty() {
            return Err(DataError::Other(
                "expected a batch of tensors, got one of none".to_owned(),
            ));
        }
        if let Some(device) = self.device {
            for tensor in &mut batch {
                tensor.eval()?;
                *tensor = tensor.to_device(device)?;
            }
        }
        Ok(batch)
    }
}

impl<D: Dataset + 'static> Iterator for DataLoader<D> {
    type Item = DataResult<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.advance()?;
        Some(called_at("DataLoader", self.made, batch))
    }
}

#[cfg(test)]
mod tests;
