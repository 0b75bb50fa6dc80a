"""The smallest app with a contract: one operation, whose requests are checked."""

from fastapi import FastAPI

from shelflife.integrations.fastapi import install


def ordering(provider):
    app = FastAPI()
    install(app, provider)

    @app.post("/s")
    def order(wanted: dict) -> dict:
        provider.check(wanted)
        return {"code": wanted.get("code")}

    return app
