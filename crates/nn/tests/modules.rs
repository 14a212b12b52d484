//! Modules as trees of tensors: names, state dictionaries, modes, initialisers.

extern crate rustorch_nn as rustorch;

use rustorch::nn::utils::rnn::{
    pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence, unpad_sequence,
};
use rustorch::nn::{self, Forward, Module, Visit, init, parameter};
use rustorch::optim::swa_utils::{AveragedModel, Averaging};
use rustorch::optim::{SGD, SGDOptions};
use rustorch_files::Tensors;
use rustorch_ir::DType;
use rustorch_tensor::autograd::GradOptions;
use rustorch_tensor::{
    RusTorchResult, Tensor, assert_close, autograd, manual_seed, no_grad, tensor,
};

#[derive(Module)]
struct Block {
    conv: nn::Conv2d,
    norm: nn::BatchNorm2d,
    dropout: nn::Dropout,
    #[module(skip)]
    factor: f64,
}

#[derive(Module)]
struct Net {
    blocks: nn::ModuleList<Block>,
    head: Option<nn::Linear>,
    scales: nn::ParameterList,
}

fn net() -> RusTorchResult<Net> {
    let block = || -> RusTorchResult<Block> {
        Ok(Block {
            conv: nn::Conv2d::new(2, 2, 3, nn::ConvOptions::default().padding(1))?,
            norm: nn::BatchNorm2d::new(2)?,
            dropout: nn::Dropout::default(),
            factor: 0.5,
        })
    };
    Ok(Net {
        blocks: vec![block()?, block()?],
        head: Some(nn::Linear::new(2, 3)?.without_bias()),
        scales: vec![parameter(tensor![1.0, 2.0])?],
    })
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let mut x = x.clone();
        for block in &self.blocks {
            let y = block.norm.forward(&block.conv.forward(&x)?)?;
            x = block.dropout.forward(&y.relu()?)?.mul(block.factor)?;
        }
        let x = x.mean((-1, -2), false)?.mul(&self.scales[0])?;
        self.head
            .as_ref()
            .map_or(Ok(x.clone()), |head| head.forward(&x))
    }
}

#[test]
fn names_are_pytorchs() -> RusTorchResult<()> {
    let net = net()?;
    let state = net.state_dict();
    let names: Vec<&str> = state.names().collect();
    let block = |i: usize| {
        [
            "conv.weight",
            "conv.bias",
            "norm.weight",
            "norm.bias",
            "norm.running_mean",
            "norm.running_var",
            "norm.num_batches_tracked",
        ]
        .map(|name| format!("blocks.{i}.{name}"))
    };
    let expected = [block(0), block(1)].concat();
    assert_eq!(names[..14], expected[..]);
    assert_eq!(names[14..], ["head.weight", "scales.0"]);
    assert_eq!(net.named_parameters().len(), 4 + 4 + 2);
    assert_eq!(net.named_buffers().len(), 6);
    assert!(
        net.parameters()
            .iter()
            .all(|p| p.requires_grad() && p.is_leaf())
    );
    assert!(net.buffers().iter().all(|b| !b.requires_grad()));
    Ok(())
}

#[test]
fn a_shared_weight_is_one_parameter() -> RusTorchResult<()> {
    let layer = nn::Linear::new(2, 2)?;
    layer.weight.eval()?;
    let tied = nn::sequential![nn::share(&layer), nn::ReLU, layer];
    let names: Vec<String> = tied
        .named_parameters()
        .into_iter()
        .map(|(n, _)| n)
        .collect();
    assert_eq!(names[0], "0.weight");
    assert!(!names.contains(&"2.weight".to_owned()));
    assert_eq!(tied.state_dict().len(), 4);
    Ok(())
}

#[derive(Module)]
struct Rows {
    rows: nn::ParameterList,
}

#[test]
fn parts_of_one_memory_are_parameters_of_their_own() -> RusTorchResult<()> {
    let rows = tensor![[1.0, 2.0], [3.0, 4.0]];
    rows.eval()?;
    let rows = [
        parameter(rows.select(0, 0)?)?,
        parameter(rows.select(0, 1)?)?,
    ];
    let net = Rows {
        rows: rows.to_vec(),
    };
    assert_eq!(net.parameters().len(), 2);
    let mut sgd = SGD::new(net.named_parameters(), SGDOptions::default().lr(0.5))?;
    net.rows[0]
        .add(&net.rows[1].mul(2)?)?
        .sum_all()?
        .backward()?;
    sgd.step()?;
    assert_eq!(net.rows[0].to_vec::<f32>()?, [0.5, 1.5]);
    assert_eq!(net.rows[1].to_vec::<f32>()?, [2.0, 3.0]);
    Ok(())
}

#[derive(Module)]
struct Tied {
    embedding: nn::Embedding,
    head: nn::Linear,
}

#[test]
fn shared_weights_stay_shared() -> RusTorchResult<()> {
    let embedding = nn::Embedding::new(5, 3)?;
    let mut head = nn::Linear::new(3, 5)?.without_bias();
    head.weight = embedding.weight.clone();
    let mut net = Tied { embedding, head };
    // Also before anything is computed.
    assert_eq!(net.parameters().len(), 1);
    let copy = net.clone();
    assert_eq!(copy.parameters().len(), 1);
    assert_ne!(copy.parameters()[0].id(), net.parameters()[0].id());
    // Averages have it once, too.
    let mut averages = AveragedModel::new(&net, Averaging::Exponential(0.5))?;
    averages.update_parameters(&net)?;
    let before = net.head.weight.detach().add(0)?;
    before.eval()?;
    no_grad(|| net.parameters()[0].add_(2).map(drop))?;
    averages.update_parameters(&net)?;
    assert_close!(
        averages.module.head.weight.detach(),
        before.add(1)?,
        1e-5,
        1e-6
    );
    net.to_dtype(DType::F64)?;
    assert_eq!(net.named_parameters().len(), 1);
    assert_eq!(net.state_dict().len(), 2);
    Ok(())
}

