"""Keeps the LeaderAndIsr and StopReplica entries still to be sent to one broker incarnation, and its positions."""

from __future__ import annotations

from collections.abc import Iterable

from state_machines.model.types import TopicPartition


class PendingRequests:
    """Requests that one broker incarnation has still to be sent.

    ``lead``: rows for LeaderAndIsr (row -> is new), ``stop``: rows for StopReplica (row -> delete); both flags are
    sticky. StopReplica is a barrier for its row: it supersedes the entries before it, and later ones wait in ``after``
    until it was taken. ``sending`` are the LeaderAndIsr entries of the request under way, ``stopping`` the StopReplica
    entries of the seal under way. ``logs``: partitions of StopReplica by name, for logs that no row stands for.
    ``position`` and ``live_version``: how far the broker was sent the feed, which it reads from ``since`` on, and the
    live list. ``turn`` and ``turn_end`` bound the rows of the snapshot that are still to come, once it is
    ``begun``. ``reach`` is the feed's number at that moment: forgotten rows come by the feed alone.
    ``snapshots``: how many began, so that a request which was under way then ends none of the later one.
    ``blank``: the broker has just come up and knows of no topic. ``introduced``: up to which row it was sent the
    metadata of the snapshot already. ``refused``: up to which number of the feed it may have refused UpdateMetadata,
    which then had no effect and is not repeated. ``queried``: the broker responded which topic ids it knows, or its
    response is waited for no more.
    """

    __slots__ = (
        "after",
        "begun",
        "blank",
        "introduced",
        "lead",
        "live_version",
        "logs",
        "position",
        "queried",
        "reach",
        "refused",
        "sending",
        "since",
        "snapshots",
        "stop",
        "stopping",
        "turn",
        "turn_end",
    )

    def __init__(self, position: int) -> None:
        self.lead: dict[int, bool] = {}
        self.sending: dict[int, bool] = {}
        self.stop: dict[int, bool] = {}
        self.stopping: dict[int, bool] = {}
        self.after: dict[int, bool] = {}
        self.logs: dict[TopicPartition, None] = {}
        self.position = self.since = position
        self.reach = 0
        self.refused = 0
        self.live_version = 0
        self.turn = 0
        self.turn_end = 0
        self.begun = False
        self.snapshots = 0
        self.blank = False
        self.introduced = 0
        self.queried = False

    def add_lead(self, i: int, *, is_new: bool) -> None:
        """Adds LeaderAndIsr of row ``i``, behind a StopReplica that waits."""
        entries = self.after if i in self.stop else self.lead
        if is_new or i not in entries:
            entries[i] = is_new

    def add_stop(self, i: int, *, delete: bool) -> None:
        """Adds StopReplica of row ``i`` and drops the LeaderAndIsr that waited."""
        self.lead.pop(i, None)
        self.after.pop(i, None)
        self.stop[i] = delete or self.stop.get(i, False)

    def add_logs(self, names: Iterable[TopicPartition]) -> None:
        """Adds StopReplica by name, which deletes logs."""
        self.logs.update(dict.fromkeys(names))

    def take_logs(self, limit: int) -> list[TopicPartition]:
        """Removes and returns the first ``limit`` partitions of StopReplica by name."""
        taken = list(self.logs)[:limit]
        for name in taken:
            del self.logs[name]
        return taken

    def take_lead(self, limit: int, held: frozenset[int] | set[int] = frozenset()) -> dict[int, bool]:
        """Removes and returns the first ``limit`` LeaderAndIsr entries that are not ``held``."""
        if held:
            free = {i: is_new for i, is_new in self.lead.items() if i not in held}
            taken, _ = _split(free, limit)
            self.lead = {i: is_new for i, is_new in self.lead.items() if i not in taken}
        else:
            taken, self.lead = _split(self.lead, limit)
        return taken

    def take_new(self, limit: int) -> dict[int, bool]:
        """Removes and returns the first ``limit`` LeaderAndIsr entries of new replicas."""
        taken, _ = _split({i: True for i, is_new in self.lead.items() if is_new}, limit)
        for i in taken:
            del self.lead[i]
        return taken

    def take_stop(self, limit: int) -> dict[int, bool]:
        """Removes and returns the first ``limit`` StopReplica entries; entries that waited for them may go out next."""
        taken, self.stop = _split(self.stop, limit)
        return self._taken(taken)

    def take_stops(self, rows: Iterable[int]) -> dict[int, bool]:
        """Removes and returns the StopReplica entries of ``rows``, as :meth:`take_stop` does."""
        return self._taken({i: self.stop.pop(i) for i in rows})

    def _taken(self, stops: dict[int, bool]) -> dict[int, bool]:
        self.stopping = stops
        if self.after:
            freed = [i for i in self.after if i in stops]
            self.lead.update((i, self.after.pop(i)) for i in freed)
        return stops

    def concerns(self, i: int) -> bool:
        """Checks whether LeaderAndIsr or StopReplica of a row waits, or is under way."""
        return i in self.lead or i in self.sending or i in self.stop or i in self.after

    @property
    def complete(self) -> bool:
        """Checks whether the broker was sent a whole snapshot, and the rows that were forgotten before it began."""
        return self.begun and self.turn_end <= self.turn and self.reach <= self.position

    @property
    def size(self) -> int:
        """Counts LeaderAndIsr and StopReplica entries that wait."""
        return len(self.lead) + len(self.stop) + len(self.after) + len(self.logs)


def _split(entries: dict[int, bool], limit: int) -> tuple[dict[int, bool], dict[int, bool]]:
    if len(entries) <= limit:
        return entries, {}
    items = list(entries.items())
    return dict(items[:limit]), dict(items[limit:])
