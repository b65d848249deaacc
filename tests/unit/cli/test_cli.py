"""The command against a daemon's surface on a real socket: data on stdout, messages on stderr, stable exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import httpx
import pytest
import yaml

from cli.columns import COLUMNS
from cli.commands.observe import arranged, bad_rows
from cli.exit_codes import Exit
from controller import http, operator
from controller.http.documents import ViewRefused
from controller.http.models import Operation
from controller.http.server import listening
from controller.kafka.metrics.values import ShownMode
from controller.operator.brokers import Broker
from controller.operator.partitions import Only, PartitionQuery
from controller.operator.verify import Difference
from controller.regions import operator as regions_operator
from state_machines.journal.events import Row
from tests.kit.answering import Answering
from tests.kit.command import items, regent

REGENT = [sys.executable, "-c", "from cli.main import main; main()"]
ROOT = Path(__file__).parents[3]


pytestmark = pytest.mark.usefixtures("view")


@pytest.mark.parametrize(
    "command", ["status", "list brokers", "describe cluster", "describe topic orders", "explain orders 1"]
)
def test_json_is_alone_on_stdout(command: str) -> None:
    assert items(*command.split())


def test_options_may_precede_the_command() -> None:
    assert regent("-o", "json", "status").stdout == regent("status", "-o", "json").stdout
    assert regent("-o", "yaml", "status", "-o", "json").stdout.startswith("{"), "the nearer one wins"
    for command in ("list -o json brokers", "-o yaml describe -o json cluster", "describe topic orders -o json"):
        assert regent(*command.split()).stdout.startswith("{"), command


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_option_that_was_typed_wins_over_the_environment_wherever_it_stands(place: int) -> None:
    words = ["list", "brokers"]
    words[place:place] = ["--server", "/nowhere/regent.sock"]
    assert "/nowhere/regent.sock" in regent(*words, code=Exit.UNREACHABLE).stderr


def test_yaml_and_json_have_the_same_content() -> None:
    arguments = ("describe", "partition", "orders", "1", "-o")
    assert yaml.safe_load(regent(*arguments, "yaml").stdout) == json.loads(regent(*arguments, "json").stdout)


def test_tables_have_a_line_for_each_item_and_more_columns_when_wide() -> None:
    narrow = regent("list", "brokers").stdout.splitlines()
    wide = regent("list", "brokers", "-o", "wide").stdout.splitlines()
    assert len(narrow) == len(wide) == 4
    head = ["ID", "STATE", "LEADS", "HOSTS", "UNACKED", "AGE", "REFUSES", "RACK", "CORDONED", "DRAINED"]
    assert narrow[0].split() == head
    assert "INTERNAL://b:9093" in wide[1]
    assert "INTERNAL" not in narrow[1]


def test_a_dead_broker_has_the_time_of_its_death_beside_its_state(view: Answering) -> None:
    died = datetime(2026, 11, 28, 12, 50, 3, 7, tzinfo=UTC)
    dead = [Broker(id=1, state="dead", dead_since=died), Broker(id=2, state="dead", dead_before=died), Broker(id=3)]
    view.answers["brokers.listed"] = dead
    first, second, third = regent("list", "brokers").stdout.splitlines()[1:]
    assert "dead since 2026-11-28 12:50:03 UTC" in first
    assert "dead before 2026-11-28 12:50:03 UTC" in second
    assert " live " in third


def test_the_help_of_brokers_explains_its_columns() -> None:
    text = " ".join(regent("list", "brokers", "--help").stdout.split())
    assert "UNACKED counts those whose last change the broker has not acknowledged yet" in text
    assert "AGE is the seconds since the oldest of these changes" in text


WITHOUT_MODEL = {
    "Setting", "Event", "BrokerLoad", "ProcedureRecord", "Throttle", "ThrottleRemoval", "PlannedMove",
    "Loss", "Scenario", "PlannedGoal",
}  # fmt: skip
"""Kinds that commands make themselves."""
COLUMNS_OF = {"RegionLoad": "Region", "ForeseenMove": "BalanceMove"}
"""Lists that show other fields of a kind."""


def test_every_column_is_a_field_of_its_kind() -> None:
    """A renamed field must not turn a column into dashes."""
    rooms = (http, operator, regions_operator)
    modules = [import_module(f"{room.__name__}.{one.name}") for room in rooms for one in iter_modules(room.__path__)]
    made = {"Procedure": {"flag"}}  # by the command, of other fields
    for kind, columns in COLUMNS.items():
        if kind not in WITHOUT_MODEL:
            names = COLUMNS_OF.get(kind, kind), f"{kind}Item"
            named = (getattr(module, name, None) for module in modules for name in names)
            model: Any = next(one for one in named if hasattr(one, "model_fields"))
            fields = {field.alias for field in model.model_fields.values()}
            assert {column.key for column in columns} - made.get(kind, set()) <= fields, kind
    assert {column.key for column in COLUMNS["Event"]} - {"time", "what", "told"} <= set(Row.__struct_fields__)


def test_lists_are_fetched_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.client.PAGE", 3)
    assert len(items("list", "partitions")) == 10
    assert len(regent("list", "topics").stdout.splitlines()) == 3


FILTERS = [(f"--{only}", PartitionQuery(None, frozenset({only}), 1_000, None)) for only in Only]


@pytest.mark.parametrize(
    ("options", "query"),
    [
        *FILTERS,
        ("", PartitionQuery(None, frozenset(), 1_000, None)),
        ("--offline --at-min-isr", PartitionQuery(None, frozenset({Only.OFFLINE, Only.AT_MIN_ISR}), 1_000, None)),
        ("--topic orders --broker 0", PartitionQuery("orders", frozenset(), 1_000, None, 0)),
    ],
)
def test_options_become_filters_of_the_query(view: Answering, options: str, query: PartitionQuery) -> None:
    lines = regent("list", "partitions", *options.split()).stdout.splitlines()
    assert view.noted("partitions.list_partitions") == [query]
    assert options != "--offline" or [line.split()[:4] for line in lines[1:]] == [
        ["orders", "4", "OFFLINE", "-"],
        ["payments", "4", "OFFLINE", "-"],
    ]


def test_explain_prints_sentences() -> None:
    text = regent("explain", "orders", "1").stdout
    assert "leader 1 (leader epoch 3): first replica in the ISR" in text
    assert "would change: broker 1 dies" in text
    assert "  2026-01-02 03:04:05.678  epoch 6  shrank" in text


def test_the_history_of_the_role_has_time_author_and_reason() -> None:
    header, *lines = regent("history").stdout.splitlines()
    assert header.split() == ["AT", "HOLDER", "BY", "REASON"]
    assert [line.split(maxsplit=2)[1:] for line in lines] == [
        ["regent", "uid 0     trying regent"],
        ["brokers", "uid 1000  -"],
    ]


def test_health_is_the_exit_code(view: Answering) -> None:
    regent("health")
    view.ready = False
    regent("health")
    assert "waits for ZooKeeper" in regent("health", "--ready", code=Exit.FAILED).stdout
    view.mode = ShownMode.STOPPING
    regent("health", code=Exit.FAILED)


def test_verify_lists_differences_and_ends_with_refused(view: Answering) -> None:
    assert "ZooKeeper, memory and every broker agree" in regent("verify").stderr
    view.mode = ShownMode.STANDBY
    assert "ZooKeeper and every broker agree (no memory to compare" in regent("verify").stderr
    view.differences.append(Difference(topic="orders", partition=1, field="leader", expected="1", found="2", broker=3))
    result = regent("verify", code=Exit.REFUSED)
    assert result.stdout.splitlines()[1].split() == ["orders", "1", "leader", "1", "2", "3"]
    assert "1 differences" in result.stderr
    assert items("verify", code=Exit.REFUSED)[0]["differencesTotal"] == 1


def test_a_missing_topic_or_broker_is_a_failure_with_a_remedy() -> None:
    result = regent("describe", "topic", "not/there", code=Exit.FAILED)
    assert result.stdout == ""
    assert "no path /v1/topics/not/there" in result.stderr
    assert "regent list brokers" in regent("describe", "broker", "9", code=Exit.FAILED).stderr


def test_a_standby_names_the_active_daemon_and_shows_unknown_numbers_as_dashes(view: Answering) -> None:
    active = regent("status").stdout.splitlines()
    view.mode = ShownMode.STANDBY
    assert "ask daemon 1000002" in regent("list", "brokers", code=Exit.UNREACHABLE).stderr
    shown = regent("status").stdout.splitlines()
    assert [line.split()[-1] for line in active if line.startswith(("brokers", "partitions"))] == ["3", "10"]
    assert [line.split()[-1] for line in shown if line.startswith(("brokers", "partitions"))] == ["-", "-"]
    [item] = items("status")
    assert item["mode"] == "standby"
    assert not {"brokers", "topics", "partitions", "offlinePartitions"} & item.keys()


def test_a_missing_socket_and_one_without_a_daemon_are_distinguished(tmp_path: Path) -> None:
    missing = regent("status", "--server", str(tmp_path / "no.sock"), code=Exit.UNREACHABLE)
    assert "no such socket" in missing.stderr
    assert "systemctl status regent" in missing.stderr
    (tmp_path / "file").write_text("")
    assert "gone" in regent("status", "--server", str(tmp_path / "file"), code=Exit.UNREACHABLE).stderr


def test_a_closed_folder_above_the_socket_is_named_with_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder belongs to root until root gives it to the daemon's user."""
    folder = tmp_path / "regent"
    folder.mkdir(mode=0o750)

    def refused(*_: object, **__: object) -> None:
        raise httpx.ConnectError("refused") from PermissionError(13, "Permission denied")

    monkeypatch.setattr(httpx.Client, "request", refused)
    command = ("status", "--server", str(folder / "regent.sock"))
    assert "member of the socket's group" in regent(*command, code=Exit.NOT_AUTHORISED).stderr
    monkeypatch.setattr(os, "access", lambda path, *_, **__: Path(path) != folder)
    message = regent(*command, code=Exit.NOT_AUTHORISED).stderr
    assert f"{folder} is closed to you (uid {os.getuid()}, gid {os.getgid()}, mode 0750)" in message
    assert f"chown regent:regent {folder}" in message


