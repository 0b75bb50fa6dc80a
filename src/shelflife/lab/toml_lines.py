"""Where in a TOML file something stands, which the standard parser does not tell."""

import re

__all__ = ["TomlLines"]

_HEADER = re.compile(r"\[(\[)?([^\[\]]+)\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""([A-Za-z0-9_-]+|"[^"]*"|'[^']*')\s*(=|\.)""")

Path = tuple[str | int, ...]


class TomlLines:
    """The lines of the headers and keys of a file that tomllib has accepted.

    Keys are looked for at the beginning of lines; what is inside an inline value stands where that value begins.
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[Path, int] = {}
        counts: dict[Path, int] = {}
        section: Path = ()
        for number, line in enumerate(map(str.strip, text.split("\n")), start=1):
            if header := _HEADER.match(line):
                section = tuple(_bare(part) for part in header[2].split("."))
                if header[1]:
                    index = counts.get(section, 0)
                    counts[section] = index + 1
                    self._lines.setdefault(section, number)
                    section = (*section, index)
                elif section[:1] in counts:  # a table inside the latest element of an array
                    section = (section[0], counts[section[:1]] - 1, *section[1:])
                self._lines.setdefault(section, number)
            elif key := _KEY.match(line):
                self._lines.setdefault((*section, _bare(key[1])), number)

    def of(self, *path: str | int) -> int | None:
        """The line of a thing, or of what it is in; None when neither can be told."""
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[:-1]
        return None


def _bare(name: str) -> str:
    name = name.strip()
    return name[1:-1] if name[:1] in "\"'" else name
