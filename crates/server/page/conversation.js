// The open chat: its columns, and what a person can do with its messages.

import { answer } from './answer.js';
import { announce, ask, h } from './dom.js';
import { MessageView } from './message.js';
import { ROOT, add, entitle, leafBelow, path, remove } from './tree.js';

/** Milliseconds between two savings of an answer that comes. */
const SAVING = 1000;

/** Pixels from the end within which a column follows its answer. */
const NEAR = 80;

/** Gives an element these children. Those that stay are not touched: they keep their layout and the focus. */
function arrange(element, children) {
  const wanted = new Set(children);
  for (const child of [...element.children]) if (!wanted.has(child)) child.remove();
  children.forEach((child, index) => {
    if (element.children[index] !== child) element.insertBefore(child, element.children[index] ?? null);
  });
}

/** One path of the chat, on the page. */
class Column {
  constructor(conversation, index) {
    this.conversation = conversation;
    this.index = index;
    this.views = new Map();
    this.gauge = h('meter', { min: 0, 'aria-label': 'Context in use' });
    this.gaugeText = h('span');
    this.context = h('div', { class: 'row context', hidden: true }, this.gauge, this.gaugeText);
    this.head = h('header', { class: 'row' }, h('h2'), this.context);
    this.list = h('div', { class: 'messages', role: 'log', 'aria-live': 'off', tabindex: 0 });
    this.element = h('section', { class: 'column' }, this.head, this.list);
    this.list.addEventListener('scroll', () => this.scrolled(), { passive: true });
    this.follows = true;
    this.top = 0;
  }

  isNearEnd() {
    return this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < NEAR;
  }

  /** A person who scrolls up reads: the column stays there until the end is in sight again. */
  scrolled() {
    const { scrollTop } = this.list;
    this.follows = this.isNearEnd() || (this.follows && scrollTop >= this.top);
    this.top = scrollTop;
  }

  toEnd() {
    if (this.follows) this.list.scrollTop = this.list.scrollHeight;
  }

  actions() {
    const { conversation: it, index } = this;
    return {
      grown: () => this.toEnd(),
      choose: (id) => it.choose(index, id),
      regenerate: (node) => it.run(index, it.begin(index, node.parent)),
      goOn: (node) => it.run(index, node, true),
      answer: (node) => it.run(index, it.begin(index, node.id)),
      branch: (node, text) => it.branch(index, node, text),
      rewrite: (node, text) => it.rewrite(node, text),
      remove: (node) => it.remove(node),
      results: (node, texts) => it.results(index, node, texts),
    };
  }

  draw() {
    const { chat } = this.conversation;
    const nodes = path(chat, chat.leaves[this.index]);
    const views = new Map();
    for (const node of nodes)
      views.set(node.id, this.views.get(node.id) ?? new MessageView(chat, node, this.actions()));
    this.views = views;
    for (const view of views.values()) view.update(this.conversation.isLive(view.node));
    const empty = h('p', { class: 'empty' }, 'Ask the model something. Chats are kept in this browser alone.');
    arrange(this.list, nodes.length ? [...views.values()].map((view) => view.element) : [empty]);
    this.drawHead(nodes);
    this.toEnd();
    // Messages get their true height when they come into view.
    requestAnimationFrame(() => this.toEnd());
  }

  drawHead(nodes) {
    const model = this.conversation.model(this.index);
    const name = model?.id ?? 'No model';
    this.head.firstChild.textContent = name;
    this.list.setAttribute('aria-label', `Messages with ${name}`);
    const stats = nodes.findLast((node) => node.stats?.prompt !== undefined)?.stats;
    this.context.hidden = !stats || !model?.context;
    if (this.context.hidden) return;
    const used = stats.prompt + (stats.generated ?? 0);
    Object.assign(this.gauge, { max: model.context, high: model.context * 0.8, value: used });
    const text = `${used} of ${model.context} tokens of the context`;
    this.gauge.title = text;
    this.gaugeText.textContent = text;
  }
}

export class Conversation {
  /**
   * `model(settings, index)` is the model of a column, `save(chat)` keeps the chat, `failed(error)` hears of errors,
   * `changed()` of the beginning and end of answers.
   */
  constructor(element, hooks) {
    this.element = element;
    this.hooks = hooks;
    this.runs = [];
  }

  /** Shows a chat. Answers of the chat before go on. */
  open(chat) {
    this.chat = chat;
    this.columns = chat.leaves.map((_, index) => new Column(this, index));
    this.element.replaceChildren(...this.columns.map((column) => column.element));
    this.draw();
  }

  draw() {
    for (const column of this.columns) column.draw();
  }

  model(index) {
    return this.hooks.model(this.chat.settings, index);
  }

  /** One column, or two: the second one begins with the messages of the first. */
  setColumns(count) {
    if (this.chat.leaves.length === count) return;
    this.stop();
    this.chat.leaves = count === 2 ? [this.chat.leaves[0], this.chat.leaves[0]] : [this.chat.leaves[0]];
    this.open(this.chat);
    this.save();
  }

