"""Lists the facts about topics: their znodes, the states of their partitions, and their end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from state_machines.model.cluster import READ, Cluster
from state_machines.model.decision import Change
from state_machines.model.facts import NOTHING, Entered, Fact
from state_machines.model.types import Assignment, Leadership, TopicAssignment


class TopicRead(Fact, frozen=True, gc=False):
    """A topic's znode as it is served; ``loaded``: at the begin of a term."""

    topic: TopicAssignment
    loaded: bool = False

    def enter(self, cluster: Cluster) -> Entered:
        """Enters partitions that are new, and the topic where it is: then ``topics`` of the result has it."""
        known = self.topic.name in cluster.topic_index
        rows = cluster.observe_topic(self.topic)
        return Entered(rows=rows, topics=() if known else (cluster.topic_index[self.topic.name],))


class StatesLoaded(Fact, frozen=True, gc=False):
    """State znodes of new rows, None where there is none, at the begin of a term."""

    rows: Sequence[int]
    states: Sequence[Leadership | None]

    def enter(self, cluster: Cluster) -> Entered:
        """Enters the states, and replicas outside of their assignments."""
        cluster.load_leadership(self.rows, self.states)
        cluster.observe_strays(self.rows)
        return NOTHING


class StatesRead(Fact, frozen=True, gc=False):
    """State znodes that were read, by row."""

    states: Sequence[tuple[int, Leadership]]

    def enter(self, cluster: Cluster) -> Entered:
        """Enters leaderships that the model does not have."""
        found = (cluster.observe_leadership(i, leadership) for i, leadership in self.states)
        changes = [change for change in found if change is not None]
        return Entered(changes=changes) if changes else NOTHING


class WritesGivenUp(Fact, frozen=True, gc=False):
    """The writes of these rows were given up: they keep what their state znodes held."""

    rows: Collection[int]

    def enter(self, cluster: Cluster) -> Entered:
        """Places the rows as at loading; ``changes`` of the result are states alone."""
        before = [cluster.rows[i] for i in self.rows]
        cluster.observe_undecided(self.rows)
        pairs = [(i, old, cluster.rows[i]) for i, old in zip(self.rows, before, strict=True)]
        changes = [Change(i, old, new, READ) for i, old, new in pairs if old.state is not new.state]
        return Entered(changes=changes, metadata=list(self.rows))


class AssignmentsRead(Fact, frozen=True, gc=False):
    """Assignments of known partitions in a topic znode with ``version``, as written or as read back."""

    topic: str
    version: int
    assignments: Mapping[int, Assignment]

    def enter(self, cluster: Cluster) -> Entered:
        """Enters them as what the znode holds: rows follow by a decision."""
        return Entered(rows=cluster.observe_assignments(self.topic, self.version, self.assignments))


class TopicIdWritten(Fact, frozen=True, gc=False):
    """The id that the term gave a topic; the caller has brokers sent it."""

    topic: str
    topic_id: bytes

    def enter(self, cluster: Cluster) -> Entered:
        """Enters the id."""
        cluster.observe_topic_id(self.topic, self.topic_id)
        return NOTHING


class TopicIdSettled(Fact, frozen=True, gc=False):
    """No id of a topic is searched for any more: brokers get its metadata with what the model has by now."""

    topic: str

    def enter(self, cluster: Cluster) -> Entered:
        """Changes nothing; the result has the topic."""
        known = cluster.topic(self.topic)
        return NOTHING if known is None else Entered(topics=[known.index])


class TopicIdRead(Fact, frozen=True, gc=False):
    """The id in the znode of a topic that may be served without one, or with one that was refused."""

    topic: str
    topic_id: bytes | None

    def enter(self, cluster: Cluster) -> Entered:
        """Enters an id that is another one; the result has the topic, whose rows brokers know without it."""
        before = cluster.topic(self.topic)
        if before is None or self.topic_id is None or self.topic_id == before.topic_id:
            return NOTHING
        cluster.observe_topic_id(self.topic, self.topic_id)
        return NOTHING if cluster.topic(self.topic) is before else Entered(rows=before.rows, topics=[before.index])


class GhostsFound(Fact, frozen=True, gc=False):
    """Partitions, by topic, that brokers show and ZooKeeper lacks."""

    partitions: Mapping[str, Collection[int]]

    def enter(self, cluster: Cluster) -> Entered:
        """Enters them as removed ones: brokers are sent their end."""
        rows = [i for name, numbers in self.partitions.items() for i in cluster.observe_ghosts(name, numbers)]
        return Entered(rows=rows, metadata=rows)


# -- the end of topics


class MarkersRead(Fact, frozen=True, gc=False):
    """Topics with a deletion marker that are to be deleted."""

    topics: Sequence[str]

    def enter(self, cluster: Cluster) -> Entered:
        """Queues them for deletion; ``topics`` of the result are new."""
        return Entered(topics=cluster.observe_deletions(self.topics))


class WaitsRecalled(Fact, frozen=True, gc=False):
    """Logs, by row and broker, for which a deletion does not wait, as an earlier term has written."""

    logs: Sequence[tuple[int, int]]

    def enter(self, cluster: Cluster) -> Entered:
        """Ends the waits."""
        cluster.observe_given_up(self.logs)
        return NOTHING


class WaitsGivenUp(Fact, frozen=True, gc=False):
    """The deletion of a topic does not wait for ``logs`` any more, rows by broker, at the request of ``principal``."""

    topic: str
    logs: Mapping[int, Collection[int]]
    principal: str
    reason: str

    def enter(self, cluster: Cluster) -> Entered:
        """Ends the waits."""
        cluster.observe_given_up((i, broker) for broker, some in self.logs.items() for i in some)
        return Entered()


class RowsEnded(Fact, frozen=True, gc=False):
    """The znode of a topic is gone; these are all its rows, or a portion of them."""

    rows: Collection[int]

    def enter(self, cluster: Cluster) -> Entered:
        """Ends the rows."""
        cluster.end_rows(self.rows)
        return NOTHING


class TopicGone(Fact, frozen=True, gc=False):
    """The znode of a topic is gone, and :class:`RowsEnded` has ended all its rows."""

    topic: str

    def enter(self, cluster: Cluster) -> Entered:
        """Ends the topic, which the result has with its rows."""
        known = cluster.topic(self.topic)
        if known is None:
            return NOTHING
        return Entered(rows=cluster.observe_topic_gone(self.topic), topics=[known.index])
