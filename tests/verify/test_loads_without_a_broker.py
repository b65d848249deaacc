"""Loads of a cluster with a dead broker name what they lack; the row of its death has its session's time-out."""

from __future__ import annotations

from pathlib import Path

from cli.exit_codes import Exit
from controller.journal.reader import read
from state_machines.journal.events import Kind, Row
from testing.znodes import create_topic
from tests.kit.polling import eventually
from tests.real.cluster.scene import regent
from tests.real.cluster.world import world


async def test_a_dead_brokers_partitions_are_named_and_its_end_has_its_session_timeout(tmp_path: Path) -> None:
    async with world(2, partitions=1, replication=1) as w:
        daemon = w.daemon(flags=("--takeover",))
        await daemon.boot()
        await create_topic(w.zk, "t", {0: (1, 2), 1: (2, 1)})
        await w.healed()
        await w.cluster.brokers[1].kill()
        await w.registered(1, expected=False)
        code, out, said = await regent(daemon, "loads", "--into", str(tmp_path / "loads.jsonl"))
        assert code == Exit.DONE, said
        assert "broker 1 lacks" in said
        assert "it is not registered" in said
        assert "logs of 1 broker" in out

        def downs() -> list[Row]:
            rows = (row for row in read(daemon.journal) if isinstance(row, Row))
            return [row for row in rows if row.kind == Kind.BROKER_DOWN and row.broker == 1]

        assert (await eventually(downs))[-1].session_ms
