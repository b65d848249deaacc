"""Checks names of topics, and their configurations with the values of these (Kafka 3.9 ``Topic``, ``LogConfig``).

Values are text, as in ``/config/topics/T``. They are read as Kafka reads them: numbers and words trimmed, lists cut at
commas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

INT32: Final = -(2**31), 2**31 - 1
INT64: Final = -(2**63), 2**63 - 1

Check = Callable[[str], str | None]
"""Returns the remedy for a wrong value; None for a right one."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?")
_VERSION: Final = re.compile(r"(0\.\d+\.\d+|[1-9]\d*\.\d+)(\.\d+)?(?:-IV(\d))?")
_RELEASES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("0.8.0", "0.8.1", "0.8.2", "0.9.0"), -1),
    **dict.fromkeys(("1.0", "1.1", "2.5", "2.6", "3.1", "3.2", "3.4", "3.8", "3.9"), 0),
    **dict.fromkeys(("0.10.0", "2.0", "2.2", "2.3", "2.4", "2.8", "3.0", "4.0"), 1),
    **dict.fromkeys(("0.10.1", "0.11.0", "2.1", "2.7", "3.5", "3.6"), 2),
    "0.10.2": 0,
    "3.3": 3,
    "3.7": 4,
}
"""Releases that Kafka 3.9 knows, each with its last inter-broker protocol; -1 where it has none."""
_THROTTLED: Final = re.compile(r"([0-9]+:[0-9]+)?")
_DIGITS_MAX: Final = 20
"""Digits of a number that is looked at: the largest of 64 bits has 19."""


def _number(value: str) -> int | None:
    text = value.strip()
    return int(text) if _INTEGER.fullmatch(text) and len(text) <= _DIGITS_MAX else None


def _whole(least: int, most: int) -> Check:
    def check(value: str) -> str | None:
        found = _number(value)
        return None if found is not None and least <= found <= most else f"give a whole number from {least} to {most}"

    return check


def _int(least: int = INT32[0], most: int = INT32[1]) -> Check:
    return _whole(least, most)


def _long(least: int = INT64[0]) -> Check:
    return _whole(least, INT64[1])


def _between_levels(least: int, most: int, besides: int) -> Check:
    whole = _whole(least, most)
    return lambda value: None if _number(value) == besides else whole(value)


def _ratio(value: str) -> str | None:
    text = value.strip()
    right = _DECIMAL.fullmatch(text) and 0 <= float(text.rstrip("fFdD")) <= 1
    return None if right else "give a number from 0 to 1"


def _boolean(value: str) -> str | None:
    return None if value.strip().lower() in ("true", "false") else "give true or false"


def _never_true(value: str) -> str | None:
    wrong = _boolean(value)
    return wrong or ("it cannot be set in ZooKeeper mode" if value.strip().lower() == "true" else None)


def _one_of(*words: str) -> Check:
    return lambda value: None if value.strip() in words else f"give one of {', '.join(words)}"


def _items(value: str) -> list[str]:
    text = value.strip()
    return re.split(r"\s*,\s*", text) if text else []


def _some_of(*words: str) -> Check:
    return lambda value: None if set(_items(value)) <= set(words) else f"give a list of {', '.join(words)}"


def _throttled(value: str) -> str | None:
    items = _items(value)
    right = items == ["*"] or all(_THROTTLED.fullmatch(item) for item in items)
    return None if right else "give partition:broker,partition:broker or *"


def _version(value: str) -> str | None:
    found = _VERSION.fullmatch(value.strip())
    right = found is not None and int(found[3] or -1) <= _RELEASES.get(found[1], -2)
    return None if right else "give a version of Kafka such as 3.0-IV1"


