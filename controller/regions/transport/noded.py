"""Sends operations on regions as the polled transport does, and takes the servers' answers from znodes.

An open begins with a durable znode, OFFLINE, that names the server and the token; then the server gets the operation.
The server moves the znode on, and what it has become is the result. Procedures see no difference: a result is a result.
An answer by a report counts, too: it says what a znode cannot, such as that an open has failed. A server that has not
named the feature answers by reports alone, so no znode is taken from it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from controller.regions.dispatcher import Dispatcher, DispatchLimits, Key, Tell
from controller.regions.transport.found import Found, Wanted
from controller.regions.transport.nodes import Nodes
from regent_agent import protocol
from regent_agent.protocol import NODES, Close, Open, Operation, Result
from state_machines.regions.entities import Server
from state_machines.regions.states import ServerState
from state_machines.regions.unassigned import Cause, Node, NodeState, may_be_offline

log = logging.getLogger("regent.regions")

LINGER_S: Final = 0.2
"""Time in which the next open of a closed region takes its znode over; then it is deleted."""
DOUBLED_MAX: Final = 6
"""Times that the limit of an open is doubled where its znodes were taken from servers."""
NOBODY: Final = ""
"""Names the server of a znode that no server may move on."""
N = NodeState


class Sent(NamedTuple):
    """An operation on a region that is awaited. ``since_s``: when it was sent, or its znode moved last.

    ``first_s``: when it was sent. ``is_sure``: its znode shows whether its server has the region. Where that was
    written again, an answer may have been in the one before: only the server knows then.
    """

    pid: int
    server: Server
    operation: Open | Close
    since_s: float
    first_s: float
    is_sure: bool = True


Answered = Callable[[Server, Result], None]
"""Takes the result of an operation of a process."""


class Noded(Dispatcher):
    """A dispatcher whose operations on regions go by znodes.

    ``is_fenced``: checks whether a process can write no more; ``is_stale``: whether the catalog has what a znode is
    still to say, as where it was reported. ``timeout_s``: without progress in that time a znode is taken from its
    server; the version decides which of the two was faster.
    """

    reads_nodes = True

    def __init__(
        self,
        epoch: int,
        limits: DispatchLimits,
        clock: Callable[[], float],
        tell: Tell,
        nodes: Nodes,
        is_fenced: Callable[[Key], bool],
        is_stale: Callable[[Node], bool],
        timeout_s: float,
    ) -> None:
        super().__init__(epoch, limits, clock, tell)
        self._nodes, self._timeout_s = nodes, timeout_s
        self._is_fenced, self._is_stale = is_fenced, is_stale
        self.answered: Answered = lambda server, result: None
        self._sent: dict[int, Sent] = {}
        self._region_of: dict[int, int] = {}
        self._after: dict[int, Sent] = {}
        """Closes that wait until the znode of the open before is gone."""
        self._closed: dict[int, float] = {}
        """Regions that are closed, durably, and when their znodes may go."""
        self._failed: dict[int, int] = {}
        """Tokens of opens that servers have reported as failed, by region: they do not move these znodes any more."""
        self._sweeps_s = clock() + timeout_s
        """From then on each procedure of an earlier daemon has sent its operation again."""
        self._lists_s = self._sweeps_s
        """When znodes are listed next: a server may have made one after its operation was taken back."""
        self._taken: dict[int, int] = {}
        """How often the znode of a region was taken from a server since it was open last."""
        self._moved_s: dict[Key, tuple[float, float]] = {}
        """When processes have moved a znode last, and when its operation was sent: a later one waits behind that."""
        self.former_number = 0
        """The last token of earlier daemons: an open with one may have been sent by them."""
        self._asked: dict[int, int] = {}
        """Tokens of the opens that servers were sent, by region."""
        nodes.changed, nodes.permits, nodes.dropped = self._changed, self._permits, self._refused

    def shows(self, region: int) -> str:
        """Returns a sentence about the znode of a region; empty without one."""
        return self._nodes.shows(region)

    # -- for procedures

    def send(self, server: Server, operation: Operation) -> None:
        """Sends an operation; that of an open once its znode is durable."""
        if not isinstance(operation, Open | Close) or not self._by_znode(server, operation):
            super().send(server, operation)
            return
        region, pid = operation.region, operation.pid
        sent = Sent(pid, server, operation, self._clock(), self._clock())
        self._expected[pid] = server.key
        self._sent[region], self._region_of[pid] = sent, region
        self._nodes.follow(region)
        if isinstance(operation, Open):
            self._offline(sent)
        elif self._is_in_the_way(region):
            self._after[region] = sent
            self._delete(region)
        else:
            super().send(server, operation)
        if (found := self._nodes.known.get(region)) is not None:  # an earlier daemon may have sent it, too
            asyncio.get_running_loop().call_soon(self._changed, region, found)

    @staticmethod
    def _by_znode(server: Server, operation: Open | Close) -> bool:
        """Checks whether a server may answer by a znode: each that does not say otherwise."""
        reports = isinstance(operation, Close) and operation.reported
        return not reports and (not server.here or NODES in server.features)

    def hold_back(self, pid: int) -> None:
        """Does not send an operation any more: its result is here, which is a failure, or stands in its znode."""
        super().hold_back(pid)
        sent = self._sent.get(self._region_of.get(pid, 0))
        if sent is not None and sent.pid == pid and isinstance(sent.operation, Open):
            self._failed[sent.operation.region] = sent.operation.token

    def take_back(self, pid: int) -> None:
        """Removes an operation: its result is durable, or of no use. Its znode goes; that of a close a bit later."""
        super().take_back(pid)
        region = self._region_of.pop(pid, None)
        sent = None if region is None else self._sent.get(region)
        if region is None or sent is None or sent.pid != pid:
            return
        del self._sent[region]
        self._after.pop(region, None)
        self._asked.pop(region, None)
        self._nodes.leave(region)
        if self._state(region) is N.CLOSED:
            self._closed[region] = self._clock() + LINGER_S
        else:
            self._settle(region)

    def drop(self, server: Server) -> None:
        """Removes the queue of a process that gets nothing any more."""
        super().drop(server)
        self._moved_s.pop(server.key, None)

    # -- from time to time

    def look(self) -> None:
        """Takes znodes without progress from their servers, asks again for closes, and deletes what nobody awaits."""
        now_s = self._clock()
        for region in [one for one, until_s in self._closed.items() if until_s <= now_s]:
            del self._closed[region]
            self._settle(region)
        if now_s >= self._sweeps_s:
            if now_s >= self._lists_s:
                self._lists_s = now_s + self._timeout_s
                self._nodes.list_again()
            for region in self._nodes.known.keys() - self._sent.keys() - self._closed.keys():
                if self._nodes.wants(region) is None:
                    self._settle(region)
        for region, sent in [one for one in self._sent.items() if now_s - one[1].since_s >= self._timeout_s]:
            longest_s, since_s = self._timeout_s * (1 << self._taken.get(region, 0)), sent.since_s
            moved_s, sent_s = self._moved_s.get(sent.server.key, (since_s, sent.first_s))
            ends_s = sent.first_s + self._timeout_s * (1 << DOUBLED_MAX)
            if self._state(region) is N.OFFLINE and sent_s <= sent.first_s and now_s < ends_s:
                since_s = max(since_s, moved_s)  # it waits behind operations that its server got before
            is_late = now_s - since_s >= longest_s and NODES in sent.server.features
            if is_late and self._expected.get(sent.pid) == sent.server.key:
                self._sent[region] = sent._replace(since_s=now_s)
                self._timed_out(region, sent)

    def _timed_out(self, region: int, sent: Sent) -> None:
        """Asks for a close again; the znode of an open is nobody's then, and its procedure chooses another server."""
        found = self._nodes.known.get(region)
        if isinstance(sent.operation, Close):
            super().send(sent.server, sent.operation)
            return
        if found is None or found.node is None:
            if self._nodes.wants(region) is None:
                self._offline(sent)  # a stranger deleted it, maybe with an answer in it: ask again
            return
        if found.node.state not in (N.OFFLINE, N.OPENING):
            return
        if not sent.is_sure:
            self._go(region, sent.pid)
            return
        state = found.node.state

        def done() -> None:
            self._nodes.faults["timed_out"] += 1
            times = self._taken[region] = min(self._taken.get(region, 0) + 1, DOUBLED_MAX)
            text = f"its znode stayed {state}, and was taken from it (regions.node_timeout_ms; {times} by now)"
            log.warning("region=%d: %s: %s; another server gets twice the time", region, sent.server, text)
            self._fail(region, sent.pid, text)

        self._nodes.want(region, found.node._replace(state=N.OFFLINE, server=NOBODY, incarnation=0), done)

    def _fail(self, region: int, pid: int, text: str) -> None:
        """Has an open count as failed that is awaited still: its procedure pauses, and chooses a server anew."""
        sent = self._sent.get(region)
        if sent is not None and sent.pid == pid:
            self.answered(sent.server, Result(pid, protocol.FAILED_OPEN, text=text))

    def _refused(self, region: int, found: Found | None) -> None:
        """Has the server of an open asked whose znode may not be written: by what it says, another process may go on.

        Only that server knows whether it has the region already. If not, it refuses such a znode, and reports that.
        """
        sent, node = self._sent.get(region), None if found is None else found.node
        if sent is None or node is None or not isinstance(sent.operation, Open):
            return
        if not node.is_of(*sent.server.key, sent.operation.token):
            self._go(region, sent.pid)

    # -- what the daemon writes

    def _offline(self, sent: Sent) -> None:
        """Writes the znode of an open, unless an earlier daemon has; then the server gets the operation."""
        operation, key = sent.operation, sent.server.key
        assert isinstance(operation, Open)
        region = operation.region
        self._closed.pop(region, None)
        found = self._nodes.known.get(region)
        if found is not None and found.node is not None and found.node.is_of(*key, operation.token):
            if found.node.state is N.OFFLINE and operation.token <= self.former_number:
                self._sent[region] = sent._replace(is_sure=False)  # an earlier daemon may have written it again
            self._nodes.leave(region)
            self._go(region, sent.pid)
            return
        if self._asked.get(region) == operation.token or operation.token <= self.former_number:
            self._sent[region] = sent._replace(is_sure=False)
        node = Node(N.OFFLINE, region, sent.pid, operation.token, *key, operation.sequence)
        self._nodes.want(region, node, lambda: self._go(region, sent.pid))

    def _go(self, region: int, pid: int) -> None:
        """Has the server get the operation, where that is awaited still."""
        sent = self._sent.get(region)
        if sent is not None and sent.pid == pid and self._expected.get(pid) == sent.server.key:
            if isinstance(sent.operation, Open):
                self._asked[region] = sent.operation.token
            super().send(sent.server, sent.operation)

    def _state(self, region: int) -> NodeState | None:
        found = self._nodes.known.get(region)
        return None if found is None or found.node is None else found.node.state

    def _is_in_the_way(self, region: int) -> bool:
        """Checks whether a znode keeps a server from its close: that of an open, whose result is durable."""
        return self._state(region) is N.OPENED

    def _delete(self, region: int) -> None:
        self._nodes.want(region, None, lambda: self._gone(region))

    def _gone(self, region: int) -> None:
        """Goes on with a close that waited for the end of a znode."""
        self._failed.pop(region, None)
        after = self._after.pop(region, None)
        if after is not None:
            self._go(region, after.pid)
        if region not in self._sent:
            self._nodes.unfollow(region)

    def _settle(self, region: int) -> None:
        """Deletes a znode that no operation awaits, unless a server is about to move it on."""
        found = self._nodes.known.get(region)
        if found is None:
            self._failed.pop(region, None)
            self._nodes.unfollow(region)
        elif found.node is None or self._rests(found.node):
            self._delete(region)

    def _rests(self, node: Node) -> bool:
        """Checks whether no server is about to move a znode on."""
        moves = node.state in (N.OPENING, N.CLOSING) and self._failed.get(node.region) != node.token
        return not moves or self._is_over(node) or self._is_stale(node)

    def _is_over(self, node: Node) -> bool:
        return self._is_fenced((node.server, node.incarnation))

    def _permits(self, region: int, found: Found | None, wanted: Wanted) -> bool:
        """Checks whether the daemon may write a znode still, by what was read meanwhile."""
        node = None if found is None else found.node
        if wanted.node is None:
            return node is None or (self._rests(node) if region not in self._sent else node.state is N.OPENED)
        if wanted.node.server == NOBODY:  # the daemon takes the znode that it saw alone: an open may have succeeded
            return node is not None and node.state in (N.OFFLINE, N.OPENING) and node.token == wanted.node.token
        if node is None or node.state is N.CLOSED:
            return True  # one that cannot be read is no server's
        if self._is_stale(node) and node.state is N.CLOSING:
            return True  # its server has the region no more
        if self._is_over(node):
            return may_be_offline(node.state, Cause.DESTINATION) or may_be_offline(node.state, Cause.SOURCE)
        if node.state is N.OPENED:
            return node.token < wanted.node.token  # its procedure is over: the znode would go, and be made anew
        return may_be_offline(node.state, Cause.TIMEOUT)

    # -- what servers write

    def _changed(self, region: int, found: Found | None) -> None:
        """Takes what a znode has become: the result of an operation, or a trace of one that nobody awaits."""
        sent = self._sent.get(region)
        if sent is None:
            if found is not None and region not in self._closed and self._clock() >= self._sweeps_s:
                self._settle(region)
            return
        if found is None or found.node is None:
            return
        node, operation = found.node, sent.operation
        self._sent[region] = sent = sent._replace(since_s=self._clock())
        moves = node.state is not N.OFFLINE and (node.server, node.incarnation) == sent.server.key
        if moves and sent.server.state is ServerState.ONLINE:
            self._moved_s[sent.server.key] = sent.since_s, sent.first_s
        if not node.is_of(*sent.server.key, operation.token):
            if isinstance(operation, Open) and self._nodes.wants(region) is None and node.server != NOBODY:
                self._offline(sent)  # it could not be written as it was
        elif node.state is N.OPENED and isinstance(operation, Open):
            self._taken.pop(region, None)
            self.answered(sent.server, Result(sent.pid, protocol.OPENED, node.sequence))
        elif node.state is N.CLOSED and isinstance(operation, Close):
            self.answered(sent.server, Result(sent.pid, protocol.CLOSED))
