use rustorch_ir::DType;
use rustorch_ir::ops::*;
use rustorch_reference::Values;

use crate::{Tensor, assert_floats, double, eval, eval_all, filled, float, int};

const INF: f64 = f64::INFINITY;

fn floats(x: &Tensor) -> &[f64] {
    numbers(&x.values)
}

fn numbers(values: &Values) -> &[f64] {
    match values {
        Values::Float(x) => x,
        other => panic!("{other:?} are not floating-point"),
    }
}

#[test]
fn activations() {
    let x = double([5], &[-3.0, -0.5, 0.0, 1.0, 2.5]);
    for (kind, expected) in [
        (ActivationKind::Relu, [0.0, 0.0, 0.0, 1.0, 2.5]),
        (
            ActivationKind::Sigmoid,
            [
                0.04742587317756678,
                0.3775406687981454,
                0.5,
                0.7310585786300049,
                0.9241418199787566,
            ],
        ),
        (
            ActivationKind::Silu,
            [
                -0.14227761953270035,
                -0.1887703343990727,
                0.0,
                0.7310585786300049,
                2.3103545499468914,
            ],
        ),
        (
            ActivationKind::Gelu,
            [
                -0.00404969409489031,
                -0.15426876936299344,
                0.0,
                0.8413447460685429,
                2.4844758366855597,
            ],
        ),
        (
            ActivationKind::GeluTanh,
            [
                -0.0036373920817729943,
                -0.15428599017485606,
                0.0,
                0.8411919906082768,
                2.484915733910001,
            ],
        ),
    ] {
        assert_floats(
            &eval(Activation { kind }, std::slice::from_ref(&x)),
            &expected,
        );
    }
}

#[test]
fn softmax() {
    let x = double([2, 3], &[1.0, 2.0, -3.0, 0.5, 0.5, 1000.0]);
    let rows = [
        0.2676231541498624,
        0.7274751568004648,
        0.004901689049672921,
        0.0,
        0.0,
        1.0,
    ];
    assert_floats(
        &eval(Softmax { dim: 1, log: false }, std::slice::from_ref(&x)),
        &rows,
    );
    // The softmax of two elements is the sigmoid of their difference.
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let d = [0.5, 1.5, -1003.0];
    let columns: Vec<f64> = d
        .iter()
        .map(|&d| sigmoid(d))
        .chain(d.iter().map(|&d| sigmoid(-d)))
        .collect();
    assert_floats(&eval(Softmax { dim: 0, log: false }, &[x]), &columns);
}

#[test]
fn norms() {
    let x = || filled([2, 3], |i| (i * i) - 4.0);
    let (weight, bias) = (
        double([3], &[1.0, -2.0, 0.5]),
        double([3], &[0.0, 10.0, -1.0]),
    );
    let eps = 0.01;
    let rows: Vec<&[f64]> = [&[-4.0, -3.0, 0.0][..], &[5.0, 12.0, 21.0]].into();
    let (w, b) = (floats(&weight), floats(&bias));
    let mut rms = Vec::new();
    let mut layer = Vec::new();
    for row in &rows {
        let mean_square = row.iter().map(|x| x * x).sum::<f64>() / 3.0;
        let mean = row.iter().sum::<f64>() / 3.0;
        let variance = mean_square - mean * mean;
        for (i, x) in row.iter().enumerate() {
            rms.push(x / (mean_square + eps).sqrt() * w[i]);
            layer.push((x - mean) / (variance + eps).sqrt() * w[i] + b[i]);
        }
    }
    let eps = eps.into();
    assert_floats(&eval(RmsNorm { eps }, &[x(), weight.clone()]), &rms);
    let op = LayerNorm { dims: 1, eps };
    assert_floats(&eval(op, &[x(), weight.clone(), bias.clone()]), &layer);

    let (mean, variance) = (
        double([3], &[1.0, 2.0, 3.0]),
        double([3], &[3.99, 8.99, 15.99]),
    );
    let expected = [
        -2.5,
        10.0 + 10.0 / 3.0,
        -1.375,
        2.0,
        10.0 - 20.0 / 3.0,
        1.25,
    ];
    let op = BatchNorm { eps };
    assert_floats(&eval(op, &[x(), mean, variance, weight, bias]), &expected);

    // Over two dimensions at once, without weights.
    let x = double([1, 2, 2], &[1.0, 3.0, 5.0, 7.0]);
    let op = LayerNorm {
        dims: 2,
        eps: 0.0.into(),
    };
    let unit = 1.0 / 5f64.sqrt();
    assert_floats(&eval(op, &[x]), &[-3.0 * unit, -unit, unit, 3.0 * unit]);
}

