//! Deep Q-learning of a pole on a cart (Mnih et al. 2015), with a target network that follows.

use rustorch::nn::{Forward, Linear, Module, ReLU, Reduction, Sequential, sequential};
use rustorch::optim::{RMSprop, RMSpropOptions};
use rustorch::prelude::*;

use super::Setting;
use super::numbers::{initialised, numbers, uniform};

/// A step of the game: state, action, reward, and the state behind it.
struct Transition {
    state: Tensor,
    action: i64,
    reward: f64,
    after: Tensor,
}

fn network(width: usize, dtype: DType) -> RusTorchResult<Sequential> {
    let layers = sequential![
        Linear::new(4, width)?,
        ReLU,
        Linear::new(width, width)?,
        ReLU,
        Linear::new(width, 2)?,
    ];
    initialised(layers, dtype)
}

/// One step of the cart and pole of Barto, Sutton and Anderson (1983), and the reward: 0 where it
/// has fallen.
fn pole(state: &Tensor, action: i64) -> RusTorchResult<(Tensor, f64)> {
    let values = state.to_dtype(DType::F64)?.to_vec::<f64>()?;
    let (x, speed, angle, turn) = (values[0], values[1], values[2], values[3]);
    let force = if action == 1 { 10.0 } else { -10.0 };
    let (sin, cos) = angle.sin_cos();
    let pushed = (force + 0.05 * turn.powi(2) * sin) / 1.1;
    let spin = (9.8 * sin - cos * pushed) / (0.5 * (4.0 / 3.0 - 0.1 * cos.powi(2) / 1.1));
    let gain = pushed - 0.05 * spin * cos / 1.1;
    let (x, angle) = (x + 0.02 * speed, angle + 0.02 * turn);
    let after = vec![x, speed + 0.02 * gain, angle, turn + 0.02 * spin];
    let has_fallen = x.abs() > 2.4 || angle.abs() > 0.2;
    let after = Tensor::from_vec(after, 4)?.to_dtype(state.dtype())?;
    Ok((after, f64::from(u8::from(!has_fallen))))
}

/// The difference between the values of chosen actions and what they turned out to be worth.
fn loss(net: &Sequential, target: &Sequential, chosen: &[&Transition]) -> RusTorchResult<Tensor> {
    let states: Vec<&Tensor> = chosen.iter().map(|step| &step.state).collect();
    let afters: Vec<&Tensor> = chosen.iter().map(|step| &step.after).collect();
    let (states, afters) = (Tensor::stack(&states, 0)?, Tensor::stack(&afters, 0)?);
    let actions = Tensor::from_vec(
        chosen.iter().map(|step| step.action).collect(),
        chosen.len(),
    )?;
    let rewards: Vec<f64> = chosen.iter().map(|step| step.reward).collect();
    let rewards = Tensor::from_vec(rewards, chosen.len())?.to_dtype(states.dtype())?;
    let values = net
        .forward(&states)?
        .gather(1, &actions.unsqueeze(1)?)?
        .squeeze(1)?;
    let expected = no_grad(|| {
        let (best, _) = target.forward(&afters)?.max_dim(1, false)?;
        rewards.add(&best.mul(0.99)?.mul(&rewards)?)
    })?;
    values.smooth_l1_loss(&expected, 1.0, Reduction::Mean)
}

pub(crate) fn losses(
    Setting {
        scale,
        steps,
        dtype,
    }: Setting,
) -> RusTorchResult<Vec<f64>> {
    let (batch, width) = (16 * scale, 32 * scale);
    let net = network(width, dtype)?;
    let target = net.clone();
    let mut opt = RMSprop::new(net.named_parameters(), RMSpropOptions::default().lr(1e-3))?;
    let explores: Vec<f64> = uniform("explores", 4 * steps).collect();
    let mut memory: Vec<Transition> = Vec::new();
    let mut losses = Vec::new();
    let mut state = numbers("state", &[4], dtype)?.mul(0.05)?;
    for (step, explore) in explores.into_iter().enumerate() {
        let greedy = no_grad(|| net.forward(&state.unsqueeze(0)?)?.argmax(1, false)?.item())?;
        let action = if explore > 0.3 {
            greedy as i64
        } else {
            (step % 2) as i64
        };
        let (after, reward) = pole(&state, action)?;
        let next = match reward {
            0.0 => numbers(&format!("state {step}"), &[4], dtype)?.mul(0.05)?,
            _ => after.clone(),
        };
        memory.push(Transition {
            state,
            action,
            reward,
            after,
        });
        state = next;
        if step % 4 != 3 {
            continue;
        }
        let places = uniform(&format!("chosen {step}"), batch);
        let places = places.map(|u| (u * memory.len() as f64) as usize);
        let chosen: Vec<&Transition> = places.map(|place| &memory[place]).collect();
        let loss = loss(&net, &target, &chosen)?;
        opt.zero_grad();
        loss.backward()?;
        opt.step()?;
        no_grad(|| {
            for (mut t, p) in target.parameters().into_iter().zip(net.parameters()) {
                t *= 0.9;
                t += &p * 0.1;
            }
        });
        losses.push(loss.item()?);
    }
    Ok(losses)
}
