"""The calls of admin clients that this release answers, each by its handler: a new one is one more line here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from brokers.wire.versions import Api
from controller.calls import PendingCall
from controller.controller import Controller
from controller.handlers.create_partitions import create_partitions
from controller.handlers.create_topics import create_topics

Handler = Callable[[Controller, PendingCall], Awaitable[None]]
"""Answers or refuses the call before the term ends; raises what ends it."""

CARRIED_HANDLERS: Final[Mapping[Api, Handler]] = {
    Api.CREATE_TOPICS: create_topics,
    Api.CREATE_PARTITIONS: create_partitions,
}
