"""Finds what a daemon has at the moment: the term, the model, and the daemon that holds the role instead."""

from __future__ import annotations

from controller.daemon.daemon import Daemon
from controller.http.errors import NotActive, Refused
from controller.kafka.term.term import Term
from controller.operator.role_status import StatusReader
from controller.operator.sampling import refuse_standing, suspension
from controller.role.mode import Mode
from state_machines.model.cluster import Cluster


class Present:
    """Answers from the daemon's memory, anew at each call: a term may end between two of them."""

    def __init__(self, daemon: Daemon, status_reader: StatusReader) -> None:
        self._daemon = daemon
        self._status_reader = status_reader

    def term(self) -> Term | None:
        """Returns the term once it is active."""
        term = self._daemon.term
        return term if term is not None and term.serving.is_set() else None

    def model(self) -> Cluster | None:
        """Returns the term's model, or the shadow's."""
        term, shadow = self.term(), self._daemon.shadow
        if term is not None:
            return term.cluster
        return shadow.tracker.model if shadow is not None and self._daemon.mode is Mode.SHADOW else None

    def active(self) -> Term:
        """Returns the active term for a request; raises :class:`NotActive`, also where it would wait for ZooKeeper."""
        term = self.term()
        if term is None:
            raise NotActive(f"this daemon is {self._daemon.mode.value}: {self._daemon.why}", self.active_daemon())
        refuse_standing(term, self._daemon)
        return term

    def active_daemon(self) -> str:
        """Names the daemon that does hold the role, as a remedy."""
        seen = self._status_reader.role_status
        if seen.holder_kind == "daemon" and seen.queue and seen.queue[0].nonce != self._daemon.me.nonce:
            return f"query the daemon on {seen.queue[0].host} (pid {seen.queue[0].pid})"
        return "see 'regent status'"

    def controller(self) -> int | None:
        """Returns the id in ``/controller``: a broker's while this daemon is a shadow."""
        return (
            self._daemon.settings.controller.id if self.term() is not None else self._status_reader.role_status.holder
        )

    def stale(self) -> str | None:
        """Returns why the model may be old; None while ZooKeeper answers, or without a model."""
        return suspension(self._daemon) if self.model() is not None else None

    def fresh(self) -> Cluster:
        """Returns the model; raises :class:`Refused` where it may be old, because a yes would be dangerous then."""
        cluster, stale = self.cluster(), self.stale()
        if stale is not None:
            raise Refused(f"the model may be old: {stale}", "wait until ZooKeeper answers the daemon, then try again")
        return cluster

    def cluster(self) -> Cluster:
        """Returns the model; raises :class:`NotActive`."""
        cluster = self.model()
        if cluster is None:
            raise NotActive(f"this daemon is {self._daemon.mode.value}: {self._daemon.why}", self.active_daemon())
        return cluster
