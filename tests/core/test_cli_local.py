"""Commands that need no daemon: settings, and those that work on ZooKeeper through the controller's entry points."""

from __future__ import annotations

import asyncio
import io
import json
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
from typer.testing import CliRunner, Result

from admin.ports import Address
from cli.exit_codes import Exit
from cli.main import app
from configs.sections import LogSettings
from configs.settings import Settings
from controller.http.models import Check, Operation, OperationRequest
from controller.process.logs import logging_to
from testing.embedded.jars import JarsUnavailable
from tests.polling import eventually

SETTINGS = '[zookeeper]\nconnect = "zk:2181"\n[listener]\nadvertised_host = "127.0.0.1"\n'


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "regent.toml"
    path.write_text(SETTINGS)
    monkeypatch.setenv("REGENT_CONFIG", str(path))
    return path


def regent(*arguments: str, code: Exit = Exit.DONE) -> Result:
    result = CliRunner().invoke(app, list(arguments), prog_name="regent")
    assert result.exit_code == code, result.output
    return result


def test_config_check(file: Path) -> None:
    result = regent("config", "check")
    assert result.stdout == ""
    assert str(file) in result.stderr.replace("\n", "")


def test_config_check_warns_of_an_endpoint_that_could_not_start_in_its_unit(file: Path, tmp_path: Path) -> None:
    sasl = tmp_path / "sasl"
    sasl.write_text("kafka:secret\n")
    sasl.chmod(0o600)
    file.write_text(SETTINGS.replace("[zookeeper]", f'[zookeeper]\nset_acl = true\nsasl_file = "{sasl}"'))
    said = regent("config", "check").stderr
    assert "warning: zookeeper.set_acl" in said
    assert "/etc/credstore/admin-zookeeper-digest" in said.replace("\n", "")
    sasl.unlink()
    refused = regent("admin-endpoint", code=Exit.USAGE).stderr.replace("\n", "")
    assert "the admin endpoint has no identity of its own" in refused


def test_config_check_names_every_problem(file: Path) -> None:
    file.write_text("[controller]\nid = 5\n[log]\nlevel = 3\n")
    result = regent("config", "check", code=Exit.USAGE)
    assert "4 problem(s)" in result.stderr
    for key in ("zookeeper.connect", "listener.advertised_host", "controller.id", "log.level"):
        assert key in result.stderr