/// Two query heads for each of two key heads; two queries, five keys.
fn heads() -> [Tensor; 3] {
    [
        filled([4, 2, 3], f64::sin),
        filled([2, 5, 3], |i| (i * 0.7).cos()),
        filled([2, 5, 2], |i| (i * 1.3 + 1.0).sin()),
    ]
}

fn attention(scale: f64) -> Attention {
    Attention {
        scale: scale.into(),
        causal: false,
        soft_cap: None,
        mask: false,
        past: false,
        window: None,
        log_sum_exp: false,
    }
}

#[test]
fn causal_attention_with_a_past() {
    let op = Attention {
        causal: true,
        past: true,
        ..attention(0.8)
    };
    let expected = [
        0.31505343436732347,
        0.726342066150661,
        -0.1295660652910478,
        -0.5567387286601768,
        0.20620706669677172,
        0.7142894054562463,
        0.00431513072528962,
        -0.4430736489575108,
        0.4846931947936734,
        0.1705612098802915,
        0.03655242466236694,
        0.16849916969551756,
        0.5653947398165446,
        0.2818560635030681,
        -0.10703974728351726,
        -0.08640821504075652,
    ];
    let [q, mut k, mut v] = heads();
    let past = int([1], DType::I32, &[2]);
    assert_floats(
        &eval(op.clone(), &[q.clone(), k.clone(), v.clone(), past.clone()]),
        &expected,
    );
    // The last key is beyond every query: whatever is there does not matter.
    for x in [&mut k, &mut v] {
        let mut values = floats(x).to_vec();
        let head = values.len() / 2;
        for end in [head, 2 * head] {
            values[end - head / 5..end].fill(f64::NAN);
        }
        *x = double(x.ty.shape.clone(), &values);
    }
    assert_floats(&eval(op, &[q, k, v, past]), &expected);
}

#[test]
fn attention_in_a_window() {
    let op = |window| Attention {
        causal: true,
        past: true,
        window,
        ..attention(0.8)
    };
    let [q, mut k, mut v] = heads();
    let past = int([1], DType::I32, &[2]);
    // The queries at 2 and 3 see the keys 1 and 2, and 2 and 3.
    let mask = |seen: [[bool; 5]; 2]| {
        let addend = |sees: &bool| if *sees { 0.0 } else { -INF };
        let values: Vec<f64> = seen.as_flattened().iter().map(addend).collect();
        double([2, 5], &values)
    };
    let seen = mask([
        [false, true, true, false, false],
        [false, false, true, true, false],
    ]);
    let masked = Attention {
        mask: true,
        ..attention(0.8)
    };
    let expected = eval(masked, &[q.clone(), k.clone(), v.clone(), seen]);
    let expected = numbers(&expected);
    let inputs = [q.clone(), k.clone(), v.clone(), past.clone()];
    assert_floats(&eval(op(Some(2)), &inputs), expected);
    let whole = eval(op(None), &inputs);
    assert_floats(&eval(op(Some(4)), &inputs), numbers(&whole));
    // No query sees the first key or the last: whatever is there does not matter.
    for x in [&mut k, &mut v] {
        let mut values = floats(x).to_vec();
        let row = values.len() / 10;
        for key in [0, 4, 5, 9] {
            values[key * row..][..row].fill(f64::NAN);
        }
        *x = double(x.ty.shape.clone(), &values);
    }
    assert_floats(&eval(op(Some(2)), &[q, k, v, past]), expected);
}

