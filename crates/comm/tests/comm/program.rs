//! Random programs of collectives, and their results by a serial computation.

use half::{bf16, f16};
use rustorch_comm::{BufferMut, CommError, DType, Element, Group, ReduceOp};

/// Random numbers of a seed: SplitMix64.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Action {
    AllReduce(ReduceOp),
    AllGather,
    ReduceScatter(ReduceOp),
    Broadcast { root: usize },
    AllToAll,
    Send { from: usize, to: usize },
    Barrier,
}

/// A call that all ranks make, with `count` elements as the smaller of its buffers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) action: Action,
    pub(crate) dtype: DType,
    pub(crate) count: usize,
    pub(crate) seed: u64,
}

impl Step {
    pub(crate) fn random(random: &mut Random, ranks: usize) -> Self {
        let dtype = random.one_of(DType::ALL);
        let mut ops = vec![
            ReduceOp::Sum,
            ReduceOp::Avg,
            ReduceOp::Product,
            ReduceOp::Min,
            ReduceOp::Max,
        ];
        match dtype.is_float() {
            // Each rank has its own factor, which takes the place of this one.
            true => ops.push(ReduceOp::PremulSum(1.0)),
            false => ops.extend([ReduceOp::BitAnd, ReduceOp::BitOr, ReduceOp::BitXor]),
        }
        let op = random.one_of(&ops);
        let (root, distance) = (random.below(ranks), 1 + random.below(ranks - 1));
        let action = random.one_of(&[
            Action::AllReduce(op),
            Action::AllReduce(op),
            Action::AllGather,
            Action::ReduceScatter(op),
            Action::Broadcast { root },
            Action::AllToAll,
            Action::Send {
                from: root,
                to: (root + distance) % ranks,
            },
            Action::Barrier,
        ]);
        let count = match random.below(12) {
            // Enough for messages of parts.
            0 => 17_000 / dtype.size() + random.below(100),
            _ => random.below(40),
        };
        Self {
            action,
            dtype,
            count,
            seed: random.next(),
        }
    }

    /// Makes the call on a rank, and returns the bytes that it wrote.
    pub(crate) fn run(&self, group: &dyn Group) -> Result<Vec<u8>, CommError> {
        match self.dtype {
            DType::U8 => self.run_as::<u8>(group),
            DType::I8 => self.run_as::<i8>(group),
            DType::U16 => self.run_as::<u16>(group),
            DType::I16 => self.run_as::<i16>(group),
            DType::U32 => self.run_as::<u32>(group),
            DType::I32 => self.run_as::<i32>(group),
            DType::U64 => self.run_as::<u64>(group),
            DType::I64 => self.run_as::<i64>(group),
            DType::F16 => self.run_as::<f16>(group),
            DType::BF16 => self.run_as::<bf16>(group),
            DType::F32 => self.run_as::<f32>(group),
            DType::F64 => self.run_as::<f64>(group),
        }
    }

    fn run_as<T: Number>(&self, group: &dyn Group) -> Result<Vec<u8>, CommError> {
        let (rank, ranks) = (group.rank(), group.size());
        let mut own: Vec<T> = self.input(rank, ranks);
        let mut output = vec![T::zeroed(); self.output_len(ranks)];
        let out = BufferMut::from(&mut output[..]);
        match self.action {
            Action::AllReduce(op) => {
                group.all_reduce(own[..].as_mut().into(), self.op(op, rank))?
            }
            Action::AllGather => group.all_gather(own[..].into(), out)?,
            Action::ReduceScatter(op) => {
                group.reduce_scatter(own[..].into(), out, self.op(op, rank))?;
            }
            Action::Broadcast { root } => group.broadcast(own[..].as_mut().into(), root)?,
            Action::AllToAll => group.all_to_all(own[..].into(), out)?,
            Action::Send { from, to } if rank == from => group.send(own[..].into(), to)?,
            Action::Send { from, to } if rank == to => group.recv(own[..].as_mut().into(), from)?,
            Action::Send { .. } => {}
            Action::Barrier => group.barrier()?,
        }
        let written = if output.is_empty() { &own } else { &output };
        Ok(bytemuck::cast_slice(written).to_vec())
    }

    /// The bytes that a rank has to get.
    pub(crate) fn expected(&self, rank: usize, ranks: usize) -> Vec<u8> {
        match self.dtype {
            DType::U8 => self.expected_as::<u8>(rank, ranks),
            DType::I8 => self.expected_as::<i8>(rank, ranks),
            DType::U16 => self.expected_as::<u16>(rank, ranks),
            DType::I16 => self.expected_as::<i16>(rank, ranks),
            DType::U32 => self.expected_as::<u32>(rank, ranks),
            DType::I32 => self.expected_as::<i32>(rank, ranks),
            DType::U64 => self.expected_as::<u64>(rank, ranks),
            DType::I64 => self.expected_as::<i64>(rank, ranks),
            DType::F16 => self.expected_as::<f16>(rank, ranks),
            DType::BF16 => self.expected_as::<bf16>(rank, ranks),
            DType::F32 => self.expected_as::<f32>(rank, ranks),
            DType::F64 => self.expected_as::<f64>(rank, ranks),
        }
    }

