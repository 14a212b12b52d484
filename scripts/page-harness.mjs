// Runs the checks of the page: each with a browser's page and a server of its own. See scripts/check-page.mjs.

import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { serve } from './page-mock.mjs';

const ONLY = process.argv[2];

export const counts = { passed: 0, failed: 0, skipped: 0 };

/** Runs a check. It may return a note, or why it is `skipped`. */
export async function check(name, work) {
  if (ONLY && !name.includes(ONLY)) return;
  try {
    const note = await work();
    counts[note?.skipped ? 'skipped' : 'passed']++;
    console.log(note?.skipped ? `skipped ${name}: ${note.skipped}` : `ok      ${name}${note ? `: ${note}` : ''}`);
  } catch (error) {
    counts.failed++;
    console.log(`FAILED  ${name}: ${error.stack}`);
  }
}

const folders = [process.env.NODE_MODULES, process.cwd()].filter(Boolean);
const find = (name) => {
  for (const folder of folders) {
    try {
      return createRequire(`${folder}/`).resolve(name);
    } catch {
      // The next folder may have it.
    }
  }
  return undefined;
};
const playwright = find('playwright-core');
const axe = find('axe-core');
const executablePath = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser'].find(
  (it) => it && existsSync(it),
);

let browser;

/** The server of the check that runs. */
export const now = {};

/** A check with a page and a server of its own. Errors of the page fail it. */
export function pageCheck(name, work, { width = 1280, height = 800, scheme = 'light', ...context } = {}) {
  return check(name, async () => {
    now.server = await serve();
    const own = await browser.newContext({
      viewport: { width, height },
      colorScheme: scheme,
      acceptDownloads: true,
      ...context,
    });
    const page = await own.newPage();
    const errors = [];
    page.on('pageerror', (error) => errors.push(String(error)));
    page.on(
      'console',
      (it) => it.type() === 'error' && !/Failed to load resource/.test(it.text()) && errors.push(it.text()),
    );
    page.on(
      'request',
      (it) => /^(http:\/\/127\.0\.0\.1:|blob:|data:)/.test(it.url()) || errors.push(`a request to ${it.url()}`),
    );
    page.setDefaultTimeout(8000);
    try {
      await page.goto(now.server.url);
      await page.getByRole('heading', { name: 'mock-8b' }).waitFor();
      const note = await work(page, own);
      assert.deepEqual(errors, []);
      return note;
    } catch (error) {
      if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/failed.png` });
      throw error;
    } finally {
      await own.close();
      await now.server.stop();
    }
  });
}

export const answers = (page) => page.locator('.message.assistant');
export const questions = (page) => page.locator('.message.user');
export const chats = () =>
  now.server.state.requests.filter(({ pathname }) => /^\/v1\/(chat\/)?completions$/.test(pathname));

export async function ask(page, words) {
  await page.locator('#question').fill(words);
  await page.locator('#question').press('Enter');
}

export const idle = (page) =>
  page.locator('.message[aria-busy="true"]').first().waitFor({ state: 'detached', timeout: 60_000 });

export async function say(page, words) {
  await ask(page, words);
  await answers(page).last().waitFor();
  await idle(page);
}

export const act = (message, name) => message.getByRole('button', { name, exact: true }).click();

export async function openSettings(page) {
  await page.getByRole('button', { name: 'Settings' }).click();
  for (const name of ['More samplers', 'Tools and form', 'Page'])
    await page.locator('#settings summary', { hasText: name }).click();
}

async function findings(page, about) {
  await page.evaluate(await readFile(axe, 'utf8')).catch(async () => page.addScriptTag({ path: axe }));
  const { violations } = await page.evaluate(() => window.axe.run());
  const found = violations.flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id} ${target}: ${failureSummary}`),
  );
  assert.deepEqual(found, [], about);
}

/** Every state of the page, looked at by axe and for words that stick out. */
export async function look(page, scheme, width) {
  const shot = async (state) => {
    if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/${scheme}-${width}-${state}.png` });
    await findings(page, state);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(wide <= 0, `${state} is ${wide} px too wide`);
  };
  const shown = async (id, open) => {
    if ((await page.locator(`#${id}`).isVisible()) !== open) {
      if (open || width >= 900) await page.locator(`#show-${id}`).click();
      else await page.keyboard.press('Escape');
    }
  };
  await shot('empty');
  await say(page, 'markdown');
  await act(answers(page).last(), 'Regenerate');
  await idle(page);
  await say(page, 'think');
  await answers(page).last().locator('summary').click();
  await shot('answers');
  await say(page, 'cut');
  await act(questions(page).last(), 'Edit');
  await shot('editing');
  await page.keyboard.press('Escape');
  await shown('chats', true);
  await shot('chats');
  await page.locator('.chat').first().locator('xpath=..').getByRole('button').last().click();
  await shot('menu');
  await page.getByRole('dialog').getByRole('button', { name: 'Close' }).click();
  await shown('chats', false);
  now.server.state.devices.fallbacks.push({
    operation: 'matmul',
    from: 'NVIDIA H200',
    to: 'AMD EPYC',
    reason: 'the device ran out of memory',
  });
  await say(page, 'weather');
  await shot('call');
  await shown('devices', true);
  await page.locator('#panes').getByText('matmul').first().waitFor();
  await shot('devices');
  await shown('devices', false);
  await openSettings(page);
  await shot('settings');
  await page.locator('#set-second').selectOption('mock-1b');
  await shown('settings', false);
  await say(page, 'Hello');
  await shot('two');
  await page.getByRole('button', { name: 'As curl' }).click();
  await shot('curl');
}

/** Starts the browser; false without one, or without the packages. */
export async function launch() {
  if (!playwright || !axe || !executablePath) return false;
  const { chromium } = createRequire(import.meta.url)(playwright);
  browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
  return true;
}

export const close = () => browser.close();
