"""Adopts settings of the brokers for a term: the reported values, the stored ones, and those in force.

Reported values are stored in ``/regent/broker_settings``: a daemon that takes over while no broker responds uses them.
A broker reads these settings when it starts, so they hold as long as its registration. Unclean elections alone change
in a running broker: :mod:`controller.kafka.path.topic_settings` reads them from ZooKeeper.

The IBP is fixed when a term begins, because half of what the controller does depends on it; the next term adopts
another. A broker with another IBP leads to a warning and a metric: requests follow the setting, as with Kafka's own
controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from brokers.wire.versions import Ibp, UnknownIbp
from configs.sections import ControllerSettings
from controller.kafka.metrics.values import Counters
from controller.role.own_znodes import BROKER_SETTINGS
from metadata_store import paths
from metadata_store.codecs.base import decoded
from metadata_store.port import ZooKeeper
from state_machines.admin_rules.broker_settings import NAMES, POLICY, SETTINGS, InForce, Reported, Value, in_force
from state_machines.admin_rules.create_topics import TopicDefaults
from state_machines.model.types import Broker

log = logging.getLogger("regent.controller")

IBP: Final = "inter.broker.protocol.version"
SESSION: Final = "zookeeper.session.timeout.ms"
ASKED: Final = (IBP, *NAMES, SESSION)
"""Settings that a term requests from brokers."""
JAVA: Final = "java"
"""First item of the setting for the policy class of the brokers."""
UNCALLED: Final = (
    "brokers have create.topic.policy.class.name={}, which the daemon that controls the cluster cannot call: "
    "set controller.create_topic_policy to have it or another policy asked, or "
    "controller.ignore_create_topic_policy = true to create topics without it"
)
INT32_DIGITS: Final = 10
"""Digits from which on a number may not fit 32 bits."""
WAIT_S_MAX: Final = 5.0
"""How long calls of clients wait at the begin of a term for brokers of which nothing is known since their start."""


class Answer(NamedTuple):
    """The settings of a broker, and the epoch of the registration that reported them."""

    epoch: int
    told: Reported


class Kept(msgspec.Struct, frozen=True):
    """Content of the znode: by broker its epoch and the ``values`` it reported, each a list as long as ``names``."""

    names: tuple[str, ...]
    values: tuple[tuple[str | None, ...], ...]
    brokers: dict[int, tuple[int, int]]
    version: int = 1


def recalled(data: bytes) -> dict[int, Answer]:
    """Decodes the znode, by broker; raises ``msgspec.DecodeError`` or ``IndexError`` where it is malformed.

    Values stored for fewer settings than this version requests count as those of an earlier registration.
    """
    kept = decoded(data, Kept)
    said = [dict(zip(kept.names, values, strict=False)) for values in kept.values]
    whole = set(ASKED) <= set(kept.names)
    return {broker: Answer(epoch if whole else -1, said[number]) for broker, (epoch, number) in kept.brokers.items()}


def to_keep(answers: Mapping[int, Answer]) -> bytes:
    """Encodes the content of the znode."""
    numbers: dict[tuple[str | None, ...], int] = {}
    brokers: dict[int, tuple[int, int]] = {}
    for broker, answer in sorted(answers.items()):
        values = tuple(answer.told.get(name) for name in ASKED)
        brokers[broker] = answer.epoch, numbers.setdefault(values, len(numbers))
    return msgspec.json.encode(Kept(ASKED, tuple(numbers), brokers))


class Values(NamedTuple):
    """What handlers take from the settings in force; ``token_check_s`` is 0 where tokens never expire by the daemon.

    ``policy``: why no topic is created, empty where topics are. None, there and elsewhere, is unknown. ``balances``:
    whether the automatic balance moves leaders; it may be switched on in the midst of a term.
    """

    new_topics: TopicDefaults = TopicDefaults(None, None)
    policy: str | None = None
    remote_storage: bool | None = None
    token_check_s: float = 0.0
    balances: bool = False
    balance_interval_s: float = 1.0
    balance_percentage_max: int = 0


class Adoption:
    """Holds the adopted settings of one term. ``asks``: False where every value is that of ``settings``.

    ``found``: values in force, by key. ``settled``: every live broker has reported its settings since its start.
    ``unkept``: ZooKeeper does not have the latest reported values yet.
    """

    def __init__(self, settings: ControllerSettings, *, asks: bool) -> None:
        self.chosen = chosen(settings, everything=not asks)
        self.found: Mapping[str, InForce] = {}
        self.values = Values()
        self.advised: frozenset[str] = frozenset()
        self.settled = asyncio.Event()
        self.unkept = False
        self._asks = asks
        self._topic_policy = settings.create_topic_policy
        self._answers: dict[int, Answer] = {}
        self._heard: dict[int, Answer] = {}

    def recall(self, data: bytes) -> None:
        """Takes the values that an earlier term stored; raises as :func:`recalled` does."""
        self._answers = recalled(data)

    @property
    def known(self) -> frozenset[int]:
        """Lists the brokers whose settings are known, live or not."""
        return frozenset(self._answers)

    def kept(self, live: Iterable[int]) -> bytes:
        """Encodes the values of live brokers for the next term."""
        return to_keep({broker: self._answers[broker] for broker in live if broker in self._answers})

    def hear(self, broker: Broker, told: Reported) -> None:
        """Notes the settings that a broker reported: the queue's next event takes them."""
        self._heard[broker.id] = Answer(broker.epoch, told)

    def take(self) -> None:
        """Takes the noted settings."""
        heard, self._heard = self._heard, {}
        self.unkept |= any(self._answers.get(broker) != answer for broker, answer in heard.items())
        self._answers.update(heard)

    def silent(self, live: Mapping[int, Broker]) -> list[int]:
        """Lists live brokers that have not reported their settings since they registered."""
        if not self._asks:
            return []
        return [b for b, broker in live.items() if b not in self._answers or self._answers[b].epoch != broker.epoch]

    def session_ms(self, broker: Broker) -> int | None:
        """Returns the time-out of a broker's ZooKeeper session as it is configured; None where it is not known.

        ZooKeeper may have granted another one, of 2 to 20 of its ticks.
        """
        answer = self._answers.get(broker.id)
        text = answer.told.get(SESSION) if answer is not None and answer.epoch == broker.epoch else None
        return int(text) if text is not None and text.isdecimal() and len(text) < INT32_DIGITS else None

    def policy_class(self) -> str | None:
        """Returns the create-topic policy class of the brokers, empty without one; None while that is not known."""
        found = self.found.get(POLICY)
        return None if found is None or found.value is None else str(found.value)

    def topics_refused(self, policy: Value | None) -> str | None:
        """Returns why no topic is created under the brokers' policy class; empty where topics are, None: unknown.

        A policy of the operator judges each topic itself; one in Java needs the class that brokers have.
        """
        if policy is None:
            return None if self._topic_policy is None or self._topic_policy[0] == JAVA else ""
        return "" if self._topic_policy is not None or not policy else UNCALLED.format(policy)

    def judge(self, live: Iterable[int]) -> dict[str, InForce]:
        """Derives the values in force while these brokers live."""
        return in_force(self.chosen, {broker: answer.told for broker, answer in self._answers.items()}, live)


