"""Settings that a term adopts from the brokers: what they said, what is kept of it, and what holds.

What brokers say is kept in ``/regent/broker_settings``: a daemon on another machine that takes over while no broker
answers goes on with it. These settings are read when a broker starts, so what a registration said stays true for it;
the one that changes in a running broker (unclean elections) is followed in ZooKeeper
(:mod:`controller.engine.unclean_elections`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from configs.sections import ControllerSettings
from controller.engine.ibp_check import IBP
from metadata_store.content import decoded
from state_machines.admin_rules.broker_settings import NAMES, POLICY, SETTINGS, InForce, Reported, Value, in_force
from state_machines.model.types import Broker

log = logging.getLogger("regent.controller")

ASKED: Final = (IBP, *NAMES)
"""Settings that brokers are asked for."""
WAIT_S_MAX: Final = 5.0
"""How long calls of clients wait at the begin of a term for brokers of which nothing is known since their start."""


class Answer(NamedTuple):
    """What a broker said, and the epoch of the registration that said it."""

    epoch: int
    told: Reported


class Kept(msgspec.Struct, frozen=True):
    """Content of the znode: by broker its epoch and which of ``values`` it said, each a list as long as ``names``."""

    names: tuple[str, ...]
    values: tuple[tuple[str | None, ...], ...]
    brokers: dict[int, tuple[int, int]]
    version: int = 1


def recalled(data: bytes) -> dict[int, Answer]:
    """What was kept, by broker; raises ``msgspec.DecodeError`` or ``IndexError`` where it is malformed.

    What was kept of fewer settings than are asked for today counts as said by a former registration.
    """
    kept = decoded(data, Kept)
    said = [dict(zip(kept.names, values, strict=False)) for values in kept.values]
    whole = set(ASKED) <= set(kept.names)
    return {broker: Answer(epoch if whole else -1, said[number]) for broker, (epoch, number) in kept.brokers.items()}


def to_keep(answers: Mapping[int, Answer]) -> bytes:
    """Content of the znode."""
    numbers: dict[tuple[str | None, ...], int] = {}
    brokers: dict[int, tuple[int, int]] = {}
    for broker, answer in sorted(answers.items()):
        values = tuple(answer.told.get(name) for name in ASKED)
        brokers[broker] = answer.epoch, numbers.setdefault(values, len(numbers))
    return msgspec.json.encode(Kept(ASKED, tuple(numbers), brokers))


class Adoption:
    """Of one term. ``asks``: whether brokers are asked at all; otherwise every value is that of ``settings``.

    ``found``: what holds, by key. ``settled``: every live broker has said its settings since its start. ``unkept``:
    something new was said, and ZooKeeper does not have it yet.
    """

    def __init__(self, settings: ControllerSettings, *, asks: bool) -> None:
        self.chosen = chosen(settings, everything=not asks)
        self.found: Mapping[str, InForce] = {}
        self.advised: frozenset[str] = frozenset()
        self.settled = asyncio.Event()
        self.unkept = False
        self._asks = asks
        self._answers: dict[int, Answer] = {}
        self._heard: dict[int, Answer] = {}

    def recall(self, data: bytes) -> None:
        """Takes what an earlier term kept; raises as :func:`recalled` does."""
        self._answers = recalled(data)

    @property
    def known(self) -> frozenset[int]:
        """Brokers whose settings are known, live or not."""
        return frozenset(self._answers)

    def kept(self, live: Iterable[int]) -> bytes:
        """What the next term recalls: of live brokers."""
        return to_keep({broker: self._answers[broker] for broker in live if broker in self._answers})

    def hear(self, broker: Broker, told: Reported) -> None:
        """A broker said its settings: the queue's next event takes it."""
        self._heard[broker.id] = Answer(broker.epoch, told)

    def take(self) -> None:
        """Takes what was heard."""
        heard, self._heard = self._heard, {}
        self.unkept |= any(self._answers.get(broker) != answer for broker, answer in heard.items())
        self._answers.update(heard)

    def silent(self, live: Mapping[int, Broker]) -> list[int]:
        """Live brokers that have not said their settings since they registered."""
        if not self._asks:
            return []
        return [b for b, broker in live.items() if b not in self._answers or self._answers[b].epoch != broker.epoch]

    def judge(self, live: Iterable[int]) -> dict[str, InForce]:
        """What holds while these brokers live."""
        return in_force(self.chosen, {broker: answer.told for broker, answer in self._answers.items()}, live)


def chosen(settings: ControllerSettings, *, everything: bool = False) -> dict[str, Value]:
    """Values that the operator gave, by key; ``everything``: also those that stand at their defaults."""
    given = {
        setting.key: getattr(settings, setting.key)
        for setting in SETTINGS
        if setting.key != POLICY and (everything or setting.key in settings.model_fields_set)
    }
    if everything or settings.ignore_create_topic_policy:
        given[POLICY] = ""
    return given
