"""What a run must come to, worked out a second time: it shares no code with server, memory or scores, and plays nothing.

Tables are dictionaries, policies are written down once more with what each reads, and a memory is a list. A score that differs from
this is wrong here or there.
"""

import copy
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import shelflife.apis

APIS = Path(shelflife.apis.__file__).parent
RULES = {
    "acme": [
        ("active_csm_codes", "requires_recognition", "promo_eligibility", "code"),
        ("required_promo_policy", "assigned_by", "active_csm_codes", "code_of"),
        ("token_funding_map", "funds", "recommended_credit_token", "pays_for"),
        ("recommended_credit_token", "pays_with", "token_funding_map", "token"),
        ("funding_type_policy", "settles_on", "token_funding_map", "settles_on"),
    ],
    "recipes": [("ingredient_diets", "fits", "dietary_ladder", "fits")],
}
MOST_ATTEMPTS = 5


class Fix(NamedTuple):
    type: str
    values: dict[str, Any]
    reads: frozenset[tuple[str, str, str | None]]
    """Table, key and column; None for whether the row is there."""

    rules: frozenset[str]

    @property
    def tables(self):
        return {table for table, _, _ in self.reads}


class World:
    """The server's data, as drift has left it."""

    def __init__(self, api):
        self.api = api
        self.tables = tomllib.loads((APIS / api / "tables.toml").read_text())
        self.versions = dict.fromkeys(self.tables, "as shipped")
        self.rules = set(RULES[api])
        self.history = [self.snapshot()]

    def snapshot(self):
        return copy.deepcopy((self.tables, self.versions, self.rules))

    def drift(self, drift):
        if drift.table is None:
            self.rules |= {rule_of(one) for one in drift.add_rules}
            self.rules -= {rule_of(one) for one in drift.remove_rules}
        else:
            rows = self.tables[drift.table] if drift.rows is None else drift.rows
            kept = {key: row for key, row in rows.items() if key not in drift.remove}
            self.tables[drift.table] = {**kept, **(drift.set or {})}
            self.versions[drift.table] = drift.version or repr(sorted(self.tables[drift.table].items()))
        self.history.append(self.snapshot())

    def fixes(self, request):
        policies = (promo, funding, currency) if self.api == "acme" else (celiac, incompatible, diet)
        found = [policy(self, request) for policy in policies]
        return [fix for fix in found if fix]

    def downstream(self, moment, table, keys):
        """What lies downstream of rows, in the graph as it was at a moment of the history."""
        tables, _, rules = self.history[moment]
        found, todo = set(), [(table, key) for key in keys]
        while todo:
            table, key = todo.pop()
            for source, _, target, via in rules:
                named = tables[table].get(key, {}).get(via, []) if source == table else []
                nodes = {(target, one) for one in ([named] if isinstance(named, str) else named)}
                todo += nodes - found
                found |= nodes
        return found


def rule_of(rule):
    return rule.from_table, rule.relation, rule.to_table, rule.via


def tells(world, table, relation):
    return any(one[:2] == (table, relation) for one in world.rules)


def promo(world, request):
    plan = request["plan"]
    required = world.tables["required_promo_policy"].get(plan)
    if required is None:
        return None
    owner = required["code_of"]
    row = world.tables["active_csm_codes"].get(owner)
    if row is None or row["code"] not in world.tables["promo_eligibility"]:
        return None
    if (
        not tells(world, "active_csm_codes", "requires_recognition")
        or request.get("promo_code") == row["code"]
    ):
        return None
    reads = {
        ("required_promo_policy", plan, "code_of"),
        ("active_csm_codes", owner, "code"),
        ("promo_eligibility", row["code"], None),
    }
    rules = {"active_csm_codes:requires_recognition"}
    return Fix("promo", {"promo_code": row["code"]}, frozenset(reads), frozenset(rules))


def funding(world, request):
    plan, token = request["plan"], request["payment_method_token"]
    row = world.tables["recommended_credit_token"].get(plan)
    if row is None or token == row["token"]:
        return None
    reads = {("recommended_credit_token", plan, "token")}
    accepted = ["credit"]
    if tells(world, "recommended_credit_token", "governed_by"):
        accepted = world.tables["funding_type_policy"][row["policy"]]["accepts"]
        reads |= {
            ("recommended_credit_token", plan, "policy"),
            ("funding_type_policy", row["policy"], "accepts"),
        }
    if tells(world, "token_funding_map", "funds"):
        reads.add(("token_funding_map", token, "funding"))
        if world.tables["token_funding_map"][token]["funding"] in accepted:
            return None
    rules = {"recommended_credit_token:governed_by", "token_funding_map:funds"}
    return Fix("funding", {"payment_method_token": row["token"]}, frozenset(reads), frozenset(rules))


def currency(world, request):
    token = request["payment_method_token"]
    settled = world.tables["token_funding_map"][token]["currency"]
    if request["currency"] == settled:
        return None
    return Fix(
        "currency", {"currency": settled}, frozenset({("token_funding_map", token, "currency")}), frozenset()
    )


