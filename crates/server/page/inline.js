// Markdown within a line: emphasis, code, links. Each becomes an element that this file names, and nothing else does.

import { h } from './dom.js';

const DEEPEST = 12;
const SPECIAL = /\\[!-/:-@[-`{-~]|`+|\*+|_+|~~+|!?\[|<(?:https?:\/\/|mailto:)[^\s<>]+>|\bhttps?:\/\/[^\s<>]+|\n/g;
const TAGS = { 1: 'em', 2: 'strong' };

/** The address of a link if it leads to a page or to a letter; nothing for scripts and the like. */
function safe(address) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return undefined;
  }
  return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : undefined;
}

function link(address, children) {
  const href = safe(address);
  return href ? h('a', { href, target: '_blank', rel: 'noopener noreferrer nofollow' }, children) : undefined;
}

/** The place after a bracket's partner, or -1. */
function closing(text, from, open, close) {
  for (let depth = 0, i = from; i < text.length && i < from + 4000; i++) {
    if (text[i] === '\\') i++;
    else if (text[i] === open) depth++;
    else if (text[i] === close && --depth === 0) return i + 1;
  }
  return -1;
}

/** A link `[text](address)` at the place of its bracket: its element and its end. */
function linkAt(text, start, depth) {
  const image = text[start] === '!';
  const open = image ? start + 1 : start;
  const middle = closing(text, open, '[', ']');
  if (middle < 0 || text[middle] !== '(') return undefined;
  const end = closing(text, middle, '(', ')');
  if (end < 0) return undefined;
  const label = text.slice(open + 1, middle - 1);
  const address = text
    .slice(middle + 1, end - 1)
    .trim()
    .replace(/\s+["'(].*$/s, '')
    .replace(/^<(.*)>$/s, '$1');
  // Pictures from elsewhere would be requests that nobody asked for.
  const children = image ? [`picture: ${label || address}`] : inline(label, depth + 1);
  const element = link(address, children);
  return element && { element, end };
}

/** Nodes of a text. */
export function inline(text, depth = 0) {
  if (depth > DEEPEST) return [text];
  const nodes = [];
  // Marks without a partner are not looked for again.
  const lonely = new Set();
  let plain = '';
  let at = 0;
  const push = (...elements) => {
    if (plain) nodes.push(plain);
    plain = '';
    nodes.push(...elements);
  };
  const special = new RegExp(SPECIAL);
  for (let found; (found = special.exec(text)); special.lastIndex = at) {
    const [mark] = found;
    const start = found.index;
    const after = start + mark.length;
    plain += text.slice(at, start);
    at = after;
    const first = mark[0];
    if (first === '\\') plain += mark[1];
    else if (first === '\n') {
      plain = plain.replace(/ +$/, '');
      push(h('br'));
    } else if (first === '`') {
      const end = lonely.has(mark) ? -1 : codeEnd(text, after, mark.length);
      if (end < 0) {
        lonely.add(mark);
        plain += mark;
        continue;
      }
      const code = text.slice(after, end).replaceAll('\n', ' ');
      push(h('code', {}, /^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code));
      at = end + mark.length;
    } else if (first === '*' || first === '_' || first === '~') {
      const length = first === '~' ? 2 : Math.min(mark.length, 2);
      const end =
        opens(text, start, mark) && !lonely.has(first + length) ? emphasisEnd(text, start + length, first, length) : -1;
      if (end < 0) {
        if (opens(text, start, mark)) lonely.add(first + length);
        plain += mark;
        continue;
      }
      const tag = first === '~' ? 's' : TAGS[length];
      push(h(tag, {}, inline(text.slice(start + length, end), depth + 1)));
      at = end + length;
    } else if (mark === '[' || mark === '![') {
      const made = linkAt(text, start, depth);
      if (made) {
        push(made.element);
        at = made.end;
      } else plain += mark;
    } else {
      const bare = first === '<' ? mark.slice(1, -1) : mark.replace(/[.,;:!?'"*_~)\]]+$/, (end) => balanced(mark, end));
      if (first !== '<') at = start + bare.length;
      const element = link(bare, [bare.replace(/^mailto:/, '')]);
      if (element) push(element);
      else plain += text.slice(start, at);
    }
  }
  plain += text.slice(at);
  push();
  return nodes;
}

/** The part of an address's end that belongs to it: a parenthesis that it opens. */
function balanced(address, end) {
  const opened = address.slice(0, -end.length).split('(').length - address.slice(0, -end.length).split(')').length;
  return opened > 0 && end.startsWith(')') ? ')' : '';
}

function opens(text, start, mark) {
  const next = text[start + mark.length];
  if (next === undefined || /\s/.test(next)) return false;
  return mark[0] !== '_' || start === 0 || !/[\p{L}\p{N}]/u.test(text[start - 1]);
}

/** The beginning of a run of this many backquotes. */
function codeEnd(text, from, length) {
  for (let at = text.indexOf('`', from); at >= 0; at = text.indexOf('`', at)) {
    const begin = at;
    while (text[at] === '`') at++;
    if (at - begin === length) return begin;
  }
  return -1;
}

/** The beginning of the marks that end an emphasis; code in it is skipped. */
function emphasisEnd(text, from, mark, length) {
  for (let at = from; at < text.length; at++) {
    const it = text[at];
    if (it === '\\') at++;
    else if (it === '`') {
      let run = 1;
      while (text[at + run] === '`') run++;
      const end = codeEnd(text, at + run, run);
      at = end < 0 ? at + run - 1 : end + run - 1;
    } else if (it === mark) {
      let run = 1;
      while (text[at + run] === mark) run++;
      const fits = length === 1 ? run !== 2 : run >= 2;
      const closes = at > from && !/\s/.test(text[at - 1]);
      const whole = mark !== '_' || !/[\p{L}\p{N}]/u.test(text[at + run] ?? '');
      if (fits && closes && whole) return at + run - length;
      at += run - 1;
    }
  }
  return -1;
}
