//! Batches, one after the other.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use rustorch_runtime::{DeviceType, Routing};
use rustorch_tensor::{runtime, with_runtime};

use crate::dataset::{Batch, Dataset};
use crate::error::{DataError, DataResult};
use crate::order::permutation;

/// How samples become batches: the options of `torch.utils.data.DataLoader`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Samples of a batch.
    pub batch_size: usize,
    /// The seed of the order, which is another one in each epoch; in the order of their numbers without.
    pub shuffle: Option<u64>,
    /// Whether the last samples of an epoch are left out, if they are too few for a batch.
    pub drop_last: bool,
    /// Threads that make batches, of which no more are started than there are batches; 0: they are made when they are
    /// asked for. What panics in one is an error of its batch.
    pub workers: usize,
    /// Batches that each of them makes ahead, beside the one that it is at.
    pub prefetch: usize,
    /// The device that batches are brought to. Workers do so while earlier batches are computed with; for CUDA by
    /// way of page-locked memory. Without a device batches stay on the host until something reads them elsewhere.
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

/// How far a loader is: enough to go on there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoaderState {
    /// Epochs that are over.
    pub epoch: u64,
    /// Batches of the current epoch that were given.
    pub batch: usize,
}

/// Gives the batches of a data set, epoch by epoch: as an iterator those of one epoch, and then, when it is asked
/// again, those of the next.
///
/// Batches and their order follow from the options' seed and the state alone, whatever the number of workers.
pub struct DataLoader<D> {
    dataset: Arc<D>,
    options: LoaderOptions,
    state: LoaderState,
    /// The order of the current epoch.
    order: Option<Arc<[usize]>>,
    /// What workers have made ahead; the batches are theirs in turn.
    workers: Vec<Receiver<DataResult<Batch>>>,
    /// Batches that were taken from them.
    taken: usize,
}

