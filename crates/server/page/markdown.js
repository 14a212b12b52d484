// Markdown as elements, while it streams. Text of a model never becomes markup: HTML stays text.

import { copyButton, h } from './dom.js';
import { inline } from './inline.js';

const DEEPEST = 12;
const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s([^]*))?$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(\s+|$)(.*)$/;
const QUOTE = /^ {0,3}> ?/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

const begins = (line) =>
  FENCE.test(line) || HEADING.test(line) || RULE.test(line) || ITEM.test(line) || QUOTE.test(line);

/** The text of a heading, without the signs that close it. */
const title = (text) =>
  text
    .trim()
    .replace(/(?:^|\s)#+$/, '')
    .trimEnd();

/** The blocks of lines, each with the line on which it begins. */
function parse(lines, depth = 0) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    if (!line.trim()) {
      at++;
      continue;
    }
    const block = { line: at };
    const fence = FENCE.exec(line);
    const heading = HEADING.exec(line);
    if (fence) at = readCode(lines, at, fence, block);
    else if (heading) {
      Object.assign(block, { type: 'heading', level: heading[1].length, text: title(heading[2] ?? '') });
      at++;
    } else if (RULE.test(line)) {
      block.type = 'rule';
      at++;
    } else if (depth < DEEPEST && QUOTE.test(line)) {
      const inner = [];
      while (at < lines.length && (QUOTE.test(lines[at]) || (lines[at].trim() && !begins(lines[at])))) {
        inner.push(lines[at++].replace(QUOTE, ''));
      }
      Object.assign(block, { type: 'quote', blocks: parse(inner, depth + 1) });
    } else if (depth < DEEPEST && ITEM.test(line)) at = readList(lines, at, depth, block);
    else if (
      line.includes('|') &&
      at + 1 < lines.length &&
      lines[at + 1].includes('-') &&
      DIVIDER.test(lines[at + 1])
    ) {
      at = readTable(lines, at, block);
    } else {
      const begin = at++;
      while (at < lines.length && lines[at].trim() && !begins(lines[at])) at++;
      Object.assign(block, {
        type: 'paragraph',
        text: lines
          .slice(begin, at)
          .map((it) => it.trimStart())
          .join('\n'),
      });
    }
    blocks.push(block);
  }
  return blocks;
}

function readCode(lines, at, [, indent, fence, info], block) {
  const end = new RegExp(`^ {0,3}\\${fence[0]}{${fence.length},}\\s*$`);
  const margin = new RegExp(`^ {0,${indent.length}}`);
  const code = [];
  for (at++; at < lines.length && !end.test(lines[at]); at++) code.push(lines[at].replace(margin, ''));
  Object.assign(block, { type: 'code', language: info.trim().split(/\s/)[0], text: code.join('\n') });
  return at + 1;
}

function readList(lines, at, depth, block) {
  const [, margin, marker] = ITEM.exec(lines[at]);
  const kind = (mark) => (/\d/.test(mark) ? mark.at(-1) : mark);
  Object.assign(block, {
    type: 'list',
    ordered: /\d/.test(marker),
    start: Number.parseInt(marker, 10),
    items: [],
    loose: false,
  });
  while (at < lines.length) {
    const item = ITEM.exec(lines[at]);
    if (!item || RULE.test(lines[at]) || kind(item[2]) !== kind(marker) || item[1].length > margin.length + 1) break;
    const width = item[1].length + item[2].length + Math.min(Math.max(item[3].length, 1), 4);
    const inner = [item[4]];
    for (at++; at < lines.length; at++) {
      const line = lines[at];
      const indent = line.length - line.trimStart().length;
      if (!line.trim()) inner.push('');
      else if (indent >= item[1].length + 2) inner.push(line.slice(Math.min(indent, width)));
      else if (inner.at(-1) !== '' && !begins(line)) inner.push(line);
      else break;
    }
    const blanks = inner.length - inner.findLastIndex((it) => it !== '') - 1;
    block.loose ||= inner.slice(0, inner.length - blanks).includes('');
    const blocks = parse(inner, depth + 1);
    const task = /^\[([ xX])\]\s+/.exec(blocks[0]?.text ?? '');
    if (task) blocks[0].text = blocks[0].text.slice(task[0].length);
    block.items.push({ blocks, done: task ? task[1] !== ' ' : undefined });
  }
  return at;
}

const cells = (line) => {
  const inner = line
    .trim()
    .replace(/^\|/, '')
    .replace(/(?<!\\)\|$/, '');
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll('\\|', '|'));
};

