"""Plants bugs in the exchange of a daemon with servers, and in the agent."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from msgspec.structs import replace

from brokers.regions.secret import Secrets
from controller.regions import admission, fencing
from controller.regions.admission import Admission
from controller.regions.dispatcher import Dispatcher, Results
from controller.regions.manager import Manager
from metadata_store.catalog.rows import DropServer
from regent_agent import lease, protocol
from regent_agent.agent import Agent
from regent_agent.protocol import Registered, Result
from regent_agent.work import Work
from state_machines.regions.entities import Server
from tests.kit.simulation.planting import put
from tests.simulation.regions.planting import mutation


@mutation
def accept_reports_before_they_are_durable(stack: ExitStack) -> None:
    """Responds to a report as soon as it is in memory (HBASE-22060)."""
    add = Results.add

    def added(results: Results, found: list[Result]) -> None:
        add(results, found)

    put(stack, Results, "add", added)


@mutation
def fail_a_report_by_one_result(stack: ExitStack) -> None:
    """Takes all opens of a report for failed where one of them has (HBASE-21237)."""
    report = Manager.report

    async def failing(manager: Manager, server: Server, results: Sequence[Result], taken: int) -> list[int]:
        if any(one.outcome == protocol.FAILED_OPEN for one in results):
            results = [
                replace(one, outcome=protocol.FAILED_OPEN) if one.outcome == protocol.OPENED else one for one in results
            ]
        return await report(manager, server, results, taken)

    put(stack, Manager, "report", failing)


@mutation
def lose_a_batch_whose_response_was_lost(stack: ExitStack) -> None:
    """Counts a batch as taken with the next poll."""
    poll = Dispatcher.poll

    async def confirming(dispatcher: Dispatcher, server: Server, _: int, hold_s: float) -> protocol.Operations:
        return await poll(dispatcher, server, 1 << 60, hold_s)

    put(stack, Dispatcher, "poll", confirming)


@mutation
def drop_a_server_that_is_about_to_get_regions(stack: ExitStack) -> None:
    """Lets a server leave although a step of this turn has chosen it."""

    async def leave(manager: Manager, server: Server) -> int:
        server.leaving = True
        if not server.regions:
            await manager._write((DropServer(*server.key),))
            if not server.regions:
                manager.env.model.drop_server(server.key)
        return len(server.regions)

    put(stack, Manager, "leave", leave)


@mutation
def use_more_than_the_lease(stack: ExitStack) -> None:
    """Serves longer than the daemon waits."""
    put(stack, lease, "USED_PART", 1.6)


@mutation
def count_the_lease_from_the_response(stack: ExitStack) -> None:
    """Renews the lease from the arrival of a response, however late it is."""
    put(stack, lease, "USED_PART", 1.0)
    renew = Agent._renew

    def renewed(agent: Agent, _: lease.Moment, registration: Registered) -> None:
        renew(agent, agent._lease.sending(), registration)

    put(stack, Agent, "_renew", renewed)


@mutation
def close_by_an_older_token(stack: ExitStack) -> None:
    """Closes whatever the server has of a region, also where its token is higher."""

    async def close(work: Work, operation: protocol.Close) -> None:
        if (has := work.opened.get(operation.region)) is not None:
            await work._close_region(has)

    put(stack, Work, "_close", close)


@mutation
def believe_the_silence_of_all(stack: ExitStack) -> None:
    """Takes all servers for crashed where the daemon's own network failed."""
    put(stack, fencing, "WITNESSES_MIN", 1_000)


@mutation
def believe_each_connection(stack: ExitStack) -> None:
    """Has each connection poll, report and leave for any process."""
    put(stack, Admission, "check_proof", lambda *_: None)


@mutation
def believe_the_first_that_comes_after_a_failover(stack: ExitStack) -> None:
    """Forgets the proofs of processes with the term."""
    put(stack, admission, "proofs_in", lambda _: {})


@mutation
def take_any_incarnation(stack: ExitStack) -> None:
    """Registers processes that no later one can follow."""
    put(stack, Admission, "_check_not_ahead", lambda *_: None)


@mutation
def serve_clients_as_servers(stack: ExitStack) -> None:
    """Has clients register, poll and report."""
    put(stack, Secrets, "serves", lambda *_: True)


@mutation
def believe_the_clock_of_a_held_machine(stack: ExitStack) -> None:
    """Ends a lease by the clock of the machine alone."""
    put(stack, lease.Moment, "since", lambda now, before: now.machine_s - before.machine_s)
