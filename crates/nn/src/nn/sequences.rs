//! Sequences of several lengths in one tensor.

use rustorch_ir::Scalar;
use rustorch_macros::track_calls;
use rustorch_tensor::{Number, RusTorchResult, Tensor};

use crate::error::require;

/// Packed sequences: the elements of each time step, one time step after the other.
///
/// [`RNN`](crate::nn::RNN), [`LSTM`](crate::nn::LSTM) and [`GRU`](crate::nn::GRU) read them with
/// `forward_packed`.
///
/// ```
/// use rustorch_nn::nn::utils::rnn::{pack_padded_sequence, pad_packed_sequence, pad_sequence};
/// use rustorch_nn::nn::{LSTM, RNNOptions};
/// use rustorch_tensor::{RusTorchResult, Tensor};
///
/// # fn main() -> RusTorchResult<()> {
/// let texts = [Tensor::ones([2, 3], rustorch_ir::DType::F32)?, Tensor::ones([4, 3], rustorch_ir::DType::F32)?];
/// let x = pad_sequence(&texts, true, 0.0)?; // [2, 4, 3]
/// let packed = pack_padded_sequence(&x, &[2, 4], true)?;
/// let lstm = LSTM::new(3, 5, RNNOptions::default())?;
/// let (output, (h, _)) = lstm.forward_packed(&packed, None)?;
/// let (output, lengths) = pad_packed_sequence(&output, true, 0.0, None)?;
/// assert_eq!((output.shape(), &lengths[..]), (&[2, 4, 5][..], &[2, 4][..]));
/// // The last state of the first text is what was made of its second element.
/// assert!(h.select(1, 0)?.squeeze(0)?.equal(&output.select(0, 0)?.select(0, 1)?)?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PackedSequence {
    data: Tensor,
    batch_sizes: Vec<usize>,
    /// The original index of each sorted sequence.
    order: Vec<usize>,
}

impl PackedSequence {
    /// The elements, `[elements, …]`.
    pub fn data(&self) -> &Tensor {
        &self.data
    }

    /// Number of sequences at each time step.
    pub fn batch_sizes(&self) -> &[usize] {
        &self.batch_sizes
    }

    /// The original index of each sorted sequence.
    pub fn sorted_indices(&self) -> &[usize] {
        &self.order
    }

    /// The sorted index of each original sequence.
    pub fn unsorted_indices(&self) -> Vec<usize> {
        let mut places = vec![0; self.order.len()];
        for (place, &sequence) in self.order.iter().enumerate() {
            places[sequence] = place;
        }
        places
    }

    /// Other elements of the same sequences.
    pub(crate) fn with_data(&self, data: Tensor) -> Self {
        Self {
            data,
            ..self.clone()
        }
    }

    /// The parts of each sequence along `dim`, in this order.
    pub(crate) fn sorted(&self, x: &Tensor, dim: usize) -> RusTorchResult<Tensor> {
        taken(x, dim, &self.order)
    }

    /// The opposite of [`PackedSequence::sorted`].
    pub(crate) fn unsorted(&self, x: &Tensor, dim: usize) -> RusTorchResult<Tensor> {
        taken(x, dim, &self.unsorted_indices())
    }

    /// The length of each sequence, in the order of this.
    fn sorted_lengths(&self) -> Vec<usize> {
        let has_time = |place: usize| self.batch_sizes.iter().filter(move |&&rows| place < rows);
        (0..self.order.len())
            .map(|place| has_time(place).count())
            .collect()
    }
}

/// The parts of `x` along `dim` by their numbers.
fn taken(x: &Tensor, dim: usize, numbers: &[usize]) -> RusTorchResult<Tensor> {
    match numbers.iter().copied().eq(0..x.size(dim)?) {
        true => Ok(x.clone()),
        false => x.index_select(dim, &indices(numbers)?),
    }
}

