"""Declares the kinds of recorded calls, so that their records are loaded and their results evicted."""

from __future__ import annotations

from typing import Final

from controller.kafka.kinds.environment import KafkaEnv
from controller.procedures.kinds import Kind
from controller.procedures.recorder import CallKind
from state_machines.procedures.demand import CLUSTER, Demand
from state_machines.procedures.record import Record


def _nothing(_: Record) -> Demand:
    """Returns a demand that is never made: a recorded call has ended when it begins."""
    return Demand(CLUSTER, exclusive=False)


CALLS: Final = tuple(Kind[KafkaEnv](kind.value, (), _nothing) for kind in CallKind)
