"""Every refusal over HTTP in one form: what is wrong, and what to do. Registered by the application."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

_HINTS: Final = {
    400: "send JSON, as /docs shows",
    404: "see /docs for all there is",
    405: "see /docs for what can be done there",
}
_SEE_DOCS: Final = "see /docs for what is expected"


class Refusal(BaseModel):
    """Why not, and what to do about it."""

    message: str
    hint: str = Field(description="What to do; empty where there is nothing to say.")


REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": Refusal, "description": "No HTTP that can be answered."},
    401: {"model": Refusal, "description": "The token is missing or wrong."},
    403: {"model": Refusal, "description": "Asked by a page of another origin."},
    404: {"model": Refusal, "description": "There is no such thing."},
    408: {"model": Refusal, "description": "The body did not come in time."},
    409: {"model": Refusal, "description": "Something is in the way."},
    413: {"model": Refusal, "description": "The body is too large."},
    415: {"model": Refusal, "description": "The body is not declared as JSON."},
    421: {"model": Refusal, "description": "The Host header names another service."},
    422: {"model": Refusal, "description": "What was asked does not make sense."},
    503: {"model": Refusal, "description": "Not now."},
}
"""For the description of routes."""


def refuse_in_words(app: FastAPI) -> None:
    """Whatever the framework itself refuses is told as our own refusals are."""

    @app.exception_handler(RequestValidationError)
    async def mistaken(_: Request, fault: RequestValidationError) -> JSONResponse:
        mistakes = "; ".join(_mistake(one) for one in fault.errors())
        return refusal(422, mistakes, _SEE_DOCS)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, fault: HTTPException) -> JSONResponse:
        told = {404: f"there is nothing at {request.url.path}", 405: f"{request.method} is not done there"}
        answer = refusal(
            fault.status_code, told.get(fault.status_code, str(fault.detail)), _HINTS.get(fault.status_code, _SEE_DOCS)
        )
        answer.headers.update(fault.headers or {})
        return answer


def refusal(status: int, message: str, hint: str) -> JSONResponse:
    """An answer that says no; what cannot be written as UTF-8 is spelled out."""
    return JSONResponse({"message": _writable(message), "hint": _writable(hint)}, status_code=status)


def _mistake(one: dict[str, Any]) -> str:
    place = ".".join(str(part) for part in one.get("loc", ())[1:])
    said = str(one.get("msg", "is wrong")).removeprefix("Value error, ")
    return f"{place}: {said}" if place else said


def _writable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
