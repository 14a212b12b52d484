use std::sync::atomic::{AtomicUsize, Ordering};

use rustorch_tensor::Tensor;

use super::*;
use crate::error::tests::assert_told;

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
fn samplers_say_which_samples_come() {
    let options = LoaderOptions {
        batch_size: 2,
        ..Default::default()
    };
    let of = |options| DataLoader::new(Numbers(6, None), options).unwrap();
    let reversed = Order(vec![5, 4, 3, 2, 1]);
    for workers in [0, 2] {
        let options = LoaderOptions { workers, ..options };
        let batches: Vec<_> = of(options)
            .sampler(reversed.clone())
            .unwrap()
            .map(numbers)
            .collect();
        assert_eq!(batches, [vec![5, 4], vec![3, 2], vec![1]]);
        let dropping = LoaderOptions {
            drop_last: true,
            ..options
        };
        let mut loader = of(dropping).sampler(reversed.clone()).unwrap();
        assert_eq!(loader.batches(), 2);
        assert_eq!(
            loader.by_ref().map(numbers).collect::<Vec<_>>(),
            [[5, 4], [3, 2]]
        );
        assert_eq!(loader.state(), LoaderState { epoch: 1, batch: 0 });
        let single = LoaderOptions {
            batch_size: 1,
            ..options
        };
        let mut pairs = of(single).batch_sampler(Pairs).unwrap();
        assert_eq!(
            pairs.by_ref().map(numbers).collect::<Vec<_>>(),
            [vec![0], vec![1, 2]]
        );
        assert_eq!(
            pairs.map(numbers).collect::<Vec<_>>(),
            [vec![1], vec![2, 3]]
        );
    }
    // A sampler is gone on with as an order of the loader's own.
    let mut resumed = of(LoaderOptions::default()).batch_sampler(Pairs).unwrap();
    resumed
        .set_state(LoaderState { epoch: 3, batch: 1 })
        .unwrap();
    assert_eq!(numbers(resumed.next_batch()), [4, 5]);
    let shuffled = LoaderOptions {
        shuffle: Some(1),
        ..options
    };
    let error = of(shuffled).sampler(reversed).err().unwrap().to_string();
    assert_told(
        &error,
        "expected a sampler or `shuffle`, got both; leave `shuffle` out",
    );
}

/// An order that is given.
#[derive(Clone)]
struct Order(Vec<usize>);

impl Sampler for Order {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn epoch(&self, _epoch: u64) -> Vec<usize> {
        self.0.clone()
    }
}

/// Batches of one sample and of two, which begin with the epoch's number.
struct Pairs;

impl Sampler<Vec<usize>> for Pairs {
    fn len(&self) -> usize {
        2
    }

    fn epoch(&self, epoch: u64) -> Vec<Vec<usize>> {
        let first = epoch as usize;
        vec![vec![first], vec![first + 1, first + 2]]
    }
}

/// Batches that are given.
struct Batches(Vec<Vec<usize>>);

impl Sampler<Vec<usize>> for Batches {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn epoch(&self, _epoch: u64) -> Vec<Vec<usize>> {
        self.0.clone()
    }
}

#[test]
fn a_batch_without_tensors_and_a_second_order_are_refused() {
    let nothing = loader(4, LoaderOptions::default()).collate_fn(|_| Ok(vec![]));
    let error = { nothing }.next_batch().unwrap_err().to_string();
    assert_told(&error, "expected a batch of tensors, got one of none");
    let pairs = LoaderOptions {
        batch_size: 2,
        ..Default::default()
    };
    let both = loader(4, pairs)
        .batch_sampler(Pairs)
        .err()
        .unwrap()
        .to_string();
    assert_told(
        &both,
        "expected a batch_sampler or `batch_size` and `drop_last`, got both; leave the options out",
    );
    let one = loader(4, LoaderOptions::default()).sampler(SequentialSampler::new(4));
    let two = one.unwrap().batch_sampler(Pairs).err().unwrap().to_string();
    assert_told(&two, "expected one sampler, got two");
}

#[test]
fn batches_that_are_none_are_errors_and_others_follow() {
    for workers in [0, 2] {
        let options = LoaderOptions {
            workers,
            ..Default::default()
        };
        let with = |batches| loader(4, options).batch_sampler(Batches(batches)).unwrap();
        let batches: Vec<_> = with(vec![vec![1], vec![], vec![4], vec![2, 3]]).collect();
        assert!(batches[0].is_ok() && batches[3].is_ok());
        let said = |at: usize| batches[at].as_ref().unwrap_err().to_string();
        assert_told(
            &said(1),
            "expected a batch of at least one sample, got none",
        );
        assert_told(&said(2), "expected a sample's index below 4, got 4");
        let mut none = with(Vec::new());
        assert!(none.next().is_none());
        let error = none.next_batch().unwrap_err().to_string();
        assert_told(
            &error,
            "expected a sampler with batches, got an epoch without",
        );
    }
    let none = LoaderOptions {
        batch_size: 0,
        ..Default::default()
    };
    let error = DataLoader::new(Numbers(3, None), none).err().unwrap();
    assert_told(
        &error.to_string(),
        "expected a batch size of at least 1, got 0",
    );
    let least = LoaderOptions {
        batch_size: 4,
        drop_last: true,
        ..Default::default()
    };
    for (samples, options, said) in [
        (0, LoaderOptions::default(), "at least 1 samples, got 0"),
        (3, least, "at least 4 samples, got 3"),
    ] {
        let error = DataLoader::new(Numbers(samples, None), options);
        assert_told(&error.err().unwrap().to_string(), said);
    }
    let error = loader(4, least).set_state(LoaderState { epoch: 0, batch: 2 });
    assert_told(
        &error.unwrap_err().to_string(),
        "expected a batch up to 1, got 2; is the state of another data set?",
    );
}

#[test]
fn a_function_of_the_users_makes_batches() {
    for workers in [0, 2] {
        let options = LoaderOptions {
            batch_size: 2,
            workers,
            ..Default::default()
        };
        let sum = |samples: Vec<Batch>| {
            let mut sum = samples[0][0].copy()?;
            for sample in &samples[1..] {
                sum = sum.add(&sample[0])?;
            }
            match numbers(Ok(vec![sum.copy()?]))[..] {
                [5] => Err(DataError::Other("no five".to_owned())),
                _ => Ok(vec![sum]),
            }
        };
        let batches: Vec<_> = loader(5, options).collate_fn(sum).collect();
        let error = batches[1].as_ref().unwrap_err().to_string();
        let is_placed = error.starts_with("DataLoader at ") && error.ends_with(": no five");
        assert!(is_placed, "{error}");
        let sums = [0, 2].map(|at| batches[at].as_ref().unwrap()[0].to_vec::<i64>().unwrap());
        assert_eq!(sums, [[1], [4]]);
    }
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

/// Numbers that count the samples made; one of them panics.
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
    let error = batches[1].as_ref().unwrap_err().to_string();
    let said = ": a worker panicked while it made samples 4 to 7 in their order: no 5 here";
    let is_placed = error.starts_with("DataLoader at ") && error.ends_with(said);
    assert!(is_placed, "{error}");
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
        let error = batches[1].as_ref().unwrap_err().to_string();
        assert_told(&error, "sample 3 is damaged");
    }
}
