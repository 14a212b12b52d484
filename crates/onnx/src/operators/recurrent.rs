//! ONNX's recurrent layers, and optimisers.

use rustorch_dispatch::{Call, Called, Output, missing};
use rustorch_ir::DType;
use rustorch_tensor::Tensor;

rustorch_dispatch::table! {
    "GRU", GRU, |c| layer(c, |c, cell, x, h, _| {
        let [zr, n] = [(0, 2), (2, 1)];
        let (w, r) = (cell.gates(x, &cell.w, zr)?, cell.gates(h, &cell.r, zr)?);
        let both = w.add(&r)?.add(&cell.bias(0, zr)?)?.add(&cell.bias(3, zr)?)?.sigmoid()?;
        let [z, reset] = [0, 1].map(|i| both.narrow(-1, i * cell.hidden, cell.hidden));
        let (z, reset) = (z?, reset?);
        let recurrent = match c.bool("linear_before_reset")? {
            true => {
                let linear = cell.gates(h, &cell.r, n)?.add(&cell.bias(3, n)?)?;
                linear.mul(&reset)?
            }
            false => {
                let gated = cell.gates(&h.mul(&reset)?, &cell.r, n)?;
                gated.add(&cell.bias(3, n)?)?
            }
        };
        let new = cell.gates(x, &cell.w, n)?.add(&cell.bias(0, n)?)?.add(&recurrent)?.tanh()?;
        let h = new.mul(&z.neg()?.add(1.0)?)?.add(&h.mul(&z)?)?;
        Ok((h.clone(), h))
    })?;
    "LSTM", LSTM, |c| layer(c, |_, cell, x, h, state| {
        let all = (0, 4);
        let gates = cell.gates(x, &cell.w, all)?.add(&cell.gates(h, &cell.r, all)?)?;
        let gates = gates.add(&cell.bias(0, all)?)?.add(&cell.bias(4, all)?)?;
        let gate = |i: usize| gates.narrow(-1, i * cell.hidden, cell.hidden);
        let input = gate(0)?.add(&state.mul(&cell.peephole(0)?)?)?.sigmoid()?;
        let forget = gate(2)?.add(&state.mul(&cell.peephole(2)?)?)?.sigmoid()?;
        let state = state.mul(&forget)?.add(&gate(3)?.tanh()?.mul(&input)?)?;
        let output = gate(1)?.add(&state.mul(&cell.peephole(1)?)?)?.sigmoid()?;
        Ok((output.mul(&state.tanh()?)?, state))
    })?;
    "RNN", RNN, |c| layer(c, |_, cell, x, h, _| {
        let one = (0, 1);
        let sum = cell.gates(x, &cell.w, one)?.add(&cell.gates(h, &cell.r, one)?)?;
        let h = sum.add(&cell.bias(0, one)?)?.add(&cell.bias(1, one)?)?.tanh()?;
        Ok((h.clone(), h))
    })?;
    "ai.onnx.preview.training.Adagrad", ADAGRAD, |c| optimised(c, 3, |c, [rate, step], parts| {
        let [x, g, h] = parts else { return missing("other lists than of parameters") };
        let rate = rate / (1.0 + step * c.float("decay_factor")?);
        let g = regularised(c, x, g)?;
        let h = h.add(&g.square()?)?;
        let away = g.div(&h.sqrt()?.add(c.float("epsilon")?)?)?.mul(rate)?;
        Ok(vec![x.sub(&away)?, h])
    })?;
    "ai.onnx.preview.training.Adam", ADAM, |c| optimised(c, 4, |c, [rate, step], parts| {
        let [x, g, v, h] = parts else { return missing("other lists than of parameters") };
        let (alpha, beta) = (c.float("alpha")?, c.float("beta")?);
        let g = regularised(c, x, g)?;
        let v = v.mul(alpha)?.add(&g.mul(1.0 - alpha)?)?;
        let h = h.mul(beta)?.add(&g.square()?.mul(1.0 - beta)?)?;
        let rate = match step > 0.0 {
            true => rate * (1.0 - beta.powf(step)).sqrt() / (1.0 - alpha.powf(step)),
            false => rate,
        };
        let away = v.div(&h.sqrt()?.add(c.float("epsilon")?)?)?.mul(rate)?;
        let kept = 1.0 - c.float("norm_coefficient_post")?;
        Ok(vec![x.sub(&away)?.mul(kept)?, v, h])
    })?;
    "ai.onnx.preview.training.Momentum", MOMENTUM, |c| optimised(c, 3, |c, [rate, step], parts| {
        let [x, g, v] = parts else { return missing("other lists than of parameters") };
        let alpha = c.float("alpha")?;
        let beta = if step > 0.0 { c.float("beta")? } else { 1.0 };
        let g = regularised(c, x, g)?;
        let v = v.mul(alpha)?.add(&g.mul(beta)?)?;
        let away = match c.text("mode")? {
            "nesterov" => g.add(&v.mul(alpha)?)?,
            _ => v.clone(),
        };
        Ok(vec![x.sub(&away.mul(rate)?)?, v])
    })?;
}

const RNN: &str = "X, W, R, B=None, sequence_lens=None, initial_h=None, *, hidden_size=None, \
     layout=0, direction='forward'";
const GRU: &str = "X, W, R, B=None, sequence_lens=None, initial_h=None, *, hidden_size=None, \
     layout=0, direction='forward', linear_before_reset=0";