#[test]
fn modules_that_are_no_clones_are_averaged_in_others() -> RusTorchResult<()> {
    let net = || RusTorchResult::Ok(nn::sequential![nn::Linear::new(2, 1)?, nn::ReLU]);
    let model = net()?;
    let mut averages = AveragedModel::with_module(net()?, &model, Averaging::Equal)?;
    let weight = |net: &nn::Sequential| net.parameters()[0].detach();
    let first = weight(&model).add(0)?;
    assert!(weight(&averages.module).equal(&first)?);
    averages.update_parameters(&model)?;
    no_grad(|| model.parameters()[0].add_(4).map(drop))?;
    averages.update_parameters(&model)?;
    assert_close!(weight(&averages.module), first.add(2)?, 1e-5, 1e-6);
    let other = nn::sequential![nn::Linear::new(3, 1)?];
    assert!(AveragedModel::with_module(other, &model, Averaging::Equal).is_err());
    Ok(())
}

#[test]
fn parameters_are_frozen_one_by_one() -> RusTorchResult<()> {
    let net = nn::sequential![nn::Linear::new(2, 2)?, nn::Linear::new(2, 1)?];
    for (name, mut parameter) in net.named_parameters() {
        parameter.requires_grad_(name.starts_with("1."))?;
    }
    net.forward(&tensor![[1.0, 2.0]])?.sum_all()?.backward()?;
    let parameters = net.named_parameters();
    let trained = parameters
        .iter()
        .filter(|(_, parameter)| parameter.grad().is_some());
    let names: Vec<&str> = trained.map(|(name, _)| &name[..]).collect();
    assert_eq!(names, ["1.weight", "1.bias"]);
    Ok(())
}

/// Sequences `[length, 3]` of these lengths.
fn sequences(lengths: &[usize]) -> RusTorchResult<Vec<Tensor>> {
    let sequence = |&length: &usize| Tensor::randn([length, 3], DType::F32);
    lengths.iter().map(sequence).collect()
}

#[test]
fn sequences_are_packed_and_padded() -> RusTorchResult<()> {
    let texts = [
        tensor![1, 2],
        tensor![3, 4, 5, 6],
        Tensor::from_slice(&[7i64], 1)?,
    ];
    let rows = pad_sequence(&texts, true, -1)?;
    let expected = [[1, 2, -1, -1], [3, 4, 5, 6], [7, -1, -1, -1]];
    assert_eq!(rows.to_vec2::<i64>()?, expected);
    assert!(pad_sequence(&texts, false, -1)?.equal(&rows.t()?)?);
    let lengths = [2, 4, 1];
    for packed in [
        pack_sequence(&texts)?,
        pack_padded_sequence(&rows, &lengths, true)?,
        pack_padded_sequence(&rows.t()?, &lengths, false)?,
    ] {
        assert_eq!(packed.data().to_vec::<i64>()?, [3, 1, 7, 4, 2, 5, 6]);
        assert_eq!(packed.batch_sizes(), [3, 2, 1, 1]);
        assert_eq!(packed.sorted_indices(), [1, 0, 2]);
        assert_eq!(packed.unsorted_indices(), [1, 0, 2]);
        let (padded, found) = pad_packed_sequence(&packed, true, -1, None)?;
        assert_eq!(
            (padded.to_vec2::<i64>()?, found),
            (rows.to_vec2()?, lengths.to_vec())
        );
        let (padded, _) = pad_packed_sequence(&packed, false, 0, Some(5))?;
        assert_eq!(padded.shape(), [5, 3]);
        assert!(pad_packed_sequence(&packed, false, 0, Some(3)).is_err());
    }
    let parts = unpad_sequence(&rows, &lengths, true)?;
    for (part, text) in parts.iter().zip(&texts) {
        assert!(part.equal(text)?);
    }
    let mistakes = [
        pad_sequence(&[], true, 0).err(),
        pack_padded_sequence(&rows, &[2, 4], true).err(),
        pack_padded_sequence(&rows, &[2, 5, 1], true).err(),
        pack_padded_sequence(&rows, &[2, 4, 0], true).err(),
        pack_padded_sequence(&tensor![1, 2], &[2], true).err(),
        pack_sequence(&[Tensor::zeros([0, 2], DType::F32)?]).err(),
    ];
    let expected = [
        "pad_sequence: expected at least one sequence, got none",
        "expected 3 lengths of up to 4, got [2, 4]",
        "expected 3 lengths of up to 4, got [2, 5, 1]",
        "expected sequences of at least one element, got [2, 4, 0]",
        "expected a tensor [time, n, …], got [2]",
        "pack_sequence: expected sequences of at least one element, got [0]",
    ];
    for (mistake, expected) in mistakes.into_iter().zip(expected) {
        let mistake = mistake.expect("refused").to_string();
        let (name, what) = expected.split_once(": ").unwrap_or(("", expected));
        assert!(
            mistake.starts_with(name) && mistake.ends_with(what),
            "{mistake}"
        );
    }
    Ok(())
}

