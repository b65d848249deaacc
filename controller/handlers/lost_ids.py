"""Topics that run and whose znodes have no topic id: brokers are asked for it before they are told anything else.

A broker forgets an id as soon as it is told none, so a term asks before it tells. Bounded in time: until an id is
known such a topic is led without one, which brokers accept, whatever id their logs have.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable, Sequence
from typing import Final

from brokers.client import BrokerCallFailed
from brokers.wire.errors import Error
from controller.controller import Controller
from controller.handlers.topic_rewrites import settle
from controller.names import shortly
from controller.questions import Asked, ask_each
from metadata_store import paths
from state_machines.topic_ids import TopicIds, Verdict, id_changes, judge_ids, sample
from state_machines.types import Broker

log = logging.getLogger("regent.controller")

ASKED_AT_ONCE_MAX: Final = 5
"""Brokers that are asked together, those first that run longest."""
ANSWER_S_MAX: Final = 5.0
"""How long the answers of some brokers are waited for."""
ASK_S_MAX: Final = 10.0
"""How long answers are waited for altogether."""


async def find_lost_ids(c: Controller) -> list[str]:
    """Writes the ids that brokers know, and new ones for topics that never had any; the others are reported.

    Returns the topics that have an id now.
    """
    if not c.lost_ids:
        return []
    names, with_id = sorted(c.lost_ids), sample(c.cluster)
    c.lost_ids.clear()
    brokers = len(c.cluster.brokers)
    told = await _told(c, names, with_id)
    c.term.check()
    verdicts = judge_ids(names, told, with_id, complete=len(told) == brokers)
    found = {name: of for name, of in verdicts.items() if isinstance(of, bytes) and c.cluster.topic_by_id(of) is None}
    new = {name: uuid.uuid4().bytes for name, of in verdicts.items() if of is Verdict.NEVER_HAD_ONE}
    ids = found | new
    failed = await settle(c, lambda: id_changes(c.cluster, ids), "topic id")
    c.waiting_topics |= failed.keys()
    for name in failed.keys() & found:  # brokers have it, and would forget it where they were told none
        c.cluster.observe_topic_id(name, found[name])
    _say(found, [name for name in names if name not in ids])
    return [name for name in ids if name in found or name not in failed]


async def _told(c: Controller, names: Sequence[str], with_id: Sequence[str]) -> list[TopicIds]:
    """What brokers know of topics: some are asked after the others, until one knows an id of each, or time is up."""
    deadline_s = asyncio.get_running_loop().time() + ASK_S_MAX
    told: list[TopicIds] = []
    waiting = sorted(c.cluster.brokers.values(), key=lambda broker: broker.epoch)
    while c.ask is not None and waiting and any(not any(ids.get(name) for ids in told) for name in names):
        if (left_s := deadline_s - asyncio.get_running_loop().time()) <= 0:
            break
        some, waiting = waiting[:ASKED_AT_ONCE_MAX], waiting[ASKED_AT_ONCE_MAX:]
        asked = {broker.id: broker for broker in some}

        async def question(broker: Asked, _: Broker) -> TopicIds:
            return await _ids(broker, [*names, *with_id])

        answers = await ask_each(c.ask, asked, question, min(left_s, ANSWER_S_MAX))
        for broker_id, found in answers.items():
            if isinstance(found, BrokerCallFailed):
                log.warning("broker %d cannot be asked for lost topic ids: %s", broker_id, found)
            else:
                told.append(found)
    return told


async def _ids(broker: Asked, names: Sequence[str]) -> TopicIds:
    topics = (await broker.metadata(names)).topics
    return {name: topic.topic_id for name, topic in topics.items() if topic.error != Error.UNKNOWN_TOPIC_OR_PARTITION}


def _say(found: Iterable[str], unknown: Sequence[str]) -> None:
    if names := sorted(found):
        log.warning(
            "%s: the znode has no topic id (a tool rewrote it?); the one that brokers know is written back; find the "
            "tool and let it write %s no more",
            shortly(names),
            paths.TOPICS,
        )
    if unknown:
        log.error(
            "%s: the znode has no topic id and no live broker knows it: no id is made up, because brokers would refuse "
            "another one than their logs have; led without an id; put topic_id from partition.metadata, in a log "
            "directory of a replica, into %s",
            shortly(unknown),
            paths.topic(unknown[0]),
        )
