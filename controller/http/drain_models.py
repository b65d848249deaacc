"""Defines requests and responses of the HTTP surface about drained brokers."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from controller.http.models import RequestItem
from controller.http.procedure_models import Rate, Words

BrokerId = Annotated[int, Field(ge=0, le=2**31 - 1)]
BrokerIds = Annotated[list[BrokerId], Field(min_length=1, max_length=1_000)]


class DrainRequest(RequestItem):
    """Brokers to drain. ``nonce``: the same caller's same nonce never starts a second drain."""

    brokers: BrokerIds
    replicas: bool = Field(False, description="move every replica away, too")
    rate_bytes_per_s: Rate = Field(0, description="throttle of the replicas' moves, each broker and direction; 0: none")
    rate_bytes_per_s_max: Rate = Field(
        0, description="upper bound of a throttle that follows the cluster's health from rateBytesPerS on; 0: it stays"
    )
    nonce: Words = ""
    reason: Words = ""


class UndrainRequest(RequestItem):
    """Brokers to let lead again. A shutdown by command is undone, too."""

    brokers: BrokerIds
