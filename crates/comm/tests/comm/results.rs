//! Results of all collectives, as a serial computation has them.

use std::time::Duration;

use rustorch_comm::{
    Buffer, BufferMut, CommError, DType, Group, Options, ReduceOp, Solo, ThreadGroup,
};

use crate::program::{Random, Step};
use crate::{RANKS, on_ranks};

#[test]
fn collectives_have_the_bits_of_a_serial_computation() {
    let mut random = Random(1);
    for ranks in RANKS {
        let steps: Vec<_> = (0..200).map(|_| Step::random(&mut random, ranks)).collect();
        on_ranks(ranks, Vec::new(), |group| {
            for step in &steps {
                let result = step.run(&group).unwrap();
                assert!(result == step.expected(group.rank(), ranks), "{step:?}");
            }
        });
    }
}

#[test]
fn groups_on_the_systems_clock_have_the_same_results() {
    let mut random = Random(2);
    let steps: Vec<_> = (0..100).map(|_| Step::random(&mut random, 3)).collect();
    std::thread::scope(|scope| {
        for group in ThreadGroup::create(3, Options::default()) {
            let steps = &steps;
            scope.spawn(move || {
                for step in steps {
                    let result = step.run(&group).unwrap();
                    assert!(result == step.expected(group.rank(), 3), "{step:?}");
                }
            });
        }
    });
}

#[test]
fn times_may_be_endless() {
    let endless = Options {
        deadline: Duration::MAX,
        settle: Duration::MAX,
        silence: Duration::MAX,
    };
    std::thread::scope(|scope| {
        for group in ThreadGroup::create(3, endless) {
            scope.spawn(move || {
                let mut data = vec![1.0_f32; 1 + group.rank() / 2];
                let sum = |group: &dyn Group, data: &mut [f32]| {
                    group.all_reduce(data.into(), ReduceOp::Sum)
                };
                assert!(sum(&group, &mut data).is_err(), "the shapes differ");
                let next = group.shrink().unwrap();
                sum(&*next, &mut data[..1]).unwrap();
                assert_eq!(data[0], 3.0);
            });
        }
    });
}

#[test]
fn nan_is_the_least_and_the_greatest() {
    for op in [ReduceOp::Min, ReduceOp::Max] {
        for rank_of_nan in 0..3 {
            on_ranks(3, Vec::new(), |group| {
                let mut data = [if group.rank() == rank_of_nan {
                    f32::NAN
                } else {
                    1.0
                }];
                group.all_reduce(data[..].as_mut().into(), op).unwrap();
                assert!(data[0].is_nan());
            });
        }
    }
}

#[test]
fn averages_of_bytes_over_many_ranks() {
    on_ranks(200, Vec::new(), |group| {
        let mut data = [if group.rank() == 0 { -100_i8 } else { 0 }];
        group
            .all_reduce(data[..].as_mut().into(), ReduceOp::Avg)
            .unwrap();
        assert_eq!(data, [0]);
    });
}

#[test]
fn a_group_of_one_copies() {
    let mut data = [1.5_f32, -2.0];
    let mut output = [0.0_f32; 2];
    Solo.all_reduce(data[..].as_mut().into(), ReduceOp::Avg)
        .unwrap();
    assert_eq!(data, [1.5, -2.0]);
    Solo.all_reduce(data[..].as_mut().into(), ReduceOp::PremulSum(2.0))
        .unwrap();
    assert_eq!(data, [3.0, -4.0]);
    Solo.all_gather(data[..].into(), output[..].as_mut().into())
        .unwrap();
    assert_eq!(output, data);
    Solo.reduce_scatter(
        data[..].into(),
        output[..].as_mut().into(),
        ReduceOp::PremulSum(0.5),
    )
    .unwrap();
    assert_eq!(output, [1.5, -2.0]);
    Solo.all_to_all(data[..].into(), output[..].as_mut().into())
        .unwrap();
    assert_eq!(output, data);
    Solo.broadcast(data[..].as_mut().into(), 0).unwrap();
    Solo.barrier().unwrap();
    assert_eq!(data, [3.0, -4.0]);
    assert!(matches!(
        Solo.send(data[..].into(), 0),
        Err(CommError::Invalid(_))
    ));
}

#[test]
fn impossible_arguments_are_one_clear_error() {
    let group = &ThreadGroup::create(2, Options::default())[0];
    let mut floats = [0.0_f32; 3];
    let mut output = [0.0_f32; 4];
    let invalid = |result: Result<(), CommError>| match result {
        Err(CommError::Invalid(text)) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        invalid(group.all_reduce(floats[..].as_mut().into(), ReduceOp::BitAnd)),
        "all_reduce: band is for integers, not for f32"
    );
    assert_eq!(
        invalid(group.all_reduce([1_u8][..].as_mut().into(), ReduceOp::PremulSum(1.0))),
        "all_reduce: premul_sum is for floats, not for u8"
    );
    assert_eq!(
        invalid(group.all_gather(floats[..].into(), output[..].as_mut().into())),
        "all_gather: 2 ranks with f32 [3] need an output of 6 elements, not of 4"
    );
    assert_eq!(
        invalid(group.reduce_scatter(floats[..].into(), output[..].as_mut().into(), ReduceOp::Sum)),
        "reduce_scatter: 3 elements cannot be divided among 2 ranks; pad the input"
    );
    assert_eq!(
        invalid(group.all_to_all([1_i32, 2][..].into(), output[..2].as_mut().into())),
        "all_to_all: the input is i32, but the output is f32; give both one dtype"
    );
    assert_eq!(
        invalid(group.broadcast(floats[..].as_mut().into(), 2)),
        "broadcast: there is no rank 2 in a group of 2; ranks count from 0"
    );
    assert_eq!(
        invalid(group.send(floats[..].into(), 0)),
        "send: rank 0 is this rank; give another one"
    );
    let text = Buffer::new(DType::F16, &[2, 3], &[0; 8])
        .unwrap_err()
        .to_string();
    assert_eq!(
        text,
        "f16 [2, 3] does not have 8 bytes; give the buffer's own shape"
    );
    assert!(BufferMut::new(DType::F64, &[usize::MAX, 2], &mut []).is_err());
    assert!(group.shrink().is_err());
}
