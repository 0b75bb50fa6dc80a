"""One worker process of a small shop over a log in a file: `shop_worker.py LOG RELEASE CODE`. It waits for a line of input, so
that several can begin at the same time, says its address, and ends with its input.

The releases differ in their policy: the newer one asks for a code with a suffix.
"""

import sys

from fastapi import FastAPI

from shelflife.integrations.fastapi import install
from shelflife.server import Provider, fix
from shelflife.testing import serving


def policy_of(release):
    if release == "old":

        def code_is_current(request, tables):
            """An order has the code of its plan."""
            code = tables.codes[request["plan"]]["code"]
            return None if request.equals("code", code) else fix("USE_CODE", code=code)

    else:

        def code_is_current(request, tables):
            """An order has the code of its plan."""
            code = tables.codes[request["plan"]]["code"] + "-2"
            return None if request.equals("code", code) else fix("USE_CODE", code=code)

    return code_is_current


def shop_app(log, release, code):
    numbered = {str(key): {"number": 0} for key in range(100)}
    tables = {"codes": {"growth": {"code": code}}, "numbered": numbered}
    provider = Provider(tables, versions={"numbered": "0"}, log=log, admin_token="t")
    provider.policy(policy_of(release))
    app = FastAPI()
    install(app, provider)

    @app.post("/orders")
    def order(wanted: dict[str, str]) -> dict[str, bool]:
        provider.check(wanted)
        return {"ok": True}

    @app.get("/rows")
    def rows() -> dict[str, object]:
        state = provider.state
        return {
            "at": f"{state.number} {state.digest}",
            "codes": state.tables["codes"].rows.to_dict(),
            "numbers": sorted({row["number"] for row in state.tables["numbered"].rows.to_dict().values()}),
        }

    return app


if __name__ == "__main__":
    print("loaded", flush=True)
    sys.stdin.readline()
    with serving(shop_app(*sys.argv[1:])) as address:
        print(address, flush=True)
        sys.stdin.read()
