// Elements, dialogs, announcements and copies. Text becomes text nodes, never markup.

/** An element with attributes, listeners (`onclick` …) and children. */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') element.addEventListener(key.slice(2), value);
    else if (key === 'value') element.value = value;
    else element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return element;
}

/** The element with this id, which the page has. */
export const by = (id) => document.getElementById(id);

/** A name that no other object has. */
export const unique = () => {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return Array.from(bytes, (byte) => byte.toString(36).padStart(2, '0')).join('');
};

/** Has screen readers say a text. */
export function announce(text) {
  by('announcer').textContent = text;
}

/** Puts a text on the clipboard, also where pages without TLS have no clipboard of their own. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h('textarea', { class: 'hidden', value: text, 'aria-label': 'Text to copy' });
    (document.querySelector('dialog[open]') ?? document.body).append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  announce('Copied');
}

/** A button that copies what `text` returns, and shows that it did. */
export function copyButton(label, text) {
  const button = h('button', { type: 'button', class: 'quiet' }, label);
  button.addEventListener('click', async () => {
    const focused = document.activeElement;
    await copy(text());
    focused?.focus();
    button.textContent = 'Copied';
    setTimeout(() => (button.textContent = label), 1500);
  });
  return button;
}

/**
 * Asks in a dialog. Returns the text, or an empty text without a field; nothing if the person cancels.
 * `field` is the label of a text field, `value` its text, `options` proposals.
 */
export function ask({ title, text, action, field, value = '', options = [] }) {
  const input = field && h('input', { name: 'text', value, list: 'proposals', autocomplete: 'off' });
  const dialog = h(
    'dialog',
    { 'aria-labelledby': 'dialog-title' },
    h(
      'form',
      { method: 'dialog' },
      h('h2', { id: 'dialog-title' }, title),
      text && h('p', {}, text),
      field && h('label', {}, field, input),
      h(
        'datalist',
        { id: 'proposals' },
        options.map((option) => h('option', { value: option })),
      ),
      h(
        'div',
        { class: 'row end' },
        h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel'),
        h('button', { value: 'yes', class: 'primary' }, action),
      ),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  input?.select();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      dialog.remove();
      resolve(dialog.returnValue === 'yes' ? (input?.value.trim() ?? '') : undefined);
    });
  });
}

/** Shows a text to copy in a dialog. */
export function showText(title, text) {
  const dialog = h(
    'dialog',
    { 'aria-labelledby': 'dialog-title', class: 'wide' },
    h('h2', { id: 'dialog-title' }, title),
    h('pre', { tabindex: 0 }, text),
    h(
      'div',
      { class: 'row end' },
      copyButton('Copy', () => text),
      h('button', { type: 'button', class: 'primary', onclick: () => dialog.close() }, 'Close'),
    ),
  );
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** Gives the person a file. */
export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  h('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
