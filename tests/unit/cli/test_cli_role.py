"""Commands without a daemon: take-over and hand-back on ZooKeeper, and ``regent run`` that names cause and remedy."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cli import offline
from cli.exit_codes import Exit
from configs.settings import Settings
from controller.http.models import Operation, OperationRequest
from controller.operator.view import View
from testing.memory import MemoryZooKeeper
from tests.kit.command import regent
from tests.kit.kafka.role import DAEMON, DIGEST, Kafka, kafka


@asynccontextmanager
async def commanded(folder: Path, monkeypatch: pytest.MonkeyPatch, *, hold: bool = False) -> AsyncIterator[Kafka]:
    """Boots a cluster that the commands reach."""
    async with kafka(folder, hold=hold) as cluster:
        credentials = DIGEST if hold else None
        monkeypatch.setattr(offline, "connection", lambda _: MemoryZooKeeper(cluster.server, credentials=credentials))
        monkeypatch.setattr(offline, "dial_for", lambda _: cluster.dial)
        monkeypatch.setattr(offline, "server_version", cluster.release_of)
        yield cluster


async def takeover(cluster: Kafka, *, wait_s: float | None = None, dry_run: bool = False, **given: bool) -> Operation:
    request = OperationRequest(dry_run=dry_run, reason="a test")
    return await offline.takeover(cluster.settings, request, wait_s=wait_s, progress=lambda _: None, **given)


async def handback(cluster: Kafka) -> Operation:
    return await offline.handback(cluster.settings, OperationRequest(), wait_s=60.0, progress=lambda _: None)


@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_take_over_without_a_daemon_is_refused_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    async with commanded(tmp_path, monkeypatch) as cluster:
        before = cluster.snapshot()
        refused = await takeover(cluster, wait_s=60.0, dry_run=dry_run)
        assert (refused.state, refused.message) == ("refused", "no daemon is alive that could take the role")
        assert "regent run" in refused.remedy
        assert "--without-daemon" in refused.remedy
        assert cluster.snapshot() == before


async def test_a_take_over_without_a_daemon_names_its_effect_and_can_be_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with commanded(tmp_path, monkeypatch) as cluster:
        holder = await cluster.controller()
        done = await takeover(cluster, wait_s=60.0, without_daemon=True)
        assert done.state == "done"
        assert "the next one that starts takes the role, even from a broker" in done.message
        assert "'regent handback --offline' undoes this" in done.message
        again = await takeover(cluster)
        assert (again.state, "/regent/role is regent already" in again.message) == ("refused", True)
        assert "handback --offline" in again.remedy
        assert (await handback(cluster)).state == "done"
        async with cluster.daemon():
            assert await cluster.controller() == holder


async def test_a_take_over_from_an_active_daemon_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with commanded(tmp_path, monkeypatch, hold=True) as cluster:
        async with cluster.daemon() as daemon:
            begun = await takeover(cluster)
            assert begun.state == "running"
            await cluster.serving(daemon)
            again = await takeover(cluster)
            assert (again.state, again.message) == ("done", f"daemon {DAEMON} holds the role already: nothing to do")
        assert await cluster.controller() == DAEMON, "held while it is dead"
        assert (await takeover(cluster)).state == "refused", "the daemon of the record is dead"


async def test_a_repeated_hand_back_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with commanded(tmp_path, monkeypatch, hold=True) as cluster:
        async with cluster.daemon() as daemon:
            await takeover(cluster)
            await cluster.serving(daemon)
        assert "/regent/role is brokers" in (await handback(cluster)).steps
        before = cluster.snapshot()
        broker = await cluster.controller()
        again = await handback(cluster)
        assert (again.state, again.message) == ("done", f"broker {broker} holds the role already: nothing to do")
        async with cluster.daemon() as standby:
            again = await View(standby, cluster.dial, cluster.release_of).role.handback(OperationRequest(), "uid 0")
            assert (again.state, again.message) == ("done", f"broker {broker} holds the role already: nothing to do")
        assert cluster.snapshot()["/regent/role"] == before["/regent/role"]


async def test_a_repeated_hand_back_lifts_a_lock_that_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one was interrupted after the flag: a role that brokers cannot keep is not handed back."""
    async with commanded(tmp_path, monkeypatch, hold=True) as cluster:
        async with cluster.daemon() as daemon:
            await takeover(cluster)
            await cluster.serving(daemon)
        await cluster.role().set_flag("brokers", "interrupted after this", "uid 0")
        assert await cluster.controller() == DAEMON
        assert (await handback(cluster)).state == "done"
        assert await cluster.controller() in cluster.brokers


