// Talking to the server. The token is kept in the session storage of this tab, and never in an address. A browser that reopens a closed tab
// may bring that back.

const ENDPOINTS = new URL(document.documentElement.dataset.endpoints, document.baseURI);
const KEPT = "shelflife admin token";
const ASKED_FOR_S = 20, SENT_FOR_S = 60;

export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEPT),
  set: (value) => sessionStorage.setItem(KEPT, value),
  forget: () => sessionStorage.removeItem(KEPT),
};

function request(name, query, options = {}) {
  const address = new URL(name, ENDPOINTS);
  address.search = new URLSearchParams(query ?? {});
  return fetch(address, {
    cache: "no-store",
    credentials: "same-origin",
    ...options,
    headers: { Authorization: `Bearer ${token.get()}`, Accept: "application/json", ...options.headers },
  });
}

export const ask = (name, query) => answered(ASKED_FOR_S, name, query);

// How things are: the tables, the rules, the workers. A proxy between us and the server may answer in its place.
export async function overview() {
  const told = await ask("overview");
  if (!Array.isArray(told?.tables)) throw new Error("what answers there is not this server");
  return told;
}

// `text` is JSON that goes out as somebody has typed it: numbers that a browser has no room for, and whatever the server is to refuse.
export function send(name, message, text = {}) {
  const members = [...Object.entries(message).map(([key, value]) => [key, JSON.stringify(value)]), ...Object.entries(text)];
  const body = `{${members.map(([key, value]) => `${JSON.stringify(key)}:${value}`).join(",")}}`;
  return answered(SENT_FOR_S, name, null, { method: "POST", body, headers: { "Content-Type": "application/json" } });
}

async function answered(longest, name, query, options) {
  const given = new AbortController();
  const timer = setTimeout(() => given.abort(new Error(`it has not answered for ${longest} s`)), longest * 1000);
  try {
    const response = await request(name, query, { ...options, signal: given.signal });
    const text = await response.text();
    const told = parsed(text);
    if (!response.ok) throw new Refused(response.status, told?.error ?? told?.detail ?? `the server says ${response.status}`);
    if (told === undefined) throw new Error("its answer is not JSON");
    return told;
  } finally {
    clearTimeout(timer);
  }
}

// Numbers that would be rounded stay as they were written, where the browser can do that.
function parsed(text) {
  const isRounded = (value, source) => typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(source);
  try {
    return JSON.parse(text, (_, value, context) => (isRounded(value, context?.source) && JSON.rawJSON ? JSON.rawJSON(context.source) : value));
  } catch {
    return undefined;
  }
}

// Have `moved` called for every change, until the signal is given. `opened` is told when there is a feed, and when there is none any more.
export async function follow(moved, opened, signal) {
  let pause = 250;
  while (!signal.aborted) {
    try {
      const response = await request("changes", null, { headers: { Accept: "text/event-stream" }, signal });
      if (response.status === 406) return; // there is none here: whoever asks now and then must do
      if (response.ok) {
        opened(true);
        pause = 250;
        await read(response.body, moved);
      }
    } catch {
      // whether the server is there is found out by whoever asks
    }
    if (signal.aborted) return;
    opened(false);
    moved();
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(pause * 2, 5000);
  }
}

async function read(body, moved) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (held + value).split("\n\n");
    held = events.pop();
    if (events.some((event) => /^event:/m.test(event))) moved();
  }
}
