// A reload by form. It is made only as it was shown: after a preview of the same words, in the same state.

import { code, make } from "./elements.js";
import { ask, send } from "./server.js";
import { diff } from "./views.js";

const WAIT_S = 5;

export function reloadForm(told, current) {
  const table = make("select", { id: "table", onchange: dirty }, told.tables.map((one) => make("option", {}, one.table)));
  const set = make("textarea", { id: "set", spellcheck: "false", placeholder: '{"key": {"column": "value"}}', "aria-describedby": "set-hint", oninput: dirty });
  const remove = make("textarea", { id: "remove", spellcheck: "false", oninput: dirty });
  const version = make("input", { id: "version", autocomplete: "off", oninput: dirty });
  const by = make("input", { id: "by", autocomplete: "name", maxlength: 100 });
  const refusal = make("p", { role: "alert" });
  const shown = make("div", { "aria-live": "polite" });
  const reload = make("button", { type: "button", disabled: true, onclick: doIt }, "Reload now");
  let previewed = null;

  function dirty() {
    previewed = null;
    reload.disabled = true;
    shown.replaceChildren();
    refusal.textContent = "";
  }

  function message() {
    const keys = remove.value.split("\n").map((key) => key.trim()).filter(Boolean);
    const rows = set.value.trim() ? JSON.parse(set.value) : {};
    return { table: table.value, set: rows, remove: keys, ...(version.value.trim() ? { version: version.value.trim() } : {}) };
  }

  async function attempt(step) {
    refusal.textContent = "";
    try {
      await step();
    } catch (error) {
      refusal.textContent = error instanceof SyntaxError ? `The rows are not JSON: ${error.message}` : error.message;
    }
  }

  const preview = () => attempt(async () => {
    const asked = message();
    const found = await send("preview-table", asked);
    const { report } = found;
    previewed = { asked: JSON.stringify(asked), number: current().number };
    reload.disabled = report.old_version === report.new_version;
    shown.replaceChildren(make("h2", {}, "What it would change"),
      make("p", {}, code(report.old_version), " → ", code(report.new_version), reload.disabled ? ": nothing would change." : ""),
      ...[diff(found)].flat().filter(Boolean),
      make("p", {}, "Downstream: ", report.affected_downstream?.length ? report.affected_downstream.join(", ") : "nothing", "."),
      make("p", {}, `Fixes that rest on these rows: ${found.fixes_resting}.`));
  });

  function doIt() {
    return attempt(async () => {
      const asked = message();
      if (previewed?.asked !== JSON.stringify(asked) || previewed.number !== (await ask("overview")).number) {
        await preview();
        refusal.textContent = "Something has changed since the preview. This is the new one; reload if it is right.";
        return;
      }
      reload.disabled = true;
      const report = await send("reload-table", { ...asked, by: by.value.trim(), wait_s: WAIT_S });
      previewed = null;
      const workers = report.workers;
      const has = !workers ? "" : workers.behind ? ` ${workers.behind} of ${workers.live} workers do not have it yet.` : ` All ${workers.live} workers have it.`;
      shown.replaceChildren(make("p", { class: "said" }, `Reloaded. ${report.table} is at `, code(report.new_version), `.${has}`));
    });
  }

  return make("section", { "aria-labelledby": "h" }, make("h1", { id: "h" }, "Reload a table"),
    make("div", { class: "columns" },
      make("form", { onsubmit: (event) => { event.preventDefault(); preview(); } },
        make("label", { for: "table" }, "Table"), table,
        make("label", { for: "set" }, "Rows to set"), make("p", { id: "set-hint", class: "hint" }, "A JSON object from key to row. Each takes the place of the row with its key."), set,
        make("label", { for: "remove" }, "Keys to remove ", make("span", { class: "hint" }, "(one a line)")), remove,
        make("label", { for: "version" }, "Version ", make("span", { class: "hint" }, "(if you name them yourself)")), version,
        make("label", { for: "by" }, "Your name ", make("span", { class: "hint" }, "(for the log)")), by,
        refusal,
        make("div", { class: "row-actions" }, make("button", { type: "submit", class: "second" }, "Preview"), reload)),
      shown));
}
