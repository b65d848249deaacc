"""The commands of stories, on this controller's side; each ends with all requests sent.

============================================ =================================================================
``brokers 1,2,3``                            registered before the story begins
``given t-0 replicas 1,2 [leader 1 ...]``    a partition before the story begins; without a leader: no state znode
``running``                                  a controller has sent everything: the story begins
``begin-term``                               a new term begins
``unseen-death 3`` / ``unseen-topic u 1``    before it, while there was no controller
``brokers gone 1 back 2 bounced 3``          the registrations changed
``topic t 1,2 2,3`` / ``expand t 3,1``       a topic appears; partitions are added to it
``delete t`` / ``deleted 1`` / ``not-deleted 1 t-0``  a marker; responses of brokers to StopReplica with deletion
``expand-deleted t 1,2``                     partitions are added to a topic that is being deleted
``reassign t-0 2,3`` / ``reassign-by-znode`` / ``cancel t-0``  reassignments
``dies-before states``                       the controller dies in the next reassignment before it writes this
``elect preferred t-0`` / ``balance 10 2``   elections by request; the automatic balance, with percentage and budget
``log-directory-fails 1 t-0``                a broker loses replicas
``shutdown 1``                               a broker requests its controlled shutdown
``alter t-0 isr 1,2 [epoch 3] [version 4]``  the leader requests an ISR; epochs are the present ones if not given
``leader-writes t-0 isr 1,2``                the leader writes its ISR itself; ``notify t-0`` notifies the controller
``next-write t-0 conflict isr 1,2``          the leader's own write comes first; or ``reply-lost``, ``refused``
``unclean t``                                the topic allows unclean elections
``outranked 1``                              the broker obeys a higher controller epoch
``drain 1,2`` / ``undrain 1``                brokers are marked as drained, and their leaders move; the mark goes
``shutdown-by-command 1``                    an operator shuts a broker down in its place
``undo-shutdown 1``                          an operator undoes the shutdown of a broker
============================================ =================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from state_machines.decisions.alter_partition import INELIGIBLE, IsrRequest, alter_partitions, judge
from state_machines.decisions.broker_change import (
    controlled_shutdown,
    keep_out,
    proposed,
    remaining,
    shutdown_undone,
    stop_followers,
)
from state_machines.decisions.broker_change import move_leaders as leave_leaders
from state_machines.decisions.deletion import restored
from state_machines.decisions.drain import Drain, advanced, led, move_leaders, sentence, staying, wave
from state_machines.decisions.failover import failover
from state_machines.decisions.leader_election import FAILED, ElectionType, elect, to_balance
from state_machines.decisions.leader_election import judge as judge_election
from state_machines.machines.draft import Draft
from state_machines.model.types import NO_LEADER, Leadership, TopicAssignment
from tests.kit.kafka.model import broker, check_model
from tests.stories.brokers import NaiveBroker, ids, parsed
from tests.stories.world import StoryWorld, split


def shut_by_command(draft: Draft, broker: int) -> None:
    """Draws the shutdown of a broker that may be undone."""
    leave_leaders(draft, broker)
    stop_followers(draft, broker, may_be_undone=True)


class Stage(StoryWorld):
    """Plays the commands of one story; ``out`` holds the lines of the present step."""

    def play(self, command: str) -> None:
        """Plays one command; what it leads to is committed, applied and sent before the next."""
        verb, *words = command.split()
        commands: dict[str, Callable[..., None]] = {
            "brokers": self.registrations,
            "given": self.given,
            "running": self.running,
            "begin-term": self.new_term,
            "unseen-death": self.unseen_death,
            "unseen-topic": self.unseen_topic,
            "topic": self.topic,
            "expand": self.topic,
            "shutdown": self.shutdown,
            "reassign": self.reassign,
            "reassign-by-znode": partial(self.reassign, live_only=False),
            "cancel": self.cancel,
            "dies-before": self.will_die_before,
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
            "unclean": self.unclean.add,
            "outranked": self.outranked,
            "drain": self.drain,
            "undrain": self.undrain,
            "shutdown-by-command": partial(self.shutdown, by_command=True),
            "undo-shutdown": self.undo_shutdown,
        }
        commands[verb](*words)
        if verb.startswith("unseen"):
            return
        self.send()
        check_model(self.cluster, self.zookeeper, self.unobserved)

    # -- before the story

    def given(self, name: str, *words: str) -> None:
        """Adds a partition, with its state znode if it has a leader or had one."""
        fields = dict(zip(words[::2], words[1::2], strict=True))
        topic, partition = split(name)
        replicas = parsed(fields["replicas"])
        self.assign(topic, {partition: replicas})
        if "leader" in fields:
            leader = NO_LEADER if fields["leader"] == "none" else int(fields["leader"])
            isr = parsed(fields["isr"]) if "isr" in fields else replicas
            epoch, version = int(fields.get("epoch", "0")), int(fields.get("version", "0"))
            self.zookeeper.states[topic, partition] = Leadership(leader, epoch, isr, 1, version)

    def running(self) -> None:
        """Decides and sends earlier events: the story begins with brokers that know everything."""
        self.load(1)
        self.carry_out(failover)
        assert not any(line.startswith("write") for line in self.out), "a running cluster has nothing to decide"
        self.snapshot(self.registered)
        self.send()
        self.out.clear()

    # -- terms, brokers and topics

    def new_term(self) -> None:
        """Begins a term; decisions are sent before the snapshot."""
        self.begin_term()
        self.send()
        self.snapshot(self.registered)

    def unseen_death(self, broker_id: str) -> None:
        """A broker dies while there is no controller."""
        del self.registered[int(broker_id)]
        self.leave(int(broker_id))

    def unseen_topic(self, topic: str, *replicas: str) -> None:
        """A topic appears while there is no controller."""
        self.assign(topic, {p: parsed(r) for p, r in enumerate(replicas)})

    def registrations(self, *words: str) -> None:
        """Registers brokers before the story, and changes registrations in it."""
        if len(words) == 1:
            self.registered = {b: broker(b, b) for b in parsed(words[0])}
            self.brokers = {b: NaiveBroker(b) for b in self.registered}
        else:
            changes = dict(zip(words[::2], map(parsed, words[1::2]), strict=True))
            self.brokers_change(*(changes.get(what, ()) for what in ("gone", "bounced", "back")))

    def topic(self, topic: str, *replicas: str) -> None:
        """A topic znode appears, or names more partitions than before."""
        self.expand(topic, *map(parsed, replicas))

    def shutdown(self, broker_id: str, *, by_command: bool = False) -> None:
        """Requests a controlled shutdown; the response has the partitions that the broker still leads."""
        broker = int(broker_id)
        self.cluster.observe_shutting_down(broker)
        self.carry_out(partial(shut_by_command if by_command else controlled_shutdown, broker=broker))
        left = [self.name(i) for i in remaining(self.cluster, broker)]
        self.out.append(f"response: remaining {' '.join(left) or 'nothing'}")

    def outranked(self, broker_id: str) -> None:
        """A broker refuses all requests, because it obeys a higher controller epoch."""
        assert self.cluster.observe_outranked(int(broker_id), self.registered[int(broker_id)].epoch)

    def drain(self, brokers: str) -> None:
        """Drains brokers to the end; the output has the result."""
        self.cluster.observe_drained(self.cluster.drained.union(parsed(brokers)))
        found = Drain(parsed(brokers), led=len(led(self.cluster, parsed(brokers))))
        while rows := wave(self.cluster, found):
            self.carry_out(partial(move_leaders, rows=rows))
            found = advanced(self.cluster, found, rows)
        self.out.append(f"result: {sentence(found, staying(self.cluster, found.brokers))}")

    def undrain(self, brokers: str) -> None:
        """Removes the marks of brokers."""
        self.cluster.observe_drained(self.cluster.drained.difference(parsed(brokers)))

    def undo_shutdown(self, broker_id: str) -> None:
        """Lets a broker lead and follow again."""
        self.cluster.observe_shutdown_undone(int(broker_id))
        self.carry_out(partial(shutdown_undone, broker=int(broker_id)))

    def log_directory_fails(self, broker_id: str, *names: str) -> None:
        """A broker names itself in a notification, and its response to LeaderAndIsr has errors for these."""
        self.propagation.leader_and_isr_to(int(broker_id), self.cluster.hosted(int(broker_id)))
        self.send()
        self.log_directory_failed(int(broker_id), map(self.row, names))

    # -- ISRs

    def alter(self, name: str, *words: str) -> None:
        """Requests an ISR (AlterPartition); the response is what is judged once everything is committed."""
        fields = dict(zip(words[::2], words[1::2], strict=True))
        held = self.zookeeper.states[split(name)]
        request = IsrRequest(
            self.cluster.find(*split(name)),
            int(fields.get("epoch", held.leader_epoch)),
            int(fields.get("version", held.version)),
            parsed(fields["isr"]),
            recovering=fields.get("recovering") == "yes",
            by_id=True,
        )
        self.carry_out(partial(alter_partitions, requests=[request]))
        response = judge(self.cluster, request)
        assert response is not None, "what was to be written is written by now"
        self.out.append(f"response: {response.name}")
        self.go_on_where_due([self.row(name)])
        for leaving, fetching in proposed(self.cluster, [request] if response in INELIGIBLE else []).items():
            self.carry_out(partial(keep_out, broker=leaving, fetching=fetching))

    def notify(self, *names: str) -> None:
        """ISR change notifications name these partitions."""
        for name in names:
            self.reread(self.row(name))
        self.go_on_where_due(map(self.row, names))

    def next_write(self, name: str, *trouble: str) -> None:
        """Sets what befalls the next write of a state znode."""
        self.trouble[name] = trouble

    # -- reassignments and elections

    def reassign(self, *words: str, live_only: bool = True) -> None:
        """Requests targets (AlterPartitionReassignments, or the znode): partitions, each with its target."""
        self._request({n: parsed(t) for n, t in zip(words[::2], words[1::2], strict=True)}, live_only=live_only)

    def cancel(self, *names: str) -> None:
        """Requests no target."""
        self._request(dict.fromkeys(names), live_only=True)

    def _request(self, targets: Mapping[str, tuple[int, ...] | None], *, live_only: bool) -> None:
        named = {split(name): target for name, target in targets.items()}
        wanted, refused = self.judge_targets(named, live_only=live_only)
        for (topic, partition), found in refused.items():
            self.out.append(f"response {topic}-{partition}: {found.error.name}, {found.why}")
        self.begin_reassignments(wanted)

    def will_die_before(self, step: str) -> None:
        """The controller dies in the next reassignment, before it writes ``states`` or the ``final`` topic znode."""
        self.dies_before = step

    def elect(self, kind: str, *names: str) -> None:
        """Requests elections (ElectLeaders, or the znode of preferred elections); the response is by partition."""
        wanted, rows = ElectionType[kind.upper()], {name: self.cluster.find(*split(name)) for name in names}
        judged = {name: judge_election(self.cluster, row, wanted) for name, row in rows.items()}
        self.carry_out(partial(elect, rows=[row for row in rows.values() if row is not None], kind=wanted))
        for name, row in rows.items():
            found = judged[name]
            if found is not None:
                self.out.append(f"response {name}: {found.error.name}, {found.why}")
            elif judge_election(self.cluster, row, wanted) is None:
                self.out.append(f"response {name}: {FAILED[wanted].name}")
            else:
                self.out.append(f"response {name}: NONE")

    def balance(self, percentage: str, moves_max: str) -> None:
        """Runs the automatic balance once."""
        rows = to_balance(self.cluster, int(percentage), int(moves_max))
        self.carry_out(partial(elect, rows=rows, kind=ElectionType.PREFERRED))

    # -- deletion

    def delete(self, *topics: str) -> None:
        """Markers of topics appear."""
        self.markers.update(topics)
        self.delete_queued()

    def deleted(self, *brokers: str) -> None:
        """Brokers respond that they deleted all replicas of their requests."""
        for broker_id in map(int, brokers):
            self._responded(broker_id, [])

    def not_deleted(self, broker_id: str, *names: str) -> None:
        """A broker responds with an error for these partitions; without names it refuses the request as a whole."""
        self._responded(int(broker_id), list(names) or self.deleting[int(broker_id)])

    def _responded(self, broker_id: int, failed: list[str]) -> None:
        rows = map(self.row, self.deleting.pop(broker_id))
        topics = self.deletion_response(broker_id, rows, map(self.row, failed))
        self.out += [f"znodes of {topic} deleted" for topic in topics]

    def expand_deleted(self, topic: str, *replicas: str) -> None:
        """Another client adds partitions to a topic that is being deleted."""
        known = self.zookeeper.topics[topic]
        found = self.assign(topic, dict(enumerate(map(parsed, replicas), len(known.partitions))))
        change = restored(self.cluster, found)
        assert change is not None
        self.zookeeper.topics[topic] = TopicAssignment(topic, None, known.partitions, change.version + 1, known.czxid)
        self.out.append(f"topic {topic} without {ids(change.dropped)} ({change.why})")
