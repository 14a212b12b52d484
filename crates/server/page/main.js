// The page: brings its parts together.

import { json } from './api.js';
import { Conversation } from './conversation.js';
import { showDevices } from './devices.js';
import { ask, by, h, showText } from './dom.js';
import { chatBody, curl } from './request.js';
import { Settings, applyTheme } from './settings.js';
import { Sidebar } from './sidebar.js';
import * as store from './store.js';
import { newChat, path } from './tree.js';

/** Milliseconds between two looks at the server. */
const WATCH = 5000;
const LARGEST_FILE = 1 << 20;
const LAST = 'rustorch-last';
/** A paste of more characters becomes a file. */
const LONG_PASTE = 4000;

let files = [];

const conversation = new Conversation(by('columns'), {
  model: (settings, index) => settingsPanel.model(settings, index),
  save: async (chat) => {
    if (conversation.chat === chat && conversation.isEmpty) return;
    try {
      await store.save(chat);
    } catch (error) {
      failed(new Error(`This browser does not keep the chat: ${error?.message}`));
    }
  },
  failed,
  changed: () => {
    showRunning();
    sidebar.refresh();
    if (!conversation.busy) showDevices();
  },
});

const sidebar = new Sidebar({
  open: openChat,
  current: () => conversation.chat?.id,
  failed,
  edited: (id, fields) => {
    const chat = conversation.held(id);
    if (!chat) return false;
    Object.assign(chat, fields);
    showTitle();
    return store.save(chat);
  },
  removed: (id) => {
    conversation.forget(id);
    if (conversation.chat.id === id) show(newChat());
  },
});

const settingsPanel = new Settings({
  changed: () => {
    conversation.save();
    conversation.draw();
  },
  columns: (count) => conversation.setColumns(count),
  key: look,
  close: () => toggle('settings', false),
});

/** Errors that belong to no message, and what a person can do about those that do. */
function failed(error) {
  if (error.status === 0) return showOffline(true);
  if (error.status === 401) {
    toggle('settings', true);
    return settingsPanel.askForKey();
  }
  settingsPanel.refuse(error.param);
  if (error.status === undefined) ask({ title: 'This did not work', text: error.message, action: 'Close' });
}

function showOffline(offline) {
  by('offline').hidden = !offline;
}

function showRunning() {
  by('stop').hidden = !conversation.busy;
  by('send').hidden = conversation.busy;
}

function showTitle() {
  const { title } = conversation.chat;
  by('title').textContent = title || 'RusTorch';
  document.title = title ? `${title} – RusTorch` : 'RusTorch';
}

function show(chat) {
  conversation.open(chat);
  settingsPanel.show(chat);
  localStorage.setItem(LAST, chat.id);
  showTitle();
  showRunning();
  sidebar.draw();
}

/** A chat like the open one, without its messages. */
function begin() {
  const { model, second, ...settings } = structuredClone(conversation.chat?.settings ?? {});
  show(newChat({ ...settings, ...(model && { model }) }));
  if (isNarrow()) toggle('chats', false);
  by('question').focus();
}

async function openChat(id) {
  const chat = conversation.held(id) ?? (await store.load(id));
  if (chat) show(chat);
  if (isNarrow()) toggle('chats', false);
  by('columns').querySelector('.messages')?.focus();
}

/** Looks whether the server is there, and at its models. */
async function look() {
  try {
    const { data } = await json('/v1/models');
    showOffline(false);
    const models = data.map(({ id, meta }) => ({ id, context: meta?.n_ctx }));
    const props = await json('/props').catch(() => undefined);
    const options = props?.default_generation_settings?.params ?? {};
    const known = settingsPanel.news;
    settingsPanel.setServer(models, options);
    if (settingsPanel.news !== known && !conversation.busy) conversation.draw();
    showDevices();
  } catch (error) {
    if (error.status === 0) showOffline(true);
    else if (!look.said) {
      look.said = true;
      failed(error);
    }
  }
}

async function watch() {
  if (!document.hidden) await look();
  setTimeout(watch, WATCH);
}

const isNarrow = () => matchMedia('(max-width: 899px)').matches;

/** Opens or closes a panel. On a narrow screen it covers the page, which rests meanwhile. */
function toggle(id, open = by(id).hidden) {
  const had = by(id).contains(document.activeElement);
  if (open && isNarrow()) for (const other of ['chats', 'devices', 'settings']) if (other !== id) toggle(other, false);
  by(id).hidden = !open;
  by(`show-${id}`).setAttribute('aria-expanded', String(open));
  document.querySelector('main').inert = isNarrow() && ['chats', 'devices', 'settings'].some((it) => !by(it).hidden);
  if (open) by(id).querySelector('button, input, select, textarea')?.focus();
  else if (had) by(`show-${id}`).focus();
}

