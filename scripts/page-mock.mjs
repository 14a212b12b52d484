// A server that speaks the API of `rustorch-cli serve` by a script, for the tests of the page. The last words of a
// conversation choose what it says: see `scripts`. Run alone, it serves the page: node scripts/page-mock.mjs [PORT]

import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';

export const PAGE = new URL('../crates/server/page/', import.meta.url);
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:";
const TYPES = { html: 'text/html; charset=utf-8', css: 'text/css', js: 'text/javascript' };
const CONTEXT = 16384;

const words = (text) => text.match(/\s*\S+\s*?/g) ?? [];

/** 10,000 tokens of every kind of block. */
function long() {
  const part = (n) =>
    `## Part ${n}\n\nSome **bold words**, some \`code\`, and a [link](https://example.org/${n}) in a paragraph.\n\n` +
    `1. first point of the list\n2. second point\n   - a point within it\n\n` +
    `| a | b |\n|---|--:|\n| ${n} | ${n * n} |\n\n` +
    `\`\`\`rust\nfn part_${n}() -> usize {\n    // It returns its number.\n    ${n}\n}\n\`\`\`\n\n`;
  let text = '';
  for (let n = 1; n <= 150; n++) text += part(n);
  // One block of code grows long, too.
  text += '```python\n';
  for (let n = 1; n <= 700; n++) text += `value_${n} = compute(${n}, scale=${n * 3})  # line ${n}\n`;
  text += '```\n';
  const tokens = text.match(/\s*[A-Za-z_]+|\s*\d+|\s*[^\sA-Za-z_\d]+|\s+/g);
  while (tokens.length < 10_000) tokens.push(' more', ' words');
  return tokens.slice(0, 10_000);
}

export const XSS = [
  '<script>window.hacked = 1</script>',
  '<img src=x onerror="window.hacked = 1">',
  '<svg onload="window.hacked = 1"><script>window.hacked = 1</script></svg>',
  '[a](javascript:window.hacked=1)',
  '[b](JaVaScRiPt:window.hacked=1 "title")',
  '[c](java\tscript:window.hacked=1)',
  '[d](data:text/html,<script>window.hacked=1</script>)',
  '[e](vbscript:window.hacked=1)',
  '![f](x" onerror="window.hacked=1)',
  '![g](https://example.invalid/picture.png)',
  '[h](https://example.org/" onclick="window.hacked=1)',
  '<javascript:window.hacked=1>',
  '<https://example.org/"onmouseover="window.hacked=1>',
  '[<img src=x onerror=window.hacked=1>](https://example.org)',
  '`<img src=x onerror=window.hacked=1>`',
  '```"><img src=x onerror=window.hacked=1>\n</code></pre><script>window.hacked=1</script>\n```',
  '| <b onclick=window.hacked=1>a</b> | b |\n|---|---|\n| <script>window.hacked=1</script> | 1 |',
  '<iframe src=javascript:window.hacked=1>',
  '<iframe srcdoc="<script>parent.hacked=1</script>"></iframe>',
  '<math><mtext></form><form><mglyph><style></math><img src onerror=window.hacked=1>',
  '<a href="javascript:window.hacked=1">x</a>',
  '<style>@import "https://example.invalid/x.css";</style>',
  '<base href="https://example.invalid/">',
  '<meta http-equiv="refresh" content="0;url=https://example.invalid/">',
  '&lt;script&gt;window.hacked=1&lt;/script&gt;',
  '# <script>window.hacked=1</script>',
  '> <details open ontoggle=window.hacked=1>',
  '- [x] <input autofocus onfocus=window.hacked=1>',
  '\u202e<script>window.hacked=1</script>',
  `${'>'.repeat(5000)} deep`,
  `${'*a '.repeat(3000)}`,
  `${'['.repeat(3000)}`,
  `${'`'.repeat(3)}${'~'.repeat(3000)}`,
];

const MARKDOWN = `# Title

A paragraph with **bold**, *italic*, ~~gone~~ and \`code\`.
A second line, and https://example.org/page(1).

1. one
2. two
   - inner
- [x] done
- [ ] open

> quoted

| name | value |
| :--- | ----: |
| a | 1 |

---

\`\`\`js
const x = '<b>';
\`\`\`
`;

/** What the server says to the last words of a person: tokens, or events. */
const scripts = {
  markdown: () => ({ tokens: words(MARKDOWN) }),
  think: () => ({ reasoning: words('First I think about it. **Then** I answer.'), tokens: words('The answer is 4.') }),
  long: () => ({ tokens: long(), rate: 600 }),
  slow: () => ({ tokens: words('one two three four five six seven eight nine ten '.repeat(20)), rate: 20 }),
  xss: () => ({ tokens: words(XSS.join('\n\n')) }),
  weather: () => ({ call: { name: 'weather', arguments: ['{"city": ', '"Bern"}'] } }),
  cut: () => ({ tokens: words('This answer ends too early and'), end: 'cut' }),
  error: () => ({ tokens: words('Some words, then'), end: 'error' }),
  garbage: () => ({ tokens: words('Some words, then'), end: 'garbage' }),
  busy: () => ({ status: 429, message: 'the queue is full', headers: { 'retry-after': '3' } }),
  refuse: () => ({ status: 400, message: 'temperature: expected a number', param: 'temperature' }),
  limit: () => ({ tokens: words('An answer that stops at its'), finish: 'length' }),
};

