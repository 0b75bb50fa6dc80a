// What the page shows, each view from what the server has told.

import { graph, reached } from "./drawing.js";
import { code, make, row, table, when } from "./elements.js";

const counted = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;

export function tables(told, open) {
  const rows = told.tables.map((one) => row(
    make("button", { type: "button", class: "plain", onclick: () => open(one.table) }, one.table),
    code(one.version), one.rows, one.changed ? when(one.changed) : told.kept_from > 1 ? `before change ${told.kept_from}` : "not since the log began"));
  return make("section", { "aria-labelledby": "h" }, make("h1", { id: "h" }, "Tables"),
    table("Tables, as they are now", ["Table", "Version", "Rows", "Last change"], rows, "There are no tables."));
}

export function rowsOf(told, choose, more, find) {
  const rows = told.rows.map((one) => row(
    make("button", { type: "button", class: "plain", onclick: () => choose(`${told.table}:${one.key}`) }, one.key),
    code(one.row)));
  const search = make("input", { id: "find", type: "search", value: told.holding });
  return make("section", { "aria-labelledby": "rows" },
    make("h2", { id: "rows" }, "Rows of ", told.table),
    make("form", { onsubmit: (event) => { event.preventDefault(); find(search.value); } },
      make("label", { for: "find" }, "Find a key ", make("span", { class: "hint" }, "(then Enter)")), search),
    make("p", {}), table(`Rows of ${told.table}`, ["Key", "Values"], rows, "No row has such a key.", { isHeaded: true }),
    told.next === null ? null : make("p", {}, make("button", { type: "button", class: "second", onclick: () => more(told.next) }, "Next rows")));
}

export function graphOfTables(told, choose) {
  const { chosen } = told;
  const nodes = told.tables.map((one) => ({ id: one.table, title: one.table, under: counted(one.rows, "row") }));
  const edges = told.rules.map((rule) => ({ from: rule.from, to: rule.to, label: rule.relation }));
  const below = chosen ? [...reached(chosen, edges)] : [];
  const rules = told.rules.map((rule) => row(code(rule.relation), rule.from, rule.to, rule.via ? code(rule.via) : "any column"));
  return make("section", { "aria-labelledby": "h" }, make("h1", { id: "h" }, "Graph"),
    make("p", {}, "An arrow is a rule: the values of one table name rows of another. Choose a table to see what lies downstream of it."),
    nodes.length ? make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Drawing of the tables" },
      graph("Tables and rules", nodes, edges, chosen, choose)) : null,
    make("p", { role: "status" }, chosen ? `Downstream of ${chosen}: ${below.join(", ") || "nothing"}.` : ""),
    make("h2", {}, "Rules"), table("Rules", ["Relation", "From", "To", "By"], rules, "There are no rules.", { isHeaded: true }));
}

export function graphOfRow(told, choose) {
  const ids = new Set([told.row, ...told.edges.flatMap((edge) => [edge.from, edge.to])]);
  const nodes = [...ids].map((id) => ({ id, title: id.slice(id.indexOf(":") + 1), under: id.slice(0, id.indexOf(":")) }));
  const edges = told.edges.map((edge) => ({ ...edge, label: edge.relation }));
  const policies = Object.entries(told.resting.policies).map(([id, one]) => row(id, one.fixes, one.columns === null ? "all columns" : one.columns.join(", ")));
  return make("section", { "aria-labelledby": "around" },
    make("h2", { id: "around" }, "Around ", code(told.row)),
    make("p", {}, told.value === null ? "There is no such row." : code(told.value)),
    make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Drawing of the rows" },
      graph(`Rows around ${told.row}`, nodes, edges, told.row, choose)),
    make("p", {}, `Downstream of it: ${told.downstream_count ? `${counted(told.downstream_count, "row")}. ` : "nothing."}`,
      told.downstream.map((id, index) => [index ? ", " : "", make("button", { type: "button", class: "plain", onclick: () => choose(id) }, id)])),
    table("Fixes that rest on it, of those that were told of late", ["Policy", "Fixes", "Read"], policies, "No fix that was told of late rests on it."));
}

export function log(told, older) {
  return make("section", { "aria-labelledby": "h" }, make("h1", { id: "h" }, "Log of changes"),
    told.entries.length ? told.entries.map(entry) : make("p", { class: "none" }, told.number ? "The changes up to now are no longer kept." : "Nothing has changed yet."),
    told.has_more ? make("button", { type: "button", class: "second", onclick: older }, "Older changes") : null);
}