#[test]
fn attention_tells_the_total_of_its_weights() {
    let masked = Attention {
        mask: true,
        log_sum_exp: true,
        ..attention(2f64.ln())
    };
    // Scores are 0 and log 2, and log 4 with the mask.
    let q = double([1, 3, 1], &[0.0, 1.0, 1.0]);
    let k = double([1, 2, 1], &[0.0, 1.0]);
    let v = double([1, 2, 1], &[1.0, 7.0]);
    let mask = double([3, 2], &[0.0, 0.0, 0.0, 2f64.ln(), -INF, -INF]);
    let results = eval_all(masked, &[q.clone(), k.clone(), v.clone(), mask]);
    assert_floats(&results[0], &[4.0, 5.8, f64::NAN]);
    assert_floats(&results[1], &[2f64.ln(), 5f64.ln(), -INF]);
    let causal = Attention {
        causal: true,
        log_sum_exp: true,
        ..attention(2f64.ln())
    };
    let results = eval_all(causal, &[q, k, v]);
    assert_floats(&results[1], &[0.0, 3f64.ln(), 3f64.ln()]);
}

#[test]
fn attention_with_capped_scores() {
    let op = Attention {
        soft_cap: Some(1.5.into()),
        ..attention(2.0)
    };
    let expected = [
        0.38853674248894604,
        0.33239780682758224,
        -0.5545414947771001,
        -0.3479523328045558,
        0.27254079500309175,
        0.43609543111858695,
        -0.4578034174907639,
        -0.3187500760656567,
        0.3598374557401932,
        -0.19913111478454357,
        -0.15877712990829312,
        0.36327484932286624,
        0.4602105837970528,
        -0.18728858794519523,
        -0.4046086162663928,
        0.11095107791746397,
    ];
    assert_floats(&eval(op, &heads()), &expected);
}

#[test]
fn attention_with_a_mask() {
    let op = Attention {
        mask: true,
        ..attention(1.0)
    };
    let inf = f64::NEG_INFINITY;
    let mask = double([2, 5], &[0.0, inf, 0.5, -1.0, 0.0, inf, 2.0, 0.0, 0.0, inf]);
    let expected = [
        0.2576446270039076,
        0.6809474567669099,
        -0.42230724283499765,
        -0.955890400396355,
        0.13781409343065473,
        0.7465148110423108,
        -0.4049536759696498,
        -0.9465779371703236,
        0.5017825051133424,
        0.22268112443390833,
        -0.5522930997669406,
        -0.4905910410667569,
        0.5542124353109747,
        0.2543365649230851,
        -0.6645288832331757,
        -0.663268432348165,
    ];
    let [q, k, v] = heads();
    assert_floats(&eval(op, &[q, k, v, mask]), &expected);
}

const TURNED: [usize; 2] = [2, 10];

/// The positions 3 and 1000 of eight of ten features, and what they should become.
#[track_caller]
fn check_rope(op: &Rope, factors: Option<[f64; 4]>, expected: &[f64; 16]) {
    let x = filled(TURNED, |i| (i - 7.0) / 4.0);
    let positions = [3, 1000];
    let mut inputs = vec![x.clone(), int([2], DType::I32, &positions)];
    inputs.extend(factors.map(|f| float([4], DType::F32, &f)));
    let (first, second) = expected.split_at(8);
    let untouched = |row: usize| &floats(&x)[row * 10 + 8..(row + 1) * 10];
    let expected = [first, untouched(0), second, untouched(1)].concat();
    assert_floats(&eval(op.clone(), &inputs), &expected);

    // The frequencies that fused kernels get give the same result.
    let factors = factors.map(|f| f.map(|f| f as f32));
    let (frequencies, magnitude) = op.frequencies(factors.as_ref().map(|f| &f[..]));
    let mut turned = floats(&x).to_vec();
    for (row, &position) in positions.iter().enumerate() {
        for (i, frequency) in frequencies.iter().enumerate() {
            let (a, b) = match op.layout {
                RopeLayout::Interleaved => (2 * i, 2 * i + 1),
                RopeLayout::Halves => (i, i + 4),
            };
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            let [p, q] = [turned[row * 10 + a], turned[row * 10 + b]].map(|x| x * magnitude);
            turned[row * 10 + a] = p * cos - q * sin;
            turned[row * 10 + b] = p * sin + q * cos;
        }
    }
    assert_floats(&rustorch_reference::Values::Float(turned), &expected);
}