impl<D: Dataset + 'static> DataLoader<D> {
    /// From the first batch on.
    ///
    /// # Errors
    /// Batches of no samples, or more samples in a batch than there are, where smaller ones are left out.
    pub fn new(dataset: D, options: LoaderOptions) -> DataResult<Self> {
        let (batch, samples) = (options.batch_size, dataset.len());
        if batch == 0 || samples == 0 || (options.drop_last && batch > samples) {
            return Err(DataError::Other(format!(
                "batches of {batch} samples cannot be made of {samples}"
            )));
        }
        Ok(Self {
            dataset: Arc::new(dataset),
            options,
            state: LoaderState::default(),
            order: None,
            workers: Vec::new(),
            taken: 0,
        })
    }

    /// The data.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// Batches of an epoch.
    pub fn batches(&self) -> usize {
        let (samples, size) = (self.dataset.len(), self.options.batch_size);
        match self.options.drop_last {
            true => samples / size,
            false => samples.div_ceil(size),
        }
    }

    /// How far it is.
    pub fn state(&self) -> LoaderState {
        self.state
    }

    /// Goes on there.
    ///
    /// # Errors
    /// An epoch does not have so many batches.
    pub fn set_state(&mut self, state: LoaderState) -> DataResult<()> {
        if state.batch > self.batches() {
            let (batch, batches) = (state.batch, self.batches());
            return Err(DataError::Other(format!(
                "batch {batch} of an epoch of {batches}: is it of other data?"
            )));
        }
        self.state = state;
        self.stop();
        Ok(())
    }

    /// The next batch, of the next epoch where one is over.
    ///
    /// # Errors
    /// A sample cannot be read or made.
    pub fn next_batch(&mut self) -> DataResult<Batch> {
        loop {
            if let Some(batch) = self.next() {
                return batch;
            }
        }
    }

    fn stop(&mut self) {
        // Their next batch has no receiver, at which they end.
        self.workers.clear();
        self.order = None;
    }

    fn order(&mut self) -> Arc<[usize]> {
        let (options, dataset, epoch) = (&self.options, &self.dataset, self.state.epoch);
        let order = self.order.get_or_insert_with(|| match options.shuffle {
            Some(seed) => permutation(dataset.len(), seed, epoch).into(),
            None => (0..dataset.len()).collect(),
        });
        order.clone()
    }

    /// Starts workers on what is left of the epoch.
    fn start(&mut self, order: &Arc<[usize]>) -> DataResult<()> {
        let (options, first, end) = (self.options, self.state.batch, self.batches());
        let left = end - first;
        let workers = options.workers.min(left);
        self.taken = 0;
        for worker in 0..workers {
            let (give, take) = sync_channel(options.prefetch.clamp(1, left));
            let (dataset, order) = (self.dataset.clone(), order.clone());
            // What computes and holds tensors here does so for the worker.
            let (runtime, epoch) = (runtime(), self.state.epoch);
            let work = move || {
                with_runtime(&runtime, Routing::AUTO, || {
                    for batch in (first + worker..end).step_by(workers) {
                        let indices = indices(&order, batch, options.batch_size);
                        let make = || made(&*dataset, options, epoch, indices);
                        // Nothing that a panic leaves half done is seen: what it made is dropped.
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
}

/// What panicked in a worker.
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

/// A batch, on its device.
fn made(
    dataset: &impl Dataset,
    options: LoaderOptions,
    epoch: u64,
    indices: &[usize],
) -> DataResult<Batch> {
    let mut batch = dataset.get_batch_in(epoch, indices)?;
    if let Some(device) = options.device {
        for tensor in &mut batch {
            tensor.eval()?;
            *tensor = tensor.to_device(device)?;
        }
    }
    Ok(batch)
}

/// The samples of a batch.
fn indices(order: &[usize], batch: usize, size: usize) -> &[usize] {
    let begin = batch * size;
    &order[begin..order.len().min(begin + size)]
}

impl<D: Dataset + 'static> Iterator for DataLoader<D> {
    type Item = DataResult<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state.batch >= self.batches() {
            self.stop();
            self.state = LoaderState {
                epoch: self.state.epoch.wrapping_add(1),
                batch: 0,
            };
            return None;
        }
        let order = self.order();
        if self.workers.is_empty()
            && self.options.workers > 0
            && let Err(error) = self.start(&order)
        {
            return Some(Err(error));
        }
        let batch = match self.workers.len() {
            0 => {
                let indices = indices(&order, self.state.batch, self.options.batch_size);
                made(&*self.dataset, self.options, self.state.epoch, indices)
            }
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
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rustorch_tensor::Tensor;

    use super::*;

    /// Samples that are their numbers, but for one that fails.
    struct Numbers(usize, Option<usize>);

    impl Dataset for Numbers {
        fn len(&self) -> usize {
            self.0
        }

        fn get(&self, index: usize) -> DataResult<Batch> {
            match self.1 == Some(index) {
                true => Err(DataError::Other(format!("sample {index} is damaged"))),
                false => Ok(vec![Tensor::from_vec(vec![index as i64], 1)?]),
            }
        }
    }

    fn numbers(batch: DataResult<Batch>) -> Vec<i64> {
        batch.unwrap()[0].flatten(0, -1).unwrap().to_vec().unwrap()
    }

    fn loader(len: usize, options: LoaderOptions) -> DataLoader<Numbers> {
        DataLoader::new(Numbers(len, None), options).unwrap()
    }

    #[test]
    fn an_epoch_has_every_sample_once() {
        let options = LoaderOptions {
            batch_size: 4,
            shuffle: Some(1),
            ..Default::default()
        };
        let mut loader = loader(10, options);
        let mut epochs = Vec::new();
        for _ in 0..2 {
            let epoch: Vec<i64> = loader.by_ref().flat_map(numbers).collect();
            let mut sorted = epoch.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..10));
            epochs.push(epoch);
        }
        assert_ne!(epochs[0], epochs[1]);
        assert_eq!(loader.state(), LoaderState { epoch: 2, batch: 0 });
    }

    #[test]
    fn the_last_samples_may_be_left_out() {
        let options = LoaderOptions {
            batch_size: 4,
            drop_last: true,
            ..Default::default()
        };
        let batches: Vec<_> = loader(10, options).map(numbers).collect();
        assert_eq!(batches, [[0, 1, 2, 3], [4, 5, 6, 7]]);
        assert!(DataLoader::new(Numbers(3, None), options).is_err());
        assert!(DataLoader::new(Numbers(0, None), LoaderOptions::default()).is_err());
    }

    #[test]
    fn workers_change_no_order_and_states_are_gone_on_with_exactly() {
        let plain = LoaderOptions {
            batch_size: 3,
            shuffle: Some(5),
            ..Default::default()
        };
        let mut straight = loader(20, plain);
        let expected: Vec<_> = (0..20).map(|_| numbers(straight.next_batch())).collect();
        for workers in [0, 1, 3] {
            let options = LoaderOptions {
                workers,
                prefetch: 1,
                ..plain
            };
            let mut state = LoaderState::default();
            // Interrupted after each batch, or never.
            for (i, expected) in expected.iter().enumerate() {
                let mut resumed = loader(20, options);
                resumed.set_state(state).unwrap();
                assert_eq!(
                    numbers(resumed.next_batch()),
                    *expected,
                    "{workers} workers, batch {i}"
                );
                state = resumed.state();
            }
            let mut whole = loader(20, options);
            let all: Vec<_> = (0..20).map(|_| numbers(whole.next_batch())).collect();
            assert_eq!(all, expected);
        }
        let foreign = LoaderState { epoch: 0, batch: 8 };
        assert!(straight.set_state(foreign).is_err());
    }

    #[test]
    fn batches_come_to_be_on_a_device() {
        for workers in [0, 2] {
            let options = LoaderOptions {
                batch_size: 4,
                workers,
                device: Some(DeviceType::Cpu),
                ..Default::default()
            };
            let batch = loader(10, options).next_batch();
            assert_eq!(batch.as_ref().unwrap()[0].device(), Some(DeviceType::Cpu));
            assert_eq!(numbers(batch), [0, 1, 2, 3]);
        }
    }

    /// Numbers, one of which panics, that count how many samples were made.
    struct Counted(AtomicUsize, Option<usize>);

    impl Dataset for Counted {
        fn len(&self) -> usize {
            20
        }

        fn get(&self, index: usize) -> DataResult<Batch> {
            assert!(self.1 != Some(index), "no {index}\nhere");
            self.0.fetch_add(1, Ordering::SeqCst);
            Numbers(20, None).get(index)
        }
    }

    #[test]
    fn a_panic_of_a_worker_is_an_error_of_its_batch() {
        let options = LoaderOptions {
            batch_size: 4,
            workers: 2,
            ..Default::default()
        };
        let samples = Counted(AtomicUsize::new(0), Some(5));
        let batches: Vec<_> = DataLoader::new(samples, options).unwrap().collect();
        assert_eq!(batches.len(), 5);
        assert_eq!(
            batches[1].as_ref().unwrap_err().to_string(),
            "a worker panicked while it made samples 4 to 7 in their order: no 5 here"
        );
        assert!([0, 2, 3, 4].into_iter().all(|i| batches[i].is_ok()));
    }

    #[test]
    fn any_number_of_workers_and_batches_ahead_gives_the_same() {
        for (workers, prefetch) in [(usize::MAX, 1), (3, usize::MAX), (usize::MAX, 0)] {
            let options = LoaderOptions {
                batch_size: 30,
                workers,
                prefetch,
                ..Default::default()
            };
            let batches: Vec<_> = loader(20, options).map(numbers).collect();
            assert!(batches.len() == 1 && batches[0].iter().copied().eq(0..20));
        }
    }

    #[test]
    fn workers_make_no_more_ahead_than_they_are_told() {
        let options = LoaderOptions {
            workers: 2,
            prefetch: 3,
            ..Default::default()
        };
        let samples = Counted(AtomicUsize::new(0), None);
        let mut loader = DataLoader::new(samples, options).unwrap();
        for given in 1..=20 {
            loader.next_batch().unwrap();
            // Each has three batches in its queue and one in its hands at most.
            let made = loader.dataset().0.load(Ordering::SeqCst);
            assert!(made <= given + 2 * 4, "{made} after {given}");
        }
        let last = LoaderState {
            epoch: u64::MAX,
            batch: 20,
        };
        loader.set_state(last).unwrap();
        assert!(loader.next().is_none());
    }

    #[test]
    fn a_sample_that_fails_is_told_and_others_follow() {
        for workers in [0, 2] {
            let options = LoaderOptions {
                batch_size: 2,
                workers,
                ..Default::default()
            };
            let loader = DataLoader::new(Numbers(6, Some(3)), options).unwrap();
            let batches: Vec<_> = loader.collect();
            assert!(batches[0].is_ok() && batches[2].is_ok());
            assert_eq!(
                batches[1].as_ref().unwrap_err().to_string(),
                "sample 3 is damaged"
            );
        }
    }
}
