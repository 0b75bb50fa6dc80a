"""Hints: the comparisons that `request.equals` would do better, and no others. `test_untracked` has the other half."""

import ast
import functools
import logging
import textwrap
import time

import pytest

from shelflife.apis.acme.policies import POLICIES as ACME_POLICIES
from shelflife.apis.meetings.policies import POLICIES as MEETING_POLICIES
from shelflife.apis.payouts.policies import POLICIES as PAYOUT_POLICIES
from shelflife.apis.recipes.policies import POLICIES as RECIPE_POLICIES
from shelflife.policy_code import comparisons_in
from shelflife.server import Provider, fix
from tests.document_programs import document_programs


@pytest.fixture
def loaded(tmp_path):
    """What a file of this text defines."""

    def load(text, name="policies.py"):
        path = tmp_path / name
        path.write_text(text, "utf-8")
        namespace = {"functools": functools}
        exec(compile(text, str(path), "exec"), namespace)
        return namespace

    return load


def hint(line, comparison, instead):
    return (
        f"line {line}: {comparison} reads the value; {instead} would let the fix hold for every other value"
    )


HINTED = {
    'return request.get("f") == x': ["request.get('f') == x", "request.equals('f', x)"],
    'return request["f"] != x': ["request['f'] != x", "request.equals('f', x)"],
    'return x == request.get("f")': ["x == request.get('f')", "request.equals('f', x)"],
    'return x != request["f"]': ["x != request['f']", "request.equals('f', x)"],
    'return request.get("f", None) == x': ["request.get('f', None) == x", "request.equals('f', x)"],
    'return request.get("f") == 25': ["request.get('f') == 25", "request.equals('f', 25)"],
    'return not (x and request.get("f") == "a")': ["request.get('f') == 'a'", "request.equals('f', 'a')"],
    "return request.get(name) == x": ["request.get(name) == x", "request.equals(name, x)"],
    'return request["f"] == tables.plans[request["plan"]]["code"]': [
        "request['f'] == tables.plans[request['plan']]['code']",
        "request.equals('f', tables.plans[request['plan']]['code'])",
    ],
    'f = request.get("f"); return f != x': ["f != x", "request.equals('f', x)"],
    'f: str = request["f"]; return x == f': ["x == f", "request.equals('f', x)"],
    'return [1 for row in tables.plans if request.get("f") == row]': [
        "request.get('f') == row",
        "request.equals('f', row)",
    ],
    'return lambda: request.get("f") == x': ["request.get('f') == x", "request.equals('f', x)"],
    'return request.get("f") == x and request.equals("f", y)': [
        "request.get('f') == x",
        "request.equals('f', x)",
    ],
}

NOT_HINTED = [
    'return request.equals("f", x)',
    'return request.get("f") == request.get("g")',
    'return request["f"] != request["g"]',
    'f = request["f"]; g = request["g"]; return f == g',
    'g = request["g"]; return request["f"] == g, g',
    'return request.get("f") in x',
    'return request.get("f") < x',
    'return request.get("f") is None',
    'return request.get("f")',
    'return request.get("f", 1) == x',
    'return request.get("f", default=1) == x',
    'return request.get("f").lower() == x',
    'return a == request.get("f") == b',
    'return tables.get("f") == x',
    'return x.request["f"] == 1',
    'f = request.get("f"); return f == x and f',
    'f = request.get("f"); return f == x or f == y',
    'f = request.get("f"); f = f or 1; return f == x',
    'f = request.get("f"); f += 1; return f == x',
    'global f; f = request.get("f"); return f == x',
    'return (f := request.get("f")) == x',
    'return request["f"] == x and tables.plans[request["f"]]',
    'return request["f"] == x and request.get("f") is None',
    'return request["f"] == x and request.get("f", 1)',
    'return request["f"] == x and "f" in request',
    'request = dict(request); return request["f"] == x',
    'return [1 for request in tables.plans if request["f"] == x]',
    'return (lambda request: request["f"] == x)(tables)',
]


