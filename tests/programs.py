"""Random policies for property tests: programs of reads, and how each step of one is carried out."""

from collections.abc import Mapping

from hypothesis import strategies as st

from tests.worlds import TABLES, WIDE

names = st.sampled_from(["f", "g", "h"])
table_names = st.sampled_from(TABLES)
keys = st.sampled_from(["a", "b", "missing", "$last"])
columns = st.sampled_from(WIDE)
relations = st.sampled_from(["r", "s"])
steps = st.one_of(
    st.tuples(st.sampled_from(["field", "has_field", "lacks_field", "length_of_field"]), names),
    st.tuples(st.just("has_nested"), names, st.sampled_from(["p", "q"])),
    st.tuples(st.just("is_there"), names),
    st.tuples(st.just("nested"), names, st.sampled_from(["p", "q", "a/b~c"])),
    st.tuples(st.just("whole_nested"), names),
    st.tuples(st.just("equals"), names, st.sampled_from([None, "a", 1, True, {"p": "a"}])),
    st.tuples(st.just("equals_nested"), names, st.sampled_from(["p", "q"]), st.sampled_from([None, "a", 1])),
    st.tuples(st.just("whole_request")),
    st.tuples(
        st.sampled_from(["row", "has_row", "is_row", "row_length", "row_text", "unpacked"]), table_names, keys
    ),
    st.tuples(st.sampled_from(["column", "column", "has_column"]), table_names, keys, columns),
    st.tuples(st.just("equal_rows"), table_names, keys, keys),
    st.tuples(st.just("follow"), table_names, keys, relations),
    st.tuples(st.just("follow_all"), table_names, keys, relations),
    st.tuples(st.just("has_rule"), table_names, relations),
    st.tuples(st.sampled_from(["scan", "keys", "length"]), table_names),
    st.tuples(st.sampled_from(["all_of_column", "first_with"]), table_names, columns),
    st.tuples(st.just("stop_when_empty")),
)
programs = st.lists(steps, min_size=1, max_size=6)


def plain(value):
    """A value as JSON, so that everything a policy saw can go into its fix."""
    if isinstance(value, Mapping):
        return {name: plain(member) for name, member in value.items()}
    return [plain(member) for member in value] if isinstance(value, list) else value


def run_step(step, last, request, tables):
    match step:
        case ("field", name):
            value = request.get(name)
            return "an object" if isinstance(value, Mapping) else value
        case ("has_field", name):
            return name in request
        case ("lacks_field", name):
            return name not in request
        case ("has_nested", name, inner):
            value = request.get(name)
            return inner in value if isinstance(value, Mapping) else None
        case ("is_there", name):
            return request.get(name) is not None
        case ("length_of_field", name):
            value = request.get(name)
            return len(value) if isinstance(value, list | Mapping) else None
        case ("nested", name, inner):
            value = request.get(name)
            return plain(value.get(inner)) if isinstance(value, Mapping) else plain(value)
        case ("equals", name, value):
            return request.equals(name, value)
        case ("equals_nested", name, inner, value):
            found = request.get(name)
            return found.equals(inner, value) if isinstance(found, Mapping) else "no object"
        case ("whole_nested", name):
            return plain(request.get(name))
        case ("whole_request",):
            return plain(request)
        case ("row", table, key):
            return plain(tables[table].get(last if key == "$last" else key))
        case ("has_row", table, key):
            return (last if key == "$last" else key) in tables[table]
        case ("is_row", table, key):
            return bool(tables[table].get(last if key == "$last" else key))
        case ("row_length", table, key):
            row = tables[table].get(last if key == "$last" else key)
            return None if row is None else len(row)
        case ("row_text", table, key):
            return f"{tables[table].get(last if key == '$last' else key)}"
        case ("unpacked", table, key):
            return plain({**(tables[table].get(last if key == "$last" else key) or {})})
        case ("equal_rows", table, key, other):
            one, two = (tables[table].get(last if each == "$last" else each) for each in (key, other))
            return one == two
        case ("column", table, key, column):
            row = getattr(tables, table).get(last if key == "$last" else key)
            return None if row is None else plain(row.get(column))
        case ("has_column", table, key, column):
            row = tables[table].get(last if key == "$last" else key)
            return None if row is None else column in row
        case ("follow", table, key, relation):
            row = tables[table].get(last if key == "$last" else key)
            return None if row is None else plain(row.follow(relation))
        case ("follow_all", table, key, relation):
            row = tables[table].get(last if key == "$last" else key)
            return [] if row is None else [[found.key, plain(found)] for found in row.follow_all(relation)]
        case ("has_rule", table, relation):
            return tables.has_rule(table, relation)
        case ("scan", table):
            return plain(tables[table])
        case ("keys", table):
            return list(tables[table])
        case ("length", table):
            return len(tables[table])
        case ("all_of_column", table, column):
            return [plain(row.get(column)) for row in tables[table].values()]
        case ("first_with", table, column):
            return next((key for key, row in tables[table].items() if row.get(column) == "a"), None)
    raise AssertionError(step)
