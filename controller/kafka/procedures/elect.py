"""The election of many partitions: preferred leaders of all or of some, or unclean leaders of some, in waves.

A wave is named in the record before it is carried out, and the next one waits while brokers are far behind. Preferred
elections are moves, and stand still while those are paused; unclean ones bring leaders back, and never do. Leaders that
were elected stay, however the procedure ends.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

import msgspec

from controller.kafka.journal.report import Reason
from controller.kafka.procedures.environment import LOOK_AGAIN_MS, KafkaEnv, brokers_are_behind
from controller.procedures.kinds import Kind, Step
from controller.procedures.requests import ProcedureRefused
from state_machines.decisions.leader_election import ElectionType, elect
from state_machines.decisions.mass_election import MassElection, looked_on, sentence, stopped, wave_ended
from state_machines.procedures.locks import Demand, Resource, Scope
from state_machines.procedures.outcome import Done, Outcome, Wait
from state_machines.procedures.record import Record

log = logging.getLogger("regent.procedures")

NAME: Final = "elect"
STOP: Final = b"stop"
"""The command that ends an election after its wave."""

_decoder = msgspec.json.Decoder(MassElection)
_encoder = msgspec.json.Encoder()


def election_of(record: Record) -> MassElection:
    """Decodes the message of an election."""
    return _decoder.decode(record.data)


def encode_election(election: MassElection) -> bytes:
    """Encodes the message of an election."""
    return _encoder.encode(election)


def demand(record: Record) -> Demand:
    """Demands the cluster's elections: one of these runs at a time."""
    election_of(record)
    return Demand(Resource(Scope.SERVER, "elections"), exclusive=True)


async def elect_waves(env: KafkaEnv, record: Record) -> Outcome:
    """Judges the next partitions, or elects those of a wave that is stored."""
    c, election = env.controller, election_of(record)
    if election.wave:
        rows = [i for name in election.wave if (i := c.cluster.find(*name)) is not None]
        why = f"pid={record.pid} {election.kind.name.lower()} election of {len(rows)} partitions"
        await c.carry_out(partial(elect, rows=rows, kind=election.kind), Reason.ELECTION, why)
        after = wave_ended(c.cluster, election)
        log.info("%s: up to %s; %s", why, election.after, sentence(after))
        return Wait(env.now_ms(), encode_election(after))
    if election.is_over:
        return Done(sentence(election).encode())
    is_paused = c.pauses.in_force is not None and election.kind is ElectionType.PREFERRED
    if is_paused or brokers_are_behind(env, election.batch_max):
        return Wait(env.now_ms() + LOOK_AGAIN_MS, record.data, durable=False)
    return Wait(env.now_ms(), encode_election(looked_on(c.cluster, election)))


def command(record: Record, data: bytes) -> bytes:
    """Returns the message of an election that is stopped; raises :class:`ProcedureRefused`."""
    if data != STOP:
        raise ProcedureRefused(f"pid {record.pid}: an election has one command, {STOP.decode()}")
    return encode_election(stopped(election_of(record)))


ELECT: Final[Kind[KafkaEnv]] = Kind(
    NAME, (Step("elect leaders", elect_waves),), demand, holds_locks=True, command=command
)
