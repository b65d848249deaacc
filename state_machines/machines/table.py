"""Provides the base of both machines: transitions are a table, code only looks it up.

Invariant: a transition that the table does not allow is refused for that one entity, with its reason. The entity's
state stays as it is and the rest of the batch goes on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from enum import IntEnum
from typing import ClassVar, Generic, TypeVar

from state_machines.machines.draft import Draft
from state_machines.model.decision import Transition

State = TypeVar("State", bound=IntEnum)
Entity = TypeVar("Entity", bound=Hashable)


class StateMachine(Generic[State, Entity]):
    """Looks ``VALID_PREVIOUS`` up; subclasses give an entity's state and draw its transitions."""

    VALID_PREVIOUS: ClassVar[Mapping[IntEnum, frozenset[IntEnum]]]
    ENTITY: ClassVar[str]

    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    def state(self, entity: Entity) -> State:
        """Returns the entity's state on the draft."""
        raise NotImplementedError

    def row_of(self, entity: Entity) -> int:
        """Returns the row index that a refusal of ``entity`` is reported under."""
        raise NotImplementedError

    def transition(self, entity: Entity, target: State) -> Transition:
        """Returns the transition of ``entity`` from its state on the draft to ``target``, as the trace records it."""
        return Transition(self.row_of(entity), None, self.state(entity).name, target.name)

    @classmethod
    def allows(cls, previous: State, target: State) -> bool:
        """Checks whether the table has the transition."""
        return previous in cls.VALID_PREVIOUS[target]

    def movable(self, entities: Iterable[Entity], target: State) -> list[Entity]:
        """Returns those of ``entities`` that may go to ``target``; each of the others is refused by itself."""
        valid, state_of = self.VALID_PREVIOUS[target], self.state
        legal: list[Entity] = []
        for entity in self._covered(entities):
            state = state_of(entity)
            if state in valid:
                legal.append(entity)
            else:
                self.draft.refuse(self.row_of(entity), target.name, ILLEGAL[self.ENTITY, state, target])
        if self.draft.trace is not None:
            self.draft.trace += [self.transition(entity, target) for entity in legal]
        return legal

    def _covered(self, entities: Iterable[Entity]) -> Iterable[Entity]:
        """Returns those of ``entities`` that the draft may draw."""
        if self.draft.only is None:
            return entities
        return [entity for entity in entities if self.draft.covers(self.row_of(entity))]


class _Illegal(dict[tuple[str, IntEnum, IntEnum], str]):
    """Reasons of illegal transitions, made once each."""

    def __missing__(self, key: tuple[str, IntEnum, IntEnum]) -> str:
        entity, state, target = key
        self[key] = why = f"illegal {entity} transition {state.name} -> {target.name}"
        return why


ILLEGAL = _Illegal()