function answerTo({ messages = [], tools, response_format: form, model }) {
  const last = messages.at(-1) ?? {};
  if (last.role === 'tool') return { tokens: words(`The tool says ${last.content}.`) };
  if (form) return { tokens: ['{"answer"', ': 4}'] };
  const script = scripts[last.content?.trim()];
  if (script) return script();
  const shown = tools ? ` I know ${tools.length} tool.` : '';
  return { tokens: words(`You said: ${last.content} (${messages.length} messages, ${model}).${shown}`) };
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function speak(response, made, { chat, prompt }) {
  const send = (value) => response.write(`data: ${typeof value === 'string' ? value : JSON.stringify(value)}\n\n`);
  const chunk = (choice, usage = null) =>
    send({ id: 'x', model: 'mock', choices: choice ? [{ index: 0, ...choice }] : [], usage });
  const delta = (value) =>
    chunk(chat ? { delta: value, finish_reason: null } : { text: value.content, finish_reason: null });
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
  if (chat) delta({ role: 'assistant', content: '' });
  response.write(': keep-alive\n\n');
  for (const text of made.reasoning ?? []) delta({ reasoning_content: text });
  const begin = performance.now();
  let sent = 0;
  for (const content of made.tokens ?? []) {
    if (response.destroyed) return sent;
    delta({ content });
    sent++;
    const due = made.rate ? begin + (sent * 1000) / made.rate : 0;
    if (due > performance.now() + 4) await sleep(due - performance.now());
  }
  if (made.call) {
    delta({
      tool_calls: [{ index: 0, id: 'call00001', type: 'function', function: { name: made.call.name, arguments: '' } }],
    });
    for (const text of made.call.arguments) delta({ tool_calls: [{ index: 0, function: { arguments: text } }] });
  }
  if (made.end === 'cut') {
    await sleep(100);
    response.destroy();
    return sent;
  }
  if (made.end === 'error') send({ error: { message: 'the device is gone', type: 'server_error' } });
  else if (made.end === 'garbage') send('{"choices": [');
  else {
    const finish = made.finish ?? (made.call ? 'tool_calls' : 'stop');
    chunk(chat ? { delta: {}, finish_reason: finish } : { text: '', finish_reason: finish });
    const generated = sent + (made.reasoning?.length ?? 0);
    chunk(undefined, {
      prompt_tokens: prompt,
      completion_tokens: generated,
      total_tokens: prompt + generated,
      prompt_tokens_details: { cached_tokens: 7 },
    });
    send('[DONE]');
  }
  response.end();
  return sent;
}

/** Starts the server. `state` can be changed while it runs: `key`, `devices`; it lists the `requests`. */
export async function serve(port = 0) {
  const state = {
    key: undefined,
    requests: [],
    cut: 0,
    devices: { devices: [{ name: 'AMD EPYC', kind: 'cpu', memory_bytes: 24 * 2 ** 30 }], fallbacks: [] },
  };
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, 'http://localhost');
    let body = '';
    for await (const piece of request) body += piece;
    const asked = body ? JSON.parse(body) : {};
    const reply = (value, status = 200, headers = {}) => {
      response.writeHead(status, { 'content-type': 'application/json', ...headers });
      response.end(JSON.stringify(value));
    };
    if (pathname === '/' || pathname.startsWith('/page/')) {
      const name = pathname === '/' ? 'index.html' : pathname.slice('/page/'.length);
      try {
        const file = await readFile(new URL(name, PAGE));
        const headers = {
          'content-type': TYPES[name.split('.').pop()],
          'content-security-policy': POLICY,
          'service-worker-allowed': '/',
        };
        response.writeHead(200, headers);
        return response.end(file);
      } catch {
        return reply({ error: { message: `there is no ${pathname} here` } }, 404);
      }
    }
    state.requests.push({ pathname, asked });
    if (state.key && request.headers.authorization !== `Bearer ${state.key}`) {
      return reply({ error: { message: 'an API key is required', code: 'invalid_api_key' } }, 401);
    }
    if (pathname === '/v1/models') {
      const model = (id) => ({ id, object: 'model', meta: { n_ctx: CONTEXT } });
      return reply({ object: 'list', data: [model('mock-8b'), model('mock-1b')] });
    }
    if (pathname === '/props') {
      const params = {
        temperature: 0.800000011920929,
        top_k: 40,
        top_p: 0.949999988079071,
        min_p: 0.05,
        xtc_threshold: 0.1,
        dry_sequence_breakers: ['\n', ':'],
      };
      return reply({ default_generation_settings: { n_ctx: CONTEXT, params } });
    }
    if (pathname === '/rustorch/devices')
      return state.devices ? reply(state.devices) : reply({ error: { message: 'no path' } }, 404);
    if (pathname === '/apply-template')
      return reply({ prompt: asked.messages.map(({ role, content }) => `<|${role}|>${content}<|end|>`).join('\n') });
    if (pathname === '/tokenize')
      return reply({ tokens: [1, 1, ...Array.from(asked.content, (it) => it.codePointAt(0))] });
    const chat = pathname === '/v1/chat/completions';
    if (!chat && pathname !== '/v1/completions')
      return reply({ error: { message: `there is no ${pathname} here` } }, 404);
    const made = chat ? answerTo(asked) : { tokens: [' and', ' goes', ' on.'] };
    if (made.status) return reply({ error: { message: made.message, param: made.param } }, made.status, made.headers);
    response.on('close', () => (state.cut += response.writableFinished ? 0 : 1));
    await speak(response, made, { chat, prompt: chat ? JSON.stringify(asked.messages).length : asked.prompt.length });
  });
  await new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
  const stop = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { state, stop, port: server.address().port, url: `http://127.0.0.1:${server.address().port}` };
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const { url } = await serve(Number(process.argv[2] ?? 8090));
  console.log(`the page is at ${url}`);
}
