//! Attention of a token of each of several sequences on tensor cores, in one launch.

use rustorch_ir::Op;
use rustorch_ir::ops::RaggedAttention;
use rustorch_runtime::Step;

use super::attention::{SPLITS, few};
use crate::emit::Emitter;
use crate::ops::attention::{operand, options, strides, totals};

/// Keys of a context that are worth a group of their own, where tokens of several sequences have groups.
const KEYS_OF_SPLIT: usize = 512;

/// Appends one launch: attention for one token of each of several sequences. The launch also writes the tokens to the
/// sequences' caches. Tokens are rotated already.
pub(crate) fn emit(step: &Step, emitter: &mut Emitter) {
    let Op::RaggedAttention(op) = &step.last().op else {
        return;
    };
    let (tokens, caches) = step.inputs.split_at(RaggedAttention::CACHES);
    let [q, new_k, new_v, starts] = [0, 1, 2, 3].map(|i| &tokens[i]);
    let (k, v) = (&caches[0], &caches[1]);
    let (n, d) = (q.ty.shape[1], k.ty.shape[2]);
    let mut token = q.clone();
    token.ty.shape = q.ty.shape.clone().with_dim(1, 1);
    token.layout = q.layout.slice(1, 0, 1, 1);
    // By the context and not by the number of tokens, so that sums do not depend on that.
    let splits = k.ty.shape[1].div_ceil(KEYS_OF_SPLIT);
    let splits = splits.next_power_of_two().min(SPLITS);
    let (mut kernel, groups) = few([&token, k, v], splits);
    kernel.define("NEW_TOKEN", 1);
    kernel.define("IS_RAGGED", 1);
    totals(&mut kernel, None);
    // The kernel reads these before earlier launches have ended.
    if emitter.is_constant(starts) && caches.iter().all(|cache| emitter.is_written_once(cache)) {
        kernel.define("STARTS_EARLY", 1);
    }
    operand(&mut kernel, "q", &token);
    kernel.word("q_token", q.layout.strides[1]);
    for (name, place) in [("new_k", new_k), ("new_v", new_v)] {
        kernel.read(name, place);
        kernel.word(&format!("{name}_stride"), place.layout.strides[0]);
        kernel.word(&format!("{name}_token"), place.layout.strides[1]);
    }
    strides(&mut kernel, "k", k);
    strides(&mut kernel, "v", v);
    let mut cases = String::new();
    for (i, cache) in caches.chunks_exact(2).enumerate() {
        kernel.write(&format!("k{i}"), &cache[0]);
        kernel.write(&format!("v{i}"), &cache[1]);
        cases.push_str(&format!("case {i}: k = k{i}; v = v{i}; break; "));
    }
    kernel.define("CASES", cases);
    let others = [None, Some(starts)];
    options(
        &op.attention,
        [&token, k],
        others,
        step,
        &mut kernel,
        emitter,
    );
    kernel.word("start_stride", starts.layout.strides[0]);
    kernel.define("HAS_FACTORS", 0);
    kernel.define("INTERLEAVED", 0);
    kernel.word("dims", 0);
    kernel.words("frequencies", &vec![0; d]);
    kernel.define("MAGNITUDE", 1);
    kernel.write("y", step.output());
    emitter.launch(kernel.groups(groups, n, 1));
}
