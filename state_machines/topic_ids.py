"""Ids of topics that have none in ZooKeeper although they run: a tool that does not know topic ids rewrote the znode.

A broker whose log has another id refuses the topic for good (INCONSISTENT_TOPIC_ID, KAFKA-14190), one that is told
none takes it as it is. So only an id that is known to be right, or a topic that never had one, gets an id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from itertools import islice
from typing import Final

from state_machines.cluster import Cluster
from state_machines.decision import TopicChange

SAMPLE_MAX: Final = 20
"""Topics with ids that a broker is asked for, to see whether it was ever told ids."""
GIVEN: Final = "topic id written"

TopicIds = Mapping[str, bytes | None]
"""What one broker knows: ids of the topics that it was told, None where it was told none."""


class Verdict(Enum):
    """Where no broker knows an id."""

    NEVER_HAD_ONE = "it never had an id"
    UNKNOWN = "it may have an id that nobody knows"


def judge_ids(
    lost: Iterable[str], told: Collection[TopicIds], with_id: Collection[str], *, complete: bool
) -> dict[str, bytes | Verdict]:
    """The id of each topic in ``lost``, as far as that can be said. ``complete``: ``told`` has every live broker's.

    ``with_id``: topics that have one in ZooKeeper. Where there are none, and no broker has one, the cluster comes from
    before topic ids. A controller from before them told its brokers none of any topic.
    """
    before_ids = [ids for ids in told if (known := [ids[name] for name in with_id if name in ids]) and not any(known)]
    return {name: _judge(name, told, before_ids, upgraded=complete and not with_id) for name in lost}


def _judge(
    name: str, told: Collection[TopicIds], before_ids: Collection[TopicIds], *, upgraded: bool
) -> bytes | Verdict:
    found = {topic_id for ids in told if (topic_id := ids.get(name)) is not None}
    if len(found) == 1:
        return found.pop()
    never = upgraded or any(name in ids for ids in before_ids)
    return Verdict.NEVER_HAD_ONE if never and not found else Verdict.UNKNOWN


def sample(cluster: Cluster) -> list[str]:
    """Some topics that have an id."""
    named = (topic.name for topic in cluster.topics if topic.topic_id and cluster.topic(topic.name) is topic)
    return list(islice(named, SAMPLE_MAX))


def id_changes(cluster: Cluster, ids: Mapping[str, bytes]) -> list[TopicChange]:
    """Rewrites of the topics that have no id yet."""
    known = [(topic, ids[name]) for name in ids if (topic := cluster.topic(name)) is not None]
    return [
        TopicChange(topic.name, topic.version, {}, topic_id, GIVEN, czxid=topic.czxid)
        for topic, topic_id in known
        if topic.topic_id is None
    ]
