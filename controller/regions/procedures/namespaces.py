"""Changes of namespaces: create and delete, with the lock of the namespace and of all its tables."""

from __future__ import annotations

from typing import Final

from controller.procedures.kinds import Effect, Kind, Step
from controller.process.wording import counted
from controller.regions.environment import RegionsEnv
from controller.regions.procedures import messages
from controller.regions.procedures.messages import Codec, Message
from metadata_store.catalog.rows import DropNamespace, PutNamespace
from state_machines.procedures.outcome import Done, Failed, Outcome
from state_machines.procedures.record import Record
from state_machines.regions.entities import DEFAULT_NAMESPACE, namespace_of
from state_machines.regions.model import Regions

CREATE_NAMESPACE: Final = "create_namespace"
DELETE_NAMESPACE: Final = "delete_namespace"


class NamespaceTask(Message, frozen=True):
    """A namespace that is created or deleted."""

    namespace: str
    why: str = ""


NAMESPACE_TASK = Codec(NamespaceTask)


def undeletable(model: Regions, name: str) -> str | None:
    """Returns why a namespace cannot be deleted; None where it can."""
    if name not in model.namespaces:
        return f"namespace {name!r} does not exist"
    if name == DEFAULT_NAMESPACE:
        return f"namespace {name!r} has the tables without a namespace, and stays"
    tables = sorted(one.name for one in model.tables.values() if one.namespace == name)
    if tables:
        first = f"delete them first, such as by 'regent tables delete {tables[0]}'"
        return f"namespace {name!r} has {counted(len(tables), 'table')}: {first}"
    damaged = sorted(one for one in model.damages.tables if namespace_of(one) == name)
    if damaged:
        return f"namespace {name!r} has a table that is left out, {damaged[0]}: restore its rows, and delete it first"
    return None


async def create(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Stores the namespace."""
    name = NAMESPACE_TASK.decode(record.data).namespace
    if name in env.model.namespaces:
        return Failed(f"namespace {name!r} exists already")
    return Effect(Done(), (PutNamespace(name),), lambda _: env.model.namespaces.add(name))


async def delete(env: RegionsEnv, record: Record) -> Outcome | Effect:
    """Removes the namespace; one with tables stays."""
    name = NAMESPACE_TASK.decode(record.data).namespace
    if (why := undeletable(env.model, name)) is not None:
        return Failed(why)
    return Effect(Done(), (DropNamespace(name),), lambda _: env.model.namespaces.discard(name))


def _kind(name: str, step: Step[RegionsEnv]) -> Kind[RegionsEnv]:
    return Kind(name, (step,), lambda record: messages.lock_of_namespace(NAMESPACE_TASK.decode(record.data).namespace))


CREATE: Final = _kind(CREATE_NAMESPACE, Step("store", create))
DELETE: Final = _kind(DELETE_NAMESPACE, Step("remove", delete))
