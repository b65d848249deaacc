"""Commands that need no daemon: those that start a process, and those that work on ZooKeeper."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from admin.ports import Address
from cli.exit_codes import Exit
from configs.sections import LogSettings
from configs.settings import Settings
from controller.http.models import Check, Operation, OperationRequest
from controller.process.logs import logging_to
from testing.embedded.jars import JarsUnavailable
from tests.kit.command import items, regent
from tests.kit.deadlines import eventually

SETTINGS = '[zookeeper]\nconnect = "zk:2181"\n[listener]\nadvertised_host = "127.0.0.1"\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "regent.toml"
    path.write_text(SETTINGS)
    monkeypatch.setenv("REGENT_CONFIG", str(path))
    return path


@pytest.mark.parametrize(("line", "offered"), [("status", False), ("handback --yes", True)])
def test_the_offline_hand_back_is_offered_only_for_a_hand_back(line: str, offered: bool, file: Path) -> None:
    file.write_text(f'{SETTINGS}[http]\nsocket = "{file.parent}/none.sock"\n')
    result = regent(*line.split(), code=Exit.UNREACHABLE)
    assert "no daemon listens on" in result.stderr
    assert ("handback --offline" in result.stderr) == offered
    assert "`regent preflight` reads the holder of the role in ZooKeeper" in result.stderr.replace("\n", " ")


def test_a_daemon_of_regions_that_is_down_is_looked_for_with_the_tools_of_the_system(file: Path) -> None:
    file.write_text(f'{SETTINGS}[http]\nsocket = "{file.parent}/none.sock"\n')
    found = " ".join(regent("regions", "status", code=Exit.UNREACHABLE).stderr.split())
    assert "see `systemctl status regent`" in found
    assert "`journalctl -u regent` has why" in found
    assert "preflight" not in found


@pytest.mark.parametrize("line", ["preflight", "takeover --yes --without-daemon", "handback --yes --offline"])
def test_a_change_of_the_role_by_settings_of_regions_alone_says_so(file: Path, line: str) -> None:
    file.write_text("[regions]\n")
    found = " ".join(regent(*line.split(), code=Exit.USAGE).stderr.split())
    assert found == (
        "these settings are of a daemon for regions alone, which has no Kafka cluster "
        "Remedy: see 'regent regions status'; a cluster needs [zookeeper] and [listener]"
    )


def test_a_demo_without_its_parts_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> NoReturn:
        raise JarsUnavailable("No module named 'jgo'. Run 'make demo'")

    monkeypatch.setattr("testing.embedded.jvm.jars", none)
    assert "the demo stopped: No module named 'jgo'. Run 'make demo'" in regent("demo", code=Exit.FAILED).stdout


def test_a_daemon_process_ends_although_its_threads_go_on() -> None:
    program = (
        "import threading, time, typer, cli.main as main, cli.exit_codes as ending\n"
        "threading.Thread(target=lambda: time.sleep(600)).start()\n"
        "def app(**_): raise SystemExit(ending.ends_at_once(lambda: 3))\n"
        "main.app = app\nmain.main()\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=100, check=False).returncode == 3


def test_run_passes_settings_and_modes_to_the_daemon(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    async def run(settings: Settings, *, shadow: bool, takeover: bool, endpoint_beside: bool) -> int:
        seen.update(settings=settings, shadow=shadow, takeover=takeover, beside=endpoint_beside)
        seen["loop"] = type(asyncio.get_running_loop()).__module__
        return 75

    monkeypatch.setattr("controller.main.run", run)
    regent("run", "--shadow", code=75)
    assert (seen["shadow"], seen["takeover"]) == (True, False)
    assert seen["settings"].zookeeper.connect == "zk:2181"
    assert seen["loop"].startswith("uvloop")


def test_a_daemon_for_regions_alone_starts_without_the_code_of_kafkas_controller(tmp_path: Path) -> None:
    config = tmp_path / "regent.toml"
    config.write_text("[regions]\n")
    program = (
        "import sys, controller.main as process, cli.main as main\n"
        "async def serve(_, parts, *__):\n"
        "    parts[0].domain.exit_code = 1 if {'controller.daemon', 'controller.kafka'} & set(sys.modules) else 75\n"
        "process._serve = serve\nmain.main()\n"
    )
    command = [sys.executable, "-c", program, "run", "--config", str(config)]
    assert subprocess.run(command, timeout=100, check=False).returncode == 75


def test_the_admin_endpoint_runs_until_sigterm(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    async def run(settings: Settings, new_session: object, ready: Callable[[Address], None]) -> None:
        seen.append(type(asyncio.get_running_loop()).__module__)
        ready(Address("regent1", settings.admin.port))
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("stopped")

    monkeypatch.setattr("admin.endpoint.run", run)
    regent("admin-endpoint")
    assert seen == ["uvloop", "stopped"]


def test_an_admin_endpoint_that_cannot_listen_names_the_address(file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(SETTINGS + f'[admin]\nhost = "127.0.0.1"\nport = {port}\n')
        assert f"127.0.0.1:{port}" in regent("admin-endpoint", code=Exit.FAILED).output


def test_run_with_wrong_settings_starts_no_daemon(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> int:
        raise AssertionError("started")

    monkeypatch.setattr("controller.main.run", run)
    file.write_text(SETTINGS + "[controller]\nloop_stall_ms_max = 20000\n")
    assert "zookeeper.session_timeout_ms" in regent("run", code=Exit.USAGE).stderr


def test_a_hangup_reloads_the_settings(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The level changes at once, keys that need a restart are named, and a broken file changes nothing."""
    stream = io.StringIO()

    async def run(settings: Settings, *, shadow: bool, takeover: bool, endpoint_beside: bool) -> int:
        async def hang_up(text: str, sentence: str) -> None:
            await asyncio.to_thread(file.write_text, SETTINGS + text)
            os.kill(os.getpid(), signal.SIGHUP)
            await eventually(lambda: sentence in stream.getvalue())

        with logging_to(LogSettings(format="console"), stream):
            await eventually(lambda: signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL)
            await hang_up('[log]\nlevel = "error"\n[controller]\nid = 1000007\n', "controller.id stays 1000001")
            assert logging.getLogger("regent").level == logging.ERROR
            await hang_up('[log]\nlevel = "loud"\n', "nothing was reloaded")
            assert 'log.level = "loud"' in stream.getvalue()
            assert logging.getLogger("regent").level == logging.ERROR
        return 0

    monkeypatch.setattr("controller.main.run", run)
    before = logging.getLogger("regent").level
    try:
        regent("run")
    finally:
        logging.getLogger("regent").setLevel(before)


