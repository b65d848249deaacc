"""The benchmarks of regions: cases run in a tiny size, and HBase's programs are read and missed as they should be."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from benchmarks.regions import balancing, by_znodes, following, hbase, real, splitting, taking_over
from benchmarks.regions.__main__ import CASES, parsed
from benchmarks.regions.assigning import Played, assigned, rows
from benchmarks.regions.cases import failed_over
from benchmarks.regions.plan import Shape, goal
from benchmarks.regions.report import METHOD, page
from benchmarks.results import Row, Sample
from testing.embedded import jars
from testing.embedded.process import ProcessFailed

TINY = Shape(50, 3)


async def test_assignment_and_failover_run_in_a_tiny_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = [*await assigned(TINY, 1, peer=False), *await failed_over(TINY, 1)]
    assert [row.case for row in made] == ["A1", "A1 lag", "A5", "A5 lag", "A3", "A3 lag"]
    assert all(row.ours.median > 0 and row.peer is None for row in made)


async def test_followers_are_measured_until_all_have_the_last_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {"FOLLOWED": 20, "FOLLOWED_SERVERS": 2, "FOLLOWERS": (0, 2), "QUIET_S": 0.01}.items():
        monkeypatch.setattr(following, name, value)
    made = await following.followed(1)
    assert [row.case for row in made] == ["AF", "AF lag"]
    assert made[0].phases["regent"]["ms until all followers have all routes"] > 0


async def test_splits_are_measured_by_clients_that_learn_the_heirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(splitting, "DELAYS_MS", (0,))
    made = await splitting.split_under_load(Shape(10, 2), 1, peer=False)
    assert [row.case for row in made] == ["SP1", "SP1 rate", "SP1 lag"]
    assert 0 < made[0].ours.median < 60
    assert made[0].goal.most == 0.5


def test_a_split_is_set_beside_hbase_where_the_delay_is_the_same() -> None:
    ours = [splitting.Split(200.0, [0.1] * 99 + [0.5])]
    wait, rate, _ = splitting.rows("150 ms delay, 1,000 on 20", ours, splitting.Split(2.0, [1.0] * 99 + [4.0]))
    assert (wait.ratio, rate.ratio) == (8.0, 100.0)
    assert wait.peer_is == "HBase 2.6.1, 100 regions on 3"


async def test_plans_are_measured_beside_random_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balancing, "STEPS", 500)
    monkeypatch.setattr(balancing, "RANDOM_STEPS", 500)
    made = await balancing.balanced(Shape(200, 5), 1, peer=False)
    assert [row.case for row in made] == ["B1", "B1 cost", "B1 lag"]
    assert made[1].peer is not None
    assert made[1].ours.median < made[1].peer.median < 250, "the greedy pass is worth more than some hundred steps"


def test_a_plan_is_set_beside_hbase_by_the_cost_that_it_leaves() -> None:
    ours, plain = balancing.Searched(4.0, 2.0, 10), balancing.Searched(5.0, 10.0, 20)
    cpu, cost, beside = balancing.rows(TINY, 200.0, [ours], [plain], balancing.Searched(8.0, 30.0, 5))
    assert (cpu.ratio, cpu.met, cost.ratio, cost.met) == (5.0, True, 1.25, True)
    assert (beside.ratio, beside.peer_is) == (2.0, "HBase 2.6.1")
    assert cost.phases["HBase 2.6.1"] == {"moves": 5, "ms of CPU": 30_000}


def test_a_model_has_the_regions_that_a_benchmark_plans() -> None:
    found = balancing.skewed(Shape(50, 4), 3)
    model = balancing.modelled(found, 0)
    assert {one.name: len(one.regions) for one in model.servers.values()} == {
        name: list(found.server).count(at) for at, name in enumerate(found.servers)
    }
    assert [len(one.regions) for one in model.tables.values()] == [list(found.table).count(at) for at in range(3)]


def test_a_row_beside_hbase_names_it_and_has_the_ratio_of_pairs() -> None:
    ours = [Played(1.0, 0.5), Played(1.0, 0.5)]
    theirs = [Played(4.0, 2.0), Played(2.0, 2.0)]
    rate = rows(Shape(100, 3), ours, theirs)[0]
    assert (rate.ratio, rate.peer_is, rate.met) == (3.0, "HBase 2.6.1", True)
    assert rate.phases["HBase 2.6.1"]["us of CPU for a region"] == 20_000


def test_answers_by_znodes_are_set_beside_those_by_polls_with_what_each_writes() -> None:
    ours = {change: by_znodes.Changed(2.0, 900, 300, 0.1, 5.0) for change in real.CHANGES}
    polls = {change: by_znodes.Changed(1.0, 300, 3, 0.05, 5.0) for change in real.CHANGES}
    rate, writes, lag, *more = by_znodes.rows(Shape(100, 3), [ours], [polls])
    assert [row.case for row in (rate, writes, lag)] == ["A1z create", "A1z create writes", "A1z create lag"]
    assert [row.case for row in more[::3]] == ["A1z disable", "A1z enable"]
    assert (rate.ours.median, rate.ratio, writes.ours.median) == (50, 0.5, 9)
    assert rate.phases["znodes"] == {
        "ZooKeeper transactions for 1,000 regions": 3_000,
        "us of CPU of the daemon for a region": 1_000,
    }


def test_a_failover_has_two_seconds_whether_the_opens_wait_or_are_done() -> None:
    taken = {False: [taking_over.Taken(1.5, 4.0, 9.0)], True: [taking_over.Taken(2.5, 3.0, 9.0)]}
    held, _, done, _ = taking_over.failover_rows(TINY, taken)
    assert (held.met, done.met) == (True, False)
    assert done.phases["regent"]["ms until all regions are open"] == 3_000


async def test_a_cluster_of_hbase_plays_once_for_all_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    played: list[real.Rival] = []

    async def theirs(rival: real.Rival, *_: object) -> real.Rates:
        played.append(rival)
        return {change: [5.0] for change in real.CHANGES}

    monkeypatch.setattr(real, "_theirs", theirs)
    clusters, by_zookeeper = real.Clusters(), real.RIVALS[-1]
    first, again = await clusters.rates(by_zookeeper), await clusters.rates(by_zookeeper)
    assert (first, played) == (again, [by_zookeeper])
    row = real.rows("A1z", "x", real.SHAPE, {change: [60.0] for change in real.CHANGES}, by_zookeeper, first)[0]
    assert (row.case, row.ratio, row.met) == ("A1z 1.7 zk create", 12.0, True)
    assert row.peer_is == "HBase 1.7.2, assignment by ZooKeeper"


def test_a_goal_may_hold_for_one_number_of_regions() -> None:
    assert goal("A5", Shape(100_000, 100)).most == 20
    assert goal("A5", TINY).most is None
    assert goal("A5 lag", TINY).most == 250


def test_what_hbase_needs_is_named_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGENT_CACHE", str(tmp_path))
    assert "python -m benchmarks.regions.hbase" in (hbase.missing() or "")
    names = {jar.file_name for one in hbase.VERSIONS for jar in jars.listed(one.jars)}
    assert {"hbase-server-2.6.1-hadoop3-tests.jar", "hbase-server-1.7.2.jar"} <= names


async def test_answers_of_a_program_are_read_until_it_ends(tmp_path: Path) -> None:
    log = tmp_path / "program.log"
    script = "print('Formatting'); print('{\"store\": 1}'); input(); print('{\"s\": 2}')"
    with log.open("w") as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-u", "-c", script),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=out,
        )
    peer = hbase.Peer(process, log)
    assert await peer.answer() == {"store": 1}
    assert await peer.play(5) == {"s": 2}
    log.write_text("out of memory")
    with pytest.raises(ProcessFailed, match="out of memory"):
        await peer.answer()
    await process.wait()


def test_the_page_names_the_peer_of_each_row() -> None:
    found = Row("A1r create", "1,000 on 3", "x", "per second", Sample.of([90.0]), Sample.of([30.0]), peer_is="HBase")
    found.higher_is_better = True
    shown = page({"regent": "1", "cores": 2, "processor": "p", "python": "3"}, [found.as_json()], METHOD.read_text())
    assert "| A1r create | 1,000 on 3 | x, per second | 90 | 30 (HBase) | 3.00x | - | - |" in shown
    assert shown.endswith(METHOD.read_text())


def test_cases_can_be_chosen() -> None:
    assert parsed(["--case", CASES[0], "--without-peer"]).without_peer
