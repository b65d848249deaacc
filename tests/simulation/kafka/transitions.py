"""Lists the transitions of Kafka 3.9's partition and replica state machines a second time (I6)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from state_machines.model.decision import Transition

PARTITION: Final = frozenset(
    {
        ("NON_EXISTENT", "NEW"),
        ("NEW", "ONLINE"),
        ("ONLINE", "ONLINE"),
        ("OFFLINE", "ONLINE"),
        ("NEW", "OFFLINE"),
        ("ONLINE", "OFFLINE"),
        ("OFFLINE", "OFFLINE"),
        ("OFFLINE", "NON_EXISTENT"),
    }
)
REPLICA: Final = frozenset(
    {
        ("NON_EXISTENT", "NEW"),
        ("NEW", "ONLINE"),
        ("ONLINE", "ONLINE"),
        ("OFFLINE", "ONLINE"),
        ("DELETION_INELIGIBLE", "ONLINE"),
        ("NEW", "OFFLINE"),
        ("ONLINE", "OFFLINE"),
        ("OFFLINE", "OFFLINE"),
        ("DELETION_INELIGIBLE", "OFFLINE"),
        ("OFFLINE", "DELETION_STARTED"),
        ("DELETION_STARTED", "DELETION_SUCCESSFUL"),
        ("OFFLINE", "DELETION_INELIGIBLE"),
        ("DELETION_STARTED", "DELETION_INELIGIBLE"),
        ("DELETION_SUCCESSFUL", "NON_EXISTENT"),
    }
)


def illegal(made: Iterable[Transition]) -> Transition | None:
    """Returns the first transition that neither table has."""
    for transition in made:
        table = PARTITION if transition.broker is None else REPLICA
        if (transition.state, transition.target) not in table:
            return transition
    return None