#[test]
fn packed_sequences_go_each_to_its_end() -> RusTorchResult<()> {
    manual_seed(3);
    let lengths = [2, 5, 1, 5, 3];
    let texts = sequences(&lengths)?;
    let packed = pack_sequence(&texts)?;
    let options = nn::RNNOptions::default().num_layers(2).bidirectional(true);
    let lstm = nn::LSTM::new(3, 4, options.proj_size(2))?;
    let (h, c) = (
        Tensor::randn([4, 5, 2], DType::F32)?,
        Tensor::randn([4, 5, 4], DType::F32)?,
    );
    let (output, (last_h, last_c)) = lstm.forward_packed(&packed, Some((&h, &c)))?;
    let (output, _) = pad_packed_sequence(&output, false, 9, None)?;
    let gru = nn::GRU::new(3, 4, options)?;
    let (of_gru, last) = gru.forward_packed(&packed, None)?;
    let (of_gru, _) = pad_packed_sequence(&of_gru, false, 0, None)?;
    for (i, text) in texts.iter().enumerate() {
        let (first_h, first_c) = (h.select(1, i)?, c.select(1, i)?);
        let (alone, (alone_h, alone_c)) = lstm.forward(text, Some((&first_h, &first_c)))?;
        let row = output.select(1, i)?;
        assert_close!(row.narrow(0, 0, lengths[i])?, alone, 1e-5, 1e-6);
        let rest = row.narrow(0, lengths[i], 5 - lengths[i])?;
        assert!(rest.eq(9)?.all(None, false)?.to_scalar::<bool>()?);
        assert_close!(last_h.select(1, i)?, alone_h, 1e-5, 1e-6);
        assert_close!(last_c.select(1, i)?, alone_c, 1e-5, 1e-6);
        let (alone, alone_last) = gru.forward(text, None)?;
        assert_close!(
            of_gru.select(1, i)?.narrow(0, 0, lengths[i])?,
            alone,
            1e-5,
            1e-6
        );
        assert_close!(last.select(1, i)?, alone_last, 1e-5, 1e-6);
    }
    // Gradients reach every element.
    output.sum_all()?.backward()?;
    assert!(
        lstm.parameters()
            .iter()
            .all(|parameter| parameter.grad().is_some())
    );
    let problem = lstm
        .forward_packed(&packed, Some((&h, &h)))
        .unwrap_err()
        .to_string();
    assert!(
        problem.contains("expected states [4, 5, 4], got [4, 5, 2]"),
        "{problem}"
    );
    Ok(())
}

/// The states of each text by steps of cells, as layers have them. Steps go from the first time on, or from the last.
fn by_cells(
    cell: &nn::LSTMCell,
    text: &Tensor,
    first: (&Tensor, &Tensor),
    reverse: bool,
) -> RusTorchResult<(Tensor, (Tensor, Tensor))> {
    let length = text.size(0)?;
    let mut states = (first.0.clone(), first.1.clone());
    let mut all = Vec::new();
    for step in 0..length {
        let at = if reverse { length - 1 - step } else { step };
        states = cell.forward(&text.select(0, at)?, Some((&states.0, &states.1)))?;
        all.push(states.0.clone());
    }
    if reverse {
        all.reverse();
    }
    Ok((Tensor::stack(&all, 0)?, states))
}

#[test]
fn all_steps_of_lstm_are_those_of_cells_and_so_are_gradients() -> RusTorchResult<()> {
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 2e-5)] {
        manual_seed(11);
        let lengths = [2, 5, 1, 4];
        let texts: Vec<Tensor> = sequences(&lengths)?
            .iter()
            .map(|text| text.to_dtype(dtype))
            .collect::<RusTorchResult<_>>()?;
        // More columns than a vector has.
        let hidden = 37;
        let options = nn::RNNOptions::default().bidirectional(true);
        let mut lstm = nn::LSTM::new(3, hidden, options)?;
        lstm.to_dtype(dtype)?;
        let state = || Tensor::randn([2, 4, hidden], dtype);
        let (h, c) = (
            state()?.requires_grad_(true)?,
            state()?.requires_grad_(true)?,
        );
        let packed = pack_sequence(&texts)?;
        let (output, (last_h, last_c)) = lstm.forward_packed(&packed, Some((&h, &c)))?;
        let (output, _) = pad_packed_sequence(&output, false, 0, None)?;
        let wanted: Vec<Tensor> = lstm
            .parameters()
            .into_iter()
            .chain([h.clone(), c.clone()])
            .collect();
        let wanted: Vec<&Tensor> = wanted.iter().collect();
        // A number of each result that tells them apart.
        let sum = |x: &Tensor, y: &Tensor, z: &Tensor| {
            let of = |x: &Tensor| x.mul(&x.sin()?)?.sum_all();
            of(x)?.add(&of(y)?)?.add(&of(z)?)
        };
        let gradients = |loss: &Tensor| autograd::grad(&[loss], &wanted);
        let mut expected = Vec::new();
        let (mut expected_h, mut expected_c) = (Vec::new(), Vec::new());
        for reverse in [false, true] {
            let named = |what: &str| {
                let name = format!("{what}_l0{}", if reverse { "_reverse" } else { "" });
                let found = lstm
                    .named_parameters()
                    .into_iter()
                    .find(|(known, _)| *known == name);
                found.expect("a parameter").1
            };
            let cell = nn::LSTMCell {
                weight_ih: named("weight_ih"),
                weight_hh: named("weight_hh"),
                bias_ih: Some(named("bias_ih")),
                bias_hh: Some(named("bias_hh")),
            };
            let at = usize::from(reverse);
            let mut rows = Vec::new();
            let (mut hs, mut cs) = (Vec::new(), Vec::new());
            for (i, text) in texts.iter().enumerate() {
                let (first_h, first_c) = (
                    h.select(0, at)?.select(0, i)?,
                    c.select(0, at)?.select(0, i)?,
                );
                let (row, (last_h, last_c)) = by_cells(&cell, text, (&first_h, &first_c), reverse)?;
                rows.push(row);
                hs.push(last_h);
                cs.push(last_c);
            }
            expected.push(pad_sequence(&rows, false, 0)?);
            expected_h.push(Tensor::stack(&hs, 0)?);
            expected_c.push(Tensor::stack(&cs, 0)?);
        }
        let expected = Tensor::cat(&expected, -1)?;
        let (expected_h, expected_c) = (
            Tensor::stack(&expected_h, 0)?,
            Tensor::stack(&expected_c, 0)?,
        );
        assert_close!(output, expected, tolerance, tolerance);
        assert_close!(last_h, expected_h, tolerance, tolerance);
        assert_close!(last_c, expected_c, tolerance, tolerance);
        let found = gradients(&sum(&output, &last_h, &last_c)?)?;
        let expected = gradients(&sum(&expected, &expected_h, &expected_c)?)?;
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert_close!(found, expected, 10.0 * tolerance, 10.0 * tolerance);
        }
    }
    Ok(())
}