#[test]
fn rope_with_scaled_positions() {
    let op = Rope {
        dims: 8,
        layout: RopeLayout::Interleaved,
        base: 10000.0.into(),
        scaling: RopeScaling::Linear { factor: 0.5.into() },
    };
    let expected = [
        1.3724523769876016,
        -1.8517220290586498,
        -1.0865257149464536,
        -1.1755687435280413,
        -0.7424159078288553,
        -0.5111933291844256,
        -0.24999971875005272,
        -0.0003749998593750158,
        -0.19511514975113237,
        -1.2346781274233352,
        1.5997698161710348,
        1.1194804756082593,
        2.414257373886923,
        -1.110793109734034,
        0.7759969177428312,
        3.272663866585389,
    ];
    check_rope(&op, None, &expected);
}

#[test]
fn rope_of_halves_with_factors() {
    let op = Rope {
        dims: 8,
        layout: RopeLayout::Halves,
        base: 10000.0.into(),
        scaling: RopeScaling::NONE,
    };
    let expected = [
        1.8383268750956798,
        -1.4084375506672637,
        -1.2480898614928702,
        -0.9999999296875008,
        0.4955343583455665,
        -0.7185427376784199,
        -0.2593678808925811,
        -0.0003749999912109376,
        -1.0252548887129773,
        1.489715735899971,
        -2.347991843667569,
        1.1766096673809243,
        1.604323038907732,
        1.667557203280298,
        -1.054482954850655,
        2.667506268151164,
    ];
    check_rope(&op, Some([1.0, 2.0, 4.0, 8.0]), &expected);
}

/// Numbers of the formulas of ggml's `rope_yarn` and `ggml_rope_yarn_corr_dims`.
#[test]
fn yarn() {
    let long = Rope {
        dims: 8,
        layout: RopeLayout::Halves,
        base: 10000.0.into(),
        scaling: RopeScaling::Yarn {
            factor: 0.25.into(),
            extrapolation: 1.0.into(),
            attention: 1.5.into(),
            beta_fast: 32.0.into(),
            beta_slow: 1.0.into(),
            original_context: 4096,
        },
    };
    let expected = [
        3.1397596397695633,
        -2.1951260530952914,
        -2.1265494038764294,
        -1.7079436738087128,
        0.8463450105256929,
        -1.5729287000413463,
        -0.4669385802514722,
        -0.0012809579955361677,
        -1.751078093709476,
        3.202480950162349,
        2.2612582991740227,
        1.4258920950252183,
        2.7400941556994756,
        2.08074071730002,
        3.769923219119192,
        4.770948985293764,
    ];
    check_rope(&long, None, &expected);
    let mixed = Rope {
        dims: 8,
        layout: RopeLayout::Interleaved,
        base: 100.0.into(),
        scaling: RopeScaling::Yarn {
            factor: 0.125.into(),
            extrapolation: 0.75.into(),
            attention: 1.0.into(),
            beta_fast: 8.0.into(),
            beta_slow: 1.0.into(),
            original_context: 512,
        },
    };
    let expected = [
        2.7731006528395796,
        -0.24806451688051245,
        -0.29832009070676146,
        -1.910503438868015,
        -0.7409254022884988,
        -0.7978545766048898,
        -0.3017070614468299,
        -0.012977540113852137,
        -1.5051880166116456,
        0.11957517094236747,
        -2.281231245111224,
        0.5990940011883372,
        -2.9082787516656534,
        -1.3590488685858912,
        -3.4827993157427755,
        2.0920101909665156,
    ];
    check_rope(&mixed, None, &expected);
}

