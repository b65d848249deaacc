"""Derives a topic's inherited configurations from a broker's settings, under the names of topics (Kafka's synonyms)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

DEFAULT_CONFIG: Final = 5
"""Source of a value that is Kafka's default (Kafka ``ConfigSource``)."""

_MS: Final = 1
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_LONG_MAX: Final = str(2**63 - 1)


class Setting(NamedTuple):
    """A value with its source; None where there is none, or where it is not shown."""

    value: str | None
    source: int


SYNONYMS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "cleanup.policy": (("log.cleanup.policy", _MS),),
    "compression.gzip.level": (("compression.gzip.level", _MS),),
    "compression.lz4.level": (("compression.lz4.level", _MS),),
    "compression.type": (("compression.type", _MS),),
    "compression.zstd.level": (("compression.zstd.level", _MS),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", _MS),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", _MS),),
    "flush.messages": (("log.flush.interval.messages", _MS),),
    "flush.ms": (("log.flush.interval.ms", _MS), ("log.flush.scheduler.interval.ms", _MS)),
    "index.interval.bytes": (("log.index.interval.bytes", _MS),),
    "local.retention.bytes": (("log.local.retention.bytes", _MS),),
    "local.retention.ms": (("log.local.retention.ms", _MS),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", _MS),),
    "max.message.bytes": (("message.max.bytes", _MS),),
    "message.downconversion.enable": (("log.message.downconversion.enable", _MS),),
    "message.format.version": (("log.message.format.version", _MS),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", _MS),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", _MS),),
    "message.timestamp.difference.max.ms": (("log.message.timestamp.difference.max.ms", _MS),),
    "message.timestamp.type": (("log.message.timestamp.type", _MS),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", _MS),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", _MS),),
    "min.insync.replicas": (("min.insync.replicas", _MS),),
    "preallocate": (("log.preallocate", _MS),),
    "retention.bytes": (("log.retention.bytes", _MS),),
    "retention.ms": (
        ("log.retention.ms", _MS),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (("log.segment.bytes", _MS),),
    "segment.index.bytes": (("log.index.size.max.bytes", _MS),),
    "segment.jitter.ms": (("log.roll.jitter.ms", _MS), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms": (("log.roll.ms", _MS), ("log.roll.hours", _HOUR_MS)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", _MS),),
}
"""Settings of a broker by the configuration of a topic that they are the default of, and the unit of each.

The first that has a value counts. The source shown is that of the first, whichever counts, as brokers show it.
"""
BROKER_SETTINGS: Final = tuple(name for synonyms in SYNONYMS.values() for name, _ in synonyms)
"""All of them."""
OF_THEIR_OWN: Final = {"follower.replication.throttled.replicas": "", "leader.replication.throttled.replicas": ""}
"""Configurations that no setting of a broker is the default of."""
TIERED: Final = {"remote.storage.enable": "false"}
"""The same, of brokers that know ``log.local.retention.ms`` (3.6 and later)."""
TIERED_3_9: Final = {"remote.log.copy.disable": "false", "remote.log.delete.on.disable": "false"}
"""The same, of 3.9 and later."""


def inherited(settings: Mapping[str, Setting], *, is_3_9: bool) -> dict[str, Setting]:
    """Returns the configurations that a topic without its own has on a broker; an older broker has fewer."""
    found = {name: _effective(settings, synonyms) for name, synonyms in SYNONYMS.items() if synonyms[0][0] in settings}
    own = OF_THEIR_OWN | (TIERED if "local.retention.ms" in found else {}) | (TIERED_3_9 if is_3_9 else {})
    found |= {name: Setting(value, DEFAULT_CONFIG) for name, value in own.items()}
    if (retention := found.get("retention.ms")) is not None and (retention.value or "").startswith("-"):
        found["retention.ms"] = retention._replace(value="-1")
    for end in ("before", "after"):
        _fall_back(found, f"message.timestamp.{end}.max.ms", "message.timestamp.difference.max.ms")
    return found


def _effective(settings: Mapping[str, Setting], synonyms: tuple[tuple[str, int], ...]) -> Setting:
    """Returns a value in the unit of the topic's configuration."""
    for name, unit in synonyms:
        if (setting := settings.get(name)) is not None and setting.value is not None:
            value = setting.value if unit == _MS else str(int(setting.value) * unit)
            return Setting(value, settings[synonyms[0][0]].source)
    return settings[synonyms[0][0]]


def _fall_back(found: dict[str, Setting], name: str, older: str) -> None:
    """Applies the older of two settings where the newer one has its default (KIP-937)."""
    if name in found and older in found and found[name].value == _LONG_MAX:
        found[name] = found[name]._replace(value=found[older].value)