@pytest.mark.parametrize(("result", "code"), [("ok", Exit.DONE), ("warning", Exit.DONE), ("refused", Exit.REFUSED)])
def test_preflight_ends_with_refused_if_a_check_is(
    file: Path, monkeypatch: pytest.MonkeyPatch, result: Any, code: Exit
) -> None:
    async def preflight(settings: Settings) -> list[Check]:
        return [
            Check(name="cluster id", result="ok", found="abc"),
            Check(name="ibp", result=result, found="broker 1 has 3.8-IV0", remedy="upgrade broker 1"),
        ]

    monkeypatch.setattr("cli.offline.preflight", preflight)
    printed = regent("preflight", code=code)
    assert "upgrade broker 1" in printed.stdout
    assert (
        printed.stderr.split(":")[0].strip()
        == {
            "ok": "2 checks",
            "warning": "2 checks, 1 warning",
            "refused": "1 of 2 checks stand in the way of a take-over",
        }[result]
    )


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("done", Exit.DONE), ("planned", Exit.DONE), ("running", Exit.UNFINISHED), ("refused", Exit.REFUSED),
        ("failed", Exit.FAILED),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["takeover", "handback --offline"])
def test_a_change_of_the_role_on_zookeeper_ends_by_its_state(
    file: Path, monkeypatch: pytest.MonkeyPatch, state: Any, code: Exit, command: str
) -> None:
    seen: list[tuple[OperationRequest, float | None]] = []

    async def change(
        settings: Settings,
        request: OperationRequest,
        *,
        wait_s: float | None,
        progress: Callable[[str], None],
        **_: Any,
    ) -> Operation:
        seen.append((request, wait_s))
        progress("saved the roll-back file")
        return Operation(kind="takeover", state=state, message=f"it is {state}", remedy="do so")

    monkeypatch.setattr("cli.offline.takeover", change)
    monkeypatch.setattr("cli.offline.handback", change)
    arguments = [*command.split(), "--yes", "--wait", "--timeout", "5", "--reason", "because"]
    assert items(*arguments, code=code)[0]["message"] == f"it is {state}"
    assert seen == [(OperationRequest(reason="because"), 5.0)]
    result = regent(*arguments, code=code)
    assert "saved the roll-back file" in result.stderr
    stream = result.stderr if state in ("refused", "failed") else result.stdout
    assert f"it is {state}" in stream
    assert "Remedy: do so" in result.stderr.splitlines()[1:], "after the message"


