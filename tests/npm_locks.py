"""npm's locks without the addresses that it writes into them: `python -m tests.npm_locks FOLDER…`, which `make lock` does."""

import json
import sys
from pathlib import Path


def main(folders):
    for path in (Path(folder) / "package-lock.json" for folder in folders):
        lock = json.loads(path.read_text())
        for package in lock["packages"].values():
            package.pop("funding", None)
        path.write_text(json.dumps(lock, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
