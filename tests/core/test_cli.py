"""The command against a daemon's surface on a real socket: data on stdout, people on stderr, stable exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml
from typer.testing import CliRunner, Result

from cli.columns import COLUMNS
from cli.exit_codes import Exit
from cli.main import app
from controller.http import models
from controller.http.models import Difference, Operation
from controller.http.unix_socket import listening
from controller.metrics.gauges import ShownMode
from state_machines.journal.events import Row
from tests.core.http_world import DaemonDouble, daemon_in_thread

REGENT = [sys.executable, "-c", "from cli.main import main; main()"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def surface(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DaemonDouble, Path]]:
    view = DaemonDouble()
    with daemon_in_thread(tmp_path_factory.mktemp("daemon"), view) as socket:
        yield view, socket


@pytest.fixture
def view(surface: tuple[DaemonDouble, Path]) -> DaemonDouble:
    """The daemon's double as it was in the beginning."""
    vars(surface[0]).update(vars(DaemonDouble()))
    return surface[0]


@pytest.fixture
def regent(surface: tuple[DaemonDouble, Path], view: DaemonDouble, monkeypatch: pytest.MonkeyPatch) -> Regent:
    monkeypatch.setenv("REGENT_SERVER", str(surface[1]))
    return Regent()


class Regent:
    """Calls the command in this process."""

    def __call__(self, *arguments: str, code: Exit = Exit.DONE) -> Result:
        result = CliRunner().invoke(app, list(arguments), prog_name="regent")
        assert result.exit_code == code, result.output
        return result


def test_json_is_alone_on_stdout(regent: Regent) -> None:
    for command in ("status", "list brokers", "describe cluster", "describe topic orders", "explain orders 1"):
        body = json.loads(regent(*command.split(), "-o", "json").stdout)
        assert body["apiVersion"] == "regent/v1"
        assert body["kind"]
        assert body["items"]


def test_options_may_stand_before_the_command(regent: Regent) -> None:
    assert regent("-o", "json", "status").stdout == regent("status", "-o", "json").stdout
    assert regent("-o", "yaml", "status", "-o", "json").stdout.startswith("{"), "the nearer one wins"
    for command in ("list -o json brokers", "-o yaml describe -o json cluster", "describe topic orders -o json"):
        assert regent(*command.split()).stdout.startswith("{"), command


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_option_that_was_typed_wins_over_the_environment_wherever_it_stands(regent: Regent, place: int) -> None:
    words = ["list", "brokers"]
    words[place:place] = ["--server", "/nowhere/regent.sock"]
    assert "/nowhere/regent.sock" in regent(*words, code=Exit.UNREACHABLE).stderr


def test_yaml_says_the_same_as_json(regent: Regent) -> None:
    arguments = ("describe", "partition", "orders", "1", "-o")
    assert yaml.safe_load(regent(*arguments, "yaml").stdout) == json.loads(regent(*arguments, "json").stdout)


def test_tables_have_a_line_an_item_and_more_when_wide(regent: Regent) -> None:
    narrow = regent("list", "brokers").stdout.splitlines()
    wide = regent("list", "brokers", "-o", "wide").stdout.splitlines()
    assert len(narrow) == len(wide) == 4
    assert narrow[0].split() == ["ID", "STATE", "LEADS", "HOSTS", "UNACKED", "AGE", "RACK"]
    assert "INTERNAL://b:9093" in wide[1]
    assert "INTERNAL" not in narrow[1]


def test_the_help_of_brokers_explains_its_columns(regent: Regent) -> None:
    said = " ".join(regent("list", "brokers", "--help").stdout.split())
    assert "UNACKED counts those whose last change the broker has not acknowledged yet" in said
    assert "AGE is the seconds since the oldest of these changes" in said


def test_every_column_is_a_field_of_its_kind() -> None:
    """A renamed field must not turn a column into dashes."""
    for kind, columns in COLUMNS.items():
        if kind not in {"Setting", "Event"}:
            fields = getattr(models, kind).model_fields.values()
            assert {column.key for column in columns} <= {field.alias for field in fields}, kind
    assert {column.key for column in COLUMNS["Event"]} - {"time", "what", "told"} <= set(Row.__struct_fields__)