def celiac(world, request):
    ingredient = request["ingredient"]
    row = world.tables["celiac_safe_brands"].get(ingredient)
    if not request.get("celiac") or row is None or request.get("brand") == row["brand"]:
        return None
    reads = {("celiac_safe_brands", ingredient, "brand")}
    return Fix("celiac", {"brand": row["brand"]}, frozenset(reads), frozenset())


def incompatible(world, request):
    pair = f"{request['ingredient']}+{request.get('combined_with')}"
    row = world.tables["incompatible_combinations"].get(pair)
    if row is None:
        return None
    reads = {("incompatible_combinations", pair, "replacement")}
    return Fix("incompatible", {"ingredient": row["replacement"]}, frozenset(reads), frozenset())


def diet(world, request):
    wanted = world.tables["dietary_ladder"].get(request.get("diet"))
    known = world.tables["ingredient_diets"].get(request["ingredient"])
    if wanted is None or known is None:
        return None
    if world.tables["dietary_ladder"][known["fits"]]["rung"] >= wanted["rung"]:
        return None
    reads = {
        ("dietary_ladder", request["diet"], "rung"),
        ("dietary_ladder", known["fits"], "rung"),
        ("ingredient_diets", request["ingredient"], "fits"),
        ("ingredient_diets", request["ingredient"], "substitute"),
    }
    return Fix(
        "diet",
        {"ingredient": known["substitute"]},
        frozenset(reads),
        frozenset({"ingredient_diets:fits"}),
    )


class Kept:
    """One thing that a memory holds."""

    def __init__(self, family, fix, episode):
        self.family, self.fix, self.episode = family, fix, episode
        self.tables = fix.tables
        self.unread = set()
        """Tables that it has come to depend on, and nobody has said with which rows."""
        self.is_suspect = False
        """Whether the server is asked about it before it is used: a rule that it rests on has changed."""

    def is_in(self, request):
        return all(request.get(name) == value for name, value in self.fix.values.items())


