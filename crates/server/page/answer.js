// An answer while it comes: words, reasoning, calls of tools and figures.

import { stream } from './api.js';
import { chatBody, continueBody } from './request.js';

function addCalls(node, deltas) {
  node.calls ??= [];
  for (const { index = 0, id, function: part } of deltas) {
    const call = (node.calls[index] ??= { id: '', name: '', arguments: '' });
    if (id) call.id = id;
    call.name += part?.name ?? '';
    call.arguments += part?.arguments ?? '';
  }
}

/** The count of an answer's pieces and their times. */
class Clock {
  constructor(stats) {
    this.stats = stats;
    this.begin = performance.now();
    this.pieces = 0;
  }

  piece() {
    const now = performance.now();
    if (this.pieces++ === 0) this.first = now;
    this.last = now;
    this.stats.first = this.first - this.begin;
    this.stats.generated = this.pieces;
    this.speed();
  }

  speed() {
    const { generated } = this.stats;
    const time = this.last - this.first;
    // The first token ends the prompt; the others share the rest of the time.
    if (generated > 1 && time > 0) this.stats.speed = ((generated - 1) * 1000) / time;
  }

  usage({ prompt_tokens: prompt, completion_tokens: generated, prompt_tokens_details: details }) {
    Object.assign(this.stats, { prompt, generated, cached: details?.cached_tokens ?? 0 });
    if (this.pieces) this.speed();
  }
}

/**
 * Answers the messages before the last one of `nodes`, into the last one. `goOn` keeps its words and adds to them.
 * `changed` is called for every piece. Fails like a request; what came before stays in the message.
 */
export async function answer({ settings, nodes, model, signal, goOn, changed }) {
  const node = nodes.at(-1);
  node.model = model.id;
  delete node.error;
  node.stats = {};
  const clock = new Clock(node.stats);
  let path = '/v1/chat/completions';
  let body;
  if (goOn) {
    path = '/v1/completions';
    body = await continueBody(settings, nodes, model, signal);
  } else body = chatBody(settings, nodes.slice(0, -1), model.id);
  let finish;
  for await (const chunk of stream(path, body, signal)) {
    if (chunk.usage) clock.usage(chunk.usage);
    const choice = chunk.choices?.[0];
    if (!choice) continue;
    finish = choice.finish_reason ?? finish;
    const delta = choice.delta ?? { content: choice.text };
    if (delta.reasoning_content) node.reasoning = (node.reasoning ?? '') + delta.reasoning_content;
    if (delta.content) node.content += delta.content;
    if (delta.tool_calls) addCalls(node, delta.tool_calls);
    if (delta.reasoning_content || delta.content || delta.tool_calls) clock.piece();
    changed();
  }
  node.finish = finish;
  changed();
}
