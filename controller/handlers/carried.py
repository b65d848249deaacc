"""Calls of admin clients whose handlers read and write their messages; the others: :mod:`controller.requests.codec`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from brokers.wire.versions import Api
from controller.engine.controller import Controller
from controller.handlers.create_partitions import create_partitions
from controller.handlers.create_topics import create_topics
from controller.handlers.scram_credentials import alter_scram_credentials
from controller.handlers.update_features import update_features
from controller.requests.calls import PendingCall

Handler = Callable[[Controller, PendingCall], Awaitable[None]]
"""Answers or refuses the call before the term ends; raises what ends it."""

CARRIED_HANDLERS: Final[Mapping[Api, Handler]] = {
    Api.CREATE_TOPICS: create_topics,
    Api.CREATE_PARTITIONS: create_partitions,
    Api.ALTER_USER_SCRAM_CREDENTIALS: alter_scram_credentials,
    Api.UPDATE_FEATURES: update_features,
}
