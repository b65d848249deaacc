"""``regent procedures log``: a store is printed without a daemon, and repaired on request alone."""

from __future__ import annotations

import base64
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cli import offline
from cli.exit_codes import Exit, Failure
from configs.settings import Settings
from controller.procedures.kinds import Kind
from controller.regions.procedures.messages import TABLE_TASK, TableTask
from controller.regions.zookeeper_store import ZooKeeperOpened
from controller.role import own_znodes as own
from metadata_store.records.port import Content
from metadata_store.records.sqlite import SqliteRecords
from metadata_store.records.zookeeper import ZooKeeperRecords
from state_machines.procedures.record import Record
from state_machines.procedures.states import State
from testing.memory import MemoryZooKeeper
from tests.contracts.records_damaged import ALL, NEWER
from tests.kills.harness import Clock, Daemon, Notes, raises, step, topic
from tests.kit.command import items, regent, unwrapped
from tests.kit.kafka.role import Kafka, kafka


async def stored(folder: Path) -> Path:
    path = folder / "records.db"
    store = await SqliteRecords.open(path)
    await store.reserve(len(ALL))
    await store.write(ALL)
    await store.close()
    return path


def broken(path: Path, pid: int, body: bytes = b"{") -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE record SET body = ? WHERE pid = ?", (body, pid))


@pytest.mark.seed("S3-44")
async def test_a_line_for_each_record(tmp_path: Path) -> None:
    path = await stored(tmp_path)
    before = path.read_bytes()
    header, *lines = regent("procedures", "log", path).stdout.splitlines()
    assert header.split()[:5] == ["PID", "PPID", "KIND", "STATE", "STEP"]
    assert header.split()[-2:] == ["FAULT", "WHY"]
    assert [line.split()[:4] for line in lines] == [
        ["1", "-", "drain", "waiting"],
        ["2", "1", "reassign", "runnable"],
        ["3", "-", "reassign", "waiting_timeout"],
        ["4", "-", "reassign", "success"],
    ]
    assert "User:ops" in lines[0]
    assert "rack 3 is gone" in lines[0]
    assert "move replicas" in lines[1]
    assert path.read_bytes() == before, "it only reads"


async def test_one_procedure_or_those_that_live(tmp_path: Path) -> None:
    path = await stored(tmp_path)
    assert [one["pid"] for one in items("procedures", "log", path, "--live")] == [1, 2, 3]
    [found] = items("procedures", "log", path, "--pid", 4)
    assert (found["state"], found["result"], found["done"], found["fault"]) == ("success", "6 done", [0], "")
    assert items("procedures", "log", path, "--pid", 9) == []


@pytest.mark.seed("S3-44", "S3-45")
async def test_damaged_records_are_listed_with_their_class_and_nothing_is_repaired_unasked(tmp_path: Path) -> None:
    path = await stored(tmp_path)
    broken(path, 2)
    broken(path, 3, NEWER % 3)
    found = items("procedures", "log", path, code=Exit.FAILED)
    assert [(one["pid"], one["fault"]) for one in found] == [
        (1, "hole"),
        (2, "truncated"),
        (3, "newer format"),
        (4, ""),
    ]
    said = unwrapped(regent("procedures", "log", path, code=Exit.FAILED).stderr)
    assert "3 of 4 records stand still: 1 hole, 1 newer format, 1 truncated" in said
    assert "no daemon can use 2 of them: see --repair --dry-run" in said
    assert items("procedures", "log", path, code=Exit.FAILED) == found


@pytest.mark.seed("S3-45")
async def test_a_repair_moves_what_no_daemon_can_use_after_a_copy_and_a_second_one_does_nothing(tmp_path: Path) -> None:
    path, copy = await stored(tmp_path), tmp_path / "copy.jsonl"
    broken(path, 2)
    broken(path, 3, NEWER % 3)
    repair = ("procedures", "log", path, "--repair", "--copy", copy)
    assert [one["pid"] for one in items(*repair, "--dry-run")] == [1, 2]
    assert not copy.exists()
    assert "give --reason" in regent(*repair, "--yes", code=Exit.USAGE).stderr
    assert "the question needs a terminal" in regent(*repair, "--reason", "disk", code=Exit.USAGE).stderr
    regent(*repair, "--yes", "--reason", "disk")
    lines = [json.loads(line) for line in copy.read_text(encoding="utf-8").splitlines()]
    assert [(line["pid"], line["fault"], line["reason"]) for line in lines] == [
        (1, "hole", "disk"),
        (2, "truncated", "disk"),
    ]
    assert base64.b64decode(lines[1]["body"]) == b"{"
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT pid, reason FROM quarantine").fetchall() == [(1, "disk"), (2, "disk")]
    left = items("procedures", "log", path, code=Exit.FAILED)
    assert [(one["pid"], one["fault"]) for one in left] == [(3, "newer format"), (4, "")]
    assert "nothing to repair" in regent(*repair, "--yes", "--reason", "again").stderr


