//! Operations of several results.

use rustorch_ir::{DType, OpKind};
use rustorch_runtime::{Routing, Runtime};
use rustorch_tensor::{Tensor, Trace, eval_all, host, tensor, with_runtime};

use crate::Outcome;

/// A runtime of its own, whose counters nobody else moves.
fn on_host(f: impl FnOnce(&Runtime) -> Outcome) -> Outcome {
    let runtime = Runtime::new(host(1));
    with_runtime(&runtime, Routing::AUTO, || f(&runtime))
}

#[test]
fn results_are_computed_together() -> Outcome {
    on_host(|runtime| {
        let (values, indices) = tensor![3.0, 1.0, 2.0].topk(2, 0, true)?;
        assert_eq!(values.to_vec::<f32>()?, [3.0, 2.0]);
        assert!(indices.is_ready());
        assert_eq!(indices.to_vec::<i64>()?, [0, 2]);
        assert_eq!(runtime.computed(), 1);
        // The second one first, and what is made of both.
        let (values, indices) = tensor![3.0, 1.0, 2.0].topk(2, 0, true)?;
        let sum = values.add(&indices.to_dtype(DType::F32)?)?;
        assert_eq!(indices.to_vec::<i64>()?, [0, 2]);
        assert!(values.is_ready());
        assert_eq!(sum.to_vec::<f32>()?, [3.0, 4.0]);
        Ok(())
    })
}

#[test]
fn what_results_share_is_computed_once() -> Outcome {
    on_host(|runtime| {
        // Two operations, though the draw has no handle of its own.
        let (values, indices) = Tensor::randn_seeded([50], DType::F32, 3)?.sort(0, true)?;
        let first = values.to_vec::<f32>()?;
        let computed = runtime.computed();
        assert_eq!(indices.to_vec::<i64>()?.len(), 50);
        assert_eq!(runtime.computed(), computed);
        assert!(first.is_sorted_by(|a, b| a >= b));
        Ok(())
    })
}

#[test]
fn a_result_that_nobody_holds_is_not_kept() -> Outcome {
    on_host(|runtime| {
        let x = tensor![3.0, 1.0, 2.0];
        let (values, indices) = x.sort(0, false)?;
        drop(indices);
        assert_eq!(values.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
        let (values, indices) = x.sort(0, false)?;
        drop(values);
        assert_eq!(indices.to_vec::<i64>()?, [1, 2, 0]);
        let both = x.sort(0, true)?;
        eval_all(&[&both.1, &both.0])?;
        assert_eq!(both.0.to_vec::<f32>()?, [3.0, 2.0, 1.0]);
        assert_eq!(both.1.to_vec::<i64>()?, [0, 2, 1]);
        assert_eq!(runtime.computed(), 3);
        Ok(())
    })
}

#[test]
fn a_view_of_one_result_keeps_it() -> Outcome {
    on_host(|runtime| {
        let (values, indices) = tensor![[3.0, 1.0], [2.0, 4.0]].sort(1, false)?;
        let column = indices.t()?;
        drop(indices);
        assert_eq!(values.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
        assert_eq!(column.to_vec::<i64>()?, [1, 0, 0, 1]);
        // Behind the sort, no more than a copy.
        assert_eq!(runtime.computed(), 2);
        Ok(())
    })
}

#[test]
fn a_trace_has_one_node_for_all_results() -> Outcome {
    let x = Tensor::placeholder([3], DType::F32)?;
    let (values, indices) = x.sort(0, false)?;
    for outputs in [&[&indices, &values][..], &[&indices]] {
        let trace = Trace::new(&[&x], outputs)?;
        assert_eq!(trace.executable().graph().nodes().len(), 1);
        let results = trace.run(&[tensor![3.0, 1.0, 2.0].storage()?])?;
        assert_eq!(results.len(), outputs.len());
        let indices = Tensor::from_storage(results[0].clone(), [3], DType::I64)?;
        assert_eq!(indices.to_vec::<i64>()?, [1, 2, 0]);
        if let Some(values) = results.get(1) {
            let values = Tensor::from_storage(values.clone(), [3], DType::F32)?;
            assert_eq!(values.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
        }
    }
    Ok(())
}

#[test]
fn a_tracked_result_remembers_the_others() -> Outcome {
    let mut x = tensor![3.0, 1.0, 2.0];
    x.requires_grad_(true)?;
    let (values, indices) = x.sort(0, false)?;
    assert!(values.requires_grad() && !indices.requires_grad());
    drop(indices);
    assert_eq!(values.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    let recorded = values.recorded().expect("a sort");
    assert_eq!((recorded.op.kind(), recorded.result), (OpKind::TopK, 0));
    let [same, indices] = &recorded.results[..] else {
        panic!("two results");
    };
    assert!(same.is_ready() && indices.is_ready() && !same.requires_grad());
    assert_eq!(indices.to_vec::<i64>()?, [1, 2, 0]);
    let square = values.square()?.recorded().expect("a square");
    assert_eq!((square.results.len(), square.result), (1, 0));
    Ok(())
}

#[test]
fn long_histories_of_several_results_are_dropped_without_recursion() -> Outcome {
    let input = Tensor::placeholder([2], DType::F32)?;
    let mut x = input.clone();
    for step in 0..20_000 {
        let (values, indices) = x.sort(0, step % 2 == 0)?;
        x = match step % 3 {
            0 => indices.to_dtype(DType::F32)?,
            _ => values,
        };
    }
    assert!(!x.is_ready());
    Ok(())
}