const LSTM: &str = "X, W, R, B=None, sequence_lens=None, initial_h=None, initial_c=None, P=None, *, \
     hidden_size=None, layout=0, direction='forward'";
const ADAGRAD: &str = "R, T, *all, decay_factor=0.0, epsilon=1e-06, norm_coefficient=0.0";
const ADAM: &str = "R, T, *all, alpha=0.9, beta=0.999, epsilon=1e-06, norm_coefficient=0.0, \
     norm_coefficient_post=0.0";
const MOMENTUM: &str = "R, T, *all, alpha, beta, mode, norm_coefficient";

/// The weights of one direction.
struct Cell {
    w: Tensor,
    r: Tensor,
    b: Option<Tensor>,
    p: Option<Tensor>,
    hidden: usize,
}

impl Cell {
    /// Part of the gates that follows from an operand, for `count` gates from `first` on.
    fn gates(
        &self,
        x: &Tensor,
        weights: &Tensor,
        (first, count): (usize, usize),
    ) -> Called<Tensor> {
        let rows = weights.narrow(0, first * self.hidden, count * self.hidden)?;
        Ok(x.matmul(&rows.t()?)?)
    }

    /// The biases of gates behind `skipped` others.
    fn bias(&self, skipped: usize, (first, count): (usize, usize)) -> Called<Tensor> {
        Ok(match &self.b {
            Some(b) => b.narrow(0, (skipped + first) * self.hidden, count * self.hidden)?,
            None => Tensor::zeros([count * self.hidden], self.w.dtype())?,
        })
    }

    fn peephole(&self, gate: usize) -> Called<Tensor> {
        Ok(match &self.p {
            Some(p) => p.narrow(0, gate * self.hidden, self.hidden)?,
            None => Tensor::zeros([self.hidden], self.w.dtype())?,
        })
    }
}

/// One step: from the operand, the last result and the last state the next two.
type Step = fn(&Call, &Cell, &Tensor, &Tensor, &Tensor) -> Called<(Tensor, Tensor)>;

fn layer(c: &Call, step: Step) -> Called<Output> {
    c.only("direction", "'forward'")?;
    let is_batch_first = c.bool("layout")?;
    let x = match is_batch_first {
        true => c.input()?.transpose(0, 1)?,
        false => c.input()?.clone(),
    };
    let &[length, batch, _] = x.shape() else {
        return missing("other than sequences");
    };
    if let Some(lengths) = c.optional("sequence_lens")?
        && !lengths
            .eq(length as i64)?
            .all(None, false)?
            .to_scalar::<bool>()?
    {
        return missing("sequences of several lengths");
    }
    let only = |name: &str| -> Called<Option<Tensor>> {
        Ok(match c.has(name) {
            true => Some(c.tensor(name)?.select(0, 0)?),
            false => None,
        })
    };
    let r = c.tensor("R")?.select(0, 0)?;
    let hidden = r.size(1)?;
    let cell = Cell {
        w: c.tensor("W")?.select(0, 0)?,
        b: only("B")?,
        p: if c.value("P").is_ok() {
            only("P")?
        } else {
            None
        },
        hidden,
        r,
    };
    let zeros = Tensor::zeros([batch, hidden], x.dtype())?;
    let mut h = only("initial_h")?.unwrap_or_else(|| zeros.clone());
    let mut state = match c.value("initial_c").is_ok() {
        true => only("initial_c")?.unwrap_or(zeros),
        false => zeros,
    };
    let mut all = Vec::new();
    for at in 0..length {
        (h, state) = step(c, &cell, &x.select(0, at as isize)?, &h, &state)?;
        all.push(h.clone());
    }
    let steps: Vec<&Tensor> = all.iter().collect();
    let last = if is_batch_first { 1 } else { 0 };
    let y = Tensor::stack(&steps, 0)?.unsqueeze(1)?;
    let y = match is_batch_first {
        true => y.permute([2, 0, 1, 3])?,
        false => y,
    };
    let [h, state] = [h, state].map(|x| x.unsqueeze(last));
    Ok((y, h?, state?).into())
}

/// One parameter with what goes with it: from learning rate, number of the step and these the next
/// ones.
type Update = fn(&Call, [f64; 2], &[&Tensor]) -> Called<Vec<Tensor>>;

/// Parameters with their gradients and states, in lists one after the other, `count` of them.
fn optimised(c: &Call, count: usize, update: Update) -> Called<Output> {
    let all = c.tensors("all")?;
    let parameters = all.len() / count;
    let rate = [
        c.float("R")?,
        c.tensor("T")?.to_dtype(DType::F64)?.to_scalar()?,
    ];
    let mut lists: Vec<Vec<Tensor>> = Vec::new();
    for at in 0..parameters {
        let parts: Vec<&Tensor> = (0..count).map(|list| all[list * parameters + at]).collect();
        lists.push(update(c, rate, &parts)?);
    }
    let results =
        (0..count - 1).flat_map(|list| lists.iter().map(move |parts| parts[list].clone()));
    Ok(results.collect::<Vec<_>>().into())
}

fn regularised(c: &Call, x: &Tensor, g: &Tensor) -> Called<Tensor> {
    Ok(g.add(&x.mul(c.float("norm_coefficient")?)?)?)
}
