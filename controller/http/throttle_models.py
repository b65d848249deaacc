"""Defines requests and responses of the HTTP surface about throttles."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from controller.http.drain_models import BrokerId
from controller.http.models import Item, RequestItem
from controller.http.procedure_models import ServerResult, Words
from state_machines.decisions.throttling import BROKERS_MAX, TOPICS_MAX

Topic = Annotated[str, Field(min_length=1, max_length=249)]


class ThrottleRequest(RequestItem):
    """A throttle to set. ``nonce``: the same caller's same nonce never sets a second one."""

    brokers: list[BrokerId] = Field([], max_length=BROKERS_MAX, description="empty with allBrokers")
    all_brokers: bool = Field(False, description="every broker that is registered or hosts a replica")
    rate_bytes_per_s: Annotated[int, Field(ge=1, le=2**63 - 1)] = Field(description="of each broker and direction")
    topics: list[Topic] = Field([], max_length=TOPICS_MAX, description="all their replicas are throttled")
    nonce: Words = ""
    reason: Words = ""


class LiftRequest(RequestItem):
    """Throttles to lift, by the pids of their procedures; ``allThrottles``: those of operators, not those of plans."""

    pids: list[Annotated[int, Field(ge=1)]] = Field([], max_length=1_000)
    all_throttles: bool = False
    reason: Words = ""


class ClearRequest(RequestItem):
    """Throttle settings to remove that no procedure owns; without ``brokers`` and ``topics`` all of them."""

    brokers: list[BrokerId] = Field([], max_length=BROKERS_MAX)
    topics: list[Topic] = Field([], max_length=TOPICS_MAX)
    dry_run: bool = False
    reason: Words = ""


class ThrottleSetting(Item):
    """A throttle setting in ZooKeeper: the rate of a broker, or the throttled replicas of a topic."""

    entity: str = Field(description="broker ID, or topic NAME")
    setting: str
    value: str = Field(description="its begin, where it is long")
    replicas: int | None = Field(None, description="throttled replicas of a list; absent: all, or it is no list")
    owner: str = Field(description="the procedure that takes it back at its end, as KIND PID; or nobody")
    outcome: Literal["planned", "cleared", "kept"] | None = Field(None, description="of a request to clear it")
    why: str = Field("", description="why it is kept, or what still needs it")


class ThrottleItem(Item):
    """A throttle in force, or about to be: an operator's, a plan's, or settings that no procedure owns."""

    pid: int | None = None
    kind: str = Field(description="throttle: an operator's; reassign: a plan's; nobody: settings without an owner")
    rate_bytes_per_s: int
    rate_bytes_per_s_min: int | None = Field(None, description="lower bound of a rate that changes by itself")
    rate_bytes_per_s_max: int | None = Field(None, description="its upper bound")
    rate_why: str = Field("", description="cause of its present value")
    brokers: list[int]
    topics: list[str] = Field([], description="topics whose throttled replicas it sets")
    step: str = ""
    results: list[ServerResult] = Field([], description="the rate of each broker, as the broker reports it")
    since: datetime | None = None
    principal: str = ""
    reason: str = ""
    settings: list[ThrottleSetting] = Field([], description="settings in ZooKeeper that it owns, the first 1,000")
    settings_total: int = 0