def test_a_change_without_yes_and_without_a_terminal_does_not_begin(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(*_: object, **__: object) -> Operation:
        raise AssertionError("begun")

    monkeypatch.setattr("cli.offline.takeover", change)
    monkeypatch.setattr("cli.offline.handback", change)
    regent("takeover", code=Exit.USAGE)
    regent("handback", "--offline", code=Exit.USAGE)


def test_each_sentence_about_an_unreachable_zookeeper_is_printed_once(file: Path) -> None:
    away = {"REGENT_ZOOKEEPER__CONNECT": "127.0.0.1:1", "REGENT_ZOOKEEPER__CONNECT_TIMEOUT_MS": "1000"}
    command = [sys.executable, "-m", "cli.main", "preflight"]
    ended = subprocess.run(command, env=os.environ | away, capture_output=True, text=True, timeout=100, check=False)
    lines = ended.stderr.splitlines()
    assert ended.returncode == Exit.UNREACHABLE, ended
    assert " ".join(lines).count("Connection refused") == 1, "the cause is in the command's own sentence"
    assert not [line for line in lines if line.startswith("Connection")], "no line of the library before it"


def test_a_silent_zookeeper_is_named_with_its_setting(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGENT_ZOOKEEPER__CONNECT", "127.0.0.1:1/kafka")
    monkeypatch.setenv("REGENT_ZOOKEEPER__CONNECT_TIMEOUT_MS", "300")
    result = regent("preflight", code=Exit.UNREACHABLE)
    assert "127.0.0.1:1/kafka" in result.stderr
    assert "zookeeper.connect" in result.stderr


def test_the_demo_ends_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[str] = []

    async def run(console: object, *, keep: bool, play: str, report: Path | None, noded: bool) -> int:
        played.append(f"{play} by znodes" if noded else play)
        return 1 if keep else 0

    monkeypatch.setattr("cli.demo.run.run", run)
    regent("demo")
    regent("demo", "reassign")
    regent("demo", "regions")
    regent("demo", "regions", "--transport", "zookeeper")
    assert played == ["failures", "reassign", "regions", "regions by znodes"]
    assert "'nothing' is not one of" in regent("demo", "nothing", code=Exit.USAGE).stderr
    regent("demo", "--keep", code=Exit.FAILED)
    wrong = regent("demo", "reassign", "--transport", "zookeeper", code=Exit.USAGE)
    assert "--transport is about servers of regions" in wrong.stderr
    assert "--report is about partitions" in regent("demo", "regions", "--report", "x", code=Exit.USAGE).stderr


def test_a_demo_that_is_terminated_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM ends the block of the cluster as Ctrl-C does, which removes its folder."""
    left: list[str] = []

    class Starting:
        def __init__(self, *_: object, **__: object) -> None: ...

        async def __aenter__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                left.append("cancelled")
                raise

        async def __aexit__(self, *_: object) -> None: ...

    def unhandled(*_: object) -> None:
        raise AssertionError("SIGTERM is not handled")

    monkeypatch.setattr("cli.demo.run.EmbeddedCluster", Starting)
    before = signal.signal(signal.SIGTERM, unhandled)
    try:
        result = regent("demo", code=Exit.DETACHED)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert left == ["cancelled"]
    assert "leaves no process behind" in result.stderr
