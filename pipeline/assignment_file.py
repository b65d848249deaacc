"""Reads an assignment in the JSON form of Kafka's kafka-reassign-partitions tool into arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from pipeline.inputs import NONE, BadInput, Int32s, Partitions, Snapshot, brokers_of, matrix

FORM: Final = '{"version": 1, "partitions": [{"topic": "T", "partition": 0, "replicas": [1, 2]}]}'


class _Item(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    replicas: Sequence[int]


class _Assignment(msgspec.Struct, frozen=True):
    version: int
    partitions: Sequence[_Item]


def read_assignment(path: Path | str) -> Snapshot:
    """Reads an assignment; raises :class:`BadInput`. All brokers count as live, without a rack; no leader is known."""
    file = Path(path)
    try:
        found = msgspec.json.decode(file.read_bytes(), type=_Assignment)
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror or error}") from None
    except msgspec.DecodeError as error:
        raise BadInput(f"{file}: {error}: give the form {FORM}") from None
    if found.version != 1:
        raise BadInput(f"{file}: version = {found.version} is not known: give the form {FORM}")
    for at, item in enumerate(found.partitions):
        _check(f"{file}: partitions[{at}] ({item.topic}-{item.partition})", item)
    items = sorted(found.partitions, key=lambda item: (item.topic, item.partition))
    for one, other in pairwise(items):
        if (one.topic, one.partition) == (other.topic, other.partition):
            raise BadInput(f"{file}: {one.topic}-{one.partition} is there twice: keep one of the two")
    partitions = _table(items)
    return Snapshot(brokers_of(set(np.unique(partitions.replicas).tolist()) - {NONE}), partitions)


def _check(where: str, item: _Item) -> None:
    if not 0 <= item.partition < 2**31:
        raise BadInput(f"{where}: partition = {item.partition} is no partition's number: give 0 or more")
    if not item.replicas or not all(0 <= broker < 2**31 for broker in item.replicas):
        raise BadInput(f"{where}: replicas = {list(item.replicas)}: give at least one broker id, each 0 or more")
    if len(set(item.replicas)) != len(item.replicas):
        raise BadInput(f"{where}: replicas = {list(item.replicas)} names a broker twice: give each once")


def _table(items: Sequence[_Item]) -> Partitions:
    names = tuple(dict.fromkeys(item.topic for item in items))
    index = {name: at for at, name in enumerate(names)}
    replicas = matrix([item.replicas for item in items])
    unknown: Int32s = np.full(len(items), NONE, dtype=np.int32)
    return Partitions(
        names,
        (None,) * len(names),
        np.array([index[item.topic] for item in items], dtype=np.int32),
        np.array([item.partition for item in items], dtype=np.int32),
        replicas,
        np.zeros(replicas.shape, np.bool_),
        np.zeros(replicas.shape, np.bool_),
        unknown,
        unknown,
        unknown,
        np.full((len(items), 1), NONE, dtype=np.int32),
        unknown,
    )
