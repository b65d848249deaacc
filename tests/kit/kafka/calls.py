"""Calls of admin clients to the world's controller, as they come out of their envelopes."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from typing import Any

from msgspec import Struct

from brokers.listener.envelopes import CarriedCall
from brokers.wire.messages import MESSAGES
from brokers.wire.messages.security import AlterUserScramCredentialsRequest, ScramDeletion, ScramUpsertion
from brokers.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    GrownTopic,
    NewPartitionAssignment,
    ReplicaAssignment,
    TopicConfig,
)
from controller.kafka.access import Authorizer, Principals
from controller.kafka.requests.calls import Calls
from tests.kit.kafka.world import KafkaWorld

CALL = b"one call of many"
TIMEOUT_MS = 5_000
SHA_256, SHA_512 = 1, 2
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SALTED_PENCIL = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4_096)


def topic(name: str, partitions: int = -1, factor: int = -1, *given: tuple[int, ...], **configs: str) -> CreatableTopic:
    """``given``: replicas by partition; configurations with ``_`` for the dots."""
    assignments = tuple(ReplicaAssignment(p, replicas) for p, replicas in enumerate(given))
    settings = tuple(TopicConfig(key.replace("_", "."), value) for key, value in configs.items())
    return CreatableTopic(name, partitions, factor, assignments, settings)


def create(*topics: CreatableTopic, timeout_ms: int = TIMEOUT_MS, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics, timeout_ms, validate_only)


def grow(
    name: str, count: int, *given: tuple[int, ...], timeout_ms: int = TIMEOUT_MS, validate_only: bool = False
) -> CreatePartitionsRequest:
    assignments = tuple(map(NewPartitionAssignment, given)) if given else None
    return CreatePartitionsRequest((GrownTopic(name, count, assignments),), timeout_ms, validate_only)


def upsert(user: str, mechanism: int = SHA_256, iterations: int = 4_096) -> ScramUpsertion:
    return ScramUpsertion(user, mechanism, iterations, SALT, SALTED_PENCIL)


def scram(*wanted: ScramUpsertion | ScramDeletion) -> AlterUserScramCredentialsRequest:
    deletions = tuple(one for one in wanted if isinstance(one, ScramDeletion))
    return AlterUserScramCredentialsRequest(deletions, tuple(one for one in wanted if isinstance(one, ScramUpsertion)))


def call(
    body: Struct,
    *,
    attempt: int = 0,
    call_id: bytes = CALL,
    version: int | None = None,
    principal: str = "User:ANONYMOUS",
    client_id: str = "",
) -> CarriedCall:
    """The call, with its newest version unless another is given."""
    [api] = [api for api, message in MESSAGES.items() if message.request is type(body)]
    spoken = MESSAGES[api].last if version is None else version
    return CarriedCall(api, spoken, body, principal, "10.0.0.7", client_id, call_id, attempt)


async def carried(w: KafkaWorld, body: Struct, **options: Any) -> Any:
    """Makes a call as a super user; returns the response. ``options`` are those of :func:`call`."""
    asked = call(body, **options)
    return await Calls(w.term.queue, Authorizer(Principals(frozenset({asked.principal})))).carried(asked)


async def created(w: KafkaWorld, body: Struct, **options: Any) -> dict[str, int]:
    """Error by topic."""
    answer = await carried(w, body, **options)
    results = answer.topics if hasattr(answer, "topics") else answer.results
    return {result.name: int(result.error_code) for result in results}