function entry(one) {
  const heads = [make("h3", {}, `Change ${one.number}`), make("span", { class: "aside" }, when(one)), one.by ? null : make("span", { class: "aside" }, "by code")];
  if (!one.is_whole) {
    const parts = [one.has_rules ? "rules" : null, one.has_policies ? "the code of policies" : null].filter(Boolean).join(" and ");
    return make("article", { class: "card", "aria-label": `Change ${one.number}` }, make("header", {}, heads),
      Object.entries(one.tables).map(([name, change]) => make("p", {}, make("strong", {}, name), ` ${counted(change.row_count, "row")}`)),
      parts ? make("p", {}, `Also ${parts}`) : null,
      make("p", { class: "none" }, "The log keeps no more of it: too much has changed since, or at once."));
  }
  const rules = one.rules ? [...one.rules.added.map((rule) => ["added", rule]), ...one.rules.removed.map((rule) => ["removed", rule])] : [];
  return make("article", { class: "card", "aria-label": `Change ${one.number}` },
    make("header", {}, heads),
    Object.entries(one.tables).map(([name, change]) => make("div", {},
      make("p", {}, make("strong", {}, name), " ", code(change.old_version ?? "new"), " → ", code(change.version)),
      diff(change),
      change.downstream_count ? make("p", { class: "aside" }, `Downstream, as it was: ${change.affected_downstream.join(", ")}`) : null)),
    rules.length ? make("p", {}, "Rules: ", rules.map(([how, rule], index) => `${index ? "; " : ""}${how} ${rule.from} → ${rule.to} (${rule.relation})`)) : null,
    one.policies.length ? make("p", {}, `Code of policies: ${one.policies.join(", ")}`) : null);
}

// Rows before and after, by column.
export function diff(change) {
  if (!change.row_count) return make("p", { class: "none" }, "No row differs.");
  const own = (row, column) => (row !== null && Object.hasOwn(row, column) ? row[column] : undefined);
  const differing = ({ key, before, after }) => [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])]
    .map((column) => [key, column, own(before, column), own(after, column)])
    .filter(([, , was, is]) => JSON.stringify(was) !== JSON.stringify(is));
  const kind = ({ before, after }) => (before === null ? "added" : after === null ? "removed" : "changed");
  const lines = change.rows.flatMap((one) => {
    const cells = differing(one);
    return (cells.length ? cells : [[one.key, "–", undefined, undefined]]).map(([key, column, before, after]) => make("tr", {},
      make("th", { scope: "row" }, key), make("td", {}, kind(one)), make("td", {}, column),
      make("td", { class: "before" }, before === undefined ? "" : code(before)), make("td", { class: "after" }, after !== undefined ? code(after) : kind(one) === "changed" && before !== undefined ? make("em", {}, "gone") : "")));
  });
  const left = change.row_count - change.rows.length;
  return [table(counted(change.row_count, "row"), ["Key", "Change", "Column", "Before", "After"], lines, "", { wraps: true }),
    left > 0 ? make("p", { class: "aside" }, `and ${counted(left, "more row")}`) : null];
}

export function policies(told) {
  const restsOn = (tables) => make("ul", { class: "plain" }, Object.entries(tables).map(([name, columns]) =>
    make("li", {}, name, columns === null ? "" : columns.length ? `: ${columns.join(", ")}` : ": whether a row is there")));
  const fix = ([type, one]) => make("li", {}, code(type), ` ${counted(one.count, "time")}, sets ${one.sets.join(", ") || "nothing"}`, restsOn(one.rests_on));
  const rows = told.policies.map((one) => row([one.says, make("div", { class: "aside mono" }, one.id)],
    one.says === null ? "not known to this process" : one.operation ?? "every operation", one.refused,
    Object.keys(one.fixes).length ? make("ul", { class: "plain" }, Object.entries(one.fixes).map(fix)) : "none yet"));
  return make("section", { "aria-labelledby": "h" }, make("h1", { id: "h" }, "Policies"),
    told.scores_clients ? null : make("p", { class: "none" }, "What their fixes set and rest on is not known: scoring is off."),
    table("Policies, what they refused, and what their fixes rest on", ["Policy", "Operation", "Refused", "Fixes, and what they rest on"], rows, "There are no policies."));
}

const GOOD = "remembers and follows", UNSURE = "not enough seen";

export function clients(told) {
  const share = (part, whole) => make("span", { class: "share" }, whole ? `${part}\u00a0of\u00a0${whole} (${Math.round((100 * part) / whole)}\u00a0%)` : "–");
  const rows = told.clients.map((one) => row(
    [code(one.client), make("div", { class: `verdict ${{ [GOOD]: "good", [UNSURE]: "unsure" }[one.verdict] ?? "bad"}` }, one.verdict)],
    one.in_all.passed, one.in_all.refused,
    make("details", {}, make("summary", {}, share(one.right_at_once, one.tasks)),
      make("ul", { class: "plain" }, Object.entries(one.policies).map(([id, score]) => make("li", {}, `${id}: `, share(score.right_at_once, score.tasks))))),
    share(one.followed, one.refused), one.repeated,
    one.stale ? `${one.stale}, ${one.stale_after_told} after it was told; up to ${one.longest_stale_s} s` : "none", one.could_save));
  return make("section", { "aria-labelledby": "h" }, make("h1", { id: "h" }, "Clients"),
    make("p", {}, "What each makes of the fixes that it is given, from its requests alone. Several agents behind one credential look like one, and so do all without any (anonymous)."),
    make("p", {}, make("strong", {}, "Passed"), " and ", make("strong", {}, "refused"), " are its requests in all, each counted once. ",
      "The rest, and the verdict that comes of it, is of late: of each fix, the latest eight changes. There a request counts once for each fix that it needs."),
    table("Clients of all workers", ["Client, and its memory", "Passed", "Refused", "Right at once", "Fix followed", "Repeated", "Previous values", "Could save"],
      rows, "No client was refused with a fix that can be kept yet.", { wraps: true }));
}
