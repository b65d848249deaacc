"""This controller's side of a story: model, decisions and audience, a ZooKeeper of dicts, and a commit without waits.

============================================ =================================================================
``brokers 1,2,3``                            registered before the story begins
``given t-0 replicas 1,2 [leader 1 ...]``    a partition before the story begins; without a leader: no state znode
``running``                                  a controller took office and has told everything
``take-office``                              a new term begins
``unheard-death 3`` / ``unheard-topic u 1``  before it, while there was no controller
``brokers gone 1 back 2 bounced 3``          the registrations changed
``topic t 1,2 2,3`` / ``expand t 3,1``       a topic appears; partitions are added to it
``shutdown 1``                               a broker asks for its controlled shutdown
``alter t-0 isr 1,2 [epoch 3] [version 4]``  the leader asks for an ISR; epochs are the present ones if not given
``leader-writes t-0 isr 1,2``                the leader writes its ISR itself; ``notify t-0`` tells the controller
``next-write t-0 conflict isr 1,2``          the leader's own write comes first; or ``reply-lost``, ``refused``
``unclean t``                                the topic allows unclean elections
``outranked 1``                              the broker answers that it has seen a higher controller epoch
============================================ =================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from msgspec.structs import replace

from state_machines.decisions.alter_partition import IsrRequest, alter_partitions, judge
from state_machines.decisions.broker_change import broker_death, broker_return
from state_machines.decisions.controlled_shutdown import controlled_shutdown, remaining
from state_machines.decisions.deletion import advance, answered, finished, restored, sort_markers
from state_machines.decisions.failover import failover
from state_machines.decisions.leader_election import FAILED, ElectionType, elect, to_balance
from state_machines.decisions.leader_election import judge as judge_election
from state_machines.decisions.log_directories import log_directories_failed
from state_machines.decisions.reassignment import (
    NotReassigned,
    ReassignmentRequest,
    due,
    final_rewrites,
    reassign,
    rewrites,
    waiting_for,
)
from state_machines.decisions.reassignment import judge as judge_reassignment
from state_machines.decisions.topic_change import new_partitions
from state_machines.model.types import NO_LEADER, Assignment, Leadership, TopicAssignment
from tests.core.model import broker, check_model
from tests.stories.brokers import NaiveBroker, ids, parsed
from tests.stories.world import StoryWorld, split


class Stage(StoryWorld):
    """Plays the commands of one story; ``out`` holds the lines of the present step."""

    def __init__(self) -> None:
        super().__init__()
        self.dead_before = ""

    def play(self, command: str) -> None:
        """One command; what it leads to is committed, applied and told before the next."""
        verb, *words = command.split()
        commands: dict[str, Callable[..., None]] = {
            "brokers": self.registrations,
            "given": self.given,
            "running": self.running,
            "take-office": self.begin_term,
            "unheard-death": self.unheard_death,
            "unheard-topic": self.unheard_topic,
            "topic": self.topic,
            "expand": self.expand,
            "shutdown": self.shutdown,
            "reassign": self.reassign,
            "reassign-by-znode": self.reassign_by_znode,
            "cancel": self.cancel,
            "dies-before": self.dies_before,
            "elect": self.elect,
            "log-directory-fails": self.log_directory_fails,
            "balance": self.balance,
            "delete": self.delete,
            "deleted": self.deleted,
            "not-deleted": self.not_deleted,
            "expand-deleted": self.expand_deleted,
            "alter": self.alter,
            "leader-writes": self.leader_writes,
            "notify": self.notify,
            "next-write": self.next_write,
            "unclean": self.allow_unclean,
            "outranked": self.outranked,
        }
        commands[verb](*words)
        if verb.startswith("unheard"):
            return
        self.tell_brokers()
        check_model(self.cluster, self.zookeeper, self.unobserved)

    # -- before the story

    def registrations(self, *words: str) -> None:
        """Before the story who is there, in it what changed."""
        if len(words) == 1:
            self.registered = {b: broker(b, b) for b in parsed(words[0])}
            self.brokers = {b: NaiveBroker(b) for b in self.registered}
        else:
            said = dict(zip(words[::2], map(parsed, words[1::2]), strict=True))
            self.brokers_change(said.get("gone", ()), said.get("bounced", ()), said.get("back", ()))

    def given(self, name: str, *words: str) -> None:
        """A partition, with its state znode if it has a leader or had one."""
        said = dict(zip(words[::2], words[1::2], strict=True))
        topic, partition = split(name)
        replicas = parsed(said["replicas"])
        self.assign(topic, {partition: replicas})
        if "leader" in said:
            leader = NO_LEADER if said["leader"] == "none" else int(said["leader"])
            isr = parsed(said["isr"]) if "isr" in said else replicas
            epoch, version = int(said.get("epoch", "0")), int(said.get("version", "0"))
            self.zookeeper.states[topic, partition] = Leadership(leader, epoch, isr, 1, version)

    def assign(self, topic: str, replicas: dict[int, tuple[int, ...]]) -> None:
        """The topic znode names these partitions, too."""
        known = self.zookeeper.topics.get(topic) or TopicAssignment(topic, None, {}, -1, self.new_zxid())
        partitions = {**known.partitions, **{p: Assignment(r) for p, r in replicas.items()}}
        self.zookeeper.topics[topic] = TopicAssignment(topic, None, partitions, known.version + 1, known.czxid)

    def running(self) -> None:
        """Earlier events were decided and told: the story begins with brokers that know everything."""
        self.load(1)
        self.carry_out(failover)
        assert not any(line.startswith("write") for line in self.out), "a running cluster has nothing to decide"
        self.snapshot(self.registered)
        self.tell_brokers()
        self.out.clear()

    # -- events

    def begin_term(self) -> None:
        """A new term: everything is read, decided, and told to everybody."""
        self.load(self.cluster.epoch + 1)
        self.carry_out(partial(failover, unclean=self.allows_unclean))
        self.dead_before = ""
        self.go_on(sorted(self.cluster.reassigning), again=True)
        self.delete_queued(retry=True)
        self.tell_brokers()
        self.snapshot(self.registered)

    def unheard_death(self, broker_id: str) -> None:
        """A broker dies while there is no controller."""
        del self.registered[int(broker_id)]
        self.leave(int(broker_id))

    def unheard_topic(self, topic: str, *replicas: str) -> None:
        """A topic appears while there is no controller."""
        self.assign(topic, {p: parsed(r) for p, r in enumerate(replicas)})

    def brokers_change(self, gone: tuple[int, ...], bounced: tuple[int, ...], back: tuple[int, ...]) -> None:
        """One snapshot of the registrations: deaths first, returns after."""
        zxid = self.new_zxid()
        stayed = {b: known for b, known in self.registered.items() if b not in (*gone, *bounced)}
        self.registered = dict(sorted({**stayed, **{b: broker(b, zxid) for b in (*bounced, *back)}}.items()))
        for b in (*gone, *bounced):
            self.leave(b)
        self.cluster.observe_brokers({b: found for b, found in self.registered.items() if b not in bounced})
        for b in back:
            self.join(b)
        if gone or bounced:
            self.carry_out(partial(broker_death, dead=(*gone, *bounced), unclean=self.allows_unclean))
        self.cluster.observe_brokers(self.registered)
        for b in bounced:
            self.join(b)
        if back or bounced:
            self.snapshot((*back, *bounced))
            self.carry_out(partial(broker_return, returned=(*back, *bounced), unclean=self.allows_unclean))
            self.go_on(waiting_for(self.cluster, (*back, *bounced)), again=True)
            self.delete_queued(retry=True)

    def topic(self, topic: str, *replicas: str) -> None:
        """A topic znode appeared."""
        self.expand(topic, *replicas)

    def expand(self, topic: str, *replicas: str) -> None:
        """A topic znode names more partitions than before."""
        known = self.zookeeper.topics.get(topic)
        first = len(known.partitions) if known is not None else 0
        self.assign(topic, {first + n: parsed(r) for n, r in enumerate(replicas)})
        self.carry_out(partial(new_partitions, rows=self.cluster.observe_topic(self.zookeeper.topics[topic])))

    def shutdown(self, broker_id: str) -> None:
        """ControlledShutdown; the answer is what it still leads."""
        self.cluster.observe_shutting_down(int(broker_id))
        self.carry_out(partial(controlled_shutdown, broker=int(broker_id)))
        left = [str(self.cluster.name(i)) for i in remaining(self.cluster, int(broker_id))]
        self.out.append(f"answer: remaining {' '.join(left) or 'nothing'}")

    def alter(self, name: str, *words: str) -> None:
        """AlterPartition; the answer is what is judged once everything is committed."""
        said = dict(zip(words[::2], words[1::2], strict=True))
        held = self.zookeeper.states[split(name)]
        asked = IsrRequest(
            self.cluster.find(*split(name)),
            int(said.get("epoch", held.leader_epoch)),
            int(said.get("version", held.version)),
            parsed(said["isr"]),
            recovering=said.get("recovering") == "yes",
            by_id=True,
        )
        self.carry_out(partial(alter_partitions, requests=[asked]))
        answer = judge(self.cluster, asked)
        assert answer is not None, "what was to be written is written by now"
        self.out.append(f"answer: {answer.name}")
        self.go_on(due(self.cluster, [self.row(name)]))

    def notify(self, *names: str) -> None:
        """ISR change notifications name these partitions."""
        for name in names:
            self.reread(self.row(name))
        self.go_on(due(self.cluster, map(self.row, names)))

    # -- reassignment

    def reassign(self, *words: str) -> None:
        """AlterPartitionReassignments: partitions, each with its target."""
        self._reassign({name: parsed(target) for name, target in zip(words[::2], words[1::2], strict=True)})

    def reassign_by_znode(self, *words: str) -> None:
        """The same by /admin/reassign_partitions."""
        targets = {name: parsed(target) for name, target in zip(words[::2], words[1::2], strict=True)}
        self._reassign(targets, live_only=False)

    def cancel(self, *names: str) -> None:
        """AlterPartitionReassignments without targets."""
        self._reassign(dict.fromkeys(names))

    def _reassign(self, targets: Mapping[str, tuple[int, ...] | None], *, live_only: bool = True) -> None:
        wanted: dict[int, Assignment] = {}
        for name, target in targets.items():
            row = self.cluster.find(*split(name))
            found = judge_reassignment(self.cluster, ReassignmentRequest(row, target), live_only=live_only)
            if isinstance(found, NotReassigned):
                self.out.append(f"answer {name}: {found.error.name}, {found.why}")
            else:
                wanted[self.row(name)] = found
        self.rewrite(rewrites(self.cluster, wanted))
        self.go_on(list(wanted), again=True)

    def go_on(self, rows: list[int], *, again: bool = False) -> None:
        """Reassignments go on: states, what is to be told of them, and the topic znodes of those that are complete."""
        if rows and self.dead_before != "states":
            self.carry_out(partial(reassign, rows=rows, again=again))
        if rows and not self.dead_before:
            self.rewrite(final_rewrites(self.cluster, rows))
        if rows:
            self.delete_queued(retry=True)

    def dies_before(self, step: str) -> None:
        """The controller dies in the next reassignment, before it writes ``states`` or the ``final`` topic znode."""
        self.dead_before = step

    def next_write(self, name: str, *trouble: str) -> None:
        """What befalls the next write to a state znode."""
        self.trouble[name] = trouble

    def allow_unclean(self, topic: str) -> None:
        """The topic's configuration allows unclean elections."""
        self.unclean.add(topic)

    def outranked(self, broker_id: str) -> None:
        """A broker refuses all requests, because it obeys a higher controller epoch."""
        assert self.cluster.observe_outranked(int(broker_id), self.registered[int(broker_id)].epoch)

    # -- log directories

    def log_directory_fails(self, broker_id: str, *names: str) -> None:
        """A broker names itself in a notification: asked by LeaderAndIsr it answers with an error for these."""
        self.propagation.leader_and_isr_to(int(broker_id), self.cluster.hosted(int(broker_id)))
        self.tell_brokers()
        rows = self.cluster.observe_failed_dirs(int(broker_id), map(self.row, names))
        self.carry_out(partial(log_directories_failed, failed={int(broker_id): rows}, unclean=self.allows_unclean))

    # -- elections

    def elect(self, kind: str, *names: str) -> None:
        """ElectLeaders, or the znode of preferred elections; the answer is by partition."""
        asked, rows = ElectionType[kind.upper()], {name: self.cluster.find(*split(name)) for name in names}
        judged = {name: judge_election(self.cluster, row, asked) for name, row in rows.items()}
        self.carry_out(partial(elect, rows=[row for row in rows.values() if row is not None], kind=asked))
        for name, row in rows.items():
            found = judged[name]
            if found is not None:
                self.out.append(f"answer {name}: {found.error.name}, {found.why}")
            elif judge_election(self.cluster, row, asked) is None:
                self.out.append(f"answer {name}: {FAILED[asked].name}")
            else:
                self.out.append(f"answer {name}: NONE")

    def balance(self, percentage: str, moves_max: str) -> None:
        """A look of the automatic balance."""
        rows = to_balance(self.cluster, int(percentage), int(moves_max))
        self.carry_out(partial(elect, rows=rows, kind=ElectionType.PREFERRED))

    # -- deletion

    def delete(self, *topics: str) -> None:
        """Markers of topics appeared."""
        self.markers.update(topics)
        self.delete_queued()

    def delete_queued(self, *, retry: bool = False) -> None:
        """What has a marker is queued, and started where it may be; markers of unknown topics go."""
        found = sort_markers(self.cluster, self.markers, enabled=True)
        self.markers.difference_update(found.removed)
        self.out += [f"marker of {topic} removed" for topic in found.removed]
        self.cluster.observe_deletions(found.queued)
        if self.cluster.deletions:
            self.carry_out(partial(advance, topics=sorted(self.cluster.deletions), retry=retry))

    def deleted(self, *brokers: str) -> None:
        """Brokers answer that they deleted what they were asked to delete."""
        for broker_id in map(int, brokers):
            self._answered(broker_id, [])

    def not_deleted(self, broker_id: str, *names: str) -> None:
        """A broker answers with an error for these partitions; without names it refuses the request as a whole."""
        self._answered(int(broker_id), list(names) or self.asked_to_delete[int(broker_id)])

    def _answered(self, broker_id: int, failed: list[str]) -> None:
        asked = [self.row(name) for name in self.asked_to_delete.pop(broker_id)]
        self.carry_out(partial(answered, broker=broker_id, deleted=asked, failed=list(map(self.row, failed))))
        for index in finished(self.cluster, sorted(self.cluster.deletions)):
            topic = self.cluster.topics[index].name
            self.zookeeper.states = {key: held for key, held in self.zookeeper.states.items() if key[0] != topic}
            del self.zookeeper.topics[topic]
            self.markers.discard(topic)
            self.cluster.observe_topic_gone(topic)
            self.out.append(f"znodes of {topic} deleted")

    def expand_deleted(self, topic: str, *replicas: str) -> None:
        """Somebody adds partitions to a topic that is being deleted."""
        known = self.zookeeper.topics[topic]
        first = len(known.partitions)
        self.assign(topic, {first + n: parsed(r) for n, r in enumerate(replicas)})
        change = restored(self.cluster, self.zookeeper.topics[topic])
        assert change is not None
        self.zookeeper.topics[topic] = replace(known, version=change.version + 1)
        self.out.append(f"topic {topic} without {ids(change.dropped)} ({change.why})")