#[test]
fn norms_of_batches_and_their_gradients() {
    let eps = 0.0.into();
    // Channels 1 3 5 7 and 0 0 2 2.
    let x = || double([2, 2, 2], &[1.0, 3.0, 0.0, 0.0, 5.0, 7.0, 2.0, 2.0]);
    let (weight, bias) = (double([2], &[2.0, 3.0]), double([2], &[10.0, -1.0]));
    let root = 5f64.sqrt();
    let normed = |x: f64| 2.0 * (x - 4.0) / root + 10.0;
    let op = BatchNormTrain {
        eps,
        adds: false,
        relu: true,
    };
    let results = eval_all(op, &[x(), weight.clone(), bias]);
    let [a, b, c, d] = [1.0, 3.0, 5.0, 7.0].map(normed);
    assert_floats(&results[0], &[a, b, 0.0, 0.0, c, d, 2.0, 2.0]);
    assert_floats(&results[1], &[5.0, 1.0]);
    assert_floats(&results[2], &[4.0, 1.0]);

    let ct = double([2, 2, 2], &[0.5, 0.0, 7.0, 1.0, 0.0, 0.0, 1.0, 5.0]);
    let other = double([2, 2, 2], &[0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let positive = double([2, 2, 2], &[1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
    let (var, mean) = (double([2], &[5.0, 1.0]), double([2], &[4.0, 1.0]));
    let op = BatchNormBackward {
        eps,
        sums: true,
        relu: true,
        by_bias: false,
        also: true,
    };
    let results = eval_all(op, &[x(), ct, var, mean, weight, other, positive]);
    let [a, b, c, d] = [0.3, -0.4, -0.1, 0.2].map(|g| g * 2.0 / root);
    assert_floats(&results[0], &[a, b, -1.5, 1.5, c, d, 1.5, -1.5]);
    assert_floats(&results[1], &[-3.0 / root, 0.0]);
    assert_floats(&results[2], &[1.0, 2.0]);
    let of_normed = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0];
    assert_floats(&results[3], &of_normed);
}

#[test]
fn maxima_of_images_with_their_channels_last_and_their_gradient() {
    let pool = Pool2d {
        kind: PoolKind::Max,
        kernel: [2, 2],
        stride: [1, 1],
        padding: [0, 0],
        dilation: [1, 1],
        indices: None,
    };
    let op = ChannelsLast {
        op: Box::new(pool.into()),
    };
    let x = double([1, 2, 2, 2], &[1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0]);
    assert_floats(&eval(op, &[x]), &[4.0, 8.0]);

    let op = MaxPool2dBackward {
        kernel: [2, 2],
        stride: [1, 1],
        padding: [0, 0],
        dilation: [1, 1],
        sides: [2, 3],
    };
    let (index, ct) = (
        int([1, 1, 1, 2], DType::I64, &[4, 4]),
        double([1, 1, 1, 2], &[2.0, 3.0]),
    );
    assert_floats(
        &eval(op.clone(), &[index, ct]),
        &[0.0, 0.0, 0.0, 0.0, 5.0, 0.0],
    );
    // The same places, as numbers within their windows.
    let (index, ct) = (
        int([1, 1, 1, 2], DType::U8, &[3, 2]),
        double([1, 1, 1, 2], &[2.0, 3.0]),
    );
    assert_floats(&eval(op, &[index, ct]), &[0.0, 0.0, 0.0, 0.0, 5.0, 0.0]);
    // These windows begin in the padding.
    let op = MaxPool2dBackward {
        kernel: [3, 3],
        stride: [2, 2],
        padding: [1, 1],
        dilation: [1, 1],
        sides: [2, 3],
    };
    let (index, ct) = (
        int([1, 1, 1, 2], DType::U8, &[5, 6]),
        double([1, 1, 1, 2], &[2.0, 3.0]),
    );
    assert_floats(&eval(op, &[index, ct]), &[0.0, 2.0, 0.0, 0.0, 3.0, 0.0]);
}