def test_a_request_to_a_silent_daemon_ends_at_the_time_out(tmp_path: Path) -> None:
    with listening(tmp_path / "regent.sock"):
        result = regent(
            "status", "--server", str(tmp_path / "regent.sock"), "--request-timeout", "0.3", code=Exit.UNREACHABLE
        )
    assert "within 0.3 s" in result.stderr


def test_the_settings_name_the_socket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    socket = os.environ["REGENT_SERVER"]
    monkeypatch.delenv("REGENT_SERVER")
    file = tmp_path / "regent.toml"
    file.write_text(f'[http]\nsocket = "{socket}"\n[elsewhere]\nbroken = 1\n')
    regent("status", "--config", str(file))
    regent("status", "--server", f"unix:{socket}")
    file.write_text("[http]\nsocket = 5\n")
    regent("status", "--config", str(file), code=Exit.USAGE)


def test_wrong_usage_has_its_exit_code() -> None:
    regent("lisst", code=Exit.USAGE)
    regent("explain", "orders", "minus", code=Exit.USAGE)
    regent("status", "-o", "xml", code=Exit.USAGE)
    assert "--shadow or --takeover" in regent("run", "--shadow", "--takeover", code=Exit.USAGE).stderr


def test_a_hand_back_without_a_terminal_needs_yes(view: Answering) -> None:
    assert "--yes" in regent("handback", code=Exit.USAGE).stderr
    assert view.noted("role.takeover", "role.handback") == []


