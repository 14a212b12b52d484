// Settings of a chat: model, presets, system prompt, samplers, tools, form of the answer. The server lists samplers.

import { apiKey, setApiKey } from './api.js';
import { announce, ask, by, h } from './dom.js';
import * as store from './store.js';

const THEME = 'rustorch-theme';

/** Words for the options that most people know; the others keep the server's names. */
const LABELS = {
  temperature: 'Temperature',
  top_k: 'Top-k',
  top_p: 'Top-p',
  min_p: 'Min-p',
  repeat_penalty: 'Repetition penalty',
  presence_penalty: 'Presence penalty',
  frequency_penalty: 'Frequency penalty',
};

/** Fields of a chat that a preset keeps. */
const KEPT = ['system', 'sampler', 'max_tokens', 'seed', 'stop', 'tools', 'tool_choice', 'schema'];

const kept = (settings) => structuredClone(Object.fromEntries(KEPT.map((key) => [key, settings[key]])));

/** Shows the page in the theme that the person chose, or the system's. */
export function applyTheme() {
  const theme = localStorage.getItem(THEME);
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

function choice(label, id, options, value, changed) {
  const select = h(
    'select',
    { id },
    options.map(([it, words]) => h('option', { value: it, selected: it === value }, words)),
  );
  select.addEventListener('change', () => changed(select.value));
  return h('div', { class: 'field' }, h('label', { for: id }, label), select);
}

export class Settings {
  /** `changed()` hears of new values, `columns(count)` of a second model, `key()` of a new API key. */
  constructor(hooks) {
    this.hooks = hooks;
    this.element = by('settings');
    this.models = [];
    this.options = {};
  }

  /** Shows the settings of a chat. */
  async show(chat) {
    this.chat = chat;
    this.presets = await store.presets();
    this.draw();
  }

  /** Models and defaults of samplers, as the server has them. */
  setServer(models, options) {
    const news = JSON.stringify([models, options]);
    if (this.news === news) return;
    Object.assign(this, { models, options, news });
    if (this.chat) this.draw();
  }

  /** The model of a column. */
  model(settings, index) {
    const wanted = index ? settings.second : settings.model;
    return (
      this.models.find(({ id }) => id === wanted) ?? (index || wanted === undefined ? this.models[0] : { id: wanted })
    );
  }

  /** Marks the field that the server refuses. */
  refuse(param) {
    for (const field of this.element.querySelectorAll('[aria-invalid]')) field.removeAttribute('aria-invalid');
    const field = param && by(`set-${param}`);
    field?.setAttribute('aria-invalid', 'true');
  }

  draw() {
    const { settings } = this.chat;
    const focused = document.activeElement?.id;
    const open = new Set([...this.element.querySelectorAll('details[open]')].map((it) => it.id));
    const fold = (id, title, ...content) =>
      h('details', { id, open: open.has(id) }, h('summary', {}, title), ...content);
    const names = Object.keys(this.options);
    const common = names.filter((name) => name in LABELS);
    const others = names.filter((name) => !(name in LABELS));
    const tools = settings.tools?.trim() ? [this.toolChoice()] : [];
    this.element.replaceChildren(
      h(
        'div',
        { class: 'row' },
        h('h2', { class: 'grow' }, 'Settings'),
        h('button', { type: 'button', class: 'close', onclick: this.hooks.close }, 'Close'),
      ),
      ...this.modelFields(),
      this.presetField(),
      this.area('system', 'System prompt', 4),
      this.number('max_tokens', 'Most tokens of an answer', 'no limit', { min: 1, step: 1 }),
      ...common.map((name) => this.sampler(name)),
      fold(
        'more-samplers',
        'More samplers',
        this.number('seed', 'Seed', 'random', { min: 0, step: 1 }),
        this.area('stop', 'Texts that end an answer, one a line', 2),
        ...others.map((name) => this.sampler(name)),
      ),
      fold(
        'form',
        'Tools and form',
        this.area('tools', 'Tools (JSON, as in OpenAI’s API)', 6, true),
        ...tools,
        this.area('schema', 'JSON schema of the answer', 6, true),
      ),
      fold('page', 'Page', this.theme(), this.key()),
    );
    if (focused && this.element.contains(by(focused))) by(focused).focus();
  }

  modelFields() {
    const { settings } = this.chat;
    const models = this.models.map(({ id }) => [id, id]);
    // A chat keeps the name of its model, even while the server has no such model.
    const one =
      settings.model && !this.models.some(({ id }) => id === settings.model)
        ? [[settings.model, `${settings.model} (not here)`]]
        : [];
    const first = choice('Model', 'set-model', [...one, ...models], settings.model, (id) => this.set('model', id));
    const second = choice(
      'Second model, side by side',
      'set-second',
      [['', 'None'], ...models],
      settings.second ?? '',
      (id) => {
        this.set('second', id || undefined);
        this.hooks.columns(id ? 2 : 1);
      },
    );
    return [first, second];
  }

  presetField() {
    const names = this.presets.map(({ name }) => [name, name]);
    const field = choice('Preset', 'set-preset', [['', 'Choose …'], ...names], '', (name) => {
      const preset = this.presets.find((it) => it.name === name);
      if (!preset) return;
      Object.assign(this.chat.settings, structuredClone(preset.settings));
      this.chosen = name;
      this.draw();
      this.hooks.changed();
      announce(`Preset ${name} is set`);
    });
    const save = async () => {
      const options = this.presets.map(({ name }) => name);
      const name = await ask({
        title: 'Save these settings as a preset',
        field: 'Name',
        value: this.chosen ?? '',
        options,
        action: 'Save',
      });
      if (!name) return;
      await store.savePreset({ name, settings: kept(this.chat.settings) });
      this.chosen = name;
      await this.show(this.chat);
    };
    const remove = async () => {
      const options = this.presets.map(({ name }) => name);
      const name = await ask({
        title: 'Delete a preset',
        field: 'Name',
        value: this.chosen ?? '',
        options,
        action: 'Delete',
      });
      if (!name) return;
      await store.removePreset(name);
      await this.show(this.chat);
    };
    field.append(
      h(
        'div',
        { class: 'row' },
        h('button', { type: 'button', onclick: save }, 'Save preset'),
        names.length ? h('button', { type: 'button', onclick: remove }, 'Delete preset') : null,
      ),
    );
    return field;
  }

  set(name, value) {
    const { settings } = this.chat;
    if (value === undefined || value === '') delete settings[name];
    else settings[name] = value;
    this.hooks.changed();
  }

  area(name, label, rows, code = false) {
    const id = `set-${name}`;
    const field = h('textarea', {
      id,
      rows,
      class: code && 'code-field',
      spellcheck: code && 'false',
      value: this.chat.settings[name] ?? '',
    });
    field.addEventListener('change', () => {
      const had = Boolean(this.chat.settings.tools?.trim());
      this.set(name, field.value);
      if (name === 'tools' && had !== Boolean(field.value.trim())) this.draw();
    });
    return h('div', { class: 'field' }, h('label', { for: id }, label), field);
  }

  number(name, label, placeholder, limits) {
    const id = `set-${name}`;
    const field = h('input', { id, type: 'number', placeholder, value: this.chat.settings[name] ?? '', ...limits });
    field.addEventListener('change', () => this.set(name, field.value === '' ? undefined : Number(field.value)));
    return h('div', { class: 'field' }, h('label', { for: id }, label), field);
  }

  /** The field of a sampler's option. Without a value the server's default counts, which it shows. */
  sampler(name) {
    const { settings } = this.chat;
    const standard = this.options[name];
    const isNumber = typeof standard === 'number';
    const id = `set-${name}`;
    const shown = isNumber ? String(Number(standard.toFixed(4))) : JSON.stringify(standard);
    const value = settings.sampler?.[name];
    const text = value === undefined ? '' : isNumber ? value : JSON.stringify(value);
    const field = h('input', { id, type: isNumber ? 'number' : 'text', step: 'any', placeholder: shown, value: text });
    field.addEventListener('change', () => {
      settings.sampler ??= {};
      field.removeAttribute('aria-invalid');
      try {
        if (field.value === '') delete settings.sampler[name];
        else settings.sampler[name] = isNumber ? Number(field.value) : JSON.parse(field.value);
      } catch {
        field.setAttribute('aria-invalid', 'true');
        return;
      }
      this.hooks.changed();
    });
    return h('div', { class: 'field' }, h('label', { for: id }, LABELS[name] ?? name), field);
  }

  toolChoice() {
    const options = [
      ['', 'The model decides'],
      ['none', 'No calls'],
      ['required', 'At least one call'],
    ];
    return choice('Calls of tools', 'set-tool_choice', options, this.chat.settings.tool_choice ?? '', (it) =>
      this.set('tool_choice', it),
    );
  }

  theme() {
    const options = [
      ['', 'As the system'],
      ['light', 'Light'],
      ['dark', 'Dark'],
    ];
    return choice('Theme', 'set-theme', options, localStorage.getItem(THEME) ?? '', (theme) => {
      if (theme) localStorage.setItem(THEME, theme);
      else localStorage.removeItem(THEME);
      applyTheme();
    });
  }

  key() {
    const field = h('input', { id: 'set-key', type: 'password', autocomplete: 'off', value: apiKey() });
    field.addEventListener('change', () => {
      setApiKey(field.value.trim());
      this.hooks.key();
    });
    return h(
      'div',
      { class: 'field' },
      h('label', { for: 'set-key' }, 'API key, kept until this tab is closed'),
      field,
    );
  }

  /** Brings the person to the field of the key. */
  askForKey() {
    by('page').open = true;
    by('set-key').setAttribute('aria-invalid', 'true');
    by('set-key').focus();
  }
}
