//! Conversations as samples; only the answers are trained.

use std::fs;
use std::path::Path;

use rustorch_chat::{ChatTemplates, ControlTokens, Message, RenderOptions};
use rustorch_data::{Batch, DataResult, Dataset};
use rustorch_tensor::Tensor;
use rustorch_tokenizer::Tokenizer;
use serde_json::Value;

use crate::TrainError;

/// A target that does not count: losses leave it out by default.
const IGNORED: i64 = -100;

/// Conversations, each a sample: tokens by the model's template. Targets are only the tokens of the
/// assistant's answers. Tokens beyond the context are dropped. Shorter conversations are padded
/// with tokens that do not count for the loss.
pub struct Conversations {
    samples: Vec<(Vec<i32>, Vec<i64>)>,
    context: usize,
}

impl Conversations {
    /// The conversations of a file, one per line in OpenAI's form: `{"messages": [{"role": "user", "content":
    /// "…"}, {"role": "assistant", "content": "…"}]}`.
    ///
    /// # Errors
    /// Fails if the file cannot be read. Also fails if a line is not a conversation, or has no answer
    /// within the context.
    pub fn read(
        path: &Path,
        templates: &ChatTemplates,
        tokenizer: &Tokenizer,
        context: usize,
    ) -> Result<Self, TrainError> {
        let text =
            fs::read_to_string(path).map_err(TrainError::io(path, "read the conversations"))?;
        let control = ControlTokens::of(tokenizer);
        let mut samples = Vec::new();
        for (number, line) in (1..)
            .zip(text.lines())
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let wrong = |problem: String| {
                TrainError::Setting(format!("{}: line {number}: {problem}", path.display()))
            };
            let parsed: Value = serde_json::from_str(line)
                .map_err(|error| wrong(format!("{error}; expected JSON")))?;
            let messages =
                Message::list(&parsed["messages"]).map_err(|error| wrong(error.to_string()))?;
            let tokens = |messages: &[Message], add_generation_prompt| {
                let options = RenderOptions {
                    add_generation_prompt,
                    ..RenderOptions::default()
                };
                let prompt = templates
                    .for_options(&options)
                    .render(messages, &options, &control);
                Ok::<_, TrainError>(
                    prompt
                        .map_err(|error| wrong(error.to_string()))?
                        .encode(tokenizer),
                )
            };
            let ids = tokens(&messages, false)?;
            let mut targets = vec![IGNORED; ids.len()];
            for (i, _) in messages
                .iter()
                .enumerate()
                .filter(|(_, message)| message.role() == "assistant")
            {
                let begin = common(&tokens(&messages[..i], true)?, &ids);
                let end = common(&tokens(&messages[..=i], false)?, &ids);
                for at in begin.max(1)..end {
                    targets[at - 1] = i64::from(ids[at]);
                }
            }
            let mut inputs: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
            inputs.resize(context, 0);
            targets.resize(context, IGNORED);
            if targets.iter().all(|&target| target == IGNORED) {
                return Err(wrong(format!(
                    "no answer of an assistant in the first {context} tokens; give a larger --context, or leave it out"
                )));
            }
            samples.push((inputs, targets));
        }
        Ok(Self { samples, context })
    }

    /// Splits off the last twentieth, at least one sample. Returns the other samples and these.
    pub fn split_last(mut self) -> [Self; 2] {
        let last = self.samples.len().div_ceil(20);
        let samples = self.samples.split_off(self.samples.len() - last);
        let context = self.context;
        [self, Self { samples, context }]
    }
}

/// Number of tokens that two texts begin with in common.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl Dataset for Conversations {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn get(&self, index: usize) -> DataResult<Batch> {
        let (inputs, targets) = &self.samples[index];
        Ok(vec![
            Tensor::from_slice(inputs, self.context)?,
            Tensor::from_slice(targets, self.context)?,
        ])
    }

    fn get_batch(&self, indices: &[usize]) -> DataResult<Batch> {
        let (mut inputs, mut targets) = (Vec::<i32>::new(), Vec::<i64>::new());
        for &index in indices {
            inputs.extend_from_slice(&self.samples[index].0);
            targets.extend_from_slice(&self.samples[index].1);
        }
        let shape = [indices.len(), self.context];
        Ok(vec![
            Tensor::from_vec(inputs, shape)?,
            Tensor::from_vec(targets, shape)?,
        ])
    }
}
