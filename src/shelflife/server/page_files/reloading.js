// A reload by form. What is made is what was shown: the same words, and in the place of the version that they were shown with.

import { code, make } from "./elements.js";
import { Refused, send } from "./server.js";
import { diff } from "./views.js";

const WAIT_S = 5;

export function reloadForm(tables) {
  const table = make("select", { id: "table", onchange: dirty }, tables.map((one) => make("option", {}, one.table)));
  const set = make("textarea", { id: "set", spellcheck: "false", placeholder: '{"key": {"column": "value"}}', "aria-describedby": "set-hint", oninput: dirty });
  const remove = make("textarea", { id: "remove", spellcheck: "false", oninput: dirty });
  const version = make("input", { id: "version", autocomplete: "off", oninput: dirty });
  const by = make("input", { id: "by", autocomplete: "name", maxlength: 100 });
  const refusal = make("p", { role: "alert" });
  const shown = make("div", { "aria-live": "polite" });
  const reload = make("button", { type: "button", disabled: true, onclick: () => attempt(carryOut) }, "Reload now");
  let previewed = null; // what a reload sends, and the rows as they were typed
  let turns = 0;

  function dirty() {
    previewed = null;
    turns += 1;
    reload.disabled = true;
    shown.replaceChildren();
    refusal.textContent = "";
  }

  function message() {
    const text = set.value.trim() || "{}";
    JSON.parse(text);
    return [{ table: table.value, remove: keys(), ...(version.value.trim() ? { version: version.value.trim() } : {}) }, { set: text }];
  }

  // Keys may begin or end with a space, or have several lines.
  function keys() {
    try {
      const listed = JSON.parse(remove.value);
      if (Array.isArray(listed)) return listed;
    } catch {
      // it is no list
    }
    return remove.value.split("\n").filter((key) => key.trim());
  }

  async function attempt(step) {
    refusal.textContent = "";
    try {
      await step();
    } catch (error) {
      refusal.textContent = error instanceof SyntaxError ? `The rows are not JSON: ${error.message}` : error.message;
    }
  }

  async function show() {
    const [asked, text] = message(), turn = ++turns;
    const found = await send("preview-table", asked, text);
    if (turn !== turns) return; // the words were changed meanwhile
    const { report } = found;
    previewed = [{ ...asked, replaces: report.old_version }, text];
    const missing = asked.remove.filter((key) => !report.removed.includes(key));
    reload.disabled = report.old_version === report.new_version;
    shown.replaceChildren(make("h2", {}, "What it would change"),
      make("p", {}, code(report.old_version), " → ", code(report.new_version), reload.disabled ? ": nothing would change." : ""),
      ...[diff(found)].flat().filter(Boolean),
      ...(missing.length ? [make("p", {}, "To be removed, and not there: ", missing.map((key, index) => [index ? ", " : "", code(key)]), ".")] : []),
      make("p", {}, "Downstream: ", report.affected_downstream?.length ? report.affected_downstream.join(", ") : "nothing", "."),
      make("p", {}, `Fixes that rest on these rows, of those that were told of late: ${found.fixes_resting}.`));
  }

  async function carryOut() {
    reload.disabled = true;
    try {
      const [asked, text] = previewed;
      const report = await send("reload-table", { ...asked, by: by.value.trim(), wait_s: WAIT_S }, text);
      const workers = report.workers;
      const has = !workers ? "" : workers.behind ? ` ${workers.behind} of ${workers.live} workers do not have it yet.` : ` All ${workers.live} workers have it.`;
      dirty();
      shown.replaceChildren(make("p", { class: "said" }, `Reloaded. ${report.table} is at `, code(report.new_version), `.${has}`));
    } catch (error) {
      reload.disabled = previewed === null;
      if (!(error instanceof Refused)) throw new Error(`${error.message}. Whether it was made is in the log.`);
      if (error.status !== 409) throw error;
      await show();
      throw new Error("Something has changed since the preview. This is the new one; reload if it is right.");
    }
  }

  return make("section", { "aria-labelledby": "h" }, make("h1", { id: "h" }, "Reload a table"),
    make("div", { class: "columns" },
      make("form", { onsubmit: (event) => { event.preventDefault(); attempt(show); } },
        make("label", { for: "table" }, "Table"), table,
        make("label", { for: "set" }, "Rows to set"), make("p", { id: "set-hint", class: "hint" }, "A JSON object from key to row. Each takes the place of the row with its key."), set,
        make("label", { for: "remove" }, "Keys to remove ", make("span", { class: "hint" }, "(one a line, or a JSON list)")), remove,
        make("label", { for: "version" }, "Version ", make("span", { class: "hint" }, "(if you name them yourself)")), version,
        make("label", { for: "by" }, "Your name ", make("span", { class: "hint" }, "(for the log)")), by,
        refusal,
        make("div", { class: "row-actions" }, make("button", { type: "submit", class: "second" }, "Preview"), reload)),
      shown));
}
