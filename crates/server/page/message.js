// A message on the page.

import { copyButton, h } from './dom.js';
import { MarkdownView } from './markdown.js';
import { siblings } from './tree.js';

const NAMES = { user: 'You', assistant: 'Model', tool: 'Result of a tool' };

/** Milliseconds between two drawings of an answer: nobody reads faster. */
const PAUSE = 20;

/** Milliseconds for a drawing, after which the next ones wait longer. */
const SLOW = 8;

const seconds = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

/** The figures of an answer as words. */
function figures({ stats = {}, finish }) {
  const parts = [];
  if (stats.generated !== undefined) parts.push(`${stats.generated} tokens`);
  if (stats.speed) parts.push(`${stats.speed.toFixed(1)} tokens/s`);
  if (stats.first !== undefined) parts.push(`first token after ${seconds(stats.first)}`);
  if (stats.prompt !== undefined) parts.push(`prompt ${stats.prompt} tokens, ${stats.cached} of them cached`);
  if (finish === 'length') parts.push('ended by the limit of tokens');
  return parts.join(' · ');
}

/** Spaces out the lines of JSON; other text stays. */
function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), undefined, 2);
  } catch {
    return text;
  }
}

export class MessageView {
  /** `actions` are called with the message: see `Conversation`. */
  constructor(chat, node, actions) {
    Object.assign(this, { chat, node, actions, live: false, wait: PAUSE });
    this.body = h('div', { class: 'words' });
    this.markdown = node.role === 'assistant' ? new MarkdownView(this.body) : undefined;
    this.reasoning = h('div', { class: 'words' });
    this.thoughts = new MarkdownView(this.reasoning);
    this.summary = h('summary', {}, 'Reasoning');
    this.fold = h('details', { class: 'reasoning', hidden: true }, this.summary, this.reasoning);
    this.fold.addEventListener('toggle', () => this.draw());
    this.name = h('h3');
    this.branches = h('span', { class: 'branches' });
    this.calls = h('div', { class: 'calls' });
    this.files = h('div', { class: 'files' });
    this.problem = h('div', { class: 'problem', role: 'alert', hidden: true });
    this.figures = h('p', { class: 'figures' });
    this.buttons = h('div', { class: 'row actions' });
    this.element = h(
      'article',
      { class: `message ${node.role}` },
      h('header', { class: 'row' }, this.name, this.branches),
      this.files,
      this.fold,
      this.body,
      this.calls,
      this.problem,
      h('footer', {}, this.figures, this.buttons),
    );
    this.update();
  }

  /** Draws what changed within a stream, no more often than the browser keeps up with. */
  grow() {
    if (this.pending) return;
    this.pending = true;
    const draw = () =>
      requestAnimationFrame(() => {
        this.pending = false;
        const begin = performance.now();
        this.draw();
        this.actions.grown(this);
        const time = performance.now() - begin;
        this.wait = time > SLOW ? Math.min(time * 4, 400) : PAUSE;
      });
    setTimeout(draw, this.wait);
  }

  draw() {
    const { node } = this;
    if (this.markdown) this.markdown.set(node.content);
    else this.body.textContent = node.content;
    this.fold.hidden = !node.reasoning;
    // Reasoning that nobody looks at is not drawn.
    if (node.reasoning && this.fold.open) this.thoughts.set(node.reasoning);
    if (node.reasoning) this.summary.textContent = this.live && !node.content ? 'Reasoning …' : 'Reasoning';
    if (this.live && node.stats?.first === undefined && !node.content)
      this.figures.textContent = 'Reading the prompt …';
    else this.figures.textContent = figures(node);
  }