fn indices(numbers: &[usize]) -> RusTorchResult<Tensor> {
    let numbers: Vec<i64> = numbers.iter().map(|&number| number as i64).collect();
    Tensor::from_slice(&numbers, numbers.len())
}

/// Pads sequences `[length, …]` to the longest: `[longest, n, …]`, or `[n, longest, …]` if the
/// batch is first.
///
/// # Errors
/// Fails for no sequences, or for different sizes or dtypes.
#[track_calls]
pub fn pad_sequence(
    sequences: &[Tensor],
    batch_first: bool,
    padding_value: impl Number,
) -> RusTorchResult<Tensor> {
    let lengths = lengths_of("pad_sequence", sequences)?;
    padded(
        &Tensor::cat(sequences, 0)?,
        batch_first,
        padding_value.to_number(),
        |time, i| {
            let before: usize = lengths[..i].iter().sum();
            (time < lengths[i]).then_some(before + time)
        },
        [lengths.iter().copied().max().unwrap_or(0), lengths.len()],
    )
}

/// The lengths of sequences `[length, …]`.
fn lengths_of(name: &'static str, sequences: &[Tensor]) -> RusTorchResult<Vec<usize>> {
    require(name, !sequences.is_empty(), "at least one sequence", "none")?;
    let length = |x: &Tensor| {
        require(name, x.rank() > 0, "sequences [length, …]", "one of rank 0")?;
        x.size(0)
    };
    sequences.iter().map(length).collect()
}

/// A tensor `[times, n, …]`, or `[n, times, …]`, of elements `[elements, …]` by their numbers, with `padding` where there is
/// none.
fn padded(
    elements: &Tensor,
    batch_first: bool,
    padding: Scalar,
    number: impl Fn(usize, usize) -> Option<usize>,
    [times, n]: [usize; 2],
) -> RusTorchResult<Tensor> {
    let count = elements.size(0)?;
    let numbers: Vec<usize> = (0..times * n)
        .map(|at| match batch_first {
            true => number(at % times, at / times),
            false => number(at / n, at % n),
        })
        .map(|number| number.unwrap_or(count))
        .collect();
    let rest = &elements.shape()[1..];
    let nothing = Tensor::full(&[&[1], rest].concat()[..], padding, elements.dtype())?;
    let sizes = if batch_first { [n, times] } else { [times, n] };
    let all = Tensor::cat(&[elements, &nothing], 0)?;
    let rows = all.index_select(0, &indices(&numbers)?)?;
    rows.reshape(&[&sizes, rest].concat()[..])
}

/// Packs padded sequences `x` `[time, n, …]`, or `[n, time, …]` if the batch is first.
///
/// # Errors
/// Fails unless each sequence has a length from 1 to the number of time steps.
#[track_calls]
pub fn pack_padded_sequence(
    x: &Tensor,
    lengths: &[usize],
    batch_first: bool,
) -> RusTorchResult<PackedSequence> {
    const NAME: &str = "pack_padded_sequence";
    let [times, n] = sizes_of(NAME, x, lengths, batch_first)?;
    have_elements(NAME, lengths)?;
    let number = |sequence: usize, time: usize| match batch_first {
        true => sequence * times + time,
        false => time * n + sequence,
    };
    packed(&x.flatten(0, 1)?, lengths, number)
}

/// Packs sequences `[length, …]`.
///
/// # Errors
/// The same errors as [`pad_sequence`]. Also fails for an empty sequence.
#[track_calls]
pub fn pack_sequence(sequences: &[Tensor]) -> RusTorchResult<PackedSequence> {
    const NAME: &str = "pack_sequence";
    let lengths = lengths_of(NAME, sequences)?;
    have_elements(NAME, &lengths)?;
    let number = |sequence: usize, time: usize| lengths[..sequence].iter().sum::<usize>() + time;
    packed(&Tensor::cat(sequences, 0)?, &lengths, number)
}

