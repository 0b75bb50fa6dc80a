// The operator's page: signing in, the views, and keeping them up to date.
//
// Somebody is signed in while `told` is there, and only the overview decides about that. What a view asks besides may fail: then it says so
// in its own place. Whoever shows a view counts up `turns`, and draws it only if nobody has since.

import { make, retime } from "./elements.js";
import { reloadForm } from "./reloading.js";
import { Refused, ask, follow, overview, token } from "./server.js";
import * as views from "./views.js";

const VIEWS = { tables: "Tables", graph: "Graph", log: "Log", reload: "Reload", policies: "Policies", clients: "Clients" };
const ASK_AGAIN_MS = 5000; // what clients do is in no feed

const part = (id) => document.getElementById(id);
const main = part("view"), nav = part("views"), status = part("status"), signOut = part("sign-out");
const signIn = part("sign-in");

let told = null; // the overview
let following = null; // ends the feed when it is aborted
let chosen = { table: null, rows: null, row: null };
let entries = null; // what the log view shows, as far as it was asked for
let shown = ""; // what the view was drawn from
let turns = 0;
let isAway = false, isLive = false, isAsking = false, isAskedFor = false;

const offered = () => Object.keys(VIEWS).filter((name) => name !== "clients" || told.scores_clients);
const view = () => offered().find((name) => location.hash === `#${name}`) ?? "tables";
const isWrongToken = (error) => error instanceof Refused && error.status === 401;
const cannotAsk = (error) => `The server cannot be asked: ${error.message}`;

signIn.addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = part("token"), refusal = part("refusal");
  refusal.textContent = "";
  token.set(field.value.trim());
  try {
    told = await overview();
  } catch (error) {
    token.forget();
    refusal.textContent = isWrongToken(error) ? "This is not the admin token." : cannotAsk(error);
    return field.select();
  }
  field.value = "";
  return begin();
});

signOut.addEventListener("click", () => {
  end();
  signIn.querySelector("input").focus();
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address says which view it is
  main.focus();
});

addEventListener("hashchange", async () => {
  if (!told) return;
  await show();
  main.focus({ preventScroll: true }); // a long view would push the links out of the picture
  scrollTo(0, 0);
});

// Go on with the token that this tab has. A server that cannot be asked now may be there again in a moment.
async function resume() {
  if (told || !token.get()) return;
  try {
    told = await overview();
  } catch (error) {
    if (isWrongToken(error)) return end("The admin token is not the right one any more.");
    part("refusal").textContent = `${cannotAsk(error)}. It is tried again.`;
    return setTimeout(resume, ASK_AGAIN_MS);
  }
  return begin();
}

async function begin() {
  following?.abort();
  nav.replaceChildren(...offered().map((name) => make("a", { href: `#${name}` }, VIEWS[name])));
  nav.hidden = signOut.hidden = false;
  signIn.hidden = true;
  const { signal } = following = new AbortController();
  await show();
  if (signal.aborted) return; // somebody has signed out meanwhile
  follow(refresh, (isOpen) => { isLive = isOpen; tell(); }, signal);
  const again = setInterval(() => (document.hidden ? null : refresh()), ASK_AGAIN_MS);
  signal.addEventListener("abort", () => clearInterval(again));
}

function end(sentence = "") {
  following?.abort();
  token.forget();
  told = entries = null;
  isAway = isLive = false;
  shown = "";
  chosen = { table: null, rows: null, row: null };
  nav.hidden = signOut.hidden = true;
  main.replaceChildren(signIn);
  signIn.hidden = false;
  part("refusal").textContent = sentence;
  tell();
}

// What is read aloud when it changes, so it is written only then.
function tell() {
  let sentence = "";
  if (told && isAway) sentence = "The server does not answer. What is shown may be old; it is tried again.";
  else if (told) {
    const workers = told.workers ? `${told.workers.live} worker${told.workers.live === 1 ? "" : "s"}` : "";
    const how = told.is_cut_off ? "the log cannot be reached" : isLive ? "live" : `asks every ${ASK_AGAIN_MS / 1000} s`;
    sentence = [`Change ${told.number}`, workers, how].filter(Boolean).join(" · ");
  }
  status.className = isAway ? "away" : "";
  if (status.textContent !== sentence) status.textContent = sentence;
}