/// A penalty on gradients goes through the whole layer as through its cells: PyTorch 2.15 on the CPU has these, too.
#[test]
fn second_derivatives_of_lstm_are_those_of_cells() -> RusTorchResult<()> {
    manual_seed(3);
    for sizes in [vec![4, 4, 4], vec![4, 2]] {
        let lstm = nn::LSTM::new(3, 5, nn::RNNOptions::default())?;
        let wanted = lstm.parameters();
        let [ih, hh, bias_ih, bias_hh] = <[Tensor; 4]>::try_from(wanted.clone()).expect("four");
        let cell = nn::LSTMCell {
            weight_ih: ih,
            weight_hh: hh,
            bias_ih: Some(bias_ih),
            bias_hh: Some(bias_hh),
        };
        let texts: Vec<Tensor> = (sizes.iter())
            .map(|length| Tensor::randn([*length, 3], DType::F32)?.requires_grad_(true))
            .collect::<RusTorchResult<_>>()?;
        let wanted: Vec<&Tensor> = wanted.iter().chain(&texts).collect();
        let penalty = |loss: &Tensor| -> RusTorchResult<Vec<Tensor>> {
            let options = GradOptions::default().create_graph(true);
            let mut sum = Tensor::scalar(0.0, DType::F32)?;
            for slope in autograd::grad_with(&[loss], &wanted, &options)? {
                let slope = slope.expect("a gradient");
                sum = sum.add(&slope.mul(&slope.sin()?)?.sum_all()?)?;
            }
            autograd::grad(&[&sum], &wanted)
        };
        let loss = |all: &Tensor, h: &Tensor, c: &Tensor| {
            let [a, b, c] = [all, h, c].map(|x| x.square()?.sum_all());
            a?.add(&b?)?.add(&c?)
        };
        let (all, (h, c)) = lstm.forward_packed(&pack_sequence(&texts)?, None)?;
        let (all, _) = pad_packed_sequence(&all, false, 0, None)?;
        let found = penalty(&loss(&all, &h, &c)?)?;
        let zeros = Tensor::zeros(5, DType::F32)?;
        let mut parts = Vec::new();
        for text in &texts {
            let (all, (h, c)) = by_cells(&cell, text, (&zeros, &zeros), false)?;
            parts.push(loss(&all, &h, &c)?);
        }
        let expected = penalty(&Tensor::stack(&parts, 0)?.sum_all()?)?;
        for (found, expected) in found.iter().zip(&expected) {
            assert_close!(found, expected, 1e-4, 1e-4);
        }
    }
    Ok(())
}

#[test]
fn state_goes_through_files() -> Result<(), Box<dyn std::error::Error>> {
    manual_seed(1);
    let folder = tempfile::tempdir()?;
    let x = Tensor::rand([3, 2, 4, 4], DType::F32)?;
    let mut model = net()?;
    // Statistics that are not the first ones.
    model.forward(&x)?.eval()?;
    model.eval();
    let y = model.forward(&x)?;
    for name in ["model.safetensors", "model.pt"] {
        let path = folder.path().join(name);
        rustorch_files::save(&path, &model.state_dict())?;
        let mut other = net()?;
        let parameter = other.blocks[0].conv.weight.clone();
        other.load_state_dict(&rustorch_files::load(&path)?, true)?;
        other.eval();
        assert_close!(other.forward(&x)?, y, 0.0, 0.0);
        // Written in place: handles from before show it.
        assert_close!(
            parameter.detach(),
            model.blocks[0].conv.weight.detach(),
            0.0,
            0.0
        );
    }
    Ok(())
}