function readTable(lines, at, block) {
  const align = cells(lines[at + 1]).map((it) => {
    if (it.endsWith(':')) return it.startsWith(':') ? 'center' : 'right';
    return 'left';
  });
  Object.assign(block, { type: 'table', head: cells(lines[at]), align, rows: [] });
  for (at += 2; at < lines.length && lines[at].trim() && lines[at].includes('|'); at++)
    block.rows.push(cells(lines[at]));
  return at;
}

/** Code with its language and a button to copy it. It can grow. */
class CodeView {
  // A browser lays a long text out anew for each word, but not the texts before it.
  static LINES = 40;

  constructor(block) {
    this.code = h('code');
    this.text = '';
    const label = block.language ? `Code, ${block.language}` : 'Code';
    const head = h(
      'div',
      { class: 'code-head' },
      h('span', {}, block.language || 'code'),
      copyButton('Copy', () => this.text),
    );
    this.element = h(
      'div',
      { class: 'code' },
      head,
      h('pre', { tabindex: 0, 'aria-label': label, role: 'group' }, this.code),
    );
    this.pieces = [];
    this.set(block.text);
  }

  set(text) {
    const lines = text.split('\n');
    const count = Math.ceil(lines.length / CodeView.LINES);
    // Every piece but the last one stays as it is.
    for (let i = Math.max(this.pieces.length - 1, 0); i < count; i++) {
      if (!this.pieces[i]) {
        this.pieces[i] = h('span');
        this.code.append(this.pieces[i]);
      }
      const piece = lines.slice(i * CodeView.LINES, (i + 1) * CodeView.LINES).join('\n');
      this.pieces[i].textContent = piece === '' && i < count - 1 ? '\n' : piece;
    }
    this.text = text;
  }
}

function item({ blocks, done }, loose) {
  const box =
    done === undefined
      ? []
      : [h('input', { type: 'checkbox', disabled: true, checked: done, 'aria-label': done ? 'done' : 'to do' }), ' '];
  const children = blocks.map((block) => (!loose && block.type === 'paragraph' ? inline(block.text) : [build(block)]));
  return h('li', {}, box, ...children);
}

function table({ head, align, rows }) {
  const row = (tag, values) => {
    const cell = (_, i) => h(tag, { class: align[i], scope: tag === 'th' && 'col' }, inline(values[i] ?? ''));
    return h('tr', {}, Array.from(head, cell));
  };
  const body = rows.map((values) => row('td', values));
  const whole = h('table', {}, h('thead', {}, row('th', head)), h('tbody', {}, body));
  return h('div', { class: 'table', tabindex: 0, role: 'group', 'aria-label': 'Table' }, whole);
}

/** The element of a block. */
function build(block) {
  switch (block.type) {
    case 'code':
      return new CodeView(block).element;
    case 'heading':
      // The page's own headings come first.
      return h(`h${Math.min(block.level + 3, 6)}`, { class: `level${block.level}` }, inline(block.text));
    case 'rule':
      return h('hr');
    case 'quote':
      return h('blockquote', {}, block.blocks.map(build));
    case 'list':
      return h(
        block.ordered ? 'ol' : 'ul',
        { start: block.ordered && block.start },
        block.items.map((it) => item(it, block.loose)),
      );
    case 'table':
      return table(block);
    default:
      return h('p', {}, inline(block.text));
  }
}

/** Markdown within an element. Text that is added changes the last blocks alone. */
export class MarkdownView {
  constructor(element) {
    this.element = element;
    this.reset();
  }

  reset() {
    this.source = '';
    this.stable = 0;
    this.tail = [];
    this.open = undefined;
    this.element.replaceChildren();
  }

  set(source) {
    if (!source.startsWith(this.source)) this.reset();
    if (source === this.source) return;
    this.source = source;
    const lines = source.slice(this.stable).split('\n');
    const blocks = parse(lines);
    if (
      blocks.length === 1 &&
      blocks[0].type === 'code' &&
      this.open?.line === blocks[0].line &&
      this.open.language === blocks[0].language
    ) {
      this.open.view.set(blocks[0].text);
      return;
    }
    for (const element of this.tail) element.remove();
    this.tail = [];
    this.open = undefined;
    // The last line may become another block when it goes on.
    const changing = blocks.at(-1)?.line === lines.length - 1 ? 2 : 1;
    const fixed = Math.max(blocks.length - changing, 0);
    blocks.forEach((block, index) => {
      const view = block.type === 'code' ? new CodeView(block) : undefined;
      const element = view ? view.element : build(block);
      this.element.append(element);
      if (index < fixed) return;
      this.tail.push(element);
      if (view) this.open = { view, line: block.line - (fixed > 0 ? blocks[fixed].line : 0), language: block.language };
    });
    if (fixed > 0) this.stable += lines.slice(0, blocks[fixed].line).join('\n').length + 1;
  }
}
