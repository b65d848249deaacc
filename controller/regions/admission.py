"""Decides which processes may register, and which connections may speak for them.

The proof of each process is stored beside its row: after a failover, too, no other connection speaks for it. Its row is
a mark of a kind of its own, which daemons that do not know it leave alone.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from controller.regions.dispatcher import Key
from controller.regions.environment import RegionsEnv
from metadata_store.catalog.rows import DropMark, MarkRow, PutMark, Write
from state_machines.regions.entities import Server
from state_machines.regions.states import ServerState

PROOF: Final = "proof"
LATER: Final = "a process that began later needs a higher incarnation (was its clock set back?)"
AHEAD_MS_MAX: Final = 2 * 86_400_000
"""Time by which a server's clock may be ahead of the daemon's; one of both may be a day off."""
SERVERS_MAX: Final = 2_000
"""Processes of servers in the store: ZooKeeper lists them in one response, which has a bound."""


def _proof_subject(key: Key) -> str:
    return f"{key[0]},{key[1]}"


def keep_proof(key: Key, proof: str) -> tuple[Write, ...]:
    """Returns the write that stores the digest of a proof; none for a process without one."""
    return (PutMark(MarkRow(PROOF, _proof_subject(key), proof)),) if proof else ()


def drop_proof(key: Key, proof: str | None) -> tuple[Write, ...]:
    """Returns the write that goes with the removal of a process."""
    return (DropMark(PROOF, _proof_subject(key)),) if proof else ()


def proofs_in(marks: Iterable[MarkRow]) -> dict[Key, str]:
    """Finds the proofs among the marks of a catalog, by process."""
    found: dict[Key, str] = {}
    for one in marks:
        name, comma, incarnation = one.subject.rpartition(",")
        if one.kind == PROOF and comma and incarnation.isdecimal():
            found[name, int(incarnation)] = one.value
    return found


def proofs_left_over(proofs: Iterable[Key], members: Iterable[Key]) -> Iterator[Write]:
    """Yields the removal of proofs whose process is gone: a daemon that does not know them removed it."""
    return (DropMark(PROOF, _proof_subject(key)) for key in sorted(set(proofs).difference(members)))


class ServerDead(Exception):
    """A process was fenced, or is about to be; the text says why.

    ``above``: one that has never registered may do so with an incarnation above this one; 0 without.
    """

    def __init__(self, why: str, above: int = 0) -> None:
        super().__init__(why)
        self.above = above


class ServerUnknown(Exception):
    """A process that this term does not know: it registers."""


class Unproven(Exception):
    """A connection that speaks for a process without its proof; the text names what helps."""


class IncarnationAhead(Exception):
    """An incarnation above the present time and a margin; the text names the highest one."""


class TooMany(Exception):
    """A process that is one too many; the text says how many there may be, and what helps."""


class Admission:
    """Checks processes against the model. ``entering``: those that are being stored, with their proofs.

    ``expire``: begins the crash of a process.
    """

    def __init__(self, env: RegionsEnv, expire: Callable[[Server, str], None]) -> None:
        self._env, self._expire = env, expire
        self.entering: dict[Key, str] = {}

    def check_entry(self, key: Key, regions: int, proof: str) -> None:
        """Raises what refuses a process that registers with so many regions, as far as that is known without them."""
        self.check_buried(key)
        server = self._env.model.servers.get(key)
        self.check_proof(key, self.entering.get(key, None if server is None else server.proof), proof)
        if server is None:
            self._check_new(key, regions)
        elif server.state is not ServerState.ONLINE:
            raise ServerDead(f"{server} counts as crashed: this process must end, another one may start")

    def check_buried(self, key: Key) -> None:
        """Raises :class:`ServerDead` for a process whose regions were given to others: it may believe to have them."""
        if not self._env.model.is_buried(key):
            return
        last = self._env.model.buried[key[0]]
        why = "was fenced after its crash" if key[1] == last else f"is not above {last}, which was fenced: {LATER}"
        if last >= self.incarnation_max():
            why = f"{why}; no process comes above that one before 'regent servers forget {key[0]}'"
            raise ServerDead(f"{key[0]},{key[1]} {why}: this process must end")
        is_last = all(one.incarnation <= last for one in self.others(key))
        raise ServerDead(f"{key[0]},{key[1]} {why}: this process must end", last if is_last else 0)

    def incarnation_max(self) -> int:
        """Returns the highest incarnation that a process may have which registers now."""
        return (self._env.latest_ms() + AHEAD_MS_MAX) * 1_000

    def _check_not_ahead(self, key: Key) -> None:
        """Raises :class:`IncarnationAhead`: after such a process no other one with its name could come for long."""
        if key[1] > (most := self.incarnation_max()):
            raise IncarnationAhead(
                f"incarnation: {key[1]}, expected at most {most}, two days from now in microseconds: take the start of "
                "the process in microseconds since 1970; where that is this number, set the clock of its machine, or "
                "the daemon's"
            )

    def _check_new(self, key: Key, regions: int) -> None:
        """Raises :class:`ServerDead` for a process that is no member and has regions, :class:`TooMany` for a surplus.

        A member with regions stays in the store until it is fenced: no memory of those that were is needed for this.
        """
        self._check_not_ahead(key)
        if regions:
            raise ServerDead(f"{key[0]},{key[1]} is no member, and lists {regions} regions: this process must end")
        if len(self.entering.keys() | self._env.model.servers.keys()) >= SERVERS_MAX:
            raise TooMany(
                f"server: {key[0]!r} would be one more than the {SERVERS_MAX} processes that may be members: "
                "end those that are of no use, see 'regent servers list'"
            )

    def others(self, key: Key) -> list[Server]:
        """Returns the other processes with the name of one."""
        return [one for one in self._env.model.servers.values() if one.name == key[0] and one.key != key]

    def check_alone(self, key: Key) -> None:
        """Raises :class:`ServerDead` for a process after which another one with its name has registered."""
        for other in self.others(key):
            if other.incarnation > key[1]:
                if (server := self._env.model.servers.get(key)) is not None:
                    self._expire(server, f"{other} registered")
                raise ServerDead(f"{other} is the later one with this name: {LATER}: this process must end")

    @staticmethod
    def check_proof(key: Key, of: str | None, proof: str) -> None:
        """Raises :class:`Unproven` where a process has another proof. ``of``: its own, None where unknown."""
        if of is not None and not hmac.compare_digest(of, proof):
            raise Unproven(
                f"server: {key[0]},{key[1]} has registered with another proof: only its own process speaks for it; "
                "give another process a name or an incarnation of its own"
            )
