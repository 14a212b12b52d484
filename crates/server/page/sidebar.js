// The list of chats: folders, search, renaming, export and import.

import { announce, ask, by, download, h } from './dom.js';
import * as store from './store.js';
import { checkedChat } from './tree.js';

const VERSION = 1;
const DELAY = 150;

/** Chats as the text of a file. */
export const exported = (chats) => JSON.stringify({ format: 'rustorch-chats', version: VERSION, chats }, undefined, 1);

/** The chats of a file. They get new names, so that none is overwritten. */
export function imported(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`This file is not JSON: ${error.message}`);
  }
  if (value?.format !== 'rustorch-chats' || !Array.isArray(value.chats))
    throw new Error('This file has no chats of this page.');
  if (value.version !== VERSION)
    throw new Error(`This file has version ${value.version}; this page reads version ${VERSION}.`);
  return value.chats.map(checkedChat);
}

export class Sidebar {
  /** `open(id)` shows a chat, `edited(id, fields)` and `removed(id)` hear of changes. */
  constructor(hooks) {
    this.hooks = hooks;
    this.chats = [];
    this.folded = new Set();
    this.element = by('chat-list');
    by('search').addEventListener('input', () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.search(), DELAY);
    });
    by('export-all').addEventListener('click', async () => download('chats.json', exported(await store.loadAll())));
    by('import').addEventListener('click', () => by('import-file').click());
    by('import-file').addEventListener('change', ({ target }) => this.import(target));
  }

  async refresh() {
    this.chats = await store.list();
    this.draw();
  }

  async search() {
    const text = by('search').value.trim();
    const hits = text ? await store.find(text) : undefined;
    if (text !== by('search').value.trim()) return;
    this.hits = hits;
    this.draw();
    if (hits) announce(`${hits.size} chats have it`);
  }

  async import(input) {
    try {
      const chats = [];
      for (const file of input.files) chats.push(...imported(await file.text()));
      await store.save(...chats);
      await this.refresh();
      announce(`${chats.length} chats imported`);
    } catch (error) {
      this.hooks.failed(error);
    }
    input.value = '';
  }

  draw() {
    const shown = this.chats.filter(({ id }) => !this.hits || this.hits.has(id));
    const folders = new Map([['', []]]);
    for (const name of shown.map(({ folder }) => folder).sort()) folders.set(name, []);
    for (const chat of shown) folders.get(chat.folder).push(chat);
    const lists = [...folders].map(([name, chats]) => {
      const list = h(
        'ul',
        {},
        chats.map((chat) => this.row(chat)),
      );
      if (!name) return list;
      const fold = h('details', { open: !this.folded.has(name) }, h('summary', {}, `${name} (${chats.length})`), list);
      fold.addEventListener('toggle', () => (fold.open ? this.folded.delete(name) : this.folded.add(name)));
      return fold;
    });
    const empty = h('p', { class: 'empty' }, this.hits ? 'No chat has these words.' : 'No chats yet.');
    this.element.replaceChildren(...(shown.length ? lists : [empty]));
  }

  row(chat) {
    const title = chat.title || 'Chat without words';
    const current = chat.id === this.hooks.current();
    const open = h(
      'button',
      { type: 'button', class: 'chat', 'aria-current': current && 'true', onclick: () => this.hooks.open(chat.id) },
      title,
    );
    const more = h(
      'button',
      { type: 'button', class: 'quiet', 'aria-label': `Change ${title}`, onclick: () => this.menu(chat) },
      '⋯',
    );
    return h('li', { class: 'row' }, open, more);
  }

  /** What can be done with a chat. */
  menu(chat) {
    const act = (label, work) => {
      const run = async () => {
        dialog.close();
        await work();
      };
      return h('button', { type: 'button', onclick: run }, label);
    };
    const dialog = h(
      'dialog',
      { 'aria-labelledby': 'dialog-title' },
      h('h2', { id: 'dialog-title' }, chat.title || 'Chat without words'),
      h(
        'div',
        { class: 'menu' },
        act('Rename', () => this.rename(chat)),
        act('Move to a folder', () => this.move(chat)),
        act('Export', async () => download('chat.json', exported([await store.load(chat.id)]))),
        act('Delete', () => this.remove(chat)),
        h('button', { type: 'button', onclick: () => dialog.close() }, 'Close'),
      ),
    );
    dialog.addEventListener('close', () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  async rename(chat) {
    const title = await ask({ title: 'Rename this chat', field: 'Title', value: chat.title, action: 'Rename' });
    if (title) await this.edit(chat.id, { title });
  }

  async move(chat) {
    const options = [...new Set(this.chats.map(({ folder }) => folder))].filter(Boolean);
    const text = 'An empty name puts the chat outside of all folders.';
    const folder = await ask({
      title: 'Move to a folder',
      text,
      field: 'Folder',
      value: chat.folder,
      options,
      action: 'Move',
    });
    if (folder !== undefined) await this.edit(chat.id, { folder });
  }

  async edit(id, fields) {
    const saved = this.hooks.edited(id, fields);
    if (saved) await saved;
    else await store.save({ ...(await store.load(id)), ...fields });
    await this.refresh();
  }

  async remove(chat) {
    const sure = await ask({ title: 'Delete this chat?', text: chat.title, action: 'Delete' });
    if (sure === undefined) return;
    this.hooks.removed(chat.id);
    await store.removeChat(chat.id);
    await this.refresh();
  }
}
