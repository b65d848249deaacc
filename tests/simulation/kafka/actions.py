"""Joins the actions that a script can name, by verb."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.kafka.actions_brokers import BrokerActions
from tests.simulation.kafka.actions_calls import CallActions
from tests.simulation.kafka.actions_cluster import ClusterActions
from tests.simulation.kafka.actions_daemons import DaemonActions
from tests.simulation.kafka.actions_drains import DrainActions
from tests.simulation.kafka.actions_elections import ElectionActions
from tests.simulation.kafka.actions_ensemble import EnsembleActions
from tests.simulation.kafka.actions_foreign import ForeignActions
from tests.simulation.kafka.actions_interference import InterferenceActions
from tests.simulation.kafka.actions_reassignment import ReassignmentActions
from tests.simulation.kafka.actions_topics import TopicActions


class Actions(
    ClusterActions,
    TopicActions,
    ForeignActions,
    InterferenceActions,
    CallActions,
    ReassignmentActions,
    DrainActions,
    ElectionActions,
    BrokerActions,
    DaemonActions,
    EnsembleActions,
):
    """Carries out the actions of a script. Durations end by themselves; ``quiescence.py`` ends them all."""

    def perform(self, verb: str, *words: object) -> None:
        """Carries out one action."""
        act: Callable[..., None] = getattr(self, _method(verb))
        act(*words)


def known(verb: str) -> bool:
    """Returns whether a script may use a verb."""
    return hasattr(Actions, _method(verb))


def _method(verb: str) -> str:
    return f"do_{verb.replace('-', '_')}"