#[test]
fn strict_loading_says_all_that_is_wrong() -> RusTorchResult<()> {
    let mut layer = nn::sequential![nn::Linear::new(2, 3)?, nn::Linear::new(3, 1)?];
    let before = layer
        .state_dict()
        .get("0.weight")
        .unwrap()
        .to_vec::<f32>()?;
    let mut state = Tensors::new();
    state.insert("0.weight", Tensor::ones([3, 2], DType::F32)?);
    state.insert("0.bias", Tensor::ones(2, DType::F32)?);
    state.insert("2.weight", Tensor::ones(1, DType::F32)?);
    let error = layer.load_state_dict(&state, true).unwrap_err().to_string();
    let expected = "expected a tensor for each of the module's parameters and buffers, got none for \
                    1.weight, 1.bias; unknown ones 2.weight; 0.bias [2] in place of [3]";
    assert!(error.ends_with(expected), "{error}");
    // Nothing was written, and shapes count without strictness, too.
    let now = layer
        .state_dict()
        .get("0.weight")
        .unwrap()
        .to_vec::<f32>()?;
    assert_eq!(before, now);
    assert!(layer.load_state_dict(&state, false).is_err());
    state.insert("0.bias", Tensor::ones(3, DType::F64)?);
    let unmatched = layer.load_state_dict(&state, false)?;
    assert_eq!(unmatched.missing, ["1.weight", "1.bias"]);
    assert_eq!(unmatched.unexpected, ["2.weight"]);
    let bias = layer.state_dict().get("0.bias").unwrap().clone();
    assert_eq!(
        (bias.dtype(), bias.to_vec::<f32>()?),
        (DType::F32, vec![1.0; 3])
    );
    Ok(())
}

#[test]
fn modes_reach_every_module() -> RusTorchResult<()> {
    manual_seed(3);
    let mut model = net()?;
    let x = Tensor::rand([3, 2, 4, 4], DType::F32)?;
    assert!(
        !model
            .forward(&x)?
            .allclose(&model.forward(&x)?, 1e-5, 1e-8)?
    );
    model.eval();
    assert!(!model.blocks[1].dropout.training.is_on());
    assert!(model.forward(&x)?.equal(&model.forward(&x)?)?);
    model.train(true);
    assert!(model.blocks[0].norm.training.is_on());
    Ok(())
}

/// By PyTorch 2.15: `m = nn.BatchNorm1d(2)`, `m(x)` twice.
#[test]
fn batches_change_running_statistics() -> RusTorchResult<()> {
    let norm = nn::BatchNorm1d::new(2)?;
    let x = parameter(tensor![[1.0, 2.0], [3.0, 6.0], [5.0, 1.0]])?;
    let y = norm.forward(&x)?;
    norm.forward(&x)?;
    let state = norm.state_dict();
    assert_close!(
        y.detach(),
        tensor![
            [-1.2247425, -0.46291],
            [0.0, 1.3887299],
            [1.2247425, -0.92582]
        ]
    );
    assert_close!(state.get("running_mean").unwrap(), tensor![0.57, 0.57]);
    assert_close!(state.get("running_var").unwrap(), tensor![1.57, 2.14]);
    assert_eq!(state.get("num_batches_tracked").unwrap().item()?, 2.0);
    // All batches count the same.
    let norm = nn::BatchNorm1d::new(2)?.momentum(None);
    norm.forward(&x)?;
    norm.forward(&x)?;
    let state = norm.state_dict();
    assert_close!(state.get("running_mean").unwrap(), tensor![3.0, 3.0]);
    let error = norm.forward(&tensor![1.0, 2.0]).unwrap_err().to_string();
    let expected = "BatchNorm1d: expected a tensor [n, c] or [n, c, l], got [2]";
    assert!(error.ends_with(expected), "{error}");
    Ok(())
}

#[test]
fn modules_change_their_dtype() -> RusTorchResult<()> {
    let mut norm = nn::BatchNorm1d::new(2)?;
    norm.to_dtype(DType::F64)?;
    let state = norm.state_dict();
    let dtypes: Vec<DType> = state.iter().map(|(_, tensor)| tensor.dtype()).collect();
    assert_eq!(
        dtypes,
        [DType::F64, DType::F64, DType::F64, DType::F64, DType::I64]
    );
    assert!(norm.parameters().iter().all(Tensor::requires_grad));
    norm.requires_grad_(false)?;
    assert!(!norm.parameters().iter().any(Tensor::requires_grad));
    assert!(norm.to_dtype(DType::I32).is_err());
    Ok(())
}

#[test]
fn deep_copies_have_memory_of_their_own() -> RusTorchResult<()> {
    let layer = nn::Linear::new(2, 2)?;
    let mut copy = layer.clone();
    assert!(copy.weight.detach().equal(&layer.weight.detach())?);
    init::zeros_(&mut copy.weight)?;
    assert!(!copy.weight.detach().equal(&layer.weight.detach())?);
    let mut same = nn::share(&layer);
    init::zeros_(&mut same.weight)?;
    assert!(same.weight.detach().equal(&layer.weight.detach())?);
    Ok(())
}

/// Mean and standard deviation of elements.
fn moments(tensor: &Tensor) -> RusTorchResult<[f64; 2]> {
    let tensor = tensor.detach();
    let mean = tensor.mean(None, false)?.item()?;
    Ok([
        mean,
        tensor
            .sub(mean)?
            .square()?
            .mean(None, false)?
            .item()?
            .sqrt(),
    ])
}

