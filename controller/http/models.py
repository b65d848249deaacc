"""Defines the bases of requests and responses, and those that every daemon and the command line share.

JSON names are in camel case; every document has apiVersion, kind, items. They are stable for scripts: fields are
added, not renamed or removed, while ``apiVersion`` stays.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SerializeAsAny, model_validator
from pydantic.alias_generators import to_camel

from controller.process.wording import problem_in

API_VERSION: Final = "regent/v1"
T = TypeVar("T", bound="Item")

REASON_MAX: Final = 1_000
"""Characters of a reason, a nonce or a client's name."""
Words = Annotated[str, Field(max_length=REASON_MAX)]


class Item(BaseModel):
    """Base of all response items."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class RequestItem(Item):
    """Base of all bodies of requests: no text in them has control characters."""

    @model_validator(mode="before")
    @classmethod
    def _check_texts(cls, data: object) -> object:
        if (problem := problem_in(data)) is not None:
            raise ValueError(problem)
        return data


class Document(Item, Generic[T]):
    """Items of one kind. ``next`` is the begin of the following page; absent on the last one."""

    api_version: Literal["regent/v1"] = API_VERSION
    kind: str
    items: list[SerializeAsAny[T]]
    next: str | None = None
    stale: str | None = Field(None, description="why the items may be old: ZooKeeper does not answer this daemon")


class ErrorBody(Item):
    """Cause of a failed request, and its remedy."""

    message: str
    remedy: str


class Health(Item):
    """Response of a probe. ``why`` is the reason where ``ok`` is false."""

    ok: bool
    mode: str
    why: str


class Check(Item):
    """One check of a preflight; only a refusal prevents a take-over."""

    name: str
    result: Literal["ok", "warning", "refused"]
    found: str
    remedy: str = ""


class Operation(Item):
    """A take-over or a hand-back. ``done`` and ``failed`` are final, ``refused`` means that it was not begun."""

    kind: Literal["takeover", "handback"]
    state: Literal["planned", "running", "done", "failed", "refused"]
    message: str
    remedy: str = ""
    steps: list[str] = Field([], description="steps done, or planned by a dry run")
    reason: str = ""
    started: datetime | None = None


class OperationRequest(RequestItem):
    """Request of an operator. ``reason`` is stored beside the role flag."""

    dry_run: bool = False
    reason: str = Field("", max_length=1_000)
