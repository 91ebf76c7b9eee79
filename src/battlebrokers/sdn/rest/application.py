"""The web application: REST, OpenAPI and the page, around one controller. Served by `bb sdn controller`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse

from battlebrokers.errors import BattleError, InputError
from battlebrokers.sdn.controller import Controller
from battlebrokers.sdn.core.resources import (
    AlreadySubscribedError,
    Mode,
    NameTakenError,
    UnknownResourceError,
    UnknownSubscriberError,
)
from battlebrokers.sdn.observer import Observer
from battlebrokers.sdn.rest.admission import Admission
from battlebrokers.sdn.rest.api import api_routes
from battlebrokers.sdn.rest.guard import Guard
from battlebrokers.sdn.rest.original import original_routes
from battlebrokers.sdn.rest.refusals import refusal, refuse_in_words
from battlebrokers.sdn.rest.switches import UnknownSwitchError, switch_routes
from battlebrokers.sdn.seats import NoSeatError, UnknownSeatError

_PAGE: Final = Path(__file__).parent / "page.html"
_DOCS: Final = Path(__file__).parent / "docs.html"
_STATUS: Final = {
    UnknownResourceError: 404,
    UnknownSubscriberError: 404,
    UnknownSwitchError: 404,
    AlreadySubscribedError: 409,
    NameTakenError: 409,
    NoSeatError: 409,
    UnknownSeatError: 404,
}


def application(controller: Controller, mode: Mode = Mode.TREE, admission: Admission | None = None) -> FastAPI:
    """Everything over HTTP; `mode` is that of resources of which nobody says how, `admission` what may pass."""
    # The framework's own pages of documentation load their scripts from elsewhere.
    app = FastAPI(title="BattleBrokers: the broker inside the network", version="1", docs_url=None, redoc_url=None)

    @app.exception_handler(BattleError)
    async def explain(_: Request, fault: BattleError) -> JSONResponse:
        status = _STATUS.get(type(fault), 422 if isinstance(fault, InputError) else 503)
        return refusal(status, fault.message, fault.hint)

    refuse_in_words(app)
    app.add_middleware(Guard, admission=admission or Admission())

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(_PAGE)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(_DOCS)

    observer = Observer(controller)
    app.include_router(original_routes(controller, mode))
    app.include_router(api_routes(controller, observer, mode))
    app.include_router(switch_routes(controller, observer))
    return app
