"""Lists the throttle settings in ZooKeeper with their owners, and removes those that no procedure owns."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from controller.http.documents import NotActive, ViewRefused
from controller.http.models import Item, RequestItem, Words
from controller.kafka.procedures.throttle_settings import Failed, Found, Standing, find_throttled, owners, settings_in
from controller.kafka.term.term import Term
from controller.operator.brokers import BrokerId
from controller.operator.plans import reassignment_items
from controller.procedures.requests import ProcedureRefused
from controller.process.wording import counted
from metadata_store.codecs.cluster import Config
from metadata_store.errors import ZooKeeperError
from metadata_store.fencing.outcome import Fenced
from metadata_store.nodes.entity_configs import ConfigChange, commit_entities
from metadata_store.port import ZooKeeper
from state_machines.admin_rules.throttles import ALL_REPLICAS, BROKERS, LISTS, SHOWN_CHARS_MAX, TOPICS, Entity, Place
from state_machines.decisions.throttling import BROKERS_MAX, TOPICS_MAX
from state_machines.procedures.record import Record

log = logging.getLogger("regent.controller")

NOBODY: Final = "nobody"
SETTINGS_MAX: Final = 1_000
"""Settings of one owner that are listed; the others are counted."""
FOREIGN: Final = "another client's reassignment is under way, and may need it: regent reassign list"
Outcome = Literal["planned", "cleared", "kept"]


TopicName = Annotated[str, Field(min_length=1, max_length=249)]


class ClearRequest(RequestItem):
    """Throttle settings to remove that no procedure owns; without ``brokers`` and ``topics`` all of them."""

    brokers: list[BrokerId] = Field([], max_length=BROKERS_MAX)
    topics: list[TopicName] = Field([], max_length=TOPICS_MAX)
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


async def standing(zk: ZooKeeper) -> tuple[Found, Failed]:
    """Reads the configurations that throttle anything; raises :class:`NotActive` where ZooKeeper does not respond."""
    try:
        return await find_throttled(zk)
    except ZooKeeperError as error:
        raise NotActive(
            f"the throttle settings cannot be read: {error}", "try again once ZooKeeper responds"
        ) from error


def setting_item(one: Standing, owner: Record | None, outcome: Outcome | None = None, why: str = "") -> ThrottleSetting:
    """Describes a setting; a long list by its begin and the number of its replicas."""
    is_list = one.setting in LISTS and one.value != ALL_REPLICAS
    long = len(one.value) > SHOWN_CHARS_MAX
    return ThrottleSetting(
        entity=str(one.entity),
        setting=one.setting,
        value=f"{one.value[:SHOWN_CHARS_MAX]}..." if long else one.value,
        replicas=len(one.value.split(",")) if is_list else None,
        owner=NOBODY if owner is None else f"{owner.kind} {owner.pid}",
        outcome=outcome,
        why=why,
    )


def unread_items(failed: Failed) -> list[ThrottleSetting]:
    """Describes configurations that cannot be read, and may throttle."""
    return [
        ThrottleSetting(entity=str(entity), setting="", value="", owner="unknown", why=why)
        for entity, why in sorted(failed.items())
    ]


def by_owner(found: Found, live: Iterable[Record]) -> dict[int, list[Standing]]:
    """Maps the pids of owners to their settings; 0 stands for nobody."""
    held = owners(live)
    mapped: dict[int, list[Standing]] = {}
    for one in settings_in(found):
        owner = held.get(one.place)
        mapped.setdefault(0 if owner is None else owner.pid, []).append(one)
    return mapped


async def cleared(term: Term, request: ClearRequest, principal: str) -> list[ThrottleSetting]:
    """Removes the settings that no procedure owns and no other client's reassignment needs; tells what became of each.

    Owners are looked up right before the write, and a setting that changed since it was read stays.
    """
    wanted = {Entity(BROKERS, str(broker)) for broker in request.brokers}
    wanted |= {Entity(TOPICS, topic) for topic in request.topics}
    found, failed = await standing(term.zk)
    live = _live(term)
    held, needed = owners(live), _needed(term, live)
    outcomes: dict[Place, tuple[Outcome, str]] = {}
    settings = [one for one in settings_in(found) if (one.entity in wanted if wanted else one.place not in held)]
    for one in settings:
        owner = held.get(one.place)
        if owner is not None:
            outcomes[one.place] = "kept", f"{owner.kind} {owner.pid} takes it back at its end: regent end {owner.pid}"
        elif one.entity in needed:
            outcomes[one.place] = "kept", FOREIGN
        else:
            outcomes[one.place] = "planned", ""
    if not request.dry_run:
        outcomes |= await _removed(term, found, [place for place, (what, _) in outcomes.items() if what == "planned"])
        done = sum(what == "cleared" for what, _ in outcomes.values())
        named = f" ({request.reason})" if request.reason else ""
        settled = counted(done, "throttle setting")
        log.warning("%s without an owner removed: requested by %s%s", settled, principal, named)
    unread = [item for item in unread_items(failed) if not wanted]
    return [setting_item(one, held.get(one.place), *outcomes[one.place]) for one in settings] + unread


def _live(term: Term) -> tuple[Record, ...]:
    """Returns the procedures that run; without them nothing is known of owners."""
    try:
        return tuple(term.procedures.engine.live())
    except ProcedureRefused as refused:
        raise ViewRefused(
            f"the owners of throttles are not known: {refused}", "try again once procedures run"
        ) from refused


def _needed(term: Term, live: Collection[Record]) -> frozenset[Entity]:
    """Returns the topics and brokers of other clients' reassignments, whose tools take their throttles back."""
    needed: set[Entity] = set()
    for one in reassignment_items(term.cluster, live):
        if one.pid is None:
            needed.add(Entity(TOPICS, one.topic))
            needed |= {Entity(BROKERS, str(broker)) for broker in (*one.origin, *one.target)}
    return frozenset(needed)


async def _removed(term: Term, found: Found, places: Collection[Place]) -> Mapping[Place, tuple[Outcome, str]]:
    """Removes settings; returns what became of each."""
    dropped: dict[Entity, set[str]] = {}
    for entity, setting in places:
        dropped.setdefault(entity, set()).add(setting)
    outcomes: dict[Place, tuple[Outcome, str]] = {}
    for kind in (BROKERS, TOPICS):
        changes = [_without(found, entity, names) for entity, names in sorted(dropped.items()) if entity.kind == kind]
        try:
            total = await commit_entities(term.zk, kind, changes, term.controller.fence)
        except (ZooKeeperError, Fenced) as error:
            raise NotActive(f"the throttle settings cannot be removed: {error}", "see 'regent status'") from error
        applied, refused = {change.name for change in total.applied}, dict(total.refused)
        for entity in (one for one in dropped if one.kind == kind):
            why = "another client wrote it meanwhile, or the connection was lost: try again"
            if entity.name in refused:
                why = f"ZooKeeper refused it ({refused[entity.name].name}): check the znode's ACL"
            what: tuple[Outcome, str] = ("cleared", "") if entity.name in applied else ("kept", why)
            outcomes |= {(entity, setting): what for setting in dropped[entity]}
    return outcomes


def _without(found: Found, entity: Entity, names: Collection[str]) -> ConfigChange:
    """Returns the change of a configuration that loses some settings and keeps all others."""
    known = found[entity]
    entries = {name: value for name, value in known.config.entries.items() if name not in names}
    return ConfigChange(entity.name, Config(entries, known.config.unknown), known.version)
