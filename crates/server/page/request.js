// Requests that settings and messages make.

import { ApiError, apiKey, json } from './api.js';

/** A person's mistake in a field of the settings. */
const mistake = (param, message) => new ApiError(message, { status: 400, param });

function parsed(param, label, text) {
  if (!text?.trim()) return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw mistake(param, `${label} are not JSON: ${error.message}`);
  }
}

/** Tools in OpenAI's form. Functions alone get their frame. */
function tools(text) {
  const value = parsed('tools', 'The tools', text);
  if (value === undefined) return undefined;
  const all = Array.isArray(value) ? value : [value];
  if (!all.every((tool) => tool?.type === 'function' || typeof tool?.name === 'string')) {
    throw mistake('tools', 'Each tool needs a name.');
  }
  return all.map((tool) => (tool.type === 'function' ? tool : { type: 'function', function: tool }));
}

/** A message's text with its files before it. */
function content({ content, files }) {
  const blocks = (files ?? []).map(({ name, text }) => {
    const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
    const fence = '`'.repeat(longest + 1);
    return `${name}:\n${fence}\n${text}\n${fence}\n\n`;
  });
  return blocks.join('') + content;
}

/** A message as the server reads it. */
function message(node) {
  if (node.role === 'tool') return { role: 'tool', tool_call_id: node.call, content: node.content };
  const value = { role: node.role, content: content(node) };
  if (node.reasoning) value.reasoning_content = node.reasoning;
  if (node.calls?.length) {
    value.tool_calls = node.calls.map(({ id, name, arguments: text }) => {
      return { id, type: 'function', function: { name, arguments: text } };
    });
  }
  return value;
}

export function messages(settings, nodes) {
  const said = nodes.filter((node) => node.role !== 'assistant' || node.content || node.calls?.length);
  const system = settings.system?.trim() ? [{ role: 'system', content: settings.system }] : [];
  return [...system, ...said.map(message)];
}

/** The fields that choose tokens: only those that the person set. The server has its defaults. */
function sampling(settings) {
  const fields = { ...settings.sampler };
  if (settings.max_tokens !== undefined) fields.max_tokens = settings.max_tokens;
  if (settings.seed !== undefined) fields.seed = settings.seed;
  const stop = (settings.stop ?? '').split('\n').filter(Boolean);
  if (stop.length) fields.stop = stop;
  return fields;
}

const streaming = { stream: true, stream_options: { include_usage: true } };

/** The body of a request for an answer to these messages. */
export function chatBody(settings, nodes, model) {
  const body = { model, messages: messages(settings, nodes), ...sampling(settings), ...streaming };
  const offered = tools(settings.tools);
  if (offered) {
    body.tools = offered;
    if (settings.tool_choice) body.tool_choice = settings.tool_choice;
  }
  const schema = parsed('schema', 'The words of the schema', settings.schema);
  if (schema !== undefined) {
    body.response_format = { type: 'json_schema', json_schema: { name: 'answer', schema, strict: true } };
  }
  return body;
}

/**
 * The body of a request that goes on with the last of these messages. The model's own template writes the
 * conversation; the prompt ends with the last words of the message. `context` is the model's, in tokens.
 */
export async function continueBody(settings, nodes, { id: model, context }, signal) {
  const last = nodes.at(-1);
  const said = last.content.trimEnd();
  const asked = { model, messages: messages(settings, nodes), add_generation_prompt: false };
  const offered = tools(settings.tools);
  if (offered) asked.tools = offered;
  const written = await json('/apply-template', { body: asked, signal });
  const at = said ? written.prompt.lastIndexOf(said) : -1;
  if (at < 0)
    throw mistake(undefined, 'The chat template of this model changes these words, so they cannot be continued.');
  const content = written.prompt.slice(0, at) + last.content;
  const { tokens } = await json('/tokenize', { body: { model, content, add_special: true }, signal });
  // Templates write the token that begins a text, and the vocabulary adds it.
  const prompt = tokens[0] === tokens[1] ? tokens.slice(1) : tokens;
  const room = Math.max((context ?? Infinity) - prompt.length, 1);
  const fields = sampling(settings);
  const max_tokens = fields.max_tokens ?? (Number.isFinite(room) ? room : 1024);
  return { model, prompt, ...fields, max_tokens, ...streaming };
}

/** A request as a command. The key is not part of it. */
export function curl(origin, body) {
  const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const lines = [`curl ${quoted(`${origin}/v1/chat/completions`)}`, `-H 'content-type: application/json'`];
  if (apiKey()) lines.push('-H "authorization: Bearer $API_KEY"');
  lines.push(`-d ${quoted(JSON.stringify(body, undefined, 2))}`);
  return lines.join(' \\\n  ');
}
