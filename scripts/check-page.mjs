// Checks the page of the server in Chromium: node scripts/check-page.mjs [WORDS OF A CHECK]
//
//     apt-get install chromium && npm install playwright-core axe-core
//
// CHROMIUM is the browser, NODE_MODULES the folder of both packages, SHOTS a folder for pictures. The page talks to
// the server of scripts/page-mock.mjs. Without a browser or the packages, all checks that need them are skipped.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFile, readdir } from 'node:fs/promises';
import { cpus, loadavg } from 'node:os';
import { gzipSync } from 'node:zlib';
import {
  act,
  answers,
  ask,
  chats,
  check,
  close,
  counts,
  idle,
  launch,
  look,
  now,
  openSettings,
  pageCheck,
  questions,
  say,
} from './page-harness.mjs';
import { PAGE, XSS, serve } from './page-mock.mjs';

const LARGEST = 150_000;
const LONGEST_TASK = 50;
const OPENING = 300;
const WIDTHS = [360, 768, 1280];

const files = await readdir(PAGE);
const text = (name) => readFile(new URL(name, PAGE), 'utf8');

await check('the page is small', async () => {
  let size = 0;
  for (const file of files) size += gzipSync(await text(file), { level: 9 }).length;
  assert.ok(size <= LARGEST, `${size} bytes`);
  return `${size} bytes compressed`;
});

