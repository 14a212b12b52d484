//! A recurrent network that learns a verse by heart, character by character.

use rustorch::nn::{CrossEntropyLoss, Embedding, Forward, LSTM, Linear, Module, RNNOptions};
use rustorch::optim::{Adam, AdamOptions};
use rustorch::prelude::*;

const VERSE: &str =
    "the rain in spain stays mainly in the plain, and the wind sings in the pines. ";
const HIDDEN: usize = 64;

#[derive(Module)]
struct Network {
    embedding: Embedding,
    lstm: LSTM,
    head: Linear,
}

impl Network {
    fn new(characters: usize) -> RusTorchResult<Self> {
        Ok(Self {
            embedding: Embedding::new(characters, 16)?,
            lstm: LSTM::new(16, HIDDEN, RNNOptions::default().batch_first(true))?,
            head: Linear::new(HIDDEN, characters)?,
        })
    }

    /// Scores `[batch, steps, characters]` of what follows each of `text` `[batch, steps]`, and the
    /// states behind it.
    fn forward(
        &self,
        text: &Tensor,
        states: Option<(&Tensor, &Tensor)>,
    ) -> RusTorchResult<(Tensor, (Tensor, Tensor))> {
        let (output, states) = self.lstm.forward(&self.embedding.forward(text)?, states)?;
        Ok((self.head.forward(&output)?, states))
    }
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    manual_seed(5);
    let mut characters: Vec<char> = VERSE.chars().collect();
    characters.sort_unstable();
    characters.dedup();
    let number = |c| characters.iter().position(|&known| known == c);
    let text: Vec<i64> = VERSE.chars().filter_map(number).map(|n| n as i64).collect();
    let text = Tensor::from_vec(text, [1, VERSE.len()])?;
    let network = Network::new(characters.len())?;
    let mut optimizer = Adam::new(network.named_parameters(), AdamOptions::default().lr(0.02))?;

    let last = VERSE.len() as i64 - 1;
    let (given, next) = (
        text.narrow(1, 0, last as usize)?,
        text.narrow(1, 1, last as usize)?,
    );
    for step in 0..80 {
        optimizer.zero_grad();
        let (scores, _) = network.forward(&given, None)?;
        let loss =
            CrossEntropyLoss::default().forward(&scores.flatten(0, 1)?, &next.flatten(0, -1)?)?;
        loss.backward()?;
        optimizer.step()?;
        if step % 20 == 0 {
            println!("step {step}: loss {:.3}", loss.item()?);
        }
    }

    let mut written = String::from("t");
    let mut token = text.narrow(1, 0, 1)?;
    let mut states = None;
    while written.len() < 44 {
        let before = states.as_ref().map(|(h, c)| (h, c));
        let (scores, behind) = no_grad(|| network.forward(&token, before))?;
        token = scores.argmax(Some(-1), false)?;
        written.push(characters[token.item()? as usize]);
        states = Some(behind);
    }
    println!("{written}");
    assert_eq!(written, VERSE[..written.len()]);
    Ok(())
}