def chosen(settings: ControllerSettings, *, everything: bool = False) -> dict[str, Value]:
    """Returns the values that the operator set, by key; ``everything``: with those at their defaults."""
    given = {
        setting.key: getattr(settings, setting.key)
        for setting in SETTINGS
        if setting.key != POLICY and (everything or setting.key in settings.model_fields_set)
    }
    if everything or settings.ignore_create_topic_policy:
        given[POLICY] = ""
    return given


def ibp_is_set(settings: ControllerSettings) -> bool:
    """Checks whether the operator set an IBP."""
    return "ibp" in settings.model_fields_set


def lowest_ibp(told: Iterable[str | None]) -> Ibp | None:
    """Returns the lowest IBP that brokers report; None where none reports a known one."""
    found: list[Ibp] = []
    for text in told:
        try:
            found.append(Ibp.parse(text or ""))
        except UnknownIbp:
            continue
    return min(found, default=None)


async def ibp_of_term(zk: ZooKeeper, settings: ControllerSettings) -> Ibp:
    """Returns the IBP that a take-over or an earlier term stored for the live brokers, else the default."""
    default = Ibp.parse(settings.ibp)
    if ibp_is_set(settings):
        return default
    answers = await _stored_answers(zk)
    listed = await zk.children(paths.BROKER_IDS)
    live = set(listed[0]) if listed is not None else set()
    counted = [answer for broker, answer in answers.items() if str(broker) in live] or list(answers.values())
    return lowest_ibp(answer.told.get(IBP) for answer in counted) or default


async def _stored_answers(zk: ZooKeeper) -> dict[int, Answer]:
    node = await zk.get(BROKER_SETTINGS)
    try:
        return {} if node is None else recalled(node.data or b"")
    except (msgspec.DecodeError, IndexError):
        return {}


def judge_ibp(broker: int, found: str | None, ibp: Ibp, counters: Counters) -> None:
    """Counts a broker that has another IBP, and warns of it."""
    counters.lowered_ibp_brokers.discard(broker)
    if found is not None and not _is_same_ibp(found, ibp):
        counters.lowered_ibp_brokers.add(broker)
        log.warning(
            "broker %d has %s %s, the daemon took office at %s: set them alike, the brokers first when raising it; "
            "without controller.ibp the daemon that takes office next adopts the lowest one",
            broker,
            IBP,
            found,
            ibp,
        )


def _is_same_ibp(found: str, ibp: Ibp) -> bool:
    try:
        return Ibp.parse(found) == ibp
    except UnknownIbp:
        return False