@pytest.mark.parametrize("body", HINTED)
def test_a_field_that_is_read_only_to_be_compared_has_a_hint(loaded, body):
    policy = loaded(f"\n\ndef policy(request, tables):\n    {body}\n")["policy"]
    assert comparisons_in(policy) == [hint(4, *HINTED[body])]


@pytest.mark.parametrize("body", NOT_HINTED)
def test_anything_else_has_none(loaded, body):
    assert comparisons_in(loaded(f"def policy(request, tables):\n    {body}\n")["policy"]) == []


def test_hints_come_in_the_order_of_their_lines(loaded):
    text = """
    def policy(r, t):
        promo = r.get("promo")
        if r["plan"] != "pro" or r["plan"] == "max":
            return None
        if promo != t.codes["a"]["code"]:
            return 1
    """
    assert comparisons_in(loaded(textwrap.dedent(text))["policy"]) == [
        hint(4, "r['plan'] != 'pro'", "r.equals('plan', 'pro')"),
        hint(4, "r['plan'] == 'max'", "r.equals('plan', 'max')"),
        hint(6, "promo != t.codes['a']['code']", "r.equals('promo', t.codes['a']['code'])"),
    ]


class Shop:
    def own(self, request, tables):
        return request["f"] == 1

    @classmethod
    def of_class(cls, request, tables):
        return request["f"] == 1

    @staticmethod
    def static(request, tables):
        return request["f"] == 1

    def named_otherwise(self, wanted, tables):
        return self["f"] == wanted.get("g")


@pytest.mark.parametrize("policy", [Shop().own, Shop().of_class, Shop.of_class, Shop.static, Shop().static])
def test_the_request_of_a_method_comes_after_its_object(policy):
    [found] = comparisons_in(policy)
    assert "request['f'] == 1 reads the value; request.equals('f', 1)" in found


def test_the_object_of_a_method_is_not_the_request():
    [found] = comparisons_in(Shop().named_otherwise)
    assert "wanted.equals('g', self['f'])" in found


def test_a_lambda_has_none():
    assert comparisons_in(lambda request, tables: request["f"] == 1) == []


def test_of_a_decorated_policy_the_function_inside_counts(loaded):
    policy = loaded(
        "def checked(f):\n"
        "    @functools.wraps(f)\n"
        "    def wrapper(*args): return f(*args)\n"
        "    return wrapper\n\n"
        "@checked\n"
        "@functools.cache\n"
        'def policy(request, tables): return request["f"] == 1\n'
    )["policy"]
    assert comparisons_in(policy) == [hint(8, "request['f'] == 1", "request.equals('f', 1)")]


def test_of_a_method_that_is_wrapped_the_object_is_not_the_request():
    @functools.wraps(Shop().own)
    def policy(*args):
        return Shop().own(*args)

    assert len(comparisons_in(policy)) == 1


def test_of_a_file_that_was_loaded_again_the_new_text_counts(loaded):
    found = [
        comparisons_in(loaded(f"{before}def policy(request, tables): return request['f'] == 1")["policy"])
        for before in ("", "\n\n\n")
    ]
    assert found == [[hint(line, "request['f'] == 1", "request.equals('f', 1)")] for line in (1, 4)]


def test_indentation_and_strings_may_be_as_odd_as_python_allows(loaded):
    policy = loaded(
        "if True:\n"
        "\tdef policy(request,\n"
        "  tables):\n"
        '\t\t"""It says\n'
        'what it says."""\n'
        "# a comment at the left\n"
        '\t\treturn (request[\n"f"]\n== """a\nb"""\n'
        ")\n"
    )["policy"]
    assert comparisons_in(policy) == [hint(7, "request['f'] == 'a\\nb'", "request.equals('f', 'a\\nb')")]


def from_text(text):
    namespace = {}
    exec(text, namespace)
    return namespace["policy"]


