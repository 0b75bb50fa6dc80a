"""How all APIs refuse what is not a request at all."""

from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.requests import Request

__all__ = ["Malformed", "refuse_malformed_requests"]


class Malformed(BaseModel):
    """The body cannot be read at all."""

    detail: str


def refuse_malformed_requests(app: FastAPI) -> None:
    """Say where a malformed request is wrong, without sending back what was in it.

    FastAPI's own answer repeats the input, which fails when that cannot be written as JSON (an infinite number, half
    of a surrogate pair).
    """

    @app.exception_handler(RequestValidationError)
    async def refuse(request: Request, error: RequestValidationError) -> JSONResponse:
        detail: list[dict[str, Any]] = [
            {"loc": [_printable(part) for part in fault["loc"]], "msg": fault["msg"], "type": fault["type"]}
            for fault in error.errors()
        ]
        return JSONResponse({"detail": detail}, status_code=422)


def _printable(part: str | int) -> str | int:
    return part.encode(errors="replace").decode() if isinstance(part, str) else part