// Ask how things are. Whatever comes meanwhile has it asked once more, and not once each.
async function refresh() {
  isAskedFor = true;
  if (isAsking) return;
  isAsking = true;
  while (isAskedFor && told) {
    isAskedFor = false;
    await look();
  }
  isAsking = false;
}

async function look() {
  try {
    const now = await overview();
    if (!told) return;
    // A worker that cannot reach the log knows less than another has told already.
    told = now.is_cut_off && now.log === told.log && now.number < told.number ? { ...told, is_cut_off: true } : now;
    isAway = false;
    tell();
    const isBusy = main.contains(document.activeElement?.closest("input, textarea, select, details"));
    if (view() !== "reload" && !isBusy) await show(true);
  } catch (error) {
    lose(error);
  }
}

// Whatever could not be asked: it is said at the top, or by the form that asks for the token.
function lose(error) {
  if (!told) return;
  if (isWrongToken(error)) end("The admin token is not the right one any more.");
  else {
    isAway = !(error instanceof Refused) || error.status >= 500;
    tell();
  }
}

// Put the view in its place. One that is shown again stays as it is while it says the same, and keeps the place where the keyboard is.
async function show(isAgain = false) {
  const name = view(), turn = ++turns;
  for (const link of nav.children) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${VIEWS[name]} – Shelflife`;
  let found, failure = null;
  try {
    found = await asked(name);
  } catch (error) {
    failure = error;
  }
  if (!told || turn !== turns) return;
  if (failure && (isWrongToken(failure) || (isAgain && !(failure instanceof Refused)))) return lose(failure);
  const drawnFrom = JSON.stringify([name, failure ? failure.message : found]);
  if (isAgain && drawnFrom === shown) return retime(main);
  const focused = isAgain ? placeOf(document.activeElement) : -1;
  shown = drawnFrom;
  main.replaceChildren(...(failure ? failed(name, failure) : drawn(name, found)));
  if (focused >= 0) [...main.querySelectorAll("button, a, [tabindex]")][focused]?.focus({ preventScroll: true });
  tell();
}

const placeOf = (element) => [...main.querySelectorAll("button, a, [tabindex]")].indexOf(element);

const failed = (name, error) => [make("h1", {}, VIEWS[name]), make("p", { role: "alert" }, `This cannot be shown: ${error.message}`)];

// All that a view is drawn from.
async function asked(name) {
  const { tables, rules, kept_from } = told;
  if (name === "graph") return { tables, rules, chosen: chosen.table, row: chosen.row ? await ask("row", { row: chosen.row }) : null };
  if (name === "log") {
    if (entries?.number !== told.number || entries.log !== told.log) entries = { log: told.log, ...await ask("log") };
    return entries;
  }
  if (name === "reload") return { tables };
  if (name === "policies" || name === "clients") return ask(name);
  return { tables, kept_from, rows: chosen.rows ? { ...await ask("rows", chosen.rows), holding: chosen.rows.holding } : null };
}

function drawn(name, found) {
  if (name === "graph") return [views.graphOfTables(found, chooseTable), ...(found.row ? [views.graphOfRow(found.row, chooseRow)] : [])];
  if (name === "log") return [views.log(found, olderEntries)];
  if (name === "reload") return [reloadForm(found.tables)];
  if (name === "policies") return [views.policies(found)];
  if (name === "clients") return [views.clients(found)];
  return [views.tables(found, openTable), ...(found.rows ? [views.rowsOf(found.rows, chooseRow, nextRows, findRows)] : [])];
}

const openTable = (name) => { chosen.rows = { table: name, from: "", holding: "" }; show(true); };
const nextRows = (from) => { chosen.rows = { ...chosen.rows, from }; show(true); };
const findRows = (holding) => { chosen.rows = { ...chosen.rows, from: "", holding }; show(); };
const chooseTable = (name) => { chosen.table = chosen.table === name ? null : name; show(true); };

async function olderEntries() {
  try {
    const older = await ask("log", { before: entries.entries.at(-1).number });
    entries = { ...entries, entries: [...entries.entries, ...older.entries], has_more: older.has_more };
  } catch (error) {
    return lose(error);
  }
  return show(true);
}

function chooseRow(id) {
  chosen.row = id;
  chosen.table = id.slice(0, id.indexOf(":"));
  if (view() === "graph") show(true);
  else location.hash = "graph";
}

resume();