def test_config_check_reads_every_file_that_the_settings_name(file: Path, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    file.write_text(
        f'{SETTINGS}[security]\nprotocol = "SSL"\ncertificate_file = "{tmp_path}/none.pem"\nca_file = "{garbage}"\n'
    )
    result = regent("config", "check", code=Exit.USAGE)
    assert "1 problem(s) with files" in result.stderr
    assert f"security.certificate_file = {tmp_path}/none.pem: there is no such file" in result.stderr.replace("\n", "")
    tls = f'tls = true\nca_file = "{garbage}"\n[listener]'
    file.write_text(SETTINGS.replace("[listener]", tls))
    assert "[zookeeper]:" in regent("config", "check", code=Exit.USAGE).stderr


def test_config_check_reads_the_token_of_the_http_address(file: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef\n")
    token.chmod(0o644)
    before = file.read_text()
    file.write_text(f'{before}\n[http]\naddress = "127.0.0.1:0"\ntoken_file = "{token}"\n')
    result = regent("config", "check", code=Exit.USAGE)
    assert "may be read or changed by others" in " ".join(result.stderr.split())
    token.chmod(0o600)
    regent("config", "check")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_config_check_by_root_knows_the_daemons_user_by_its_folder(file: Path, tmp_path: Path) -> None:
    token, state = tmp_path / "token", tmp_path / "state"
    token.write_text("0123456789abcdef\n")
    token.chmod(0o600)
    os.chown(token, 12_345, 12_345)
    keys = f'[http]\naddress = "127.0.0.1:0"\ntoken_file = "{token}"\n[state]\ndirectory = "{state}"\n'
    file.write_text(file.read_text() + keys)
    assert "warning" not in regent("config", "check").stderr, "before the first start nobody knows the daemon's user"
    state.mkdir()
    refused = regent("config", "check", code=Exit.USAGE).stderr.replace("\n", "")
    assert f"chown 0 {token}" in refused
    os.chown(state, 12_345, -1)
    assert "warning" not in regent("config", "check").stderr
    os.chown(state, 23_456, -1)
    assert f"chown 23456 {token}" in regent("config", "check", code=Exit.USAGE).stderr.replace("\n", "")


def test_config_check_reads_the_secret_that_the_daemon_will_read(file: Path, tmp_path: Path) -> None:
    file.write_text(f'{file.read_text()}[state]\ndirectory = "{tmp_path}"\n')
    regent("config", "check")
    secret = tmp_path / "admin-secret"
    assert not secret.exists(), "it is the daemon's to make"
    secret.write_text("ab" * 32)
    secret.chmod(0o644)
    result = regent("config", "check", code=Exit.USAGE)
    assert f"[admin]: the secret {secret} may be read or changed by others: chmod 600" in result.stderr.replace(
        "\n", ""
    )
    secret.chmod(0o600)
    regent("config", "check")


def test_config_show_tells_where_each_value_comes_from(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGENT_ZOOKEEPER__DIGEST", "regent:s3cret")
    result = regent("config", "show", "-o", "json")
    rows = {item["key"]: item for item in json.loads(result.stdout)["items"]}
    assert rows["zookeeper.connect"] == {"key": "zookeeper.connect", "value": '"zk:2181"', "origin": str(file)}
    assert rows["zookeeper.digest"]["origin"] == "environment REGENT_ZOOKEEPER__DIGEST"
    assert rows["http.socket"]["origin"] == "default"
    assert "s3cret" not in result.output
    assert "s3cret" not in regent("config", "show").output


def test_config_show_tells_what_will_hold_although_no_key_says_it(file: Path, tmp_path: Path) -> None:
    file.write_text(f'{file.read_text()}[state]\ndirectory = "{tmp_path}"\n[http]\nsocket = "{tmp_path}/none.sock"\n')
    rows = {item["key"]: item for item in json.loads(regent("config", "show", "-o", "json").stdout)["items"]}
    assert rows["admin.secret_file"]["value"] == f'"{tmp_path}/admin-secret"'
    assert rows["controller.ibp"]["value"] == rows["controller.default_replication_factor"]["value"] == "as the brokers"
    file.write_text(f'{file.read_text()}[controller]\nibp = "3.5-IV2"\n')
    rows = {item["key"]: item for item in json.loads(regent("config", "show", "-o", "json").stdout)["items"]}
    assert rows["controller.ibp"]["value"] == '"3.5-IV2"'


def test_the_version_is_printed_by_an_option_too() -> None:
    assert regent("--version").stdout.startswith("regent ")


@pytest.mark.parametrize(("line", "offered"), [("status", False), ("handback --yes", True)])
def test_the_offline_hand_back_is_offered_only_for_a_hand_back(line: str, offered: bool, file: Path) -> None:
    file.write_text(f'{SETTINGS}[http]\nsocket = "{file.parent}/none.sock"\n')
    result = regent(*line.split(), code=Exit.UNREACHABLE)
    assert "no daemon listens on" in result.stderr
    assert ("handback --offline" in result.stderr) == offered
    assert "who holds the role, `regent preflight` reads in ZooKeeper" in result.stderr.replace("\n", " ")


def test_a_demo_without_its_parts_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> NoReturn:
        raise JarsUnavailable("No module named 'jgo'. Run 'make demo'")

    monkeypatch.setattr("testing.embedded.jvm.jars", none)
    assert "the demo stopped: No module named 'jgo'. Run 'make demo'" in regent("demo", code=Exit.FAILED).stdout


def test_a_process_that_stays_ends_when_it_says_so_whatever_its_threads_do() -> None:
    program = (
        "import threading, time, typer, cli.main as main, cli.ending as ending\n"
        "threading.Thread(target=lambda: time.sleep(60)).start()\n"
        "def app(**_): raise SystemExit(ending.ends_at_once(lambda: 3))\n"
        "main.app = app\nmain.main()\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=30, check=False).returncode == 3


def test_config_example_is_the_file_that_is_shipped() -> None:
    shipped = Path(__file__).parents[2] / "configs" / "example.toml"
    assert regent("config", "example").stdout == shipped.read_text()


def test_run_hands_settings_and_modes_to_the_daemon(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    async def run(settings: Settings, *, shadow: bool, takeover: bool, endpoint_beside: bool) -> int:
        seen.update(settings=settings, shadow=shadow, takeover=takeover, beside=endpoint_beside)
        seen["loop"] = type(asyncio.get_running_loop()).__module__
        return 75

    monkeypatch.setattr("controller.main.run", run)
    result = CliRunner().invoke(app, ["run", "--shadow"], prog_name="regent")
    assert result.exit_code == 75
    assert (seen["shadow"], seen["takeover"]) == (True, False)
    assert seen["settings"].zookeeper.connect == "zk:2181"
    assert seen["loop"].startswith("uvloop")


def test_the_admin_endpoint_runs_until_it_is_told_to_stop(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_admin_endpoint_that_cannot_listen_says_so(file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(SETTINGS + f'[admin]\nhost = "127.0.0.1"\nport = {port}\n')
        assert f"127.0.0.1:{port}" in regent("admin-endpoint", code=Exit.FAILED).output


def test_run_with_wrong_settings_starts_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> int:
        raise AssertionError("started")

    monkeypatch.setattr("controller.main.run", run)
    file.write_text(SETTINGS + "[controller]\nloop_stall_ms_max = 20000\n")
    assert "zookeeper.session_timeout_ms" in regent("run", code=Exit.USAGE).stderr


def test_a_hangup_reads_the_settings_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The level changes at once, what needs a restart is named, and a broken file changes nothing."""
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
def test_preflight(file: Path, monkeypatch: pytest.MonkeyPatch, result: Any, code: Exit) -> None:
    async def preflight(settings: Settings) -> list[Check]:
        return [
            Check(name="cluster id", result="ok", found="abc"),
            Check(name="ibp", result=result, found="broker 1 has 3.8-IV0", remedy="upgrade broker 1"),
        ]

    monkeypatch.setattr("cli.offline.preflight", preflight)
    said = regent("preflight", code=code)
    assert "upgrade broker 1" in said.stdout
    assert ("1 of 2" in said.stderr) == (result == "refused")


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("done", Exit.DONE), ("planned", Exit.DONE), ("running", Exit.UNFINISHED), ("refused", Exit.REFUSED),
        ("failed", Exit.FAILED),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["takeover", "handback --offline"])
def test_changes_of_the_role_on_zookeeper_alone(
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
    result = regent(*arguments, "-o", "json", code=code)
    assert seen == [(OperationRequest(reason="because"), 5.0)]
    assert "saved the roll-back file" in result.stderr
    assert json.loads(result.stdout)["items"][0]["message"] == f"it is {state}"
    result = regent(*arguments, code=code)
    stream = result.stderr if state in ("refused", "failed") else result.stdout
    assert f"it is {state}" in stream
    assert "Remedy: do so" in result.stderr.splitlines()[1:], "after what it is for"


def test_a_change_without_yes_and_without_a_terminal_is_not_begun(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(*_: object, **__: object) -> Operation:
        raise AssertionError("begun")

    monkeypatch.setattr("cli.offline.takeover", change)
    monkeypatch.setattr("cli.offline.handback", change)
    regent("takeover", code=Exit.USAGE)
    regent("handback", "--offline", code=Exit.USAGE)


def test_every_sentence_about_a_zookeeper_that_is_away_is_heard_once(file: Path) -> None:
    away = {"REGENT_ZOOKEEPER__CONNECT": "127.0.0.1:1", "REGENT_ZOOKEEPER__CONNECT_TIMEOUT_MS": "1000"}
    command = [sys.executable, "-m", "cli.main", "preflight"]
    ended = subprocess.run(command, env=os.environ | away, capture_output=True, text=True, timeout=60, check=False)
    lines = ended.stderr.splitlines()
    assert ended.returncode == Exit.UNREACHABLE, ended
    assert " ".join(lines).count("Connection refused") == 1, "the cause stands in our own sentence"
    assert not [line for line in lines if line.startswith("Connection")], "no line of the library before it"


def test_a_zookeeper_that_does_not_answer(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGENT_ZOOKEEPER__CONNECT", "127.0.0.1:1/kafka")
    monkeypatch.setenv("REGENT_ZOOKEEPER__CONNECT_TIMEOUT_MS", "300")
    result = regent("preflight", code=Exit.UNREACHABLE)
    assert "127.0.0.1:1/kafka" in result.stderr
    assert "zookeeper.connect" in result.stderr


def test_demo_ends_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(console: object, *, keep: bool) -> int:
        return 1 if keep else 0

    monkeypatch.setattr("cli.demo.run.run", run)
    regent("demo")
    regent("demo", "--keep", code=Exit.FAILED)


def test_a_demo_that_is_terminated_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM while the cluster starts: the block is left as with Ctrl-C, which removes its folder."""
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

    def unheard(*_: object) -> None:
        raise AssertionError("nobody heeds SIGTERM")

    monkeypatch.setattr("cli.demo.run.EmbeddedCluster", Starting)
    before = signal.signal(signal.SIGTERM, unheard)
    try:
        result = regent("demo", code=Exit.DETACHED)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert left == ["cancelled"]
    assert "leaves no process behind" in result.stderr
