//! The calls of a group, checked.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::buffer::Shape;
use crate::{Buffer, BufferMut, Collective, CommError, DType, ReduceOp};

/// Memory that a call reads and writes.
#[derive(Debug)]
pub(crate) enum Memory<'a> {
    None,
    Read(&'a [u8]),
    Write(&'a mut [u8]),
    Both {
        input: &'a [u8],
        output: &'a mut [u8],
    },
}

/// A call of a group with arguments that fit. Methods of [`Group`](crate::Group) make it.
#[derive(Debug)]
pub struct Call<'a> {
    pub(crate) collective: Collective,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape<'a>,
    /// The reduction.
    pub(crate) op: Option<ReduceOp>,
    /// The root, or the other rank.
    pub(crate) peer: Option<usize>,
    pub(crate) tag: Option<Tag>,
    pub(crate) memory: Memory<'a>,
}

/// The place of a call in a program. It is the same on all ranks, or their calls are different ones.
///
/// A recorded program may run a second time after a failure of one rank's device. Its calls would then meet those of
/// other ranks' next run, with the same shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tag {
    /// The number of the call in the program.
    pub number: i64,
    /// The number of the program's run.
    pub pass: i64,
}

impl<'a> Call<'a> {
    /// A reduction of `data` over all ranks, in place.
    ///
    /// # Errors
    /// The dtype does not have the reduction.
    pub fn all_reduce(data: BufferMut<'a>, op: ReduceOp) -> Result<Self, CommError> {
        let BufferMut {
            dtype,
            shape,
            bytes,
        } = data;
        let call = Self::new(Collective::AllReduce, dtype, shape, Memory::Write(bytes));
        call.reducing(op)
    }

    /// A collection of the `input` of `ranks` ranks in `output`.
    ///
    /// # Errors
    /// The output has the wrong size.
    pub fn all_gather(
        ranks: usize,
        input: Buffer<'a>,
        output: BufferMut<'a>,
    ) -> Result<Self, CommError> {
        let expected = input.bytes.len().saturating_mul(ranks);
        Self::copying(Collective::AllGather, ranks, input, output, expected)
    }

    /// A reduction of `input`, of which each of `ranks` ranks gets its part.
    ///
    /// # Errors
    /// The sizes do not fit, or the dtype does not have the reduction.
    pub fn reduce_scatter(
        ranks: usize,
        input: Buffer<'a>,
        output: BufferMut<'a>,
        op: ReduceOp,
    ) -> Result<Self, CommError> {
        let collective = Collective::ReduceScatter;
        let part = part_of(collective, ranks, &input)?;
        Self::copying(collective, ranks, input, output, part)?.reducing(op)
    }

    /// An exchange of the parts of `input` between `ranks` ranks.
    ///
    /// # Errors
    /// The sizes do not fit.
    pub fn all_to_all(
        ranks: usize,
        input: Buffer<'a>,
        output: BufferMut<'a>,
    ) -> Result<Self, CommError> {
        let collective = Collective::AllToAll;
        part_of(collective, ranks, &input)?;
        let expected = input.bytes.len();
        Self::copying(collective, ranks, input, output, expected)
    }

    /// A copy of `data` of the rank `root` to `ranks` ranks.
    ///
    /// # Errors
    /// There is no such rank.
    pub fn broadcast(ranks: usize, data: BufferMut<'a>, root: usize) -> Result<Self, CommError> {
        let collective = Collective::Broadcast;
        check_rank(collective, ranks, root)?;
        let BufferMut {
            dtype,
            shape,
            bytes,
        } = data;
        Ok(Self::new(collective, dtype, shape, Memory::Write(bytes)).with(root))
    }

    pub(crate) fn send(
        rank: usize,
        ranks: usize,
        data: Buffer<'a>,
        to: usize,
    ) -> Result<Self, CommError> {
        check_other(Collective::Send, rank, ranks, to)?;
        let Buffer {
            dtype,
            shape,
            bytes,
        } = data;
        Ok(Self::new(Collective::Send, dtype, shape, Memory::Read(bytes)).with(to))
    }

    pub(crate) fn recv(
        rank: usize,
        ranks: usize,
        data: BufferMut<'a>,
        from: usize,
    ) -> Result<Self, CommError> {
        check_other(Collective::Recv, rank, ranks, from)?;
        let BufferMut {
            dtype,
            shape,
            bytes,
        } = data;
        Ok(Self::new(Collective::Recv, dtype, shape, Memory::Write(bytes)).with(from))
    }

    /// A wait for all ranks.
    pub fn barrier() -> Self {
        Self::new(Collective::Barrier, DType::U8, Shape::Flat(0), Memory::None)
    }

    fn new(collective: Collective, dtype: DType, shape: Shape<'a>, memory: Memory<'a>) -> Self {
        Self {
            collective,
            dtype,
            shape,
            op: None,
            peer: None,
            tag: None,
            memory,
        }
    }

