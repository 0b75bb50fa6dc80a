// Talking to the server. The token is kept in the session storage of this tab, and never in an address. A browser that reopens a closed tab
// may bring that back.

const ENDPOINTS = new URL(document.documentElement.dataset.endpoints, document.baseURI);
const KEPT = "shelflife admin token";

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

export async function ask(name, query) {
  return answered(await request(name, query));
}

export async function send(name, message) {
  const options = { method: "POST", body: JSON.stringify(message), headers: { "Content-Type": "application/json" } };
  return answered(await request(name, null, options));
}

async function answered(response) {
  const told = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, told.error ?? told.detail ?? `the server says ${response.status}`);
  return told;
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