def test_lists_are_fetched_whole(regent: Regent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.client.PAGE", 3)
    assert len(json.loads(regent("list", "partitions", "-o", "json").stdout)["items"]) == 10
    assert len(regent("list", "topics").stdout.splitlines()) == 3


def test_partitions_are_filtered(regent: Regent) -> None:
    lines = regent("list", "partitions", "--offline", "--topic", "orders").stdout.splitlines()
    assert len(lines) == 2
    assert lines[1].split()[:4] == ["orders", "4", "OFFLINE", "-"]


def test_explain_speaks_in_sentences(regent: Regent) -> None:
    text = regent("explain", "orders", "1").stdout
    assert "leader 1 (leader epoch 3): first replica in the ISR" in text
    assert "would change: broker 1 dies" in text
    assert "  2026-01-02 03:04:05.678  epoch 6  shrank" in text


def test_health_is_the_exit_code(regent: Regent, view: DaemonDouble) -> None:
    regent("health")
    view.ready = False
    regent("health")
    assert "waits for ZooKeeper" in regent("health", "--ready", code=Exit.FAILED).stdout
    view.mode = ShownMode.STOPPING
    regent("health", code=Exit.FAILED)


def test_verify_says_no_with_its_exit_code(regent: Regent, view: DaemonDouble) -> None:
    assert "ZooKeeper, memory and every broker agree" in regent("verify").stderr
    view.mode = ShownMode.STANDBY
    assert "ZooKeeper and every broker agree (no memory to compare" in regent("verify").stderr
    view.differences.append(Difference(topic="orders", partition=1, field="leader", expected="1", found="2", broker=3))
    result = regent("verify", code=Exit.REFUSED)
    assert result.stdout.splitlines()[1].split() == ["orders", "1", "leader", "1", "2", "3"]
    assert "1 differences" in result.stderr
    clean = json.loads(regent("verify", "-o", "json", code=Exit.REFUSED).stdout)
    assert clean["items"][0]["differencesTotal"] == 1


def test_what_does_not_exist_is_a_failure_with_a_remedy(regent: Regent) -> None:
    result = regent("describe", "topic", "not/there", code=Exit.FAILED)
    assert result.stdout == ""
    assert "topic not/there" in result.stderr or "Not Found" in result.stderr
    assert "regent list brokers" in regent("describe", "broker", "9", code=Exit.FAILED).stderr


def test_a_standby_cannot_answer_and_says_who_can(regent: Regent, view: DaemonDouble) -> None:
    view.mode = ShownMode.STANDBY
    assert "ask daemon 1000002" in regent("list", "brokers", code=Exit.UNREACHABLE).stderr
    assert "standby" in regent("status").stdout


def test_numbers_that_a_standby_does_not_know_are_dashes_and_absent(regent: Regent, view: DaemonDouble) -> None:
    active = regent("status").stdout.splitlines()
    view.mode = ShownMode.STANDBY
    shown = regent("status").stdout.splitlines()
    assert [line.split()[-1] for line in active if line.startswith(("brokers", "partitions"))] == ["3", "10"]
    assert [line.split()[-1] for line in shown if line.startswith(("brokers", "partitions"))] == ["-", "-"]
    item = json.loads(regent("status", "-o", "json").stdout)["items"][0]
    assert not {"brokers", "topics", "partitions", "offlinePartitions"} & item.keys()


def test_no_daemon_is_told_from_no_answer(tmp_path: Path) -> None:
    regent = Regent()
    missing = regent("status", "--server", str(tmp_path / "no.sock"), code=Exit.UNREACHABLE)
    assert "no such socket" in missing.stderr
    assert "systemctl status regent" in missing.stderr
    (tmp_path / "file").write_text("")
    assert "gone" in regent("status", "--server", str(tmp_path / "file"), code=Exit.UNREACHABLE).stderr


def test_a_closed_folder_above_the_socket_is_named_with_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member of the socket's group cannot help: the folder belongs to root until it is given to the daemon."""
    folder = tmp_path / "regent"
    folder.mkdir(mode=0o750)

    def refused(*_: object, **__: object) -> None:
        raise httpx.ConnectError("refused") from PermissionError(13, "Permission denied")

    monkeypatch.setattr(httpx.Client, "request", refused)
    command = ("status", "--server", str(folder / "regent.sock"))
    assert "member of the socket's group" in Regent()(*command, code=Exit.NOT_AUTHORISED).stderr
    monkeypatch.setattr(os, "access", lambda path, *_, **__: Path(path) != folder)
    said = Regent()(*command, code=Exit.NOT_AUTHORISED).stderr
    assert f"{folder} is closed to you (uid {os.getuid()}, gid {os.getgid()}, mode 0750)" in said
    assert f"chown regent:regent {folder}" in said


def test_a_daemon_that_does_not_answer_in_time(tmp_path: Path) -> None:
    """A socket on which nobody accepts: the command gives up by itself."""
    with listening(tmp_path / "regent.sock"):
        result = Regent()(
            "status", "--server", str(tmp_path / "regent.sock"), "--request-timeout", "0.3", code=Exit.UNREACHABLE
        )
    assert "within 0.3 s" in result.stderr


def test_the_socket_is_found_in_the_settings(regent: Regent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    socket = os.environ["REGENT_SERVER"]
    monkeypatch.delenv("REGENT_SERVER")
    file = tmp_path / "regent.toml"
    file.write_text(f'[http]\nsocket = "{socket}"\n[elsewhere]\nbroken = 1\n')
    regent("status", "--config", str(file))
    regent("status", "--server", f"unix:{socket}")
    file.write_text("[http]\nsocket = 5\n")
    regent("status", "--config", str(file), code=Exit.USAGE)


def test_usage_errors() -> None:
    regent = Regent()
    regent("lisst", code=Exit.USAGE)
    regent("explain", "orders", "minus", code=Exit.USAGE)
    regent("status", "-o", "xml", code=Exit.USAGE)
    assert "--shadow or --takeover" in regent("run", "--shadow", "--takeover", code=Exit.USAGE).stderr


def test_hand_back_needs_a_yes_where_nobody_can_be_asked(regent: Regent, view: DaemonDouble) -> None:
    assert "--yes" in regent("handback", code=Exit.USAGE).stderr
    assert view.requests == []


def test_a_dry_run_changes_nothing_and_needs_no_yes(regent: Regent, view: DaemonDouble) -> None:
    result = regent("handback", "--dry-run", "--reason", "upgrade")
    assert "set the flag" in result.stdout
    assert view.requests[0].dry_run
    assert view.requests[0].reason == "upgrade"


def test_hand_back_in_a_pipe_does_not_wait(regent: Regent) -> None:
    result = regent("handback", "--yes")
    assert "handback running" in result.stdout
    assert "regent status" in result.stderr


def test_hand_back_that_is_waited_for(regent: Regent, view: DaemonDouble) -> None:
    view.current = Operation(kind="handback", state="done", message="broker 2 holds the role", steps=["a", "b", "c"])
    result = regent("handback", "--yes", "--wait")
    assert "broker 2 holds the role" in result.stdout
    assert result.stderr.splitlines()[:3] == ["set the flag", "drain", "c"]


@pytest.mark.parametrize(
    "line", ["explain orders 1", "list topics", "list brokers", "list partitions", "describe topic orders"]
)
def test_what_a_suspended_daemon_answers_from_memory_may_be_old(regent: Regent, view: DaemonDouble, line: str) -> None:
    assert "may be old" not in regent(*line.split()).stderr
    view.old = "the connection to ZooKeeper is lost: no heartbeat was answered for 7 s"
    said = regent(*line.split()).stderr.replace("\n", " ")
    assert said.count(f"this may be old, the daemon answers from memory: {view.old}") == 1


def test_hand_back_that_fails_after_all(regent: Regent, view: DaemonDouble) -> None:
    view.current = Operation(kind="handback", state="failed", message="nobody was elected", remedy="start a broker")
    result = regent("handback", "--yes", "--wait", "-o", "json", code=Exit.FAILED)
    assert json.loads(result.stdout)["items"][0]["state"] == "failed"
    assert "start a broker" in result.stderr


def test_hand_back_unfinished_at_the_timeout(regent: Regent) -> None:
    regent("handback", "--yes", "--wait", "--timeout", "1", code=Exit.UNFINISHED)


def test_a_refusal_of_the_daemon(regent: Regent, view: DaemonDouble) -> None:
    view.refuse = "a reassignment runs"
    result = regent("handback", "--yes", code=Exit.REFUSED)
    assert "a reassignment runs" in result.stderr
    assert "finish the reassignment first" in result.stderr


def test_ctrl_c_detaches(regent: Regent) -> None:
    in_foreground = ["env", "--default-signal=INT"]  # jobs of a shell in the background ignore it
    command = [*in_foreground, *REGENT, "status", "--watch", "0.2", "-o", "json"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"{\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == Exit.DETACHED
    assert b"regent status" in err


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    heavy = {"kazoo", "kio", "aiokafka", "pyspark", "fastapi", "uvicorn", "httpx", "uvloop", "structlog"}
    script = (
        "import sys\nfrom cli.main import app\n"
        "try: app(sys.argv[1:], prog_name='regent')\nexcept SystemExit: pass\n"
        "print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    for arguments in ([], ["handback"], ["list", "partitions"]):
        found = subprocess.run(
            [sys.executable, "-c", script, *arguments, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert "Usage" in found.stdout
        assert not heavy & set(found.stderr.split()), arguments


def test_every_command_takes_the_shared_options() -> None:
    regent = Regent()
    commands = (
        "run", "preflight", "status", "describe cluster", "describe broker", "describe topic", "describe partition",
        "list brokers", "list topics", "list partitions", "explain", "verify", "takeover", "handback", "health",
        "config check", "config show", "config example", "demo", "completion", "version", "admin-endpoint",
    )  # fmt: skip
    for command in commands:
        text = regent(*command.split(), "--help").stdout
        for option in ("--output", "--server", "--no-color", "--request-timeout", "--config"):
            assert option in text, (command, option)
    for command in ("takeover", "handback"):
        text = regent(command, "--help").stdout
        for option in ("--dry-run", "--yes", "--reason", "--wait", "--timeout"):
            assert option in text, (command, option)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    found = subprocess.run([*REGENT, "completion", shell], cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"complete_{shell}" in found.stdout


def test_completion_completes() -> None:
    words = {"_REGENT_COMPLETE": "complete_bash", "COMP_WORDS": "regent han", "COMP_CWORD": "1"}
    found = subprocess.run(REGENT, cwd=ROOT, env=os.environ | words, capture_output=True, text=True, check=False)
    assert found.stdout.split() == ["handback"]


def test_version() -> None:
    assert json.loads(Regent()("version", "-o", "json").stdout)["items"][0]["regent"]
