"""Processes that speak for others: with the secret of clients, and with that of servers but without their proof."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from controller.regions import admission
from regent_agent import protocol
from regent_agent.connection import Channel, Daemons, RequestRefused, Unreachable
from regent_agent.protocol import Owned, Request, Response
from tests.simulation.regions.network import CLIENTS_SECRET, PORT, SERVERS_SECRET

if TYPE_CHECKING:
    from tests.simulation.regions.world import SimulatedRegions

SECRETS: Final = {"client": CLIENTS_SECRET, "server": SERVERS_SECRET}
ABSURD: Final = (1 << 63) - 1
TIMEOUT_S: Final = 2.0
EXPECTED: Final[dict[type[Request], type[Response]]] = {
    protocol.Register: protocol.Registered,
    protocol.Poll: protocol.Operations,
    protocol.Report: protocol.Accepted,
    protocol.Regions: protocol.Accepted,
    protocol.Leave: protocol.Left,
}


async def speak(world: SimulatedRegions, role: str, number: int) -> None:
    """Sends requests in the name of a member, and registers with an incarnation that no later one follows."""
    members = [key for key in sorted(admission.proofs_in(world.disk.marks.values())) if key in world.disk.servers]
    if not members:
        return
    name, incarnation = members[number % len(members)]
    proof = random.Random(number).randbytes(16) if number % 2 else b""
    daemons = Daemons([(one, PORT) for one in world.daemons], secret=SECRETS[role], proof=proof)
    pids = sorted(world.disk.bodies)[-20:]
    region = min(world.disk.regions, default=1)
    if role == "client":
        await _sent(world, role, daemons, protocol.Register(f"i{number}", 1, "i:1"))
    await _sent(world, role, daemons, protocol.Register(name, ABSURD, "i:1"))
    for message in (
        # a process that is no member and lists regions is refused: this one may have left by now
        protocol.Register(name, incarnation, "i:1", owned=[Owned(region, 1)]),
        protocol.Poll(name, incarnation, 0, 1 << 40),
        protocol.Report(name, incarnation, 0, [_result(pid) for pid in pids], 1 << 40),
        protocol.Regions(name, incarnation, 0, []),
        protocol.Leave(name, incarnation, 0),
    ):
        await _sent(world, role, daemons, message)


def _result(pid: int) -> protocol.Result:
    outcomes = (protocol.OPENED, protocol.CLOSED, protocol.FAILED_OPEN, protocol.DONE)
    return protocol.Result(pid, outcomes[pid % len(outcomes)], 1)


async def _sent(world: SimulatedRegions, role: str, daemons: Daemons, message: Request) -> None:
    """Sends a request with the epoch of the daemon; whatever is not refused is a violation."""
    channel = Channel(daemons)
    try:
        await channel.open()
        if not isinstance(message, protocol.Register):
            message = replace(message, epoch=daemons.epoch)
        found = await channel.request(message, EXPECTED[type(message)], TIMEOUT_S)
    except RequestRefused as refused:
        world.counts[f"impostor {role} refused"] += refused.code != protocol.NOT_ACTIVE
    except Unreachable:
        pass
    else:
        gone = isinstance(found, protocol.Left) and not found.regions  # it repeats a request of a process that has left
        if not gone or role == "client":
            world.violated("ProcessProven", f"{message} of an impostor with the secret of a {role}: {found}")
    finally:
        channel.close()
