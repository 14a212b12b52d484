// Requests to the server, and streams of events.

const KEY = 'rustorch-key';

/** The API key. It is kept until the tab is closed. */
export const apiKey = () => sessionStorage.getItem(KEY) ?? '';

export const setApiKey = (key) => sessionStorage.setItem(KEY, key);

/** A failed request. A status of 0 means that there was no answer. */
export class ApiError extends Error {
  constructor(message, { status = 0, param, retry } = {}) {
    super(message);
    Object.assign(this, { status, param, retry });
  }

  static of(error, about) {
    const message = typeof error === 'string' ? error : error?.message;
    return new ApiError(message || 'The server gave no reason.', { param: error?.param, ...about });
  }
}

const headers = () => {
  const key = apiKey();
  return { 'content-type': 'application/json', ...(key && { authorization: `Bearer ${key}` }) };
};

/** The response to a request, which is a POST if it has a body. */
export async function call(path, { body, signal } = {}) {
  const method = body === undefined ? 'GET' : 'POST';
  let response;
  try {
    response = await fetch(path, { method, headers: headers(), body: body && JSON.stringify(body), signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError('The server does not answer.');
  }
  if (response.ok) return response;
  const about = { status: response.status, retry: response.headers.get('retry-after') };
  const value = await response.json().catch(() => undefined);
  throw ApiError.of(value?.error ?? `The server answers with status ${response.status}.`, about);
}

export const json = async (path, options) => (await call(path, options)).json();

/** The data of the events of a response (server-sent events). */
export async function* events(response) {
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  let rest = '';
  let data = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
      const lines = rest.split('\n');
      rest = lines.pop();
      for (const raw of lines) {
        const line = raw.endsWith('\r') ? raw.slice(0, -1) : raw;
        if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5));
        else if (line === '' && data.length) {
          yield data.join('\n');
          data = [];
        }
      }
      if (done) return;
    }
  } finally {
    // Whoever stops reading lets the server know.
    reader.cancel().catch(() => {});
  }
}

/** The chunks of a stream of completions. Fails if it ends before it is complete. */
export async function* stream(path, body, signal) {
  const response = await call(path, { body, signal });
  try {
    for await (const data of events(response)) {
      if (data === '[DONE]') return;
      let chunk;
      try {
        chunk = JSON.parse(data);
      } catch {
        throw new ApiError('The server sent an event that is not JSON.', { status: response.status });
      }
      if (chunk.error) throw ApiError.of(chunk.error, { status: response.status });
      yield chunk;
    }
  } catch (error) {
    if (signal?.aborted || error instanceof ApiError) throw error;
  }
  throw new ApiError('The connection broke off before the answer was complete.', { status: response.status });
}
