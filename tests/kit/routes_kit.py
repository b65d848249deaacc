"""Views that note the calls of their routes, for tests that compare each request with the call that it becomes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any, Final, TypeVar, cast, get_origin, get_type_hints
from unittest import mock

import httpx
from fastapi import FastAPI

from controller.domain import Surface, create_app
from controller.http.procedures import Procedure
from controller.operator.view import View
from controller.regions.operator.view import View as RegionsView
from tests.kit.answering import PARTS, Call, Part

ONE: Final = Procedure(pid=7, kind="of the test", state="runnable")
MORE: Final = "more"
"""The begin of the next page of each list."""
OWNER: Final = 4_242
CALLER: Final = f"uid {OWNER}"
V = TypeVar("V")


def _noting(of: type, noted: list[Call]) -> Part:
    """Returns a stand-in that notes each call with its arguments, and returns one item, a list or a page of it."""

    def answer(call: Call) -> object:
        name = call[0].rpartition(".")[2]
        if name == "stale":
            return "old"
        noted.append((name, *call[1:]))
        returned = get_type_hints(getattr(of, name))["return"]
        if get_origin(returned) is list:
            return [ONE]
        is_page = isinstance(returned, type) and issubclass(returned, tuple)
        return cast("Any", returned)([ONE], MORE) if is_page else ONE

    return Part("", of, answer)


def regions_view(noted: list[Call]) -> RegionsView:
    """Returns the view of regions, whose parts note their calls instead."""
    view = RegionsView(cast("Any", None), cast("Any", None))
    for name, part in [one for one in vars(view).items() if one[1] is not None]:
        setattr(view, name, _noting(type(part), noted))
    return view


def daemon_view(noted: list[Call]) -> View:
    """Returns a view of a daemon with a cluster that notes its calls; its model is old."""
    return cast("View", SimpleNamespace(**{name: _noting(part, noted) for name, part in PARTS.items()}))


def _surface(name: str, add: Callable[[FastAPI, V], None], view: V) -> Surface:
    """Returns the part of a domain in the HTTP surface, with the routes of a view."""
    return cast("Surface", SimpleNamespace(name=name, add_routes=lambda app: add(app, view)))


@cache
def _app(*, beside: bool) -> tuple[FastAPI, list[Call]]:
    """Makes the surface of a daemon with regions, beside a cluster or alone, once: it takes a third of a second."""
    noted: list[Call] = []
    regions = regions_view(noted)
    if beside:
        kafka = _surface("kafka", lambda app, view: View.add_routes(view, app), daemon_view(noted))
        return create_app([kafka, regions], mock.Mock(), OWNER), noted
    return create_app([regions], mock.Mock(), OWNER), noted


@asynccontextmanager
async def noting_client(*, beside: bool = False) -> AsyncIterator[tuple[httpx.AsyncClient, list[Call]]]:
    """Yields a client that the kernel names as the user ``OWNER``, and the calls of its requests."""
    app, noted = _app(beside=beside)
    noted.clear()
    transport = httpx.ASGITransport(app, client=(f"uid:{OWNER}", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://regent") as client:
        yield client, noted