#[test]
fn initialisers_draw_as_they_say() -> RusTorchResult<()> {
    manual_seed(0);
    use init::{FanMode, Nonlinearity};
    assert_eq!(init::calculate_gain(Nonlinearity::Relu), 2f64.sqrt());
    // Names, and the standard deviation of weights [300, 200].
    type Case<'a> = (&'a str, &'a dyn Fn(&mut Tensor) -> RusTorchResult<()>, f64);
    let relu = Nonlinearity::Relu;
    let cases: [Case; 9] = [
        (
            "uniform",
            &|t| init::uniform_(t, -1.0, 1.0),
            (1f64 / 3.0).sqrt(),
        ),
        ("normal", &|t| init::normal_(t, 0.0, 0.5), 0.5),
        (
            "xavier_uniform",
            &|t| init::xavier_uniform_(t, 1.0),
            (2f64 / 500.0).sqrt(),
        ),
        (
            "xavier_normal",
            &|t| init::xavier_normal_(t, 2.0),
            2.0 * (2f64 / 500.0).sqrt(),
        ),
        (
            "kaiming_uniform",
            &|t| init::kaiming_uniform_(t, FanMode::FanIn, relu),
            0.1,
        ),
        (
            "kaiming_normal",
            &|t| init::kaiming_normal_(t, FanMode::FanOut, relu),
            (2f64 / 300.0).sqrt(),
        ),
        (
            "trunc_normal",
            &|t| init::trunc_normal_(t, 0.0, 0.5, [-2.0, 2.0]),
            0.5,
        ),
        (
            "orthogonal",
            &|t| init::orthogonal_(t, 1.0),
            (1f64 / 300.0).sqrt(),
        ),
        ("sparse", &|t| init::sparse_(t, 0.5, 1.0), 0.5f64.sqrt()),
    ];
    for (name, initialise, expected) in cases {
        let mut weight = parameter(Tensor::zeros([300, 200], DType::F32)?)?;
        initialise(&mut weight)?;
        assert!(weight.requires_grad(), "{name}");
        let [mean, std] = moments(&weight)?;
        assert!(mean.abs() < 0.02, "{name}: {mean}");
        assert!(
            (std / expected - 1.0).abs() < 0.03,
            "{name}: {std}, not {expected}"
        );
    }
    let mut weight = Tensor::zeros([3, 5], DType::F64)?;
    init::orthogonal_(&mut weight, 2.0)?;
    assert_close!(
        weight.matmul(&weight.t()?)?,
        Tensor::eye(3, DType::F64)?.mul(4)?,
        1e-9,
        1e-9
    );
    init::eye_(&mut weight)?;
    assert_eq!(weight.sum_all()?.item()?, 3.0);
    let mut kernel = Tensor::zeros([4, 2, 3], DType::F32)?;
    init::dirac_(&mut kernel, 2)?;
    let x = Tensor::rand([1, 4, 6], DType::F32)?;
    let options = nn::ConvOptions::default().padding(1).groups(2);
    assert_close!(x.conv1d(&kernel, None, &options)?, x);
    assert!(init::xavier_normal_(&mut Tensor::zeros(3, DType::F32)?, 1.0).is_err());
    Ok(())
}

#[test]
fn arguments_that_do_not_fit_are_errors() {
    assert!(nn::Conv2d::new(3, 4, 3, nn::ConvOptions::default().groups(2)).is_err());
    assert!(nn::GroupNorm::new(3, 4).is_err());
    assert!(nn::Dropout::new(1.5).is_err());
    assert!(
        nn::Embedding::new(3, 2)
            .and_then(|e| e.padding_idx(3))
            .is_err()
    );
    let linear = nn::Linear::new(3, 2).unwrap();
    assert!(linear.forward(&tensor![1.0, 2.0]).is_err());
}

#[test]
fn rows_of_padding_are_zeros_and_large_rows_shrink() -> RusTorchResult<()> {
    let table = nn::Embedding::new(4, 3)?.padding_idx(-1)?;
    assert_eq!(table.forward(&tensor![3])?.to_vec::<f32>()?, [0.0; 3]);
    let table = nn::Embedding::new(4, 3)?.max_norm(0.1);
    init::ones_(&mut table.weight.clone())?;
    let rows = table.forward(&tensor![[0, 2]])?;
    assert_eq!(rows.shape(), [1, 2, 3]);
    let norms = table.weight.detach().norm(2.0, 1, false)?.to_vec::<f32>()?;
    assert!(
        (norms[0] - 0.1).abs() < 1e-4 && (norms[2] - 0.1).abs() < 1e-4,
        "{norms:?}"
    );
    assert!(norms[1] > 0.2 && norms[3] > 0.2, "{norms:?}");
    Ok(())
}

/// A user's own module.
#[derive(Module)]
struct Own {
    layer: nn::Linear,
}

impl Own {
    /// The line on which its `forward` calls its layer.
    const LINE: u32 = line!() + 5;
}

impl Forward for Own {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        self.layer.forward(x)
    }
}

#[test]
fn mistakes_are_told_with_the_users_line() -> RusTorchResult<()> {
    let layer = || nn::Linear::new(2, 3);
    let (linear, several) = (layer()?, nn::sequential![layer()?, nn::ReLU]);
    let boxed: Box<dyn Forward> = Box::new(layer()?);
    let own = Own { layer: layer()? };
    let table = nn::Embedding::new(2, 3)?;
    let (x, ids) = (tensor![[1.0, 2.0, 3.0]], tensor![7]);
    let line = line!() + 2;
    let rows = [
        ("Linear.forward", linear.forward(&x)),
        ("Sequential.forward", several.forward(&x)),
        ("forward", boxed.forward(&x)),
        ("Embedding.forward", table.forward(&ids)),
    ];
    let lines = (0..).map(|row| line + row);
    let own = ("Linear.forward", own.forward(&x));
    for ((name, result), line) in rows.into_iter().zip(lines).chain([(own, Own::LINE)]) {
        let error = result
            .and_then(|y| y.to_vec::<f32>())
            .unwrap_err()
            .to_string();
        let place = format!("{name} at {}:{line}:", file!());
        assert!(error.starts_with(&place), "{place} {error}");
    }
    Ok(())
}

