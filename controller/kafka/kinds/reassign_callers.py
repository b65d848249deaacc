"""Finds the clients that superseded moves of a plan, as far as recorded calls name them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from controller.procedures.recorder import CallKind
from state_machines.model.types import TopicPartition
from state_machines.procedures.record import Record

_SEPARATORS: Final = re.compile(r"[ ,;:]+")


def callers_of(records: Iterable[Record], names: Collection[TopicPartition], since: int) -> dict[TopicPartition, str]:
    """Returns the latest caller of each partition whose reassignment a call with a higher pid than ``since`` changed.

    A call that changed many partitions names some of them in its result; nothing is known of the others.
    """
    wanted = {str(name): name for name in names}
    calls = [one for one in records if one.kind == CallKind.ALTER_REASSIGNMENTS and one.pid > since]
    found: dict[TopicPartition, str] = {}
    for call in sorted(calls, key=lambda one: one.pid):
        by = f"{call.caller.principal} ({call.caller.client}), pid {call.pid}"
        named = wanted.keys() & set(_SEPARATORS.split(call.result.decode("utf-8", "replace")))
        found |= {wanted[word]: by for word in named}
    return found