/// Fails unless there are sequences, and none is empty.
fn have_elements(name: &'static str, lengths: &[usize]) -> RusTorchResult<()> {
    let are_legal = !lengths.is_empty() && !lengths.contains(&0);
    let got = format_args!("{lengths:?}");
    require(name, are_legal, "sequences of at least one element", got)
}

/// Sequences of these lengths, whose elements are those of `elements` by their numbers.
fn packed(
    elements: &Tensor,
    lengths: &[usize],
    number: impl Fn(usize, usize) -> usize,
) -> RusTorchResult<PackedSequence> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&sequence| std::cmp::Reverse(lengths[sequence]));
    let longest = order.first().map_or(0, |&sequence| lengths[sequence]);
    let having = |time: usize| order.iter().take_while(move |&&i| time < lengths[i]);
    let batch_sizes = (0..longest).map(|time| having(time).count()).collect();
    let numbers: Vec<usize> = (0..longest)
        .flat_map(|time| having(time).map(move |&sequence| (sequence, time)))
        .map(|(sequence, time)| number(sequence, time))
        .collect();
    Ok(PackedSequence {
        data: elements.index_select(0, &indices(&numbers)?)?,
        batch_sizes,
        order,
    })
}

/// The sizes `[times, n]` of padded sequences.
fn sizes_of(
    name: &'static str,
    x: &Tensor,
    lengths: &[usize],
    batch_first: bool,
) -> RusTorchResult<[usize; 2]> {
    let shape = x.shape();
    require(
        name,
        shape.len() > 1,
        "a tensor [time, n, …]",
        format_args!("{shape:?}"),
    )?;
    let [times, n] = if batch_first {
        [shape[1], shape[0]]
    } else {
        [shape[0], shape[1]]
    };
    let expected = format_args!("{n} lengths of up to {times}");
    let fits = lengths.len() == n && lengths.iter().all(|&length| length <= times);
    require(name, fits, expected, format_args!("{lengths:?}"))?;
    Ok([times, n])
}

/// Pads packed sequences to the longest, or to `total_length`, in their original order. Returns
/// `[time, n, …]`, or `[n, time, …]` if the batch is first, and their lengths.
///
/// # Errors
/// Fails for a `total_length` that is shorter than the longest sequence.
#[track_calls]
pub fn pad_packed_sequence(
    sequences: &PackedSequence,
    batch_first: bool,
    padding_value: impl Number,
    total_length: Option<usize>,
) -> RusTorchResult<(Tensor, Vec<usize>)> {
    let longest = sequences.batch_sizes.len();
    let times = total_length.unwrap_or(longest);
    let expected = format_args!("a total_length of at least {longest}");
    require("pad_packed_sequence", times >= longest, expected, times)?;
    let (sorted, places) = (sequences.sorted_lengths(), sequences.unsorted_indices());
    let lengths: Vec<usize> = places.iter().map(|&place| sorted[place]).collect();
    let mut begins = vec![0];
    for rows in &sequences.batch_sizes {
        begins.push(begins[begins.len() - 1] + rows);
    }
    let number = |time: usize, i: usize| (time < lengths[i]).then(|| begins[time] + places[i]);
    let sizes = [times, lengths.len()];
    let x = padded(
        &sequences.data,
        batch_first,
        padding_value.to_number(),
        number,
        sizes,
    )?;
    Ok((x, lengths))
}

/// Splits `x` `[time, n, …]`, or `[n, time, …]` if the batch is first, into sequences
/// `[length, …]`.
///
/// # Errors
/// Fails for lengths that do not match the sequences.
#[track_calls]
pub fn unpad_sequence(
    x: &Tensor,
    lengths: &[usize],
    batch_first: bool,
) -> RusTorchResult<Vec<Tensor>> {
    sizes_of("unpad_sequence", x, lengths, batch_first)?;
    let batch = usize::from(!batch_first);
    let part = |(i, &length): (usize, &usize)| x.select(batch, i)?.narrow(0, 0, length);
    lengths.iter().enumerate().map(part).collect()
}