#[test]
fn lazy_modules_find_their_shapes() -> RusTorchResult<()> {
    let mut net = nn::sequential![
        nn::LazyConv2d::new(4, 3, nn::ConvOptions::default()),
        nn::LazyBatchNorm2d::new(),
        nn::Flatten::default(),
        nn::LazyLinear::new(2).and_then(|linear| Ok(linear.without_bias())),
    ];
    net.eval();
    assert!(net.parameters().is_empty() && net.state_dict().names().next().is_none());
    let x = Tensor::ones([5, 3, 6, 6], DType::F64)?;
    assert_eq!(net.forward(&x)?.shape(), [5, 2]);
    let state = net.state_dict();
    let shapes: Vec<(&str, &[usize])> = state.iter().map(|(n, x)| (n, x.shape())).collect();
    let expected: [(&str, &[usize]); 8] = [
        ("0.weight", &[4, 3, 3, 3]),
        ("0.bias", &[4]),
        ("1.weight", &[4]),
        ("1.bias", &[4]),
        ("1.running_mean", &[4]),
        ("1.running_var", &[4]),
        ("1.num_batches_tracked", &[]),
        ("3.weight", &[2, 64]),
    ];
    assert_eq!(shapes, expected);
    assert!(
        state
            .iter()
            .all(|(_, x)| matches!(x.dtype(), DType::F64 | DType::I64))
    );
    // Out of training statistics stay what they are.
    assert_eq!(
        state.opt("1.num_batches_tracked").map(Tensor::item),
        Some(Ok(0.0))
    );

    let x = |shape: &[usize]| Tensor::ones(shape, DType::F32);
    nn::LazyConv1d::new(2, 1, nn::ConvOptions::default()).forward(&x(&[3, 4])?)?;
    nn::LazyConvTranspose3d::new(2, 1, nn::ConvTransposeOptions::default())
        .forward(&x(&[3, 1, 1, 1])?)?;
    nn::LazyBatchNorm1d::new().forward(&x(&[3, 4])?)?;
    nn::LazyBatchNorm3d::new().forward(&x(&[1, 2, 3, 4, 5])?)?;
    nn::LazyInstanceNorm1d::new().forward(&x(&[3, 4])?)?;
    nn::LazyInstanceNorm2d::new().forward(&x(&[1, 3, 4, 2])?)?;
    for refused in [
        nn::LazyLinear::new(2).forward(&x(&[])?),
        nn::LazyConv2d::new(2, 1, nn::ConvOptions::default()).forward(&x(&[3, 4])?),
        nn::LazyBatchNorm1d::new().forward(&x(&[4])?),
    ] {
        assert!(refused.is_err_and(|e| e.to_string().contains("expected a tensor")));
    }
    Ok(())
}

#[test]
fn norms_of_batches_are_computed_anew() -> RusTorchResult<()> {
    let norm = nn::BatchNorm1d::new(2)?.momentum(0.3);
    let mut net = nn::sequential![nn::Linear::new(3, 2)?, norm, nn::Dropout::default()];
    net.eval();
    let batches = [0.0, 1.0, 2.0]
        .map(|i| Tensor::from_fn([4, 3], |at| (at[0] as f32 - i) * (at[1] as f32 + i)));
    let batches = batches.into_iter().collect::<RusTorchResult<Vec<_>>>()?;
    net.forward(&batches[0])?;
    rustorch::optim::swa_utils::update_bn(batches.iter().cloned().map(Ok), &mut net)?;
    let state = net.state_dict();
    let linear = |x: &Tensor| x.linear(state.opt("0.weight").expect("one"), state.opt("0.bias"));
    let mut means = Tensor::zeros([2], DType::F32)?;
    for batch in &batches {
        means = means.add(&linear(batch)?.mean(0, false)?.div(3.0)?)?;
    }
    let running = state.opt("1.running_mean").expect("one");
    assert_close!(running, &means, 1e-5, 1e-5);
    assert_eq!(
        state.opt("1.num_batches_tracked").map(Tensor::item),
        Some(Ok(3.0))
    );
    // The momentum and the mode are as before: out of training.
    let (mut momenta, mut modes) = (Vec::new(), Vec::new());
    net.visit("", &mut |name, leaf| match leaf {
        nn::Leaf::Momentum(momentum) => momenta.push((name.to_owned(), momentum)),
        nn::Leaf::Training(training) => modes.push(training.is_on()),
        _ => {}
    });
    assert_eq!(momenta, [("1.momentum".to_owned(), Some(0.3))]);
    assert_eq!(modes, [false, false]);
    let failed = [Err(batches[0].matmul(&batches[0]).unwrap_err())];
    assert!(rustorch::optim::swa_utils::update_bn(failed, &mut net).is_err());
    Ok(())
}