  /** Draws all. `live` is whether the answer still comes. */
  update(live = false) {
    const { node, chat } = this;
    this.live = live;
    this.draw();
    this.element.setAttribute('aria-busy', String(live));
    const edited = node.edited ? ', edited' : '';
    this.name.textContent = `${NAMES[node.role]}${node.model ? ` (${node.model})` : ''}${edited}`;
    this.element.setAttribute('aria-label', this.name.textContent);
    this.problem.hidden = !node.error;
    this.problem.replaceChildren(node.error ?? '');
    this.drawFiles();
    this.drawBranches(siblings(chat, node));
    this.drawCalls();
    this.drawButtons();
  }

  drawFiles() {
    const file = ({ name, text }) =>
      h('details', {}, h('summary', {}, `File ${name}`), h('pre', { tabindex: 0 }, text));
    this.files.replaceChildren(...(this.node.files ?? []).map(file));
  }

  drawBranches(ids) {
    const at = ids.indexOf(this.node.id);
    const step = (label, sign, to) =>
      h(
        'button',
        {
          type: 'button',
          class: 'quiet',
          'aria-label': label,
          disabled: !ids[to],
          onclick: () => this.actions.choose(ids[to]),
        },
        sign,
      );
    this.branches.replaceChildren();
    if (ids.length < 2) return;
    this.branches.append(
      step('Branch before', '‹', at - 1),
      ` ${at + 1} of ${ids.length} `,
      step('Next branch', '›', at + 1),
    );
  }

  drawCalls() {
    const { node, chat } = this;
    this.calls.replaceChildren();
    if (!node.calls?.length) return;
    const open = !this.live && !node.children.some((id) => chat.nodes[id].role === 'tool');
    const fields = [];
    for (const { name, arguments: text } of node.calls) {
      const box = h(
        'div',
        { class: 'call' },
        h('h4', {}, `The model calls ${name}`),
        h('pre', { tabindex: 0 }, pretty(text)),
      );
      if (open) {
        const field = h('textarea', { rows: 3 });
        fields.push(field);
        box.append(h('label', {}, `Result of ${name}`, field));
      }
      this.calls.append(box);
    }
    if (!open) return;
    const send = () =>
      this.actions.results(
        node,
        fields.map((field) => field.value),
      );
    this.calls.append(h('button', { type: 'button', class: 'primary', onclick: send }, 'Send results'));
  }

  drawButtons() {
    const { node, actions } = this;
    const button = (label, action) =>
      h('button', { type: 'button', class: 'quiet', onclick: () => action(node) }, label);
    this.buttons.replaceChildren();
    if (this.live || this.form) return;
    this.buttons.append(
      copyButton('Copy', () => node.content),
      button('Edit', () => this.edit()),
    );
    if (node.role === 'assistant') {
      this.buttons.append(button('Regenerate', actions.regenerate));
      if (node.content && !node.children.length && !node.calls?.length)
        this.buttons.append(button('Continue', actions.goOn));
    } else if (!node.children.length) this.buttons.append(button('Answer', actions.answer));
    this.buttons.append(button('Delete', actions.remove));
  }

  edit() {
    const { node, actions } = this;
    const field = h('textarea', { class: 'edit', 'aria-label': `Words of ${NAMES[node.role]}`, value: node.content });
    const done = () => {
      this.form.replaceWith(this.body);
      this.form = undefined;
      this.update();
      this.buttons.querySelectorAll('button')[1]?.focus();
    };
    const branch = node.role === 'assistant' ? 'Save as a branch' : 'Send as a branch';
    this.form = h(
      'form',
      { onsubmit: (event) => event.preventDefault() },
      field,
      h(
        'div',
        { class: 'row end' },
        h('button', { type: 'button', onclick: done }, 'Cancel'),
        h('button', { type: 'button', onclick: () => (actions.rewrite(node, field.value), done()) }, 'Save here'),
        h(
          'button',
          { type: 'button', class: 'primary', onclick: () => (done(), actions.branch(node, field.value)) },
          branch,
        ),
      ),
    );
    this.form.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      done();
    });
    this.body.replaceWith(this.form);
    this.buttons.replaceChildren();
    field.focus();
  }
}