    fn expected_as<T: Number>(&self, rank: usize, ranks: usize) -> Vec<u8> {
        let inputs: Vec<Vec<T>> = (0..ranks).map(|rank| self.input(rank, ranks)).collect();
        let part = |input: &[T], rank: usize| {
            let length = input.len() / ranks;
            input[rank * length..][..length].to_vec()
        };
        let reduced = |op| {
            let factors: Vec<f64> = (0..ranks).map(|rank| self.factor(rank)).collect();
            let column = |i: usize| inputs.iter().map(|input| input[i]).collect::<Vec<T>>();
            (0..inputs[0].len())
                .map(|i| T::serial(op, &column(i), &factors))
                .collect::<Vec<T>>()
        };
        let values: Vec<T> = match self.action {
            Action::AllReduce(op) => reduced(op),
            Action::ReduceScatter(op) => part(&reduced(op), rank),
            Action::AllGather => inputs.concat(),
            Action::Broadcast { root } => inputs[root].clone(),
            Action::AllToAll => inputs.iter().flat_map(|input| part(input, rank)).collect(),
            Action::Send { from, to } if rank == to => inputs[from].clone(),
            Action::Send { .. } | Action::Barrier => inputs[rank].clone(),
        };
        bytemuck::cast_slice(&values).to_vec()
    }

    fn input<T: Number>(&self, rank: usize, ranks: usize) -> Vec<T> {
        let mut random = Random(self.seed ^ (rank as u64) << 32);
        let count = match self.action {
            Action::ReduceScatter(_) | Action::AllToAll => self.count * ranks,
            _ => self.count,
        };
        (0..count).map(|_| T::random(&mut random)).collect()
    }

    fn output_len(&self, ranks: usize) -> usize {
        match self.action {
            Action::AllGather | Action::AllToAll => self.count * ranks,
            Action::ReduceScatter(_) => self.count,
            _ => 0,
        }
    }

    fn op(&self, op: ReduceOp, rank: usize) -> ReduceOp {
        match op {
            ReduceOp::PremulSum(_) => ReduceOp::PremulSum(self.factor(rank)),
            op => op,
        }
    }

    fn factor(&self, rank: usize) -> f64 {
        1.0 / (1.5 + rank as f64)
    }
}

/// Elements with a reduction that is written out.
pub(crate) trait Number: Element {
    fn random(random: &mut Random) -> Self;
    fn serial(op: ReduceOp, values: &[Self], factors: &[f64]) -> Self;
}

macro_rules! integers {
    ($($number:ty)*) => {$(
        impl Number for $number {
            fn random(random: &mut Random) -> Self {
                random.next() as $number
            }

            fn serial(op: ReduceOp, values: &[Self], _: &[f64]) -> Self {
                let values = values.iter().copied();
                let count = values.len() as i128;
                let sum = values.clone().fold(0, <$number>::wrapping_add);
                match op {
                    ReduceOp::Sum => sum,
                    ReduceOp::Avg => (i128::from(sum) / count) as $number,
                    ReduceOp::Product => values.fold(1, <$number>::wrapping_mul),
                    ReduceOp::Min => values.min().unwrap(),
                    ReduceOp::Max => values.max().unwrap(),
                    ReduceOp::BitAnd => values.fold(!0, |a, b| a & b),
                    ReduceOp::BitOr => values.fold(0, |a, b| a | b),
                    ReduceOp::BitXor => values.fold(0, |a, b| a ^ b),
                    ReduceOp::PremulSum(_) => unreachable!(),
                }
            }
        }
    )*};
}

macro_rules! floats {
    ($($number:ty, $wide:ty, $widen:expr, $narrow:expr;)*) => {$(
        impl Number for $number {
            fn random(random: &mut Random) -> Self {
                // Numbers of many magnitudes: another order has other sums.
                let exponent = random.below(12) as i32 - 6;
                let mantissa = random.next() as i32 as $wide / i32::MAX as $wide;
                ($narrow)(mantissa * (2.0 as $wide).powi(exponent))
            }

            fn serial(op: ReduceOp, values: &[Self], factors: &[f64]) -> Self {
                let wide: Vec<$wide> = values.iter().map(|&x| ($widen)(x)).collect();
                let mut result = wide[0];
                if let ReduceOp::PremulSum(_) = op {
                    result *= factors[0] as $wide;
                }
                for (&x, &factor) in wide[1..].iter().zip(&factors[1..]) {
                    match op {
                        ReduceOp::Sum | ReduceOp::Avg => result += x,
                        ReduceOp::Product => result *= x,
                        ReduceOp::Min => result = result.min(x),
                        ReduceOp::Max => result = result.max(x),
                        ReduceOp::PremulSum(_) => result += x * factor as $wide,
                        _ => unreachable!(),
                    }
                }
                if op == ReduceOp::Avg {
                    result /= values.len() as $wide;
                }
                ($narrow)(result)
            }
        }
    )*};
}

integers!(u8 i8 u16 i16 u32 i32 u64 i64);

floats! {
    f16, f32, f16::to_f32, f16::from_f32;
    bf16, f32, bf16::to_f32, bf16::from_f32;
    f32, f32, |x| x, |x| x;
    f64, f64, |x| x, |x| x;
}
