"""Holds the search for lost topic ids: the query to brokers, its responses, and the verdicts of a term."""

from __future__ import annotations

from typing import Final

from state_machines.decisions.topic_ids import Evidence

TRIES_MAX: Final = 4
"""Queries to brokers that do not respond: together they last longer than most sessions of frozen brokers."""


class LostIds:
    """Notes the topics without ids. Handlers change it; the query's task adds ``evidence`` and ``silent``.

    ``topics``: name -> czxid of those whose id is not known; ``fresh``: no broker was queried for them yet; ``unsent``:
    no broker was sent their metadata since. ``ids``: verdicts that have still to be written, ``found`` are not made up.
    ``none_had_one``: no topic that ran had an id when the term began, or an earlier one that noted it (``noted``).
    ``sent``: brokers that were sent topics without ids, ``late`` before they answered; ``sent_before``: an earlier term
    may have sent them to any. ``silent``: why brokers did
    not answer. ``made_up``: ids were given and are still unsent. ``said``: what was logged last.
    """

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}
        self.fresh: set[str] = set()
        self.unsent: set[str] = set()
        self.none_had_one = False
        self.noted: bytes | None = None
        self.evidence = Evidence()
        self.ids: dict[str, bytes] = {}
        self.found: set[str] = set()
        self.made_up = False
        self.sent_before = False
        self.sent: set[int] = set()
        self.late: set[int] = set()
        self.silent: dict[int, str] = {}
        self.tries_left = 0
        self.asking = False
        self.said: frozenset[str] = frozenset()

    def add(self, name: str, czxid: int) -> None:
        """Adds a topic that has state znodes and no id; one that is known already keeps its verdict."""
        if self.topics.get(name) != czxid:
            self.topics[name] = czxid
            self.fresh.add(name)
            self.unsent.add(name)

    def drop(self, name: str) -> None:
        """Removes a topic that has an id, or is gone."""
        self.topics.pop(name, None)
        self.ids.pop(name, None)
        self.fresh.discard(name)
        self.unsent.discard(name)
        self.found.discard(name)

    def ask(self, *, of_new: bool) -> bool:
        """Requests ``TRIES_MAX`` tries from now on, which query all brokers for ``of_new`` topics.

        Returns whether no task runs them yet.
        """
        if of_new:
            self.evidence = Evidence(self.evidence, sampled=self.none_had_one and not self.evidence.ids)
        self.tries_left = TRIES_MAX
        begins, self.asking = not self.asking, True
        return begins

    def ask_of_all(self) -> None:
        """Queries brokers for every topic from now on: one knows the id of a topic of the sample."""
        self.evidence = Evidence(self.evidence)
        self.tries_left = TRIES_MAX
