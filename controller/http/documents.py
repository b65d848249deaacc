"""Makes the responses of the HTTP surface: documents of items."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Response

from controller.http.models import Document, Item


def respond(body: Item, status: int = 200) -> Response:
    """Returns a response with one item as its body."""
    content = body.model_dump_json(by_alias=True, exclude_none=True)
    return Response(content, status, media_type="application/json")


def document(kind: str, items: Sequence[Item], following: str | None = None, stale: str | None = None) -> Response:
    """Returns the response that lists items. ``following``: begin of the next page; ``stale``: why it may be old."""
    return respond(Document[Item].model_construct(kind=kind, items=list(items), next=following, stale=stale))
