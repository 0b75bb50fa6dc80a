// The operator's page: signing in, the views, and keeping them up to date.

import { make } from "./elements.js";
import { reloadForm } from "./reloading.js";
import { Refused, ask, follow, token } from "./server.js";
import * as views from "./views.js";

const VIEWS = { tables: "Tables", graph: "Graph", log: "Log", reload: "Reload", policies: "Policies", clients: "Clients" };
const ASK_AGAIN_MS = 5000; // what clients do is in no feed

const part = (id) => document.getElementById(id);
const main = part("view"), nav = part("views"), status = part("status"), signOut = part("sign-out");
const signIn = part("sign-in");

let told = null; // the overview
let following = null; // ends the feed when it is aborted
let chosen = { table: null, rows: null, row: null };
let entries = null;
let isAway = false;

const view = () => (location.hash.slice(1) in VIEWS ? location.hash.slice(1) : "tables");

signIn.addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = part("token"), refusal = part("refusal");
  refusal.textContent = "";
  token.set(field.value.trim());
  try {
    await begin();
    field.value = "";
  } catch (error) {
    token.forget();
    refusal.textContent = error instanceof Refused && error.status === 401 ? "This is not the admin token." : `The server cannot be asked: ${error.message}`;
    field.select();
  }
});

signOut.addEventListener("click", () => {
  end();
  signIn.querySelector("input").focus();
});

addEventListener("hashchange", async () => {
  if (!told) return;
  await show();
  main.focus();
});

async function begin() {
  told = await ask("overview");
  nav.replaceChildren(...Object.entries(VIEWS).filter(([name]) => name !== "clients" || told.scores_clients)
    .map(([name, title]) => make("a", { href: `#${name}` }, title)));
  nav.hidden = signOut.hidden = false;
  signIn.hidden = true;
  await show();
  following = new AbortController();
  follow(refresh, heard, following.signal);
  const again = setInterval(() => (document.hidden ? null : refresh()), ASK_AGAIN_MS);
  following.signal.addEventListener("abort", () => clearInterval(again));
}

function end(sentence = "") {
  following?.abort();
  token.forget();
  told = entries = null;
  isAway = false;
  chosen = { table: null, rows: null, row: null };
  nav.hidden = signOut.hidden = true;
  main.replaceChildren(signIn);
  signIn.hidden = false;
  part("refusal").textContent = sentence;
  tell();
}

function heard(isThere) {
  if (isAway === isThere) {
    isAway = !isThere;
    tell();
  }
}

function tell() {
  status.className = isAway ? "away" : "";
  if (!told) status.textContent = "";
  else if (isAway) status.textContent = "The server does not answer. What is shown may be old; it is tried again.";
  else {
    const workers = told.workers ? `${told.workers.live} worker${told.workers.live === 1 ? "" : "s"}` : "";
    status.textContent = [`Change ${told.number}`, workers, told.is_cut_off ? "the log cannot be reached" : "live"].filter(Boolean).join(" · ");
  }
}

async function refresh() {
  try {
    const before = told?.number;
    const now = await ask("overview");
    if (!told) return;
    told = now;
    heard(true);
    if (before !== told.number) entries = null;
    if (view() !== "reload" && !main.contains(document.activeElement?.closest("input, textarea, select, details"))) await show(true);
    tell();
  } catch (error) {
    if (error instanceof Refused && error.status === 401) end("The admin token is not the right one any more.");
    else heard(error instanceof Refused);
  }
}

// Put the view in its place. One that is shown again keeps the place where the keyboard is.
async function show(isAgain = false) {
  for (const link of nav.children) {
    if (link.hash === `#${view()}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${VIEWS[view()]} – Shelflife`;
  const parts = await drawn(view());
  if (!told) return;
  const focused = isAgain ? placeOf(document.activeElement) : -1;
  main.replaceChildren(...parts);
  if (focused >= 0) [...main.querySelectorAll("button, a, [tabindex]")][focused]?.focus({ preventScroll: true });
  tell();
}

const placeOf = (element) => [...main.querySelectorAll("button, a, [tabindex]")].indexOf(element);

async function drawn(name) {
  if (name === "graph") {
    const row = chosen.row ? [views.graphOfRow(await ask("row", { row: chosen.row }), chooseRow)] : [];
    return [views.graphOfTables(told, chosen.table, chooseTable), ...row];
  }
  if (name === "log") {
    entries ??= await ask("log");
    return [views.log(entries, olderEntries)];
  }
  if (name === "reload") return [reloadForm(told)];
  if (name === "policies") return [views.policies(told)];
  if (name === "clients") return [views.clients(await ask("clients"))];
  const rows = chosen.rows ? [views.rowsOf(await rowsOf(chosen.rows), chooseRow, nextRows, findRows)] : [];
  return [views.tables(told, openTable), ...rows];
}

async function rowsOf(asked) {
  const found = await ask("rows", asked);
  chosen.next = found.next;
  return { ...found, holding: asked.holding };
}

const openTable = (name) => { chosen.rows = { table: name, from: "", holding: "" }; show(true); };
const nextRows = () => { chosen.rows = { ...chosen.rows, from: chosen.next }; show(true); };
const findRows = (holding) => { chosen.rows = { ...chosen.rows, from: "", holding }; show(); };
const chooseTable = (name) => { chosen.table = chosen.table === name ? null : name; show(true); };

async function olderEntries() {
  const older = await ask("log", { before: entries.entries.at(-1).number });
  entries = { entries: [...entries.entries, ...older.entries], has_more: older.has_more };
  show(true);
}

function chooseRow(id) {
  chosen.row = id;
  chosen.table = id.slice(0, id.indexOf(":"));
  if (view() === "graph") show(true);
  else location.hash = "graph";
}

if (token.get()) {
  begin().catch((error) => (error instanceof Refused ? end() : (part("refusal").textContent = `The server cannot be asked: ${error.message}`)));
}