TOPIC_CONFIGS: Final[Mapping[str, Check]] = {
    "cleanup.policy": _some_of("compact", "delete"),
    "compression.gzip.level": _between_levels(1, 9, -1),
    "compression.lz4.level": _int(1, 17),
    "compression.type": _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.zstd.level": _int(-131_072, 22),
    "delete.retention.ms": _long(0),
    "file.delete.delay.ms": _long(0),
    "flush.messages": _long(1),
    "flush.ms": _long(0),
    "follower.replication.throttled.replicas": _throttled,
    "index.interval.bytes": _int(0),
    "leader.replication.throttled.replicas": _throttled,
    "local.retention.bytes": _long(-2),
    "local.retention.ms": _long(-2),
    "max.compaction.lag.ms": _long(1),
    "max.message.bytes": _int(0),
    "message.downconversion.enable": _boolean,
    "message.format.version": _version,
    "message.timestamp.after.max.ms": _long(0),
    "message.timestamp.before.max.ms": _long(0),
    "message.timestamp.difference.max.ms": _long(0),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _ratio,
    "min.compaction.lag.ms": _long(0),
    "min.insync.replicas": _int(1),
    "preallocate": _boolean,
    "remote.log.copy.disable": _never_true,
    "remote.log.delete.on.disable": _never_true,
    "remote.storage.enable": _boolean,
    "retention.bytes": _long(),
    "retention.ms": _long(-1),
    "segment.bytes": _int(14),
    "segment.index.bytes": _int(4),
    "segment.jitter.ms": _long(0),
    "segment.ms": _long(1),
    "unclean.leader.election.enable": _boolean,
}


def wants_remote_storage(configs: Mapping[str, str]) -> bool:
    """Checks whether a topic is to have tiered storage."""
    return configs.get("remote.storage.enable", "").strip().lower() == "true"


def unparsable(configs: Mapping[str, str]) -> str | None:
    """Returns the first key whose value Kafka's controller could not parse, with the remedy; None if there is none.

    It parses a topic's configuration as a whole before it goes by any key of it. Unknown keys do not matter to it, nor
    values that brokers only refuse when they are set.
    """
    for name, value in configs.items():
        check = TOPIC_CONFIGS.get(name)
        if check is not None and (instead := (_boolean if check is _never_true else check)(value)) is not None:
            return f"{name} = {value}: {instead}"
    return None


def wrong_config(configs: Mapping[str, str], *, remote_storage: bool = True) -> str | None:
    """Returns the first key that is unknown or has a wrong value, with the remedy; None if there is none.

    ``remote_storage``: whether brokers have tiered storage.
    """
    for name in configs:
        if name not in TOPIC_CONFIGS:
            return f"{name} is no configuration of a topic"
    for name, value in configs.items():
        if (instead := TOPIC_CONFIGS[name](value)) is not None:
            return f"{name} = {value}: {instead}"
    least, most = (_number(configs.get(f"{end}.compaction.lag.ms", "")) for end in ("min", "max"))
    if least is not None and most is not None and least > most:
        return f"min.compaction.lag.ms = {least} is above max.compaction.lag.ms = {most}"
    if not wants_remote_storage(configs):
        return None
    if not remote_storage:
        return "remote.storage.enable = true: brokers have no tiered storage (remote.log.storage.system.enable)"
    compacted = "compact" in _items(configs.get("cleanup.policy", ""))
    return "remote.storage.enable = true: a compacted topic cannot have it" if compacted else None


def as_shown(name: str, value: str) -> str:
    """Returns a value that :func:`wrong_config` accepts, as brokers show it once they have read it."""
    check, number = TOPIC_CONFIGS.get(name), _number(value)
    if check is _ratio:
        return str(float(value.strip().rstrip("fFdD")))
    if name == "cleanup.policy" or check is _throttled:
        return ",".join(_items(value))
    if number is not None:
        return str(number)
    return value.strip().lower() if check in (_boolean, _never_true) else value.strip()


METADATA_TOPIC: Final = "__cluster_metadata"
"""The log of a KRaft quorum: never a topic of a cluster."""
NAME_CHARS_MAX: Final = 249

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def wrong_name(name: str) -> str | None:
    """Returns why a topic cannot have this name, in Kafka's words; None if it can."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > NAME_CHARS_MAX:
        return f"the length of '{name}' is longer than the max allowed length {NAME_CHARS_MAX}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def metric_name(name: str) -> str:
    """Returns the name in metrics: names that differ in ``.`` and ``_`` alone collide there."""
    return name.replace(".", "_")


class TakenNames:
    """Names of existing topics by their names in metrics; counted once a name with ``.`` or ``_`` is checked."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = names
        self._by_metric: dict[str, str] | None = None

    def colliding(self, name: str) -> str | None:
        """Returns a topic whose name collides with ``name``, or None."""
        if "." not in name and "_" not in name:
            return None
        if self._by_metric is None:
            self._by_metric = {metric_name(taken): taken for taken in self._names}
        return self._by_metric.get(metric_name(name))

    def add(self, name: str) -> None:
        """Adds a topic."""
        self.colliding(name)
        if self._by_metric is not None:
            self._by_metric[metric_name(name)] = name
