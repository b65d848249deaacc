"""Loads of a cluster with a dead broker, and loads from a real Prometheus."""

from __future__ import annotations

import asyncio
import csv
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.exit_codes import Exit
from controller.journal.reader import read
from state_machines.journal.events import Kind, Row
from testing.znodes import create_topic
from tests.kit.cluster.scene import regent
from tests.kit.cluster.world import world
from tests.kit.command import regent as regent_command
from tests.kit.deadlines import eventually
from tests.verify.watched.prometheus import Prometheus, PrometheusMissing, found


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


SAMPLE_S = 60
HOURS = 4
SIZE = 1_000_000


def history(now_s: int) -> str:
    """Returns series of a topic with two partitions as OpenMetrics: partition 1 has three times the records."""
    begin = now_s - HOURS * 3600
    times = range(begin, now_s, SAMPLE_S)
    series: dict[str, Callable[[int], int]] = {
        'kafka_log_log_size{topic="orders",partition="0"}': lambda at: SIZE + at - begin,
        'kafka_log_log_size{topic="orders",partition="1"}': lambda at: 3 * SIZE,
        'kafka_log_log_logendoffset{topic="orders",partition="0"}': lambda at: at - begin,
        'kafka_log_log_logendoffset{topic="orders",partition="1"}': lambda at: 3 * (at - begin),
        'kafka_server_brokertopicmetrics_bytesin_total{topic="orders"}': lambda at: 400 * (at - begin),
    }
    lines = []
    names = sorted({name.partition("{")[0] for name in series})
    for name in names:
        lines.append(f"# TYPE {name} unknown")
        for labels, value in series.items():
            if labels.startswith(name + "{"):
                lines += [f"{labels} {value(at)} {at}" for at in times]
    return "\n".join([*lines, "# EOF", ""])


def filled(folder: Path, now_s: int) -> None:
    """Makes the data of a Prometheus."""
    text = folder / "history.txt"
    text.write_text(history(now_s))
    command = [found("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "p" / "data")]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr


async def test_hours_of_a_real_prometheus_become_loads(tmp_path: Path) -> None:
    try:
        found("prometheus")
    except PrometheusMissing as missing:
        pytest.skip(str(missing))
    await asyncio.to_thread(filled, tmp_path, int(time.time()))
    prometheus = Prometheus(tmp_path / "p", {}, None)
    await prometheus.boot()
    into = tmp_path / "loads.csv"
    try:
        words = ["--since", "3h", "--step", "30m", "--into", into]
        await asyncio.to_thread(regent_command, "loads", "--prometheus", prometheus.url, *words)
    finally:
        await prometheus.stop()
    with into.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert len(rows) == 2 * 7
    for row in rows:
        share = 100 if row["partition"] == "0" else 300
        assert float(row["bytes_in_per_s"]) == pytest.approx(share, rel=0.05)
        assert row["bytes_out_per_s"] == ""
    summed(into, tmp_path)


def summed(into: Path, folder: Path) -> None:
    """Checks that the file is a history for percentiles."""
    pytest.importorskip("pyarrow", reason="the extra pipeline is not installed")
    import pyarrow.parquet as pq

    from pipeline.load_history import sum_up
    from pipeline.merge import Workers

    workers = Workers(lambda function, values, phase=None: [function(value) for value in values], 1)
    sum_up(workers, [str(into)], str(folder / "p95.parquet"), 95, 24 * 3_600_000)
    first, second = sorted(pq.read_table(folder / "p95.parquet").to_pylist(), key=lambda row: row["partition"])
    assert first["samples"] == second["samples"] == 7
    assert SIZE < first["size_bytes"] < 2 * SIZE
    assert second["size_bytes"] == 3 * SIZE