WRONG = {
    "zookeeper": ("connect", '"zk1:99999"', "host:port,host:port/chroot"),
    "controller": ("id", "7", "far above every broker.id"),
    "listener": ("advertised_host", '"0.0.0.0"', "under which the brokers reach this machine"),
    "brokers": ("inter_broker_listener", '"IN TERNAL"', "inter.broker.listener.name"),
    "security": ("protocol", '"TLS"', "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    "http": ("socket", '"regent.sock"', "/run/regent/regent.sock"),
    "log": ("level", '"loud"', "debug, info, warning, error"),
    "admin": ("port", "70000", "a whole number from 0 to 65535"),
    "shadow": ("poll_s", "0", "a number from 0.1 to 3600"),
    "state": ("directory", '"relative"', "an absolute path that the daemon may write to"),
    "journal": ("fsync", '"always"', "group, never"),
    "snapshots": ("files_max", "0", "a whole number from 1 to 100000"),
    "regions": (
        "file",
        '"regions.db"',
        "give an absolute path on a local disk",
    ),
}


def written(folder: Path, *changes: tuple[str, str, str]) -> Path:
    """Writes good settings with these changes (section, key, TOML value)."""
    sections = {
        "zookeeper": {"connect": '"127.0.0.1:1"'},
        "listener": {"host": '"127.0.0.1"', "advertised_host": '"127.0.0.1"', "port": "0"},
        "http": {"socket": json.dumps(f"{folder}/regent.sock")},
        "admin": {"port": "0", "beside_daemon": "false"},
        "state": {"directory": json.dumps(f"{folder}/state")},
        "log": {"format": '"console"'},
    }
    for section, key, value in changes:
        sections.setdefault(section, {})[key] = value
    file = folder / "regent.toml"
    file.write_text(
        "\n".join(f"[{s}]\n" + "\n".join(f"{k} = {v}" for k, v in keys.items()) for s, keys in sections.items())
    )
    return file


def ended(folder: Path, status: Exit, *changes: tuple[str, str, str], command: str = "run") -> str:
    """Runs a command as a process with good settings and these changes; returns its errors."""
    line = [sys.executable, "-m", "cli.main", command, "--config", str(written(folder, *changes))]
    found = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == status, found
    assert "Traceback" not in found.stderr
    assert "Errno" not in found.stderr
    return found.stderr


def test_every_section_has_its_wrong_value() -> None:
    assert WRONG.keys() == Settings.model_fields.keys()


@pytest.mark.parametrize("section", WRONG)
def test_a_wrong_value_ends_the_start_with_key_value_and_remedy(section: str, tmp_path: Path) -> None:
    key, value, remedy = WRONG[section]
    errors = regent("run", "--config", written(tmp_path, (section, key, value)), code=Exit.USAGE).stderr
    assert f"{section}.{key} = {value}" in errors
    assert remedy in " ".join(errors.split())
    assert "1 problem(s)" in errors


def test_a_wrong_value_ends_the_process(tmp_path: Path) -> None:
    assert "1 problem(s)" in ended(tmp_path, Exit.USAGE, ("controller", "id", "7"))


@pytest.mark.parametrize("command", ["run", "admin-endpoint"])
def test_an_unreadable_file_of_users_is_named_once(command: str, tmp_path: Path) -> None:
    sasl = ("security", "protocol", '"SASL_PLAINTEXT"'), ("security", "sasl_file", f'"{tmp_path}/none"')
    errors = ended(tmp_path, Exit.FAILED, *sasl, command=command)
    assert errors.count(f"{tmp_path}/none cannot be read") == 1


def test_a_taken_port_is_named_once_with_the_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        errors = ended(tmp_path, Exit.FAILED, ("listener", "port", str(port)))
    assert f"cannot listen on 127.0.0.1:{port}: another process listens there. Remedy: stop that process" in errors
    assert errors.count(str(port)) == 1


@pytest.mark.parametrize("exposed", [False, True])
def test_a_taken_http_address_and_an_exposed_token_are_named(exposed: bool, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    token.chmod(0o644)
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        changes = [("http", "address", f'"{taken}"'), *([("http", "token_file", f'"{token}"')] if exposed else [])]
        errors = ended(tmp_path, Exit.FAILED, *changes)
    assert ("chmod 640" if exposed else f"http.address {taken} cannot be listened on") in errors