await check('nothing is inline or elsewhere, and markup is never made from text', async () => {
  for (const file of files) {
    const source = await text(file);
    assert.doesNotMatch(source, /innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function/, file);
    if (file.endsWith('.html')) assert.doesNotMatch(source, /<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=/, file);
    if (!file.endsWith('.js')) assert.doesNotMatch(source, /https?:\/\//, file);
  }
});

await check('every module is asked for at once', async () => {
  const asked = [...(await text('index.html')).matchAll(/modulepreload" href="\/page\/(.+)"/g)].map(([, name]) => name);
  const modules = files.filter((name) => name.endsWith('.js') && !['main.js', 'worker.js'].includes(name));
  assert.deepEqual(asked.sort(), modules.sort());
});

await check('the worker keeps every file of the page', async () => {
  const kept = [...(await text('worker.js')).matchAll(/^ {2}'(.+)',$/gm)].map(([, name]) => name);
  assert.deepEqual(kept.sort(), files.filter((name) => !['index.html', 'worker.js'].includes(name)).sort());
});

async function checkPages() {
  await pageCheck('an answer streams, with its figures', async (page) => {
    await say(page, 'Hello');
    const answer = answers(page).last();
    assert.match(await answer.locator('.words').last().innerText(), /You said: Hello \(1 messages, mock-8b\)/);
    assert.match(
      await answer.locator('.figures').innerText(),
      /tokens\/s · first token after .* · prompt \d+ tokens, 7 of them cached/,
    );
    assert.match(await page.locator('.context').innerText(), /\d+ of 16384 tokens of the context/);
    assert.deepEqual(chats()[0].asked.stream_options, { include_usage: true });
    assert.equal(chats()[0].asked.temperature, undefined);
    await say(page, 'Again');
    assert.equal(chats()[1].asked.messages.length, 3);
  });

  await pageCheck(
    'Markdown has its elements',
    async (page) => {
      await say(page, 'markdown');
      const words = answers(page).last().locator('.words').last();
      const tags = [
        'strong',
        'em',
        's',
        'p > code',
        'br',
        'ol > li',
        'ul ul, ol ul',
        'blockquote',
        'td.right',
        'hr',
        'pre',
        'a[href="https://example.org/page(1)"]',
      ];
      for (const tag of tags) assert.ok((await words.locator(tag).count()) > 0, tag);
      assert.equal(await words.locator('input:checked').count(), 1);
      assert.equal(await words.locator('pre').innerText(), "const x = '<b>';");
      await words.getByRole('button', { name: 'Copy' }).click();
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "const x = '<b>';");
    },
    { permissions: ['clipboard-read', 'clipboard-write'] },
  );

  await pageCheck('a stream draws what the whole text draws', async (page) => {
    const same = await page.evaluate(
      async (texts) => {
        const { MarkdownView } = await import('/page/markdown.js');
        const view = () => new MarkdownView(document.createElement('div'));
        const bad = [];
        for (const text of texts) {
          const [whole, grown] = [view(), view()];
          whole.set(text);
          for (let end = 1; end <= text.length; end += 1) grown.set(text.slice(0, end));
          const flat = (it) => it.element.innerHTML.replaceAll('</span><span>', '\n');
          if (flat(whole) !== flat(grown)) bad.push([text, flat(whole), flat(grown)]);
        }
        return bad;
      },
      [
        'a\n\nb **c** d\n\n- x\n- y\n\n1. z\n\n```js\nlet a;\n\n\nb\n```\nend',
        '| a | b |\n|---|---|\n| 1 | 2 |\n\n---\n> q\n> r\n\n# h\ntext',
        `\`\`\`\n${'line\n'.repeat(130)}\`\`\`\n\nend`,
        '- a\n\n- b\n-\n**c**',
        '\n\n```\nx\n\n\ny',
        ...XSS.filter((it) => it.length < 500),
      ],
    );
    assert.deepEqual(same, []);
  });

  await pageCheck('no words of a model become markup or scripts', async (page) => {
    await say(page, 'xss');
    const found = await page.evaluate(() => {
      const table = 'TABLE TBODY TD TH THEAD TR';
      const names = `A BLOCKQUOTE BR BUTTON CODE DIV EM H4 H5 H6 HR INPUT LI OL P PRE S SPAN STRONG UL ${table}`;
      const allowed = new Set(names.split(' '));
      const bad = [];
      for (const element of document.querySelectorAll('.message.assistant .words *')) {
        if (!allowed.has(element.tagName)) bad.push(element.tagName);
        for (const { name } of element.attributes)
          if (name.startsWith('on') || ['style', 'src', 'srcdoc'].includes(name)) bad.push(name);
        if (element.tagName === 'A' && !/^(https?|mailto):/.test(element.href)) bad.push(element.href);
      }
      return [bad, window.hacked];
    });
    assert.deepEqual(found, [[], undefined]);
    return `${XSS.length} texts`;
  });

  await pageCheck('10,000 tokens at 600 a second make no long task', async (page, context) => {
    const session = await context.newCDPSession(page);
    const tasks = [];
    session.on('Tracing.dataCollected', ({ value }) =>
      tasks.push(...value.filter(({ name }) => name.endsWith('RunTask'))),
    );
    await session.send('Tracing.start', {
      transferMode: 'ReportEvents',
      traceConfig: { includedCategories: ['toplevel'] },
    });
    const begin = Date.now();
    await say(page, 'long');
    const time = (Date.now() - begin) / 1000;
    const complete = new Promise((resolve) => session.once('Tracing.tracingComplete', resolve));
    await session.send('Tracing.end');
    await complete;
    assert.match(await answers(page).last().locator('.figures').innerText(), /^10000 tokens/);
    // A busy machine makes a task last, but not compute, longer.
    const longest = (key) => Math.round(tasks.reduce((most, task) => Math.max(most, task[key] ?? 0), 0) / 1000);
    assert.ok(longest('tdur') > 0, 'the browser counts no time of the processor');
    assert.ok(longest('tdur') <= LONGEST_TASK, `a task computes for ${longest('tdur')} ms`);
    return `${time.toFixed(1)} s; the longest task computes for ${longest('tdur')} ms and lasts ${longest('dur')} ms`;
  });

  await pageCheck('a column follows its answer until the person scrolls up', async (page) => {
    const rest = () => page.locator('.messages').evaluate((it) => it.scrollHeight - it.scrollTop - it.clientHeight);
    for (let i = 0; i < 3; i++) await say(page, 'markdown');
    await ask(page, 'slow');
    await page.getByText('one two three four').first().waitFor();
    assert.ok((await rest()) < 2, 'it follows');
    await page.locator('.messages').hover();
    await page.mouse.wheel(0, -600);
    await page.waitForTimeout(300);
    const before = await page.locator('.messages').evaluate((it) => it.scrollTop);
    await page.waitForTimeout(1000);
    assert.equal(await page.locator('.messages').evaluate((it) => it.scrollTop), before);
    await page.mouse.wheel(0, 5000);
    await page.waitForFunction(() => {
      const it = document.querySelector('.messages');
      return it.scrollHeight - it.scrollTop - it.clientHeight < 2;
    });
  });

  await pageCheck('an answer can be stopped, and its words stay and go on', async (page) => {
    await ask(page, 'slow');
    await page.getByText('one two three').first().waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await idle(page);
    await page.waitForFunction(() => !document.querySelector('#send').hidden);
    await new Promise((resolve) => setTimeout(resolve, 200));
    assert.equal(now.server.state.cut, 1, 'the server hears of it');
    const answer = answers(page).last();
    const before = (await answer.locator('.words').last().innerText()).trim();
    await act(answer, 'Continue');
    await idle(page);
    assert.equal((await answer.locator('.words').last().innerText()).trim(), `${before} and goes on.`);
    const { asked } = chats().at(-1);
    assert.equal(asked.prompt[0], 1);
    assert.notEqual(asked.prompt[1], 1, 'one token begins the prompt');
    assert.equal(asked.max_tokens, 16384 - asked.prompt.length);
    const prompt = String.fromCodePoint(...asked.prompt.slice(1));
    assert.equal(prompt.trimEnd(), `<|user|>slow<|end|>\n<|assistant|>${before}`);
    assert.equal(await page.getByRole('alert').filter({ visible: true }).count(), 0);
  });

  await pageCheck('an answer goes on while another chat is open, and not after its chat is deleted', async (page) => {
    await ask(page, 'slow');
    await page.locator('#panes').getByText('one two').first().waitFor();
    await page.getByRole('button', { name: 'New chat' }).click();
    await say(page, 'Hello');
    await page.waitForTimeout(500);
    assert.equal(now.server.state.cut, 0);
    await page.locator('.chat', { hasText: 'slow' }).click();
    const words = async () => (await answers(page).last().innerText()).length;
    const before = await words();
    await page.waitForTimeout(500);
    assert.ok((await words()) > before);
    await page.getByRole('button', { name: 'Change slow' }).click();
    await page.locator('.menu').getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog', { name: 'Delete this chat?' }).getByRole('button', { name: 'Delete' }).click();
    await page.locator('.chat', { hasText: 'slow' }).waitFor({ state: 'detached' });
    await page.waitForTimeout(300);
    assert.equal(now.server.state.cut, 1);
    await page.reload();
    await page.locator('.chat', { hasText: 'Hello' }).waitFor();
    assert.equal(await page.locator('.chat').count(), 1);
  });

  await pageCheck('branches: regenerate, and edit either side', async (page) => {
    await say(page, 'one');
    await act(answers(page).last(), 'Regenerate');
    await idle(page);
    assert.match(await answers(page).last().locator('.branches').innerText(), /2 of 2/);
    await act(questions(page).first(), 'Edit');
    await page.locator('.edit').fill('two');
    await page.getByRole('button', { name: 'Send as a branch' }).click();
    await page.locator('#panes').getByText('You said: two').first().waitFor();
    await idle(page);
    assert.match(await questions(page).first().locator('.branches').innerText(), /2 of 2/);
    await act(answers(page).last(), 'Edit');
    await page.locator('.edit').fill('words of mine');
    await page.getByRole('button', { name: 'Save as a branch' }).click();
    assert.match(await answers(page).last().innerText(), /edited[^]*2 of 2[^]*words of mine/);
    await say(page, 'three');
    assert.equal(chats().at(-1).asked.messages[1].content, 'words of mine');
    await questions(page).first().getByRole('button', { name: 'Branch before' }).click();
    await page.locator('#panes').getByText('You said: one').first().waitFor();
    await act(answers(page).last(), 'Edit');
    await page.locator('.edit').fill('changed here');
    await page.getByRole('button', { name: 'Save here' }).click();
    assert.match(await answers(page).last().innerText(), /changed here/);
    await act(answers(page).last(), 'Delete');
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.locator('#panes').getByText('You said: one').first().waitFor();
    assert.equal(await answers(page).last().locator('.branches').innerText(), '');
  });

  await pageCheck('reasoning is folded', async (page) => {
    await say(page, 'think');
    const fold = answers(page).last().locator('.reasoning');
    assert.equal(await fold.getAttribute('open'), null);
    await fold.locator('summary').click();
    await fold.locator('strong', { hasText: 'Then' }).waitFor();
    await say(page, 'Hello');
    assert.equal(chats().at(-1).asked.messages[1].reasoning_content, 'First I think about it. **Then** I answer.');
  });

  await pageCheck('broken streams keep their words, and errors say what is wrong', async (page) => {
    for (const [words, said, alert] of [
      ['cut', 'ends too early', 'broke off'],
      ['error', 'Some words', 'the device is gone'],
      ['garbage', 'Some words', 'not JSON'],
      ['busy', '', 'the queue is full Try again in 3 s.'],
      ['refuse', '', 'temperature: expected'],
    ]) {
      await say(page, words);
      const answer = answers(page).last();
      assert.match(await answer.innerText(), new RegExp(said));
      const problem = answer.getByRole('alert');
      await problem.waitFor();
      assert.match(await problem.innerText(), new RegExp(alert));
    }
    assert.equal(await page.locator('#set-temperature').getAttribute('aria-invalid'), 'true');
    await say(page, 'limit');
    assert.match(await answers(page).last().innerText(), /ended by the limit/);
  });

  await pageCheck('settings, presets and the request as curl', async (page) => {
    await openSettings(page);
    assert.equal(await page.locator('#set-temperature').getAttribute('placeholder'), '0.8');
    await page.locator('#set-temperature').fill('0.3');
    await page.locator('#set-system').fill("You're brief.");
    await page.locator('#set-max_tokens').fill('50');
    await page.locator('#set-seed').fill('7');
    await page.locator('#set-stop').fill('END\nSTOP');
    await page.locator('#set-xtc_threshold').fill('0.2');
    await page.locator('#set-dry_sequence_breakers').fill('["x"]');
    await page.getByRole('button', { name: 'Save preset' }).click();
    await page.getByRole('combobox', { name: 'Name' }).fill('brief');
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
    await say(page, 'Hello');
    const { stream, stream_options, ...rest } = chats()[0].asked;
    const messages = [
      { role: 'system', content: "You're brief." },
      { role: 'user', content: 'Hello' },
    ];
    assert.deepEqual(rest, {
      model: 'mock-8b',
      messages,
      temperature: 0.3,
      xtc_threshold: 0.2,
      dry_sequence_breakers: ['x'],
      max_tokens: 50,
      seed: 7,
      stop: ['END', 'STOP'],
    });
    await page.getByRole('button', { name: 'As curl' }).click();
    const command = await page.getByRole('dialog').locator('pre').innerText();
    const arguments_ = execFileSync('sh', ['-c', command.replace(/^curl/, 'printf "%s\\0"')])
      .toString()
      .split('\0');
    assert.equal(arguments_[0], `${now.server.url}/v1/chat/completions`);
    assert.deepEqual(JSON.parse(arguments_[4]), chats()[0].asked);
    await page.getByRole('button', { name: 'Close' }).last().click();
    await page.locator('#set-temperature').fill('');
    await page.locator('#set-system').fill('');
    await page.locator('#set-preset').selectOption('brief');
    assert.equal(await page.locator('#set-temperature').inputValue(), '0.3');
    assert.equal(await page.locator('#set-system').inputValue(), "You're brief.");
    await page.locator('#set-model').selectOption('mock-1b');
    await say(page, 'Hello');
    assert.equal(chats().at(-1).asked.model, 'mock-1b');
  });

  await pageCheck('tools by hand, and a schema', async (page) => {
    await openSettings(page);
    await page.locator('#set-tools').fill('{"name": "weather", "parameters": {"type": "object"}}');
    await say(page, 'weather');
    const call = page.locator('.call');
    assert.match(await call.innerText(), /The model calls weather[^]*"city": "Bern"/);
    await page.getByLabel('Result of weather').fill('22 degrees');
    await page.getByRole('button', { name: 'Send results' }).click();
    await page.locator('#panes').getByText('The tool says 22 degrees.').first().waitFor();
    await idle(page);
    const { asked } = chats().at(-1);
    assert.deepEqual(asked.tools, [
      { type: 'function', function: { name: 'weather', parameters: { type: 'object' } } },
    ]);
    assert.deepEqual(asked.messages.slice(-1), [{ role: 'tool', tool_call_id: 'call00001', content: '22 degrees' }]);
    assert.equal(asked.messages.at(-2).tool_calls[0].function.arguments, '{"city": "Bern"}');
    await page.locator('#set-tool_choice').selectOption('none');
    await page.locator('#set-schema').fill('{"type": "object"}');
    await say(page, 'json');
    const last = chats().at(-1).asked;
    assert.deepEqual(last.response_format, {
      type: 'json_schema',
      json_schema: { name: 'answer', schema: { type: 'object' }, strict: true },
    });
    assert.equal(last.tool_choice, 'none');
    await page.locator('#set-schema').fill('{');
    await say(page, 'json');
    assert.match(await answers(page).last().getByRole('alert').innerText(), /schema are not JSON/);
    assert.equal(await page.locator('#set-schema').getAttribute('aria-invalid'), 'true');
  });

  await pageCheck('two models side by side', async (page) => {
    await say(page, 'First');
    await openSettings(page);
    await page.locator('#set-second').selectOption('mock-1b');
    await say(page, 'Both');
    await page.locator('#panes').getByText('You said: Both (3 messages, mock-8b)').first().waitFor();
    await page.locator('#panes').getByText('You said: Both (3 messages, mock-1b)').first().waitFor();
    assert.equal(await page.locator('.column').count(), 2);
    await idle(page);
    await page.locator('#set-second').selectOption('');
    assert.equal(await page.locator('.column').count(), 1);
    assert.match(await answers(page).last().locator('.branches').innerText(), /1 of 2/);
  });

  await pageCheck('devices and fallbacks, live', async (page) => {
    const button = page.getByRole('button', { name: /^Devices/ });
    await button.click();
    assert.match(await page.locator('#devices').innerText(), /AMD EPYC \(cpu\) 24.0 GiB of memory[^]*None/);
    now.server.state.devices.fallbacks.push({
      operation: 'matmul',
      from: 'NVIDIA H200',
      to: 'AMD EPYC',
      reason: 'the device ran out of memory',
    });
    await say(page, 'Hello');
    await page.getByRole('button', { name: 'Devices: 1 fallback' }).waitFor();
    assert.match(
      await page.locator('#devices').innerText(),
      /matmul moved from NVIDIA H200 to AMD EPYC. the device ran out of memory/,
    );
  });

  await pageCheck('a server without devices has no panel of them', async (page) => {
    now.server.state.devices = undefined;
    await page.reload();
    await page.getByRole('heading', { name: 'mock-8b' }).waitFor();
    assert.equal(await page.locator('#show-devices').isVisible(), false);
  });

  await pageCheck('chats are kept, found, moved, exported and imported', async (page) => {
    await say(page, 'A needle here');
    await page.getByRole('button', { name: 'New chat' }).click();
    await say(page, 'Other words');
    await page.locator('#search').fill('NEEDLE');
    await page.locator('.chat', { hasText: 'Other words' }).waitFor({ state: 'detached' });
    assert.equal(await page.locator('.chat').count(), 1);
    await page.getByRole('button', { name: 'Change A needle here' }).click();
    await page.getByRole('button', { name: 'Move to a folder' }).click();
    await page.getByRole('combobox', { name: 'Folder' }).fill('Work');
    await page.getByRole('button', { name: 'Move', exact: true }).click();
    await page.locator('summary', { hasText: 'Work (1)' }).waitFor();
    await page.locator('#search').fill('');
    const waiting = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Export all' }).click();
    const path = await (await waiting).path();
    await page.getByRole('button', { name: 'Change A needle here' }).click();
    await page.locator('.menu').getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog', { name: 'Delete this chat?' }).getByRole('button', { name: 'Delete' }).click();
    await page.locator('.chat', { hasText: 'A needle' }).waitFor({ state: 'detached' });
    await page.locator('#import-file').setInputFiles(path);
    await page.locator('summary', { hasText: 'Work (1)' }).waitFor();
    assert.equal(await page.locator('.chat').count(), 3);
    await page.locator('.chat', { hasText: 'A needle' }).click();
    await page.locator('#panes').getByText('You said: A needle here').first().waitFor();
    await page.reload();
    await page.locator('#panes').getByText('You said: A needle here').first().waitFor();
    await page
      .locator('#import-file')
      .setInputFiles({ name: 'x.json', mimeType: 'application/json', buffer: Buffer.from('{"a": 1}') });
    await page.getByText('This file has no chats of this page.').waitFor();
  });

  await pageCheck('chats can be read while the server is down', async (page) => {
    await say(page, 'Remember me');
    await page.waitForFunction(async () => (await caches.open('rustorch-page')).match('/page/tree.js'));
    await now.server.stop();
    await ask(page, 'Anyone?');
    await page.locator('#offline').waitFor();
    await page.reload();
    await page.locator('#panes').getByText('You said: Remember me').first().waitFor();
    await page.locator('#offline').waitFor();
    const old = now.server;
    now.server = await serve(old.port);
    await page.locator('#offline').waitFor({ state: 'hidden', timeout: 15_000 });
    await say(page, 'Back');
  });

  await pageCheck('500 chats open at once', async (page) => {
    await page.evaluate(async () => {
      const store = await import('/page/store.js');
      const tree = await import('/page/tree.js');
      const chats = Array.from({ length: 500 }, (_, n) => {
        const chat = { ...tree.newChat(), title: `Chat ${n}` };
        for (let i = 0; i < 20; i++)
          chat.leaves = [
            tree.add(chat, chat.leaves[0], { role: i % 2 ? 'assistant' : 'user', content: 'Words. '.repeat(100) }).id,
          ];
        return chat;
      });
      await store.save(...chats);
    });
    const times = [];
    for (let i = 0; i < 5; i++) {
      await page.reload({ waitUntil: 'commit' });
      const time = await page.evaluate(async () => {
        while (document.querySelectorAll('.chat').length < 500) await new Promise(requestAnimationFrame);
        return performance.now();
      });
      times.push(Math.round(time));
    }
    const best = Math.min(...times);
    if (best > OPENING && loadavg()[0] > cpus().length) return { skipped: `the machine is busy: ${times} ms` };
    assert.ok(best <= OPENING, `${times} ms`);
    return `${best} ms from the request of the page to the list, the best of ${times}`;
  });

  await pageCheck('a key is asked for and kept in the tab', async (page) => {
    now.server.state.key = 'secret';
    await page.reload();
    const field = page.locator('#set-key');
    await page.waitForFunction(() => document.activeElement?.id === 'set-key');
    await field.fill('secret');
    await field.press('Tab');
    await page.getByRole('heading', { name: 'mock-8b' }).waitFor();
    await say(page, 'Hello');
    assert.match(await answers(page).last().innerText(), /You said: Hello/);
    assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes('secret')), false);
    await page.getByRole('button', { name: 'As curl' }).click();
    assert.doesNotMatch(await page.getByRole('dialog').innerText(), /secret/);
  });

  await pageCheck('files and long pastes', async (page) => {
    await page.locator('#attach-file').setInputFiles([
      { name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('words ``` of a file') },
      { name: 'b.bin', mimeType: 'text/plain', buffer: Buffer.from([255, 254, 0]) },
    ]);
    await page.getByText('b.bin: a message takes texts').waitFor();
    await page.getByRole('button', { name: 'Close' }).last().click();
    await say(page, 'Read it');
    assert.equal(chats()[0].asked.messages[0].content, 'a.txt:\n````\nwords ``` of a file\n````\n\nRead it');
  });

  await pageCheck('the keyboard alone', async (page) => {
    const reach = async (name) => {
      for (let i = 0; i < 60; i++) {
        await page.keyboard.press('Tab');
        const at = await page.evaluate(
          () =>
            document.activeElement?.getAttribute('aria-label') ||
            document.activeElement?.textContent ||
            document.activeElement?.id,
        );
        if (at === name) return;
      }
      throw new Error(`${name} is not reached`);
    };
    await page.waitForFunction(() => document.activeElement?.id === 'question');
    await page.keyboard.type('slow');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.press('Backspace');
    await page.keyboard.press('Enter');
    await page.getByText('one two').first().waitFor();
    await page.keyboard.press('Escape');
    await idle(page);
    await reach('Regenerate');
    await page.keyboard.press('Enter');
    await page.getByText('2 of 2').waitFor();
    await page.keyboard.press('Escape');
    await idle(page);
    await page.keyboard.press('Control+k');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'search');
    await page.keyboard.press('Control+Shift+O');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'question');
    assert.equal(await answers(page).count(), 0);
    await reach('Settings');
    await page.keyboard.press('Enter');
    await page.locator('#set-temperature').waitFor();
  });

  for (const scheme of ['light', 'dark']) {
    for (const width of WIDTHS) {
      await pageCheck(`axe finds nothing: ${scheme}, ${width} px`, (page) => look(page, scheme, width), {
        width,
        scheme,
        bypassCSP: true,
      });
    }
  }
  await pageCheck('axe finds nothing: forced colours', (page) => look(page, 'forced', 1280), {
    forcedColors: 'active',
    bypassCSP: true,
  });
}

if (await launch()) {
  await checkPages();
  await close();
} else {
  counts.skipped++;
  console.log('skipped all that needs a browser: it needs chromium, playwright-core and axe-core');
}
console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
process.exit(counts.failed ? 1 : 0);
