"""Plans a balance as a process of its own: a snapshot from standard input, the plan to standard output.

Both are MessagePack, and both ends are of one version: the daemon starts the process. It yields the processors to the
daemon, and has bounds for its memory and its time, so that it outlives no daemon for long.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import sys
from array import array
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Struct

from state_machines.regions.balancing.cluster import BalancePlan, Cluster
from state_machines.regions.balancing.simple import Simple
from state_machines.regions.balancing.stochastic import Stochastic

NICE: Final = 5
MEMORY_BYTES_MAX: Final = 512 * 1024 * 1024
"""Address space of the process: a million regions on two hundred servers need half of it."""


class Column(Struct, array_like=True, frozen=True, gc=False):
    """An array: its type, and its bytes as the machine has them."""

    typecode: str
    data: bytes


class Wanted(Struct, array_like=True, frozen=True):
    """What is to be planned. ``columns``: of the cluster, in the order of its fields."""

    balancer: Simple | Stochastic
    seed: int
    time_s_max: int
    columns: tuple[Column, ...]
    held: bytes
    servers: tuple[str, ...]
    targets: bytes
    weights: tuple[float, ...]
    tables: tuple[str, ...]

    def cluster(self) -> Cluster:
        """Returns the snapshot."""
        arrays: list[array[Any]] = []
        for one in self.columns:
            arrays.append(array(one.typecode))
            arrays[-1].frombytes(one.data)
        ids, server, table, reads, writes, size_bytes, files = arrays
        figures = reads, writes, size_bytes, files
        names = self.servers, self.targets, self.weights, self.tables
        return Cluster(ids, server, table, bytearray(self.held), *figures, *names)


class Planned(Struct, array_like=True, frozen=True):
    """The answer. ``err``: why there is no plan."""

    plan: BalancePlan | None
    err: str = ""


_ENCODER: Final = msgspec.msgpack.Encoder()
_WANTED: Final = msgspec.msgpack.Decoder(Wanted)
_PLANNED: Final = msgspec.msgpack.Decoder(Planned)


def request(cluster: Cluster, balancer: Simple | Stochastic, seed: int, time_s_max: int) -> bytes:
    """Encodes a snapshot, which nothing may change meanwhile."""
    found = cluster
    arrays = (found.ids, found.server, found.table, found.reads, found.writes, found.size_bytes, found.files)
    columns = tuple(Column(one.typecode, one.tobytes()) for one in arrays)
    names = found.servers, found.targets, found.weights, found.tables
    return _ENCODER.encode(Wanted(balancer, seed, time_s_max, columns, bytes(found.held), *names))


def answer_of(data: bytes) -> Planned:
    """Decodes an answer; raises ``msgspec.DecodeError``."""
    found: Planned = _PLANNED.decode(data)
    return found


def main() -> int:
    """Plans what standard input wants; returns the exit status."""
    with suppress(OSError):  # the unit of systemd forbids it
        os.nice(NICE)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    gc.disable()  # a plan makes no cycles
    try:
        answer = _planned()
    except msgspec.DecodeError:
        return 1  # the daemon has died, or given up
    except MemoryError:
        answer = Planned(None, f"its process needs more than {MEMORY_BYTES_MAX >> 20} MiB of memory for that many")
    sys.stdout.buffer.write(_ENCODER.encode(answer))
    return 0


def _planned() -> Planned:
    wanted: Wanted = _WANTED.decode(sys.stdin.buffer.read())
    signal.alarm(wanted.time_s_max)
    cluster, balancer, seed = wanted.cluster(), wanted.balancer, wanted.seed
    del wanted
    return Planned(balancer.plan(cluster, seed))


if __name__ == "__main__":
    sys.exit(main())
