"""What the package and its extras need by name; run as a program it prints that as a pattern.

`make test-lowest` takes the lowest versions of these. What they need themselves, and what the tests need, is as new as can be.
"""

import re
import tomllib
from pathlib import Path

_PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]


def direct_dependencies():
    """Their names, each once."""
    extras = _PROJECT["optional-dependencies"].values()
    wanted = [*_PROJECT["dependencies"], *(requirement for extra in extras for requirement in extra)]
    return sorted({re.match(r"[\w-]+", requirement)[0] for requirement in wanted} - {_PROJECT["name"]})


if __name__ == "__main__":
    print("|".join(direct_dependencies()))
