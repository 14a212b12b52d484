// The panel of devices: what runs where, and which operations moved to another device, and why.

import { json } from './api.js';
import { announce, by, h } from './dom.js';

const PATH = '/rustorch/devices';

function bytes(count) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) {
    count /= 1024;
    unit++;
  }
  return `${unit ? count.toFixed(1) : count} ${units[unit]}`;
}

const device = ({ name, kind, memory_bytes: memory }) =>
  h(
    'li',
    {},
    h('strong', {}, name),
    ` (${kind})`,
    memory ? h('span', { class: 'note' }, ` ${bytes(memory)} of memory`) : null,
  );

const fallback = ({ operation, from, to, reason }) =>
  h('li', {}, h('strong', {}, operation), ` moved from ${from} to ${to}.`, h('span', { class: 'note' }, ` ${reason}`));

/** Asks the server for its devices, and shows them. A server without this path has no panel. */
export async function showDevices() {
  let state;
  try {
    state = await json(PATH);
  } catch {
    return;
  }
  const text = JSON.stringify(state);
  if (showDevices.text === text) return;
  const { devices = [], fallbacks = [] } = state;
  const button = by('show-devices');
  button.hidden = false;
  const count = fallbacks.length;
  button.textContent = count ? `Devices: ${count}` : 'Devices';
  button.setAttribute('aria-label', count ? `Devices: ${count} ${count === 1 ? 'fallback' : 'fallbacks'}` : 'Devices');
  button.classList.toggle('warning', count > 0);
  const known = showDevices.text && JSON.parse(showDevices.text).fallbacks?.length;
  showDevices.text = text;
  if (fallbacks.length > (known ?? 0)) {
    const { operation, from, to } = fallbacks.at(-1);
    announce(`${operation} moved from ${from} to ${to}`);
  }
  by('devices').replaceChildren(
    h('h2', {}, 'Devices'),
    h('ul', { class: 'plain' }, devices.map(device)),
    h('h2', {}, 'Fallbacks'),
    fallbacks.length
      ? h('ul', { class: 'plain' }, fallbacks.map(fallback))
      : h('p', {}, 'None: every operation runs on the device that it was planned for.'),
  );
}
