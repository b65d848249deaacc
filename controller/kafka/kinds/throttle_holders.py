"""Finds the procedure that holds a setting of a throttle: the one whose record has its former value.

The record is stored before the setting is written, so it is the lock: two procedures never throttle one setting, and
none takes the other's value for the one to restore.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from controller.kafka.kinds import throttle_order
from state_machines.admin_rules.throttles import Place, Throttle
from state_machines.procedures.record import Record

REASSIGN: Final = "reassign"


class _Throttled(msgspec.Struct, frozen=True):
    """The throttles in the message of a plan, which are decoded without its moves."""

    throttles: tuple[Throttle, ...] = ()


_plans = msgspec.json.Decoder(_Throttled)


def throttles_of(record: Record) -> tuple[Throttle, ...]:
    """Returns the settings that a procedure throttles, or is about to."""
    try:
        if record.kind == REASSIGN:
            return _plans.decode(record.data).throttles
        return throttle_order.order_of(record.data).throttles if record.kind == throttle_order.NAME else ()
    except msgspec.DecodeError:  # a record that this daemon cannot run names nothing that it could write
        return ()


def held_elsewhere(live: Iterable[Record], pid: int, places: Collection[Place]) -> str | None:
    """Returns a sentence on another procedure that throttles one of these settings; None without."""
    wanted = frozenset(places)
    for record in live:
        if record.pid != pid:
            for one in throttles_of(record):
                if (one.entity, one.setting) in wanted:
                    return f"{record.kind} {record.pid} throttles {one.entity} already ({one.setting})"
    return None
