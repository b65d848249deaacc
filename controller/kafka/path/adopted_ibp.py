"""Chooses the IBP of a term: the one that the settings give, else the lowest of the brokers.

It is fixed when a term begins, because half of what the controller does depends on it; the next term adopts another.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from brokers.wire.versions import Ibp, UnknownIbp
from configs.sections import ControllerSettings
from controller.kafka.path.adoption import Answer, recalled
from controller.kafka.path.ibp_check import IBP
from controller.role.own_znodes import BROKER_SETTINGS
from metadata_store import paths
from metadata_store.port import ZooKeeper


def given(settings: ControllerSettings) -> bool:
    """Checks whether the operator set an IBP."""
    return "ibp" in settings.model_fields_set


def lowest(told: Iterable[str | None]) -> Ibp | None:
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
    if given(settings):
        return default
    answers = await _kept(zk)
    listed = await zk.children(paths.BROKER_IDS)
    live = set(listed[0]) if listed is not None else set()
    counted = [answer for broker, answer in answers.items() if str(broker) in live] or list(answers.values())
    return lowest(answer.told.get(IBP) for answer in counted) or default


async def _kept(zk: ZooKeeper) -> dict[int, Answer]:
    node = await zk.get(BROKER_SETTINGS)
    try:
        return {} if node is None else recalled(node.data or b"")
    except (msgspec.DecodeError, IndexError):
        return {}