def test_a_dry_run_needs_no_yes_and_prints_the_steps(view: Answering) -> None:
    result = regent("handback", "--dry-run", "--reason", "upgrade")
    assert "set the flag" in result.stdout
    assert view.noted("role.takeover", "role.handback")[0].dry_run
    assert view.noted("role.takeover", "role.handback")[0].reason == "upgrade"


def test_a_hand_back_in_a_pipe_does_not_wait() -> None:
    result = regent("handback", "--yes")
    assert "handback running" in result.stdout
    assert "regent status" in result.stderr


def test_a_hand_back_with_wait_prints_its_steps_and_its_end(view: Answering) -> None:
    view.operation = Operation(kind="handback", state="done", message="broker 2 holds the role", steps=["a", "b", "c"])
    result = regent("handback", "--yes", "--wait")
    assert "broker 2 holds the role" in result.stdout
    assert result.stderr.splitlines()[:3] == ["set the flag", "drain", "c"]


@pytest.mark.parametrize(
    "line", ["explain orders 1", "list topics", "list brokers", "list partitions", "describe topic orders"]
)
def test_a_response_from_an_old_model_is_marked_once(view: Answering, line: str) -> None:
    assert "may be old" not in regent(*line.split()).stderr
    why = "the connection to ZooKeeper is lost: no heartbeat for 7 s"
    view.grows_old(why)
    message = regent(*line.split()).stderr.replace("\n", " ")
    assert message.count(f"this may be old, the daemon answers from memory: {why}") == 1