class Oracle:
    """A run of a stream with an arm and a planner that takes the first, or the last, of two values."""

    def __init__(self, scenario, arm, *, takes_last=False, takes=lambda field, is_added: True):
        self.scenario, self.arm, self.takes_last, self.takes = scenario, arm, takes_last, takes
        self.world = World(scenario.api)
        self.held = []
        self.seen = 0
        """How much of the world's history the memory knows of."""
        self.episode = 0
        self.counts = Counter()
        self.first_try, self.alerts, self.restamped, self.valid, self.right = set(), [], set(), set(), []
        self.evicted_at = []
        for self.episode, name in enumerate(scenario.order):
            self.play(scenario.families[name])
            for drift in (one for one in scenario.drift if one.after == self.episode):
                self.world.drift(drift)

    def ask_about_suspects(self, family):
        """What the server would give to the task: what it gives again stays, what it does not give goes."""
        suspects = [one for one in self.held if one.family == family.name and one.is_suspect]
        if suspects:
            self.look()
            self.evict(lambda one: one in suspects and not self.is_true(one))
            self.learn(family, self.world.fixes(family.input))

    def play(self, family):
        self.ask_about_suspects(family)
        shown = [one for one in self.held if one.family == family.name]
        request, chosen = dict(family.input), {}
        for one in shown:
            for field, value in one.fix.values.items():
                if self.takes(field, field not in family.input) and (self.takes_last or field not in chosen):
                    chosen[field] = value
        request |= chosen
        used = [one for one in shown if one.is_in(request)]
        self.counts["stale injections"] += any(not self.is_true(one) for one in used)
        subjects = {tuple(one.fix.values) for one in used}
        counted = [one for one in shown if one in used or tuple(one.fix.values) not in subjects]
        if shown and all(map(self.is_true, counted)):
            self.valid.add(self.episode)
        for attempt in range(MOST_ATTEMPTS):
            fixes = self.world.fixes(request)
            if not fixes:
                self.counts["stale executions"] += any(
                    one.is_in(request) and not self.is_true(one) for one in shown
                )
            self.look()
            self.learn(family, fixes)
            if not fixes:
                self.counts["completed"] += 1
                if not attempt:
                    self.first_try.add(self.episode)
                return
            for fix in fixes:
                request |= fix.values
            self.counts["retries"] += attempt + 1 < MOST_ATTEMPTS

    def given_now(self, one):
        """The server's answer to the request that taught something, where that is the same fix."""
        answers = self.world.fixes(self.scenario.families[one.family].input)
        return next(
            (fix for fix in answers if (fix.type, fix.values) == (one.fix.type, one.fix.values)), None
        )

    def is_true(self, one):
        return self.given_now(one) is not None

    def evict(self, is_doomed):
        doomed = [one for one in self.held if is_doomed(one)]
        for one in doomed:
            now = self.given_now(one)
            self.right.append(now is None or bool(one.tables - now.tables))
            self.evicted_at.append(self.episode)
        # what goes with the same response was not kept
        self.restamped -= {(self.episode, id(one)) for one in doomed}
        self.held = [one for one in self.held if one not in doomed]

    def look(self):
        """What the memory makes of the state that a response tells."""
        if self.arm == "A0":
            return
        (old_tables, old_versions, old_rules), since = self.world.history[self.seen], self.seen
        self.seen = len(self.world.history) - 1
        moved = [table for table, version in self.world.versions.items() if version != old_versions[table]]
        dependent = [one for one in self.held if one.tables & set(moved)]
        doomed = set()
        for table in moved:
            doomed |= self.doomed_by(table, old_tables[table], since)
        self.look_at_rules(old_rules ^ self.world.rules, old_rules - self.world.rules)
        self.evict(lambda one: one in doomed)
        if self.arm not in ("A1", "A2"):
            # what must be revalidated is not kept yet, and what was revalidated is learned anew
            kept = [one for one in dependent if one in self.held and not one.is_suspect]
            self.restamped |= {(self.episode, id(one)) for one in kept}

    def doomed_by(self, table, old, since):
        new = self.world.tables[table]
        changed = {key for key in {**old, **new} if old.get(key) != new.get(key)}
        columns = {
            (table, key, column)
            for key in changed
            for column in {**old.get(key, {}), **new.get(key, {})}
            if key not in old or key not in new or old[key].get(column) != new[key].get(column)
        }
        columns |= {(table, key, None) for key in changed if key not in old or key not in new}
        match self.arm:
            case "A1":
                return set()
            case "A2":
                return {one for one in self.held if table in one.tables}
            case "exact":
                # whatever else moves does not concern what is asked about before it is used anyway
                return {one for one in self.held if one.fix.reads & columns and not one.is_suspect}
        rows = {(table, key) for key in changed}
        if self.arm == "A2DG" and changed:
            for moment in range(since, len(self.world.history) - 1):
                before, after = (self.world.history[one][0][table] for one in (moment, moment + 1))
                keys = [key for key in before if before[key] != after.get(key)]
                rows |= self.world.downstream(moment, table, keys)
        return {
            one
            for one in self.held
            if rows & {read[:2] for read in one.fix.reads} or (changed and table in one.unread)
        }

    def look_at_rules(self, changed, removed):
        if not changed:
            return
        if self.arm in ("A2DR", "A2DRC", "A2DO", "exact"):
            self.alerts.append(self.episode)
        named = {f"{rule[0]}:{rule[1]}" for rule in changed}
        untied = {table for rule in removed for table in (rule[0], rule[2])}
        tied = {table for rule in changed - removed for table in (rule[0], rule[2])} - untied
        match self.arm:
            case "A2DR":
                self.evict(lambda one: True)
            case "A2DO":
                self.evict(lambda one: one.tables & untied)
                self.restamped |= {(self.episode, id(one)) for one in self.held if one.tables & tied}
            case "exact":
                for one in self.held:
                    one.is_suspect = one.is_suspect or bool(one.fix.rules & named)

    def learn(self, family, fixes):
        for fix in fixes if self.arm != "A0" else ():
            like = [one for one in self.held if one.fix.type == fix.type]
            if self.arm in ("A2DC", "A2DRC"):
                grown = [one for one in like if one.tables < fix.tables]
                shrunk = [one for one in like if one.tables - fix.tables]
                self.evict(lambda one, shrunk=shrunk: one in shrunk)
                for one in grown:
                    one.unread |= fix.tables - one.tables
                    one.tables = fix.tables
                self.restamped |= {(self.episode, id(one)) for one in grown}
                if (grown or shrunk) and self.arm == "A2DC":
                    self.alerts.append(self.episode)
            same = [one for one in self.held if (one.family, one.fix.type) == (family.name, fix.type)]
            if self.arm == "A1":
                same = [one for one in same if one.fix.values == fix.values]
            self.held = [one for one in self.held if one not in same]
            self.held.append(Kept(family.name, fix, self.episode))

    @property
    def score(self):
        """What the lab must find."""
        scenario = self.scenario
        order, families = scenario.order, scenario.families
        first_meetings = {order.index(name) for name in order}
        governed = [i for i, name in enumerate(order) if families[name].in_class == scenario.governed]
        eligible = [i for i in governed if i not in first_meetings and i not in scenario.stale_slots]
        chances = {i for i, name in enumerate(order) if families[name].hint} - first_meetings
        moments = sorted({one.after for one in scenario.drift})
        latest = [max((m for m in moments if m < at), default=None) for at in self.evicted_at]
        return {
            "completed": self.counts["completed"],
            "first_try": len(self.first_try),
            "retries": self.counts["retries"],
            "evictions": len(self.right),
            "evictions_by_event": [latest.count(moment) for moment in moments],
            "eviction_precision": sum(self.right) / len(self.right) if self.right else None,
            "restamps": len(self.restamped),
            "alerts": self.alerts,
            "stale_injections": self.counts["stale injections"],
            "stale_executions": self.counts["stale executions"],
            "eligible": len(eligible),
            "eligible_first_try": len(self.first_try.intersection(eligible)),
            "valid": len(self.valid & chances),
            "complied": len(self.valid & chances & self.first_try),
        }
