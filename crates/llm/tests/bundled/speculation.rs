//! Tokens that are drafted and checked: the text is the same as without.

use std::sync::Arc;

use rustorch_cpu::Cpu;
use rustorch_llm::{Scores, Selection, Session, SessionOptions};
use rustorch_runtime::{Backend, Runtime};

use crate::common::load;

const PROMPT: [u32; 5] = [0, 48, 1299, 602, 260];

fn cpu() -> Arc<dyn Backend> {
    Arc::new(Cpu::new(2))
}

/// Behind more keys than the CPU's attention has in one part.
pub(crate) fn up_to_four_tokens_at_once_have_the_logits_of_each_alone() {
    let text: Vec<u32> = (0..264).map(|i| 2 + (i * 7919) % 4000).collect();
    let all = Selection::default();
    for name in ["f16", "Q8_0", "Q4_K_M"] {
        let model = load(name);
        let runtime = Runtime::new([cpu()]);
        let session = || {
            let mut session = Session::new(&model, &runtime, SessionOptions::default()).unwrap();
            session.feed(&PROMPT, &mut Vec::new()).unwrap();
            session
        };
        let (mut alone, mut scores) = (session(), Vec::new());
        let mut each = |id: &u32| {
            let fed = alone.feed_and_select_each(&[*id], &all, &mut scores);
            fed.unwrap();
            scores[0].logits.clone()
        };
        let expected: Vec<Vec<f32>> = text.iter().map(&mut each).collect();
        for few in [2, 3, 4] {
            let (mut together, mut scores) = (session(), Vec::<Scores>::new());
            for (ids, expected) in text.chunks_exact(few).zip(expected.chunks_exact(few)) {
                let fed = together.feed_and_select_each(ids, &all, &mut scores);
                fed.unwrap();
                let same = scores.iter().map(|scores| &scores.logits).eq(expected);
                assert!(same, "{name}: {few} behind {}", together.tokens().len());
            }
        }
    }
}