def test_a_hand_back_that_fails_has_its_exit_code_and_remedy(view: Answering) -> None:
    view.operation = Operation(
        kind="handback", state="failed", message="no broker was elected", remedy="start a broker"
    )
    result = regent("handback", "--yes", "--wait", "-o", "json", code=Exit.FAILED)
    assert json.loads(result.stdout)["items"][0]["state"] == "failed"
    assert "start a broker" in result.stderr


def test_a_hand_back_unfinished_at_its_time_out_has_its_exit_code() -> None:
    regent("handback", "--yes", "--wait", "--timeout", "1", code=Exit.UNFINISHED)


def test_a_refusal_of_the_daemon_has_its_exit_code_and_remedy(view: Answering) -> None:
    view.answers["role.handback"] = ViewRefused("a reassignment runs", "finish the reassignment first")
    result = regent("handback", "--yes", code=Exit.REFUSED)
    assert "a reassignment runs" in result.stderr
    assert "finish the reassignment first" in result.stderr


def test_ctrl_c_detaches_from_a_watch() -> None:
    in_foreground = ["env", "--default-signal=INT"]  # jobs of a shell in the background ignore it
    command = [*in_foreground, *REGENT, "status", "--watch", "0.2", "-o", "json"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"{\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == Exit.DETACHED
    assert b"regent status" in err


def test_help_imports_nothing_heavy() -> None:
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
    commands = (
        "run", "preflight", "status", "describe cluster", "describe broker", "describe topic", "describe partition",
        "list brokers", "list topics", "list partitions", "explain", "history", "verify", "takeover", "handback",
        "health",
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
def test_completion_prints_a_script_for_each_shell(shell: str) -> None:
    found = subprocess.run([*REGENT, "completion", shell], cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"complete_{shell}" in found.stdout


def test_completion_completes_a_command() -> None:
    words = {"_REGENT_COMPLETE": "complete_bash", "COMP_WORDS": "regent han", "COMP_CWORD": "1"}
    found = subprocess.run(REGENT, cwd=ROOT, env=os.environ | words, capture_output=True, text=True, check=False)
    assert found.stdout.split() == ["handback"]


def test_the_version_is_a_command_and_an_option() -> None:
    [item] = items("version")
    assert regent("--version").stdout.startswith(f"regent {item['regent']}")


def test_a_status_begins_with_what_is_wrong_and_leaves_identity_to_wide(view: Answering) -> None:
    rows = [line.split()[0] for line in regent("status").stdout.splitlines() if not line.startswith(" ")]
    assert rows[:2] == ["health", "mode"]
    assert not {"version", "ibp", "cluster"} & set(rows)
    wide = [line.split()[0] for line in regent("status", "-o", "wide").stdout.splitlines() if not line.startswith(" ")]
    assert wide[: len(rows)] == rows
    assert {"version", "ibp"} < set(wide[len(rows) :])


def test_rows_of_trouble_are_red_and_zeros_are_not() -> None:
    well = {"health": [], "warnings": [], "offlinePartitions": 0, "underMinIsrPartitions": None}
    assert bad_rows(well) == frozenset()
    assert arranged({"mode": "active", **well}, wide=False)["health"] == "nothing is wrong with the cluster"
    ill = {"health": ["broker 4 is dead"], "warnings": ["x"], "offlinePartitions": 2, "underMinIsrPartitions": 1}
    assert bad_rows(ill) == ill.keys()
    assert next(iter(arranged({"mode": "active", **ill}, wide=False))) == "health"
    assert "health" not in arranged({"mode": "standby"}, wide=True), "a standby has no model of the cluster"
