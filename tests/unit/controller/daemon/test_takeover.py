"""Takes the role over: roll-back file, flag, claim; refused, repeated, and interrupted at every write."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from controller.daemon.daemon import Daemon
from controller.daemon.takeover import Rollback, TakeoverRefused, save_rollback, shell_acls, until_held
from controller.role import own_znodes as own
from controller.role.claim import saved_acls
from controller.role.holder import look
from metadata_store import paths
from metadata_store.acl import ALL, OPEN, READ, Acl, digest_acl
from metadata_store.errors import OutcomeUnknown
from metadata_store.port import Kill
from testing.memory import MemoryZooKeeper
from tests.kit.deadlines import eventually
from tests.kit.kafka.role import DAEMON, DIGEST, Kafka, KilledAt, kafka


def files(cluster: Kafka) -> list[Path]:
    """Returns the content of the folder of roll-back files."""
    folder = cluster.settings.state.directory
    return sorted(folder.iterdir()) if folder.exists() else []


async def test_a_take_over_saves_the_state_before_it_and_sets_the_flag(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        done = await cluster.take_over("moving to regent")
        assert (await cluster.flag()).holder == "regent"
        assert [done.file] == files(cluster)
        assert done.file is not None
        saved = msgspec.json.decode(done.file.read_bytes(), type=Rollback)
        assert saved.epoch == await cluster.epoch()
        assert saved.controller is not None
        assert saved.controller["brokerid"] == await cluster.controller()
        assert (saved.acls, saved.role.holder, saved.reason) == (list(OPEN), "brokers", "moving to regent")
        node = await cluster.operator.get(own.ROLLBACK)
        assert node is not None
        assert msgspec.json.decode(node.data or b"", type=Rollback) == saved
        assert done.file.stat().st_mode & 0o007 == 0


async def test_a_queued_daemon_claims_after_a_take_over_and_every_broker_knows(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster, cluster.daemon() as daemon:
        await cluster.topic("orders", (1, 2, 3))
        displaced, epoch = await cluster.controller(), await cluster.epoch()
        assert displaced in cluster.brokers
        await cluster.take_over()
        held, seen = await until_held(cluster.role, cluster.dial, 10.0)
        assert held
        assert seen is not None
        assert (seen.holder, seen.by_daemon, seen.unaware) == (DAEMON, True, [])
        assert seen.sentence() == f"daemon {DAEMON} holds the role, every broker knows"
        assert await cluster.epoch() == epoch + 1
        assert daemon.counters.interim_terms == 1, "the broker before it counts"


async def test_a_take_over_is_incomplete_while_a_broker_does_not_know_the_daemon(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        cluster.brokers[2].deaf = True
        async with cluster.active():
            held, _ = await until_held(cluster.role, cluster.dial, 0.0)
            assert not held
            seen = await look(cluster.role(), cluster.dial)
            assert seen.by_daemon
            assert "broker 2 (names" in seen.sentence()


async def test_a_take_over_that_the_preflight_refuses_changes_nothing(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        cluster.brokers[3].configs["inter.broker.listener.name"] = "REPLICATION"
        before = cluster.snapshot()
        with pytest.raises(TakeoverRefused) as refused:
            await cluster.take_over()
        assert refused.value.report is not None
        assert [f.name for f in refused.value.report.refusals] == ["listener names"]
        assert "broker 3" in str(refused.value)
        assert cluster.snapshot() == before
        assert files(cluster) == []


async def test_a_dry_run_names_the_steps_and_changes_nothing(tmp_path: Path) -> None:
    async with kafka(tmp_path, hold=True) as cluster:
        before = cluster.snapshot()
        planned = await cluster.take_over(dry_run=True)
        text = "\n".join(planned.steps)
        assert f"controller {await cluster.controller()} resigns" in text
        assert "locks brokers out" in text
        assert (cluster.snapshot(), files(cluster)) == (before, [])


async def test_a_repeated_take_over_checks_and_saves_nothing(tmp_path: Path) -> None:
    """A daemon that is restarted with --takeover must not be stopped by what the preflight would say now."""
    async with kafka(tmp_path) as cluster:
        await cluster.take_over()
        await cluster.operator.create(paths.MIGRATION, b"{")
        before = cluster.snapshot()
        again = await cluster.take_over()
        assert (again.report, again.file, cluster.snapshot()) == (None, None, before)
        assert again.steps == ["/regent/role is regent already (reason: a test)"]
        assert len(files(cluster)) == 1


async def test_a_take_over_that_cannot_save_its_file_changes_nothing(tmp_path: Path) -> None:
    async with kafka(tmp_path) as cluster:
        (tmp_path / "state").write_text("a file where the folder should be")
        before = cluster.snapshot()
        with pytest.raises(TakeoverRefused, match="roll-back file cannot be saved") as refused:
            await cluster.take_over()
        assert "state.directory" in refused.value.remedy
        assert cluster.snapshot() == before


@pytest.mark.parametrize("when", ["before", "after", "reply lost"])
@pytest.mark.parametrize("hold", [False, True])
async def test_a_take_over_interrupted_at_any_write_can_be_repeated(tmp_path: Path, when: str, hold: bool) -> None:
    """The flag is never set without a saved file."""
    write = 0
    while True:
        write += 1
        folder = tmp_path / str(write)
        async with kafka(folder, hold=hold) as cluster:
            hooks = KilledAt(write, when)
            zk = MemoryZooKeeper(cluster.server, credentials=DIGEST if hold else None, hooks=hooks)
            await zk.connect(1.0)
            try:
                await cluster.take_over(zk=zk)
            except (Kill, OutcomeUnknown):
                pass
            await zk.close()
            if (await cluster.flag()).holder == "regent":
                assert files(cluster), "the flag is set after the file is saved"
            await cluster.take_over()
            assert (await cluster.flag()).holder == "regent"
            assert all(path.suffix == ".json" for path in files(cluster)), "no half-written file stays"
            assert await saved_acls(cluster.role().zk) == list(OPEN)
            if hooks.left > 0:
                break
    assert write > 3, "some writes were hit"


async def test_the_saved_acls_are_those_from_before_the_lock(tmp_path: Path) -> None:
    """A take-over after an interrupted hand-back finds our own lock: the ACLs from before it are kept."""
    async with kafka(tmp_path, hold=True) as cluster:
        before = [digest_acl("kafka", "pw"), digest_acl("regent", "secret"), Acl(READ, "world", "anyone")]
        _, stat = await cluster.operator.get_acls(paths.CONTROLLER_EPOCH)
        await cluster.operator.set_acls(paths.CONTROLLER_EPOCH, before, stat.acl_version)
        async with cluster.active():
            assert await cluster.epoch_acls() == cluster.role().lock_out_acls()
        await cluster.role().set_flag("brokers", "interrupted after this", "uid 0")
        await cluster.take_over()
        assert await saved_acls(cluster.role().zk) == before


def test_a_roll_back_file_is_never_overwritten(tmp_path: Path) -> None:
    found = Rollback(1_700_000_000_000, None, 7, list(OPEN), own.RoleFlag("brokers"))
    saved = [save_rollback(tmp_path, found) for _ in range(3)]
    assert [path.name for path in saved] == [
        "rollback-20231114T221320Z-epoch-7.json",
        "rollback-20231114T221320Z-epoch-7-1.json",
        "rollback-20231114T221320Z-epoch-7-2.json",
    ]
    assert sorted(tmp_path.iterdir()) == sorted(saved)


def test_a_full_disk_leaves_no_incomplete_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_rollback(tmp_path, Rollback(1_700_000_000_000, None, 7, list(OPEN), own.RoleFlag("brokers")))
    assert list(tmp_path.iterdir()) == []


def test_a_draft_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    (tmp_path / f".rollback-{os.getpid()}.tmp").write_bytes(b"half")
    found = Rollback(1_700_000_000_000, None, None, list(OPEN), own.RoleFlag("brokers"))
    assert msgspec.json.decode(save_rollback(tmp_path, found).read_bytes(), type=Rollback) == found
    assert len(list(tmp_path.iterdir())) == 1


def test_acls_have_the_form_of_zookeepers_shell() -> None:
    assert shell_acls(OPEN) == "world:anyone:rwcda"
    assert shell_acls([Acl(READ, "world", "anyone"), Acl(ALL, "sasl", "kafka")]) == "world:anyone:r,sasl:kafka:rwcda"


@asynccontextmanager
async def running_takeover(cluster: Kafka, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Daemon]:
    """Runs 'regent run --takeover', which ends by itself where it is refused."""
    monkeypatch.setattr("controller.daemon.candidate.dial_for", lambda _: cluster.dial)
    monkeypatch.setattr("controller.daemon.candidate.server_version", cluster.release_of)
    daemon = Daemon(cluster.settings, lambda: MemoryZooKeeper(cluster.server), takeover=True)
    task = asyncio.create_task(daemon.run())
    try:
        yield daemon
    finally:
        daemon.stop()
        await asyncio.wait_for(task, 60)


async def test_run_with_takeover_takes_the_role_and_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with kafka(tmp_path) as cluster:
        async with running_takeover(cluster, monkeypatch) as daemon:
            await cluster.serving(daemon)
        assert daemon.exit_code == 0
        assert (await cluster.flag()).reason == "regent run --takeover"
        cluster.brokers[3].configs["inter.broker.listener.name"] = "REPLICATION"
        async with running_takeover(cluster, monkeypatch) as again:
            await cluster.serving(again)
        assert again.exit_code == 0, "a restart is not stopped by what the preflight would say now"


async def test_run_with_a_refused_takeover_ends_with_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with kafka(tmp_path) as cluster:
        cluster.brokers[3].configs["inter.broker.listener.name"] = "REPLICATION"
        async with running_takeover(cluster, monkeypatch) as daemon:
            await eventually(daemon.stopping.is_set)
        assert daemon.exit_code == 3
        assert "3 (inter.broker.listener.name=REPLICATION)" in caplog.text
        assert (await cluster.flag()).holder == "brokers"