  /** Does the open chat have an answer that comes? */
  get busy() {
    return this.runs.some((run) => run.chat === this.chat);
  }

  isLive(node) {
    return this.runs.some((run) => run.node === node);
  }

  /** The chat with this id that is open, or has an answer that comes. */
  held(id) {
    return this.chat.id === id ? this.chat : this.runs.find((run) => run.chat.id === id)?.chat;
  }

  /** Ends the answers of the open chat, or those of one column. */
  stop(index) {
    for (const run of this.runs) if (run.chat === this.chat && (index ?? run.index) === run.index) run.abort.abort();
  }

  /** Ends the answers of a chat that is deleted, without saving it. */
  forget(id) {
    for (const run of this.runs.filter(({ chat }) => chat.id === id)) {
      run.deleted = true;
      run.abort.abort();
    }
  }

  save() {
    this.chat.changed = Date.now();
    return this.hooks.save(this.chat);
  }

  /** A person's message. Columns that show the same messages share it. */
  send(text, files) {
    const { chat } = this;
    entitle(chat, text || files[0]?.name || '');
    const added = new Map();
    chat.leaves.forEach((leaf, index) => {
      const message = { role: 'user', content: text, ...(files.length && { files }) };
      if (!added.has(leaf)) added.set(leaf, add(chat, leaf, message));
      this.columns[index].follows = true;
      this.run(index, this.begin(index, added.get(leaf).id));
    });
  }

  /** An empty answer below a message, which the column shows. */
  begin(index, parent) {
    const node = add(this.chat, parent, { role: 'assistant' });
    this.chat.leaves[index] = node.id;
    return node;
  }

  /** Has the model write an answer, or go on with one. */
  async run(index, node, goOn = false) {
    this.stop(index);
    const { chat } = this;
    const run = { chat, index, node, abort: new AbortController() };
    this.runs.push(run);
    this.draw();
    this.hooks.changed();
    // The list of chats has it from now on.
    this.hooks.save(chat).then(() => this.hooks.changed());
    announce('The model answers');
    let saved = Date.now();
    const changed = () => {
      for (const column of this.columns) column.views.get(node.id)?.grow();
      if (run.deleted || Date.now() - saved < SAVING) return;
      saved = Date.now();
      this.hooks.save(chat);
    };
    try {
      const model = this.model(index);
      if (!model) throw new Error('The server has no model yet.');
      await answer({
        settings: chat.settings,
        nodes: path(chat, node.id),
        model,
        signal: run.abort.signal,
        goOn,
        changed,
      });
      announce(`The answer is complete: ${node.content.slice(0, 300)}`);
    } catch (error) {
      if (run.abort.signal.aborted) announce('Stopped');
      else {
        node.error = error.retry ? `${error.message} Try again in ${error.retry} s.` : error.message;
        this.hooks.failed(error);
      }
    }
    this.runs = this.runs.filter((it) => it !== run);
    if (this.chat === chat) this.draw();
    if (!run.deleted) {
      chat.changed = Date.now();
      await this.hooks.save(chat);
    }
    this.hooks.changed();
  }

  /** Shows another branch. */
  choose(index, id) {
    this.chat.leaves[index] = leafBelow(this.chat, id);
    this.columns[index].follows = false;
    this.columns[index].draw();
    this.columns[index].views.get(id)?.element.scrollIntoView({ block: 'nearest' });
    this.save();
  }

  /** Other words beside a message's. A person's are answered. */
  branch(index, node, text) {
    const { role, files, call, model } = node;
    const twin = add(this.chat, node.parent, {
      role,
      content: text,
      files,
      call,
      model,
      edited: role === 'assistant' || undefined,
    });
    this.chat.leaves[index] = twin.id;
    if (role !== 'assistant') this.run(index, this.begin(index, twin.id));
    else {
      this.draw();
      this.save();
    }
  }

  /** Other words in place of a message's. */
  rewrite(node, text) {
    if (text === node.content) return;
    node.content = text;
    if (node.role === 'assistant') node.edited = true;
    this.save();
  }

  async remove(node) {
    const below = node.children.length ? ' and all that follows it' : '';
    const sure = await ask({
      title: 'Delete this message?',
      text: `This message${below} will be gone.`,
      action: 'Delete',
    });
    if (sure === undefined) return;
    this.stop();
    remove(this.chat, node.id);
    this.draw();
    this.save();
  }

  /** Results of an answer's calls, in their order. The model goes on from them. */
  results(index, node, texts) {
    let parent = node.id;
    node.calls.forEach((call, at) => {
      parent = add(this.chat, parent, { role: 'tool', call: call.id, content: texts[at] }).id;
    });
    this.run(index, this.begin(index, parent));
  }

  get isEmpty() {
    return this.chat.nodes[ROOT].children.length === 0;
  }
}
