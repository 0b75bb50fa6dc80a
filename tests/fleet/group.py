"""The workers of one machine: `python -m tests.fleet.group COUNT`. It says its address, and ends with its input.

What they must know is in the environment: where the log is, and the key that signs.
"""

import os
import signal
import sys
import threading
import time

LOG, KEY = "SHELFLIFE_FLEET_LOG", "SHELFLIFE_FLEET_KEY"
ROWS = 20
STALE_FOR_S = 2.0


def worker_app():
    from fastapi import FastAPI

    from shelflife.integrations.ed25519 import SigningKey
    from shelflife.integrations.fastapi import install
    from shelflife.server import Provider, Signing, fix
    from shelflife.server.postgres_log import PostgresLog
    from shelflife.testing.workers import end_with_parent

    end_with_parent()
    provider = Provider(
        {"numbered": {str(key): {"number": 0} for key in range(ROWS)}, "added": {}},
        log=PostgresLog(os.environ[LOG], longest_silence_s=1.0),
        stale_for_s=STALE_FOR_S,
        admin_token="t",
        signing=Signing(signer=SigningKey.from_file(os.environ[KEY])),
    )

    @provider.policy(version="1")
    def number_is_current(request, tables):
        """The number is the current one."""
        number = tables.numbered[request["key"]]["number"]
        return None if request.equals("number", number) else fix("USE", number=number)

    app = FastAPI()
    install(app, provider)

    @app.post("/look")
    def look(wanted: dict) -> dict:
        """What the request sees, before and after its check."""
        seen = {row["number"] for row in provider.state.tables["numbered"].rows.to_dict().values()}
        [violation] = provider.violations(wanted)
        time.sleep(0.002)  # so that reloads come in between
        seen |= {row["number"] for row in provider.state.tables["numbered"].rows.to_dict().values()}
        seen.add(violation.suggestion.parameters["number"])
        return {"numbers": sorted(seen), "hint": violation.suggestion.cache_hint, "pid": os.getpid()}

    @app.post("/orders")
    def order(wanted: dict) -> dict:
        provider.check(wanted)
        return {"done": True}

    @app.get("/added", include_in_schema=False)
    def added() -> list:
        return sorted(provider.state.tables["added"].rows)

    return app


if __name__ == "__main__":
    from shelflife.testing.serving import listening_on
    from shelflife.testing.workers import run_workers

    def end_with_input():
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=end_with_input, daemon=True).start()
    with listening_on("127.0.0.1", 0) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        run_workers(
            "tests.fleet.group:worker_app",
            int(sys.argv[1]),
            listener,
            log_level="critical",
            timeout_graceful_shutdown=1,
        )
