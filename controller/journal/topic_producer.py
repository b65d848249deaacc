"""Writes records to one partition of a topic. It is the daemon's only door to aiokafka.

A producer is idempotent: what it sends again by itself is stored once. It never makes brokers create the topic.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from brokers.security.authentication import SecurityUnusable, read_user
from brokers.security.tls import Tls
from configs.connections import SecuritySettings

PARTITION: Final = 0
"""The partition of all rows, so that they have one order."""
RECORD_BYTES_MAX: Final = 104_857_600
"""Largest record that is tried, in bytes: that of Kafka's default for requests. The topic's own limit is lower."""
METADATA_AGE_MS_MAX: Final = 60_000
CLOSE_S_MAX: Final = 1.0


class Record(NamedTuple):
    """The key of a row, and its line."""

    key: bytes
    value: bytes


class NotTaken(Exception):
    """Raised where the topic takes no records; the text is the reason, with a remedy."""


class TooLarge(NotTaken):
    """Raised where the records together are larger than the topic allows."""


class Producer:
    """A connected producer of aiokafka."""

    def __init__(self, producer: Any, topic: str, timeout_s: float) -> None:
        self._producer = producer
        self._topic = topic
        self._timeout_s = timeout_s

    async def send(self, records: Sequence[Record]) -> None:
        """Sends records in their order; returns once they are acknowledged, or raises :class:`NotTaken`."""
        from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError

        batch = self._producer.create_batch()
        for record in records:
            batch.append(key=record.key, value=record.value, timestamp=None)
        try:
            async with asyncio.timeout(self._timeout_s):
                sent = await self._producer.send_batch(batch, self._topic, partition=PARTITION)
                sent.add_done_callback(_retrieve)
                await sent
        except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
            raise TooLarge(f"max.message.bytes of topic {self._topic} is below {_size(records)} bytes") from error
        except TimeoutError as error:
            raise NotTaken(
                f"partition {PARTITION} of topic {self._topic} acknowledged nothing within {self._timeout_s:.0f} s: "
                "see its leader and its replicas in sync"
            ) from error
        except KafkaError as error:
            raise NotTaken(_reason(error, self._topic)) from error

    async def close(self) -> None:
        """Ends the connections, in bounded time, although records may be in flight; never raises."""
        await _ended(self._producer)


Connect: TypeAlias = Callable[[Sequence[str], str], Awaitable[Producer]]
"""Connects to some of the brokers ``host:port``, for a topic; raises :class:`NotTaken`."""


async def connect(bootstrap: Sequence[str], topic: str, *, security: SecuritySettings, timeout_s: float) -> Producer:
    """Connects with the daemon's security to its brokers; ``timeout_s``: for the connection, and for each batch."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs every attempt to reach a broker that is down
    producer = AIOKafkaProducer(
        bootstrap_servers=list(bootstrap),
        client_id="regent-journal",
        acks="all",
        enable_idempotence=True,
        max_batch_size=RECORD_BYTES_MAX,
        metadata_max_age_ms=METADATA_AGE_MS_MAX,
        request_timeout_ms=int(timeout_s * 1_000),
        **_secured(security),
    )
    client = producer.client
    client._metadata_update = partial(_without_creation, client)  # noqa: SLF001  brokers would create the topic
    try:
        async with asyncio.timeout(timeout_s):
            await producer.start()
            await client.add_topic(topic)
            _check(client.cluster, bootstrap, topic)
    except BaseException as error:
        await _ended(producer)
        if isinstance(error, TimeoutError):
            raise NotTaken(f"{_names(bootstrap)} gave no producer id within {timeout_s:.0f} s") from error
        if isinstance(error, KafkaError):
            raise NotTaken(f"{_names(bootstrap)}: {_reason(error, topic)}") from error
        raise
    return Producer(producer, topic, timeout_s)


def _secured(security: SecuritySettings) -> dict[str, Any]:
    """Returns the options of a client for ``[security]``; the files are read at each connection."""
    options: dict[str, Any] = {"security_protocol": security.protocol}
    try:
        if security.protocol.endswith("SSL"):
            options["ssl_context"] = _tls(security)
        if security.protocol.startswith("SASL"):
            assert security.sasl_file is not None, "configs.rules"
            user, password = read_user(security.sasl_file)
            options |= {"sasl_mechanism": security.sasl_mechanism, "sasl_plain_username": user}
            options["sasl_plain_password"] = password
    except SecurityUnusable as error:
        raise NotTaken(str(error)) from error
    return options


def _tls(security: SecuritySettings) -> ssl.SSLContext:
    files = security.certificate_file, security.key_file, security.ca_file
    return Tls(*files, check_host=security.check_host).client()


async def _without_creation(client: Any, cluster: Any, topics: set[str]) -> bool:
    """Updates the metadata in place of a client's own method, whose request lets brokers create missing topics."""
    from aiokafka.errors import KafkaError
    from aiokafka.protocol.metadata import MetadataRequest

    nodes = [broker.nodeId for broker in client.cluster.brokers()]
    random.shuffle(nodes)
    for node in nodes:
        try:
            found = await client.send(node, MetadataRequest(sorted(topics), allow_auto_topic_creation=False))
        except (KafkaError, OSError, TimeoutError):
            continue
        if found.brokers:
            cluster.update_metadata(found)
            return True
    cluster.failed_update(None)
    return False


def _check(cluster: Any, bootstrap: Sequence[str], topic: str) -> None:
    if topic in cluster.unauthorized_topics:
        raise NotTaken(_forbidden(topic))
    if not cluster.partitions_for_topic(topic):
        raise NotTaken(
            f"topic {topic} does not exist: kafka-topics.sh --bootstrap-server {bootstrap[0]} --create --topic {topic} "
            "--partitions 1"
        )


def _reason(error: Exception, topic: str) -> str:
    from aiokafka.errors import ClusterAuthorizationFailedError, KafkaConnectionError, TopicAuthorizationFailedError

    if isinstance(error, TopicAuthorizationFailedError | ClusterAuthorizationFailedError):
        return _forbidden(topic)
    if isinstance(error, KafkaConnectionError):
        return "no broker can be reached"
    return f"{type(error).__name__}: {error}"


def _forbidden(topic: str) -> str:
    return f"the daemon's user may not write to topic {topic}: allow it Write and Describe, and IdempotentWrite"


def _names(bootstrap: Sequence[str]) -> str:
    shown = ", ".join(bootstrap[:3])
    return shown if len(bootstrap) <= 3 else f"{shown} and {len(bootstrap) - 3} more"


def _size(records: Sequence[Record]) -> int:
    return sum(len(record.key) + len(record.value) for record in records)


def _retrieve(sent: asyncio.Future[Any]) -> None:
    """Takes note of an error, which would be logged as forgotten once nothing waits for the batch any more."""
    if not sent.cancelled():
        sent.exception()


async def _ended(producer: Any) -> None:
    """Ends a producer in bounded time, also where no broker responds."""
    stop = asyncio.ensure_future(producer.stop())
    await asyncio.wait({stop}, timeout=CLOSE_S_MAX)
    if not stop.done() or stop.cancelled() or stop.exception() is not None:
        stop.cancel()
        closing = asyncio.ensure_future(producer.client.close())
        await asyncio.wait({closing}, timeout=CLOSE_S_MAX)
        _retrieve(closing) if closing.done() else closing.cancel()