def with_another_file(loaded, tmp_path):
    policy = loaded('def policy(request, tables): return request["f"] == 1\n')["policy"]
    (tmp_path / "policies.py").write_text("this is no Python", "utf-8")
    return policy


def wrapping_itself():
    def policy(request, tables):
        return request["f"] == 1

    policy.__wrapped__ = policy
    return policy


@pytest.mark.parametrize(
    "policy",
    [
        from_text('def policy(request, tables): return request["f"] == 1'),
        from_text('policy = lambda request, tables: request["f"] == 1'),
        wrapping_itself(),
        lambda *args: args[0]["f"] == 1,
        isinstance,
        str.join,
        "no function",
    ],
    ids="function lambda circle arguments builtin descriptor text".split(),
)
def test_what_has_no_source_has_no_hints(policy):
    assert comparisons_in(policy) == []


def test_a_file_that_is_another_one_by_now_gives_none(loaded, tmp_path):
    assert comparisons_in(with_another_file(loaded, tmp_path)) == []


def test_a_warning_about_the_source_is_not_given_again(loaded, tmp_path):
    path = tmp_path / "escapes.py"
    text = 'def policy(request, tables):\n    return request["f"] == "{}d"\n'
    policy = loaded(text.format("."), path.name)["policy"]
    path.write_text(text.format("\\"), "utf-8")
    assert len(comparisons_in(policy)) == 1


def compares(request, tables):
    return fix("A", f=1) if request.get("promo") == "P1" else None


def test_the_log_has_each_hint_once_for_a_policy(caplog):
    caplog.set_level(logging.INFO, "shelflife")
    provider = Provider({"plans": {}})
    provider.policy(compares)
    provider.policy(operation="POST /orders")(compares)
    other = Provider({"plans": {}})
    other.policy(compares)
    for one in (provider, provider, other):
        assert one.policies.look()
    [record] = caplog.records
    assert (record.name, record.levelname) == ("shelflife", "INFO")
    assert record.getMessage() == "the policy compares: " + comparisons_in(compares)[0]


def test_a_method_is_advised_on_too(caplog):
    caplog.set_level(logging.INFO, "shelflife")
    provider = Provider({"plans": {}})
    provider.policy(Shop().own)
    assert provider.policies.look()
    assert [record.args[0] for record in caplog.records] == ["own"]


def test_a_policy_with_a_version_of_its_own_is_not_looked_at(caplog):
    caplog.set_level(logging.INFO, "shelflife")
    provider = Provider({"plans": {}}, strict_policies=True)

    @provider.policy(version="1")
    def compares_with_the_clock(request, tables):
        return fix("A", f=1) if request.get("at") == time.time() else None

    assert comparisons_in(compares_with_the_clock)
    [fingerprint] = provider.policies.look().values()
    assert (fingerprint, caplog.records) == ("version 1", [])


def test_nothing_is_read_or_said_where_nobody_listens(caplog):
    caplog.set_level(logging.WARNING, "shelflife")
    provider = Provider({"plans": {}})
    provider.policy(lambda request, tables: fix("A", f=1) if request["f"] == 1 else None)
    assert provider.policies.look()
    assert caplog.records == []


@pytest.mark.parametrize(
    "policy",
    [*ACME_POLICIES, *MEETING_POLICIES, *PAYOUT_POLICIES, *RECIPE_POLICIES],
    ids=lambda policy: policy.__name__,
)
def test_the_reference_apis_follow_the_advice(policy):
    assert comparisons_in(policy) == []


def test_the_documents_follow_the_advice(loaded):
    functions = {}
    for name, (_, text) in document_programs().items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and [one.arg for one in node.args.args][:1] == ["request"]:
                node.decorator_list, node.returns = [], None
                for argument in node.args.args:
                    argument.annotation = None
                functions[f"{name} {node.name}"] = loaded(ast.unparse(node), f"{len(functions)}.py")[
                    node.name
                ]
    assert functions
    assert {name: found for name, policy in functions.items() if (found := comparisons_in(policy))} == {}
