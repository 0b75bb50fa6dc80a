"""Names in code, as in `Memory.refresh` or `Guard(fields=…)`, lead to where the reference has them."""

import re

from docutils import nodes
from sphinx.application import Sphinx

__all__ = ["link_names"]

_NAME = re.compile(r"([A-Z]\w+(?:\.\w+)?)(?:\(.*\))?")
_NO_PLACE = (nodes.reference, nodes.title, nodes.term, nodes.caption)


def link_names(app: Sphinx, tree: nodes.document, page: str) -> None:
    """A name that is one thing alone is a link, unless it is on its own page."""
    places: dict[str, set[tuple[str, str]]] = {}
    for name, entry in app.env.domains.python_domain.objects.items():
        module, _, last = name.rpartition(".")
        for short in (last, f"{module.rpartition('.')[2]}.{last}"):
            places.setdefault(short, set()).add((entry.docname, entry.node_id))
    for code in [*tree.findall(nodes.literal)]:
        found = _NAME.fullmatch(code.astext())
        place = places.get(found[1], set()) if found else set()
        if len(place) != 1 or isinstance(code.parent, _NO_PLACE):
            continue
        [(elsewhere, anchor)] = place
        if elsewhere != page:
            address = f"{app.builder.get_relative_uri(page, elsewhere)}#{anchor}"
            code.replace_self(nodes.reference("", "", code.deepcopy(), refuri=address, classes=["code"]))
