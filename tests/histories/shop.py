"""A small API, told twice: as tables, rules and policies for a real provider, and as a plain function of its content.

The second is what histories are judged by. It is written from what the policies mean, and uses nothing of the code under test.
"""

from typing import Any, NamedTuple

from shelflife.contract import Rule
from shelflife.server import fix

OPERATION = "POST /x"
TABLES = ("codes", "promos", "sizes", "regions")
CODES = "PQR"
REQUESTS: tuple[dict[str, Any], ...] = (
    {"plan": "a"},
    {"plan": "b"},
    {"plan": "c", "region": "q"},
    {"plan": "a", "code": "Z"},
    {"region": "m"},
    {"plan": "z"},
)
"""For the last one there is never anything to suggest."""

RULES = (
    (),
    (Rule(from_table="codes", to_table="promos", relation="needs", via="code"),),
    (Rule(from_table="codes", to_table="promos", relation="needs", via="alt"),),
    (Rule(from_table="sizes", to_table="regions", relation="fits", via="size"),),
)
"""No policy reads the last one."""

POLICY_OF = {
    "USE_CODE": "assigned",
    "USE_LOOSE_CODE": "assigned",
    "USE_SIZE": "sized",
    "USE_REGION": "placed",
}
TABLES_OF = {"assigned": ("codes", "promos"), "sized": ("sizes",), "placed": ("regions",)}


class Content(NamedTuple):
    """All that a state holds."""

    tables: dict[str, dict[str, dict[str, Any]]]
    """Never changed, only replaced."""

    rules: tuple[Rule, ...]
    code: int
    """Which of the codes of `assigned` runs; the other policies have one each."""

    def setting(self, table, rows):
        """With other rows in a table."""
        return self._replace(tables={**self.tables, table: rows})


FIRST = Content(
    {
        "codes": {key: {"code": "P", "alt": "Q", "note": 0} for key in "ab"},
        "promos": {"P": {}, "R": {}},
        "sizes": {key: {"size": 1, "note": 0} for key in "abc"},
        "regions": {"a": {}, "z": {}},
    },
    RULES[1],
    0,
)


def policies(code):
    """The policies of one deploy, for a provider."""

    def assigned(request, tables):
        row = tables.codes.get(request.get("plan")) if request.get("plan") is not None else None
        if row is None or request.equals("code", row["code"]):
            return None
        is_tied = row.follow("needs") is not None
        made_by = {"made_by": code} if code else {}
        return fix("USE_CODE" if is_tied else "USE_LOOSE_CODE", code=row["code"], **made_by)

    def sized(request, tables):
        row = tables.sizes.get(request.get("plan")) if request.get("plan") is not None else None
        if row is None or request.equals("size", row["size"]):
            return None
        return fix("USE_SIZE", size=row["size"])

    def placed(request, tables):
        region = request.get("region")
        if region is None or region in tables.regions:
            return None
        return fix("USE_REGION", region=min(tables.regions, default=None))

    return assigned, sized, placed


def says(content, request):
    """What an honest server suggests: the parameters by the type of the fix."""
    tables, found = content.tables, {}
    row = tables["codes"].get(request.get("plan"))
    if row is not None and request.get("code") != row["code"]:
        made_by = {"made_by": content.code} if content.code else {}
        found["USE_CODE" if _promo(content, row) else "USE_LOOSE_CODE"] = {"code": row["code"], **made_by}
    row = tables["sizes"].get(request.get("plan"))
    if row is not None and request.get("size") != row["size"]:
        found["USE_SIZE"] = {"size": row["size"]}
    region = request.get("region")
    if region is not None and region not in tables["regions"]:
        found["USE_REGION"] = {"region": min(tables["regions"], default=None)}
    return found


def reads(content, request, policy):
    """All that a policy's fix for a request rests on, by value."""
    tables = content.tables
    if policy == "assigned":
        row = tables["codes"].get(request.get("plan"))
        if row is None:
            return (None, content.code)
        return (row["code"], _needs(content), _promo(content, row), _via(content, row), content.code)
    if policy == "sized":
        row = tables["sizes"].get(request.get("plan"))
        return None if row is None else row["size"]
    return tuple(sorted(tables["regions"]))


def _needs(content):
    return next((rule for rule in content.rules if rule.relation == "needs"), None)


def _via(content, row):
    rule = _needs(content)
    return None if rule is None else row[rule.via]


def _promo(content, row):
    """Whether the row leads to a promo."""
    return _via(content, row) in content.tables["promos"]