/// PyTorch's numbers, of weights and inputs that follow from places.
#[test]
fn classes_of_clusters_have_pytorchs_probabilities() -> RusTorchResult<()> {
    let mut module = nn::AdaptiveLogSoftmaxWithLoss::new(4, 8, &[2, 5], 2.0)?;
    module.to_dtype(DType::F64)?;
    let names: Vec<String> = module
        .named_parameters()
        .into_iter()
        .map(|(n, _)| n)
        .collect();
    let expected = [
        "head.weight",
        "tail.0.0.weight",
        "tail.0.1.weight",
        "tail.1.0.weight",
        "tail.1.1.weight",
    ];
    assert_eq!(names, expected);
    for (i, mut parameter) in module.parameters().into_iter().enumerate() {
        let places = Tensor::arange_with(0, parameter.numel() as i64, 1, DType::I64)?;
        let numbers = places.mul(7)?.add(3 * i as i64)?.remainder(11)?.sub(5)?;
        let numbers = numbers.to_dtype(DType::F64)?.div(8.0)?;
        let numbers = numbers.reshape(parameter.shape())?;
        no_grad(|| parameter.copy_(&numbers).map(drop))?;
        parameter.eval()?;
    }
    let places = Tensor::arange_with(0, 24, 1, DType::I64)?
        .mul(5)?
        .remainder(13)?
        .sub(6)?;
    let x = parameter(places.to_dtype(DType::F64)?.div(4.0)?.reshape([6, 4])?)?;
    let (logs, loss) = module.forward(&x, &tensor![0i64, 7, 3, 1, 5, 4])?;
    let expected = [
        -1.9294034423,
        -3.1508424111,
        -1.9085399753,
        -1.0022484497,
        -1.9351670601,
        -3.5388905775,
    ];
    assert_close!(
        logs,
        Tensor::from_slice(&expected, expected.len())?,
        1e-9,
        0.0
    );
    assert!((loss.item()? - 2.244181986004598).abs() < 1e-12);
    loss.backward()?;
    let row = |x: &Tensor, i: isize| x.grad().expect("a gradient").select(0, i);
    let expected = [
        -0.09732109626362308,
        0.06597341965498602,
        -0.11840212487750888,
        0.019285819404191266,
    ];
    assert_close!(
        row(&x, 1)?,
        Tensor::from_slice(&expected, expected.len())?,
        1e-12,
        0.0
    );
    let expected = [
        -0.03644851408801145,
        0.04205123573119943,
        0.05203764255528144,
        -0.005048614160327099,
    ];
    assert_close!(
        row(&module.tail[1][0].weight, 0)?,
        Tensor::from_slice(&expected, expected.len())?,
        1e-12,
        0.0
    );
    assert_eq!(module.predict(&x)?.to_vec::<i64>()?, [2, 0, 1, 1, 1, 1]);
    let sum = module.log_prob(&x)?.sum_all()?.item()?;
    assert!((sum - -119.81118898473761).abs() < 1e-9, "{sum}");
    // One row alone.
    let (log, _) = module.forward(&x.select(0, 1)?, &tensor![7i64].squeeze(0)?)?;
    assert!(log.shape().is_empty() && (log.item()? - -3.1508424111).abs() < 1e-9);
    for wrong in [8, -1] {
        let targets = Tensor::full([6], wrong, DType::I64)?;
        let computed = module
            .forward(&x, &targets)
            .and_then(|(logs, _)| logs.eval().map(drop));
        assert!(computed.is_err(), "{wrong}");
    }
    assert!(module.forward(&x, &tensor![0i64, 1]).is_err());
    for cutoffs in [&[][..], &[0], &[3, 3], &[8]] {
        assert!(nn::AdaptiveLogSoftmaxWithLoss::new(4, 8, cutoffs, 4.0).is_err());
    }
    assert!(nn::AdaptiveLogSoftmaxWithLoss::new(4, 8, &[2, 5], 4.0).is_err());
    Ok(())
}

#[test]
fn options_are_plain_numbers() -> RusTorchResult<()> {
    let x = Tensor::ones((1, 4, 2, 2), DType::F32)?;
    let shapes = [
        nn::PixelShuffle::new(2).forward(&x)?,
        nn::ChannelShuffle::new(2).forward(&x)?,
        nn::Softmax::new(1).forward(&x)?,
        nn::Flatten::default().start_dim(2).forward(&x)?,
        nn::Unflatten::new(1, [2, -1]).forward(&x)?,
        nn::Upsample::new([4, 4]).forward(&x)?,
        nn::LocalResponseNorm::new(2).alpha(1).forward(&x)?,
    ]
    .map(|y| y.shape().to_vec());
    let expected: [&[usize]; 7] = [
        &[1, 1, 4, 4],
        &[1, 4, 2, 2],
        &[1, 4, 2, 2],
        &[1, 4, 4],
        &[1, 2, 2, 2, 2],
        &[1, 4, 4, 4],
        &[1, 4, 2, 2],
    ];
    assert_eq!(shapes, expected);
    Ok(())
}

#[test]
fn options_of_types_of_their_own_are_set() {
    let options = nn::TransformerOptions::default().activation(nn::TransformerActivation::Gelu);
    assert_eq!(options.activation, nn::TransformerActivation::Gelu);
    let options = nn::RNNOptions::default().nonlinearity(nn::RNNNonlinearity::Relu);
    assert_eq!(options.nonlinearity, nn::RNNNonlinearity::Relu);
    let loss = nn::KLDivLoss::default().reduction(nn::KLDivReduction::BatchMean);
    assert_eq!(loss.reduction, nn::KLDivReduction::BatchMean);
    let loss = nn::TripletMarginLoss::default().margin(2).swap(true);
    assert_eq!((loss.margin, loss.p, loss.swap), (2.0, 2.0, true));
    let hidden = tensor![false, true];
    let masks = nn::SequenceMasks::default().key_padding_mask(&hidden);
    assert!(masks.mask.is_none() && masks.key_padding_mask.is_some());
    let masks = nn::AttentionMasks::default()
        .attn_mask(&hidden)
        .need_weights(false);
    assert!(masks.attn_mask.is_some() && !masks.need_weights);
}
