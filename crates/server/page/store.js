// Chats and presets in the browser (IndexedDB). The list of chats has its own store: it opens without their texts.

let opened;

function database() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open('rustorch', 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore('list', { keyPath: 'id' });
      request.result.createObjectStore('chats', { keyPath: 'id' });
      request.result.createObjectStore('presets', { keyPath: 'name' });
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

/** Runs `work` on stores in one transaction. Returns the result of the request that it returns. */
async function transact(stores, mode, work) {
  const transaction = (await database()).transaction(stores, mode);
  const request = work((name) => transaction.objectStore(name));
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve(request?.result);
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
}

const entry = ({ id, title, folder, changed }) => ({ id, title, folder, changed });

/** The list of chats, newest first. */
export async function list() {
  const chats = await transact(['list'], 'readonly', (store) => store('list').getAll());
  return chats.sort((a, b) => b.changed - a.changed);
}

export const load = (id) => transact(['chats'], 'readonly', (store) => store('chats').get(id));

export const loadAll = () => transact(['chats'], 'readonly', (store) => store('chats').getAll());

/** Saves chats with their entries of the list. */
export const save = (...chats) =>
  transact(['list', 'chats'], 'readwrite', (store) => {
    for (const chat of chats) {
      store('list').put(entry(chat));
      store('chats').put(chat);
    }
  });

export const removeChat = (id) =>
  transact(['list', 'chats'], 'readwrite', (store) => {
    store('list').delete(id);
    store('chats').delete(id);
  });

/** The ids of chats whose title or messages have a text, in any case of letters. */
export async function find(text) {
  const wanted = text.toLowerCase();
  const has = (it) => it?.toLowerCase().includes(wanted);
  const hits = new Set();
  await transact(['chats'], 'readonly', (store) => {
    const request = store('chats').openCursor();
    request.onsuccess = () => {
      const cursor = request.result;
      if (!cursor) return;
      const { id, title, nodes } = cursor.value;
      if (has(title) || Object.values(nodes).some((node) => has(node.content))) hits.add(id);
      cursor.continue();
    };
  });
  return hits;
}

export const presets = () => transact(['presets'], 'readonly', (store) => store('presets').getAll());

export const savePreset = (preset) => transact(['presets'], 'readwrite', (store) => store('presets').put(preset));

export const removePreset = (name) => transact(['presets'], 'readwrite', (store) => store('presets').delete(name));
