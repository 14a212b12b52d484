// Keeps the page, so that chats can be read while the server is down. Requests to the API pass by.

const CACHE = 'rustorch-page';
const isPage = ({ origin, pathname }) =>
  origin === location.origin && (pathname === '/' || pathname.startsWith('/page/'));

self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', (event) => {
  // The page that installed this worker was loaded without it.
  const fill = async () => {
    const cache = await caches.open(CACHE);
    const page = await fetch('/');
    if (!page.ok) return;
    await cache.put('/', page);
    for (const path of FILES) await cache.add(`/page/${path}`);
  };
  event.waitUntil(Promise.all([fill().catch(() => {}), self.clients.claim()]));
});
self.addEventListener('fetch', (event) => {
  if (event.request.method === 'GET' && isPage(new URL(event.request.url))) event.respondWith(newest(event));
});

/** The server's file, or the kept one if there is no answer. */
async function newest(event) {
  try {
    const response = await fetch(event.request);
    if (response.ok) event.waitUntil(keep(event.request, response.clone()));
    return response;
  } catch (error) {
    const kept = await caches.match(event.request);
    if (kept) return kept;
    throw error;
  }
}

const keep = async (request, response) => (await caches.open(CACHE)).put(request, response);

const FILES = [
  'style.css',
  'main.js',
  'answer.js',
  'api.js',
  'conversation.js',
  'devices.js',
  'dom.js',
  'inline.js',
  'markdown.js',
  'message.js',
  'request.js',
  'settings.js',
  'sidebar.js',
  'store.js',
  'tree.js',
  'words.css',
];
