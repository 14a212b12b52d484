//! Warnings, and mistakes that are printed.

use rustorch_ir::DType;
use rustorch_tensor::nn::Reduction;
use rustorch_tensor::{RusTorchResult, Tensor, tensor};
use rustorch_testing::warnings;

use crate::Outcome;

/// A loss of two tensors.
type Loss = fn(&Tensor, &Tensor) -> RusTorchResult<Tensor>;

const LOSSES: [(&str, Loss); 5] = [
    ("mse_loss", |x, y| x.mse_loss(y, None, Reduction::Mean)),
    ("l1_loss", |x, y| x.l1_loss(y, None, Reduction::Sum)),
    ("smooth_l1_loss", |x, y| {
        x.smooth_l1_loss(y, 1.0, Reduction::None)
    }),
    ("smooth_l1_loss", |x, y| {
        x.smooth_l1_loss(y, 0.0, Reduction::None)
    }),
    ("huber_loss", |x, y| {
        x.huber_loss(y, 1.0, None, Reduction::Mean)
    }),
];

#[test]
fn losses_of_shapes_that_broadcast_warn_once_for_each_line() -> Outcome {
    let (x, y) = (tensor![[1.0], [2.0], [3.0]], tensor![1.0, 2.0, 3.0]);
    for (name, loss) in LOSSES {
        let (result, warned) = warnings(|| {
            loss(&x, &x)?;
            loss(&x, &y)?;
            loss(&x, &y)
        });
        assert_eq!(warned.len(), 1, "{name}: {warned:?}");
        let place = format!("{name} at {}:", file!());
        let begins = warned[0].starts_with(&place);
        let said = "the target's shape [3] is not the input's [3, 1]: both broadcast";
        assert!(begins && warned[0].contains(said), "{}", warned[0]);
        // The result is PyTorch's all the same.
        assert!([0, 2].contains(&result?.rank()), "{name}");
    }
    let (wrong, warned) = warnings(|| tensor![1.0, 2.0].mse_loss(&y, None, Reduction::Mean));
    assert!(wrong.is_err() && warned.is_empty(), "{warned:?}");
    Ok(())
}

/// A call that may be warned of.
type Call<'a> = &'a dyn Fn() -> Outcome;

/// Calls that PyTorch 2.15 warns of, and the same without what it warns of.
#[test]
fn calls_that_are_rarely_meant_are_warned_of() -> Outcome {
    let x = tensor![[1.0], [2.0]];
    let z = Tensor::complex(&x, &x)?;
    let leaf = x.detach().requires_grad_(true)?.clone();
    let (made, kept) = (leaf.mul(2)?, leaf.mul(2)?);
    kept.retain_grad()?;
    let calls: [(&str, Call<'_>, Call<'_>); 6] = [
        ("var", &|| x.var(1, 1, false).map(drop), &|| {
            x.var(1, 0, false).map(drop)
        }),
        ("std", &|| z.std(0, 2, false).map(drop), &|| {
            z.std(0, 1, false).map(drop)
        }),
        (
            "std_mean",
            &|| x.std_mean(None, 3, false).map(drop),
            &|| x.std_mean(None, 1, false).map(drop),
        ),
        (
            "kl_div",
            &|| x.kl_div(&x, false, Reduction::Mean).map(drop),
            &|| x.kl_div_batchmean(&x, false).map(drop),
        ),
        ("to_dtype", &|| z.to_dtype(DType::F64).map(drop), &|| {
            z.to_dtype(DType::Complex128).map(drop)
        }),
        (
            "grad",
            &|| {
                assert!(made.grad().is_none());
                Ok(())
            },
            &|| {
                assert!(kept.grad().is_none() && leaf.grad().is_none() && x.grad().is_none());
                Ok(())
            },
        ),
    ];
    for (name, warned_of, meant) in calls {
        let (result, warned) = warnings(|| warned_of().and_then(|()| warned_of()));
        let place = format!("{name} at {}:", file!());
        assert!(
            result.is_ok() && warned.len() == 1 && warned[0].starts_with(&place),
            "{name}: {warned:?}"
        );
        let (result, warned) = warnings(meant);
        assert!(result.is_ok() && warned.is_empty(), "{name}: {warned:?}");
    }
    Ok(())
}

/// Mistakes that only the elements show.
fn mistakes() -> Vec<(&'static str, RusTorchResult<Tensor>)> {
    let (x, far) = (tensor![[1.0, 2.0], [3.0, 4.0]], tensor![0, 7]);
    let indices = tensor![[0, 7], [1, 0]];
    vec![
        ("index_select", x.index_select(0, &far)),
        ("embedding", x.embedding(&far)),
        ("i", x.i(&far)),
        ("gather", x.gather(1, &indices)),
        ("scatter", x.scatter(1, &indices, &x)),
        ("take", x.take(&far)),
        ("index_add", x.index_add(0, &far, &x, 1)),
        ("one_hot", far.one_hot(3)),
        ("nll_loss", x.nll_loss(&far, None, -100, Reduction::Mean)),
        ("cross_entropy", x.cross_entropy(&far, &Default::default())),
        ("bernoulli", x.bernoulli()),
        ("floor_divide", far.floor_divide(tensor![0, 0])),
    ]
}

#[test]
fn mistakes_in_data_are_printed_as_a_line_with_their_place() {
    for (method, result) in mistakes() {
        let x = result.expect(method);
        let place = format!("tensor(<{method} at {}:", file!());
        for text in [format!("{x}"), format!("{x:?}"), format!("{:?}", Some(&x))] {
            let line = text.trim_start_matches("Some(");
            assert!(line.starts_with(&place) && !text.contains('\n'), "{text}");
            assert!(line.contains(&format!("size={:?}", x.shape())), "{text}");
        }
    }
}

#[test]
fn operators_that_failed_are_printed_with_their_line() {
    let mut x = tensor![1.0, 2.0];
    let line = line!() + 1;
    x += tensor![1.0, 2.0, 3.0];
    let place = format!("tensor(<add_assign at {}:{line}:", file!());
    assert!(x.to_string().starts_with(&place), "{x}");
}

#[test]
fn a_placeholder_says_how_its_value_is_read() -> Outcome {
    let y = Tensor::placeholder(2, DType::F32)?.mul(2)?;
    let said = y.sum(None, false)?.item().unwrap_err().to_string();
    assert!(
        said.starts_with("item at ") && said.contains("read what Trace::run gives"),
        "{said}"
    );
    Ok(())
}
