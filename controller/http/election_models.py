"""Defines the request of the HTTP surface for elections of many partitions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from controller.http.models import Item, RequestItem
from controller.http.procedure_models import MOVES_MAX, Words
from state_machines.decisions.mass_election import BATCH_MAX


class ElectionPartition(Item):
    """A partition to elect a leader for."""

    topic: Annotated[str, Field(min_length=1, max_length=249)]
    partition: Annotated[int, Field(ge=0, le=2**31 - 1)]


class ElectionRequest(RequestItem):
    """An election to hold. Unclean ones name their partitions. ``nonce``: the same one never starts a second one."""

    kind: Literal["preferred", "unclean"] = "preferred"
    partitions: list[ElectionPartition] = Field([], max_length=MOVES_MAX, description="empty with allPartitions")
    all_partitions: bool = False
    batch_max: Annotated[int, Field(ge=1, le=BATCH_MAX)] = Field(BATCH_MAX, description="partitions of one wave")
    dry_run: bool = False
    nonce: Words = ""
    reason: Words = ""
