// Chats: trees of messages. A branch is a path from the root to a leaf.

import { unique } from './dom.js';

export const ROOT = 'root';

/** A chat without messages. A column shows the path to its leaf; a second model has a second column. */
export function newChat(settings = {}) {
  const now = Date.now();
  const root = { id: ROOT, children: [] };
  return {
    id: unique(),
    title: '',
    folder: '',
    created: now,
    changed: now,
    settings,
    nodes: { [ROOT]: root },
    leaves: [ROOT],
  };
}

/** Adds a message below another one. */
export function add(chat, parent, message) {
  const node = { content: '', created: Date.now(), ...message, id: unique(), parent, children: [] };
  chat.nodes[node.id] = node;
  chat.nodes[parent].children.push(node.id);
  return node;
}

/** The messages from the first one to a leaf. */
export function path(chat, leaf) {
  const nodes = [];
  for (let node = chat.nodes[leaf]; node && node.id !== ROOT; node = chat.nodes[node.parent]) nodes.push(node);
  return nodes.reverse();
}

/** The messages that stand at the same place, this one included. */
export const siblings = (chat, node) => chat.nodes[node.parent].children;

/** The newest leaf below a message. */
export function leafBelow(chat, id) {
  let node = chat.nodes[id];
  while (node.children.length) node = chat.nodes[node.children.at(-1)];
  return node.id;
}

/** Removes a message and all below it. Columns that showed it show a message beside it, or the one above. */
export function remove(chat, id) {
  const { parent } = chat.nodes[id];
  const above = chat.nodes[parent];
  above.children = above.children.filter((child) => child !== id);
  const gone = [id];
  for (const next of gone) gone.push(...chat.nodes[next].children);
  for (const next of gone) delete chat.nodes[next];
  chat.leaves = chat.leaves.map((leaf) => (chat.nodes[leaf] ? leaf : leafBelow(chat, parent)));
}

/** Gives a chat its first words as a title, unless it has one. */
export function entitle(chat, text) {
  chat.title ||= text.trim().split('\n')[0].slice(0, 80);
}

/** A chat from a file, checked: only known fields of the right types are taken. */
export function checkedChat(value) {
  const text = (it) => (typeof it === 'string' ? it : '');
  const object = (it) => (it && typeof it === 'object' && !Array.isArray(it) ? it : {});
  const given = object(value?.nodes);
  const chat = newChat(object(value?.settings));
  chat.title = text(value?.title);
  chat.folder = text(value?.folder);
  const known = new Map([[ROOT, ROOT]]);
  const queue = [ROOT];
  for (const id of queue) {
    const children = Array.isArray(given[id]?.children) ? given[id].children : [];
    for (const child of children) {
      const node = given[child];
      if (known.has(child) || !['user', 'assistant', 'tool'].includes(node?.role)) continue;
      const { role, model, call, edited, created } = node;
      const message = {
        role,
        content: text(node.content),
        reasoning: text(node.reasoning),
        created: Number(created) || 0,
      };
      if (typeof model === 'string') message.model = model;
      if (typeof call === 'string') message.call = call;
      if (edited === true) message.edited = true;
      if (Array.isArray(node.calls)) {
        message.calls = node.calls.map((it) => ({
          id: text(it?.id),
          name: text(it?.name),
          arguments: text(it?.arguments),
        }));
      }
      if (Array.isArray(node.files)) {
        message.files = node.files.map((it) => ({ name: text(it?.name), text: text(it?.text) }));
      }
      message.stats = Object.fromEntries(Object.entries(object(node.stats)).filter(([, it]) => Number.isFinite(it)));
      known.set(child, add(chat, known.get(id), message).id);
      queue.push(child);
    }
  }
  const leaf = Array.isArray(value?.leaves) && known.get(value.leaves[0]);
  chat.leaves = [leaf || leafBelow(chat, ROOT)];
  return chat;
}