function showFiles() {
  by('files').hidden = files.length === 0;
  const chip = (file) => {
    const remove = () => {
      files = files.filter((it) => it !== file);
      showFiles();
      by('question').focus();
    };
    const label = `Remove file ${file.name}`;
    return h('button', { type: 'button', 'aria-label': label, onclick: remove }, `${file.name} ×`);
  };
  by('files').replaceChildren(...files.map(chip));
}

/** Adds texts to the message. Files that are no texts are refused by name. */
async function attach(list) {
  const refused = [];
  for (const file of list) {
    try {
      if (file.size > LARGEST_FILE) throw new Error();
      const text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
      if (text.includes('\0')) throw new Error();
      files.push({ name: file.name, text });
    } catch {
      refused.push(file.name);
    }
  }
  showFiles();
  if (!refused.length) return;
  const text = `${refused.join(', ')}: a message takes texts in UTF-8 of at most 1 MiB.`;
  ask({ title: 'Not attached', text, action: 'Close' });
}

function send() {
  const question = by('question');
  const text = question.value.trim();
  if (conversation.busy || (!text && !files.length)) return;
  conversation.send(text, files);
  question.value = '';
  files = [];
  showFiles();
  showTitle();
  question.focus();
}

/** The request for the next answer, as a command. */
function showCurl() {
  const { chat } = conversation;
  const nodes = path(chat, chat.leaves[0]);
  const text = by('question').value.trim();
  if (text || files.length) nodes.push({ role: 'user', content: text, files });
  else if (nodes.at(-1)?.role === 'assistant') nodes.pop();
  try {
    const model = conversation.model(0)?.id ?? 'MODEL';
    showText('The request as curl', curl(location.origin, chatBody(chat.settings, nodes, model)));
  } catch (error) {
    failed(error);
    ask({ title: 'No request', text: error.message, action: 'Close' });
  }
}

function listen() {
  for (const id of ['chats', 'devices', 'settings']) by(`show-${id}`).addEventListener('click', () => toggle(id));
  by('hide-chats').addEventListener('click', () => toggle('chats', false));
  by('new-chat').addEventListener('click', begin);
  by('stop').addEventListener('click', () => {
    conversation.stop();
    by('question').focus();
  });
  by('as-curl').addEventListener('click', showCurl);
  by('attach').addEventListener('click', () => by('attach-file').click());
  by('attach-file').addEventListener('change', async ({ target }) => {
    await attach(target.files);
    target.value = '';
  });
  const composer = by('composer');
  composer.addEventListener('submit', (event) => {
    event.preventDefault();
    send();
  });
  composer.addEventListener('dragover', (event) => event.preventDefault());
  composer.addEventListener('drop', (event) => {
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    attach(event.dataTransfer.files);
  });
  by('question').addEventListener('paste', (event) => {
    const text = event.clipboardData.getData('text/plain');
    if (text.length < LONG_PASTE) return;
    event.preventDefault();
    files.push({ name: `paste ${files.length + 1}`, text });
    showFiles();
  });
  by('question').addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && !document.querySelector('dialog[open]')) {
      const panel = isNarrow() && ['chats', 'devices', 'settings'].find((id) => !by(id).hidden);
      if (panel) toggle(panel, false);
      else conversation.stop();
    }
    if (!(event.ctrlKey || event.metaKey)) return;
    const key = event.key.toLowerCase();
    if (key === 'k') {
      event.preventDefault();
      toggle('chats', true);
      by('search').focus();
    } else if (key === 'o' && event.shiftKey) {
      event.preventDefault();
      begin();
    }
  });
  matchMedia('(max-width: 899px)').addEventListener('change', () => toggle('chats', !isNarrow()));
}

async function start() {
  applyTheme();
  listen();
  // Kept pages are for the time when the server is down. Browsers keep them for TLS and this machine alone.
  navigator.serviceWorker?.register('/page/worker.js', { scope: '/' }).catch(() => {});
  const last = store.load(localStorage.getItem(LAST) ?? '').catch(() => undefined);
  await sidebar.refresh();
  show((await last) ?? newChat());
  if (!isNarrow()) toggle('chats', true);
  by('question').focus();
  watch();
}

start().catch(failed);
