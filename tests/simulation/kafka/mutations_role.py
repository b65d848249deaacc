"""Plants bugs around the role: the queue of daemons, brokers that outrank the controller, ZooKeeper in trouble."""

from __future__ import annotations

from contextlib import ExitStack
from unittest import mock

from controller.daemon.admission import PermissionProbe
from controller.daemon.candidate import STANDBY_POLL_S, Candidate
from controller.daemon.state import Mode
from controller.kafka.term.broker_responses import Outranked
from controller.role.claim import Role
from metadata_store.errors import Code, ZkError
from metadata_store.kazoo_adapter import adapter
from tests.kit.simulation.planting import put
from tests.simulation.kafka.planting import mutation


@mutation
def keep_the_place_when_refused(stack: ExitStack) -> None:
    """Leaves a daemon whose claim is refused in its queue position; it tries again."""

    async def require(self: PermissionProbe) -> None: ...

    async def step_back(self: Candidate, role: Role, why: str) -> None:
        self._d.become(Mode.BLOCKED, why)
        await self._d.pause(STANDBY_POLL_S)

    put(stack, PermissionProbe, "require", require)
    put(stack, Candidate, "_step_back", step_back)


@mutation
def one_broker_ends_the_term(stack: ExitStack) -> None:
    """Ends a term for any single broker that reports a higher epoch."""
    put(stack, Outranked, "most", property(lambda self: bool(self.brokers)))


@mutation
def trouble_is_an_error_of_the_request(stack: ExitStack) -> None:
    """Takes an error of the server for an error of the request."""

    def trouble(code: Code, request: object, *, writes: bool) -> ZkError:
        return ZkError(code, str(request))

    stack.enter_context(mock.patch("tests.simulation.kafka.zookeeper.trouble", trouble))


@mutation
def wait_long_for_a_frozen_server(stack: ExitStack) -> None:
    """Waits as long as Kafka's own client, whose session has no lease."""
    put(stack, adapter, "SILENT_SESSIONS", 2 / 3)
