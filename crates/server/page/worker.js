// Keeps the page, so that chats can be read while the server is down. Requests to the API pass by.

const CACHE = 'rustorch-page';
const isPage = ({ origin, pathname }) => origin === location.origin && (pathname === '/' || pathname.startsWith('/page/'));

self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', (event) => {
  // The page that installed this worker was loaded without it.
  const keep = async () => {
    const cache = await caches.open(CACHE);
    const page = await fetch('/');
    if (!page.ok) return;
    await cache.put('/', page);
    for (const path of FILES) await cache.add(`/page/${path}`);
  };
  event.waitUntil(Promise.all([keep().catch(() => {}), self.clients.claim()]));
});
self.addEventListener('fetch', (event) => {
  if (event.request.method === 'GET' && isPage(new URL(event.request.url))) event.respondWith(newest(event.request));
});

/** The server's file, or the kept one if there is no answer. */
async function newest(request) {
  const cache = await caches.open(CACHE);
  try {
    const response = await fetch(request);
    if (response.ok) await cache.put(request, response.clone());
    return response;
  } catch (error) {
    const kept = await cache.match(request);
    if (kept) return kept;
    throw error;
  }
}

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
];