async def test_a_repair_is_refused_while_a_daemon_lives_and_never_overwrites_a_copy(tmp_path: Path) -> None:
    path, copy = await stored(tmp_path), tmp_path / "copy.jsonl"
    broken(path, 4)
    repair = ("procedures", "log", path, "--repair", "--yes", "--reason", "disk", "--copy")
    daemon = await SqliteRecords.open(path)
    assert "stop the daemon" in unwrapped(regent(*repair, copy, code=Exit.REFUSED).stderr)
    await daemon.close()
    assert "File exists" in unwrapped(regent(*repair, copy, code=Exit.REFUSED).stderr)
    regent(*repair, tmp_path / "second.jsonl")


@pytest.mark.parametrize("content", [None, b"", b"something else " * 100])
def test_a_file_that_is_no_store_is_refused_with_a_remedy(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "records.db"
    if content is not None:
        path.write_bytes(content)
    said = unwrapped(regent("procedures", "log", path, code=Exit.FAILED).stderr)
    assert "name the file of a SQLite store" in said or "is it the file of a SQLite store" in said
    assert ("'zookeeper' or 'zookeeper-regions'" in said) is (content is None)
    assert path.exists() is (content is not None), "looking makes no file"


async def filled(cluster: Kafka, monkeypatch: pytest.MonkeyPatch) -> MemoryZooKeeper:
    """Stores records as a daemon did that is gone."""
    monkeypatch.setattr(offline, "connection", lambda _: MemoryZooKeeper(cluster.server))
    zk = MemoryZooKeeper(cluster.server)
    await zk.connect(1)
    return zk


async def connected() -> None:
    """Does not wait."""


@pytest.mark.seed("S3-44", "S3-45")
async def test_the_store_of_the_ensemble_is_printed_and_repaired_unless_a_daemon_is_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cli import procedure_log
    from metadata_store.fencing.outcome import Fence

    async with kafka(tmp_path) as cluster:
        zk = await filled(cluster, monkeypatch)
        epoch = await zk.exists("/controller_epoch")
        assert epoch is not None
        store = ZooKeeperRecords(zk, Fence(epoch.version), own.PROCEDURES, connected)
        await store.load()
        await store.reserve(len(ALL))
        await store.write(ALL)
        await zk.set(store.path(4), b"{", -1)
        found = await procedure_log.read_zookeeper(cluster.settings)
        assert [one["fault"] for one in procedure_log.items(found, None, live=False)] == ["", "", "", "truncated"]
        await cluster.take_over()
        async with cluster.daemon() as daemon:
            await cluster.serving(daemon)
            with pytest.raises(Failure, match="is active on this store"):
                await procedure_log.repair_zookeeper(cluster.settings, found)
        with pytest.raises(Failure, match="a daemon was elected"):
            await procedure_log.repair_zookeeper(cluster.settings, found)
        found = await procedure_log.read_zookeeper(cluster.settings)
        await procedure_log.repair_zookeeper(cluster.settings, found)
        again = await procedure_log.read_zookeeper(cluster.settings)
        assert not again.unusable
        names, _ = await zk.children(own.QUARANTINE) or ([], None)
        assert [name[:10] for name in names] == ["0000000004"]
        await zk.close()


# -- an end without a daemon


async def test_a_procedure_is_ended_without_a_daemon_and_the_next_one_runs_no_step_of_it(tmp_path: Path) -> None:
    path = await stored(tmp_path)
    bypass = ("procedures", "log", path, "--yes", "--reason", "it ends terms", "--bypass")
    refused = regent(*bypass, "1", code=Exit.REFUSED)
    assert "pid 1 has parts that go on: end pid 2 first" in unwrapped(refused.stderr)
    assert "pid 4 has ended" in unwrapped(regent(*bypass, "4", code=Exit.REFUSED).stderr)
    refused = regent("procedures", "log", path, "--bypass", "2", "--yes", code=Exit.USAGE)
    assert "needs a reason" in unwrapped(refused.stderr)
    assert "2 records would be changed" in unwrapped(regent(*bypass, "2", "--dry-run").stderr)
    assert not any(one["bypassed"] for one in items("procedures", "log", path))

    regent(*bypass, "2")
    assert [one["bypassed"] for one in items("procedures", "log", path)] == [True, True, False, False]
    kinds = tuple(Kind(name, (step(raises), step(raises), step(raises)), topic) for name in ("drain", "reassign"))
    store = await SqliteRecords.open(path)
    daemon = Daemon(Notes(), kinds, store, Clock())
    await daemon.engine.load()
    await daemon.until(lambda: daemon.engine.records[1].state.is_final)
    ended = daemon.engine.records[1]
    assert (ended.ending.act, ended.ending.reason, 2 in daemon.engine.records) == ("bypass", "it ends terms", False)
    assert not {key for key in daemon.engine._steps._env.runs if key[0] == "drain"}
    assert "stop the daemon" in unwrapped(regent(*bypass, "3", code=Exit.REFUSED).stderr)
    await store.close()


async def test_a_procedure_of_the_ensemble_is_ended_unless_a_daemon_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cli import procedure_log

    async with kafka(tmp_path) as cluster:
        monkeypatch.setattr(offline, "connection", lambda _: MemoryZooKeeper(cluster.server))
        claimed = await ZooKeeperOpened.open(lambda: MemoryZooKeeper(cluster.server))
        store = claimed.store
        await store.load()
        await store.reserve(1)
        await store.write([Record(1, "disable_table", State.RUNNABLE, 1, 1, 1, data=TABLE_TASK.encode(TableTask("t")))])
        found = await procedure_log.read_zookeeper(cluster.settings, procedure_log.REGIONS)
        assert not found.unusable, "kinds of regions are known, too"
        ended = procedure_log.ended(found, 1, "it ends terms")
        with pytest.raises(Failure, match="a daemon has this store"):
            await procedure_log.end_in_zookeeper(cluster.settings, procedure_log.REGIONS, found, ended)
        await claimed.close()
        await procedure_log.end_in_zookeeper(cluster.settings, procedure_log.REGIONS, found, ended)
        again = await procedure_log.read_zookeeper(cluster.settings, procedure_log.REGIONS)
        [entry] = again.content.entries
        assert entry.record is not None
        assert (entry.record.bypassed, entry.record.ending.reason) == (True, "it ends terms")
        with pytest.raises(Failure, match="a record changed"):
            await procedure_log.end_in_zookeeper(cluster.settings, procedure_log.REGIONS, found, ended)


@pytest.mark.parametrize("kind", ["disable_table", "drain"])
async def test_a_kind_of_another_store_is_one_that_no_daemon_of_this_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    from cli import procedure_log

    async with kafka(tmp_path) as cluster:
        monkeypatch.setattr(offline, "connection", lambda _: MemoryZooKeeper(cluster.server))
        claimed = await ZooKeeperOpened.open(lambda: MemoryZooKeeper(cluster.server))
        await claimed.store.load()
        await claimed.store.reserve(1)
        await claimed.store.write([Record(1, kind, State.SUCCESS, 1, 1, 1)])
        await claimed.close()
        found = await procedure_log.read_zookeeper(cluster.settings, procedure_log.REGIONS)
        [item] = procedure_log.items(found, None, live=False)
        assert item["why"].partition(" to this daemon")[0] == ("kind 'drain' is not known" if kind == "drain" else "")
        assert bool(item["fault"]) is (kind == "drain")


@pytest.mark.parametrize(
    ("sections", "code"),
    [
        ('[zookeeper]\nconnect = "zk:2181"\n[regions]\nstore = "zookeeper"\n', Exit.DONE),
        ('[zookeeper]\nconnect = "zk:2181"\n[listener]\nadvertised_host = "127.0.0.1"\n', Exit.DONE),
        ("[regions]\n", Exit.USAGE),
    ],
)
def test_the_regions_of_the_ensemble_are_read_with_settings_that_have_no_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sections: str, code: Exit
) -> None:
    from cli import procedure_log

    asked = list[str]()

    async def read(settings: Settings, place: object) -> procedure_log.Judged:
        assert place is procedure_log.REGIONS
        asked.append(settings.zookeeper.connect)
        return procedure_log.judged(Content([], 0, 0))

    monkeypatch.setattr(procedure_log, "read_zookeeper", read)
    (tmp_path / "regent.toml").write_text(sections)
    said = regent("procedures", "log", "zookeeper-regions", "--config", tmp_path / "regent.toml", code=code).stderr
    assert asked == (["zk:2181"] if code is Exit.DONE else [])
    assert ("name the file of the SQLite store" in unwrapped(said)) is (code is Exit.USAGE)