    /// The same call at a place in a program.
    #[must_use]
    pub fn at(self, tag: Tag) -> Self {
        Self {
            tag: Some(tag),
            ..self
        }
    }

    fn with(self, peer: usize) -> Self {
        Self {
            peer: Some(peer),
            ..self
        }
    }

    fn reducing(self, op: ReduceOp) -> Result<Self, CommError> {
        op.check(self.collective, self.dtype)?;
        Ok(Self {
            op: Some(op),
            ..self
        })
    }

    fn copying(
        collective: Collective,
        ranks: usize,
        input: Buffer<'a>,
        output: BufferMut<'a>,
        expected: usize,
    ) -> Result<Self, CommError> {
        if input.dtype != output.dtype {
            return Err(CommError::Invalid(format!(
                "{collective}: the input is {}, but the output is {}; give both one dtype",
                input.dtype, output.dtype
            )));
        }
        if output.bytes.len() != expected {
            let size = input.dtype.size();
            return Err(CommError::Invalid(format!(
                "{collective}: {ranks} ranks with {} {:?} need an output of {} elements, not of {}",
                input.dtype,
                input.shape.dimensions(),
                expected / size,
                output.bytes.len() / size
            )));
        }
        let memory = Memory::Both {
            input: input.bytes,
            output: output.bytes,
        };
        Ok(Self::new(collective, input.dtype, input.shape, memory))
    }
}

fn part_of(collective: Collective, ranks: usize, input: &Buffer<'_>) -> Result<usize, CommError> {
    let elements = input.bytes.len() / input.dtype.size();
    if elements.is_multiple_of(ranks) {
        return Ok(input.bytes.len() / ranks);
    }
    Err(CommError::Invalid(format!(
        "{collective}: {elements} elements cannot be divided among {ranks} ranks; pad the input"
    )))
}

/// Refuses a rank that a group does not have.
pub(crate) fn check_rank(
    action: impl fmt::Display,
    ranks: usize,
    rank: usize,
) -> Result<(), CommError> {
    if rank < ranks {
        return Ok(());
    }
    Err(CommError::Invalid(format!(
        "{action}: there is no rank {rank} in a group of {ranks}; ranks count from 0"
    )))
}

/// Refuses a rank that a message cannot go to or come from.
pub(crate) fn check_other(
    collective: Collective,
    rank: usize,
    ranks: usize,
    peer: usize,
) -> Result<(), CommError> {
    check_rank(collective, ranks, peer)?;
    if peer != rank {
        return Ok(());
    }
    Err(CommError::Invalid(format!(
        "{collective}: rank {rank} is this rank; give another one"
    )))
}

/// A call as other ranks see it: all of it that has to be the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Signature {
    collective: Collective,
    /// The number of the collective in its epoch, from 1.
    pub(crate) sequence: u64,
    dtype: DType,
    shape: Vec<usize>,
    pub(crate) op: Option<ReduceOp>,
    peer: Option<usize>,
    tag: Option<Tag>,
}

impl Signature {
    pub(crate) fn new(call: &Call<'_>, sequence: u64) -> Self {
        Self {
            collective: call.collective,
            sequence,
            dtype: call.dtype,
            shape: call.shape.dimensions().to_vec(),
            op: call.op,
            peer: call.peer,
            tag: call.tag,
        }
    }

    /// True if a message of the call `sent` is for this call.
    pub(crate) fn takes(&self, sent: &Self) -> bool {
        let same_data = self.dtype == sent.dtype && self.shape == sent.shape;
        if self.collective == Collective::Recv {
            return sent.collective == Collective::Send && same_data;
        }
        let same_op = match (self.op, sent.op) {
            (Some(mine), Some(other)) => mine.agrees(other),
            (mine, other) => mine == other,
        };
        let same_place = self.sequence == sent.sequence && self.peer == sent.peer;
        let same_place = same_place && self.tag == sent.tag;
        self.collective == sent.collective && same_data && same_op && same_place
    }

    pub(crate) fn collective(&self) -> Collective {
        self.collective
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.collective)?;
        if self.collective.is_for_all() {
            write!(f, " {}", self.sequence)?;
        }
        if let Some(op) = self.op {
            write!(f, " ({op})")?;
        }
        if self.collective != Collective::Barrier {
            write!(f, " of {} {:?}", self.dtype, self.shape)?;
        }
        match (self.collective, self.peer) {
            (Collective::Send, Some(peer)) => write!(f, " to rank {peer}")?,
            (_, Some(peer)) => write!(f, " from rank {peer}")?,
            _ => {}
        }
        match self.tag {
            Some(Tag { number, pass }) => write!(f, ", number {number} of run {pass}"),
            None => Ok(()),
        }
    }
}
