"""Lists intended differences, each with its reason."""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Accepted(NamedTuple):
    """``title``, ``kafka`` and ``regent`` match, as a whole, the call's title and both results."""

    title: str
    kafka: str
    regent: str
    why: str

    def explains(self, title: str, kafka: str, regent: str) -> bool:
        """Returns whether this entry covers all of a difference."""
        found = ((self.title, title), (self.kafka, kafka), (self.regent, regent))
        return all(re.fullmatch(pattern, text) for pattern, text in found)


ACCEPTED: Final = (
    Accepted(
        "described",
        kafka="nodes 1 2 3, the controller is one of them",
        regent="nodes 1 DAEMON 2 3, the controller is one of them",
        why="The daemon is one more node of the cluster.",
    ),
    Accepted(
        "a replica on the daemon",
        kafka="done|1 partitions, 2 replicas, .*",
        regent="INVALID_REPLICA_ASSIGNMENT",
        why="The daemon is a node that hosts nothing. To Kafka's controller its id is that of a broker that is away.",
    ),
    Accepted(
        "its log directories",
        kafka="1:2 2:2 3:2",
        regent="1:2 2:2 3:2 DAEMON:1|DAEMON:1 1:2 2:2 3:2",
        why="The daemon is one more node; its one directory is empty, and of size 0.",
    ),
)
