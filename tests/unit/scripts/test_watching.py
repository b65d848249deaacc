"""Alert rules, runbooks and dashboards agree with each other and with the metrics, for Kafka and for regions."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.kafka.metrics.exposition import KafkaCollector
from controller.kafka.metrics.values import BrokerGauges, Counters, Gauges
from controller.kafka.term.dispatch import KAFKA_STATES
from controller.metrics import ProcessMetrics, exposition, registry
from controller.regions.metrics import RegionCounters, RegionGauges, RegionsCollector
from scripts.dashboard_kit import Dashboard
from scripts.dashboard_panels import DASHBOARDS
from scripts.dashboard_regions import DASHBOARD
from scripts.dashboards import EVERY, FOLDER, render, text
from scripts.screenshots import IMAGES, MOMENTS, terminal
from tests.kit.command import items, regent
from tests.kit.regions.daemon import Blocking, settings_of, world_in_thread
from tests.verify.watched.prometheus import PrometheusMissing, promtool
from tests.verify.watched.replay import EXPECTED, TESTS

ROOT = Path(__file__).parents[3]
RULES = ROOT / "configs" / "prometheus" / "regent-alerts.yml"
RUNBOOK = (ROOT / "docs" / "how-to" / "runbook.md").read_text()
METRIC = re.compile(r"\b(?:regent|kafka_controller|process)_[a-z_]+[a-z]\b")


def test_commands_of_zookeeper_that_are_off_by_default_come_with_the_setting_that_allows_them() -> None:
    """``srvr`` alone is in ZooKeeper's default ``4lw.commands.whitelist``."""
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        steps = re.split(r"\n\n|\n(?=\d\. )", page.read_text())
        for step in (step for step in steps if "| nc " in step):
            for command in set(re.findall(r"echo (\w+) \| nc ", step)) - {"srvr"}:
                assert re.search(rf"4lw\.commands\.whitelist=[\w,]*\b{command}\b", step), (page.name, step)


def test_each_dashboard_and_the_status_have_a_picture_while_all_is_well_and_of_a_bad_minute() -> None:
    page = (ROOT / "docs" / "how-to" / "watch.md").read_text()
    wanted = {f"{dashboard.uid}-{moment}.png" for dashboard in DASHBOARDS for moment in MOMENTS}
    wanted |= {"prometheus-alerts.png", *(f"status-{moment}.svg" for moment in MOMENTS)}
    assert set(re.findall(r"\(\.\./images/([\w.-]+)\)", page)) == wanted
    assert all((IMAGES / name).stat().st_size for name in wanted)


def test_a_terminal_is_drawn_with_its_colours_and_loads_nothing() -> None:
    drawn = terminal("\x1b[1;31mhealth\x1b[0m  broker 1 is dead\nmode    active   ", "t")
    assert "@font-face" not in drawn
    assert "url(http" not in drawn
    assert "health" in drawn
    assert "active" in drawn


class View:
    def gauges(self) -> Gauges:
        return Gauges(
            brokers={1: BrokerGauges()},
            live_procedures={("drain", "waiting"): 1},
            idle_s={("drain", "other"): 1.0},
            throttles_bytes_per_s={1: 5},
            dead_brokers={2: 6},
        )


def rules() -> dict[str, dict[str, Any]]:
    """Returns the rules by alert."""
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def known() -> set[str]:
    """Returns the names of all samples of a scrape."""
    counters = Counters()
    for counts in (counters.resignations, counters.refusals, counters.failures, counters.answers):
        counts["reason"] += 1
    counters.events["failover"].record(1.0)
    counters.broker_requests[1].record(1.0)
    body, _ = exposition(registry(ProcessMetrics(1, lambda: 0), KafkaCollector(counters, View(), KAFKA_STATES)), "")
    return set(re.findall(r"(?m)^([a-z_]+)[{ ]", body.decode()))


def test_every_rule_names_existing_metrics() -> None:
    for alert, rule in rules().items():
        assert set(METRIC.findall(rule["expr"])) <= known(), alert


def test_every_alert_has_a_severity_and_an_entry_in_the_runbook() -> None:
    entries = re.findall(r"(?m)^## (\w+)$", RUNBOOK)
    assert list(rules()) == entries, "in the same order"
    for alert, rule in rules().items():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}, alert
        assert rule["annotations"]["runbook"] == f"docs/how-to/runbook.md#{alert.lower()}"
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}


def test_every_alert_fires_in_a_recorded_fault() -> None:
    assert set().union(*EXPECTED.values()) == set(rules())
    assert {path.stem for path in TESTS.glob("*.yml")} == set(EXPECTED)


def test_the_runbook_lists_the_alerts_of_each_fault() -> None:
    rows = re.findall(r"(?m)^\| [^|]+ \| ((?:Regent\w+(?:, )?)+|none) \|$", RUNBOOK)
    listed = [frozenset() if alerts == "none" else frozenset(alerts.split(", ")) for alerts in rows]
    assert sorted(map(sorted, listed)) == sorted(map(sorted, EXPECTED.values()))


def test_the_runbook_names_existing_metrics_panels_and_commands() -> None:
    assert set(re.findall(r"`(regent_[a-z_]+)`", RUNBOOK)) <= known()
    panels = {panel["title"] for dashboard in DASHBOARDS for panel in render(dashboard)["panels"]}
    named = set(re.findall(r"panels \*([^*]+)\* and \*([^*]+)\*", RUNBOOK)[0])
    assert all(any(title.startswith(name) for title in panels) for name in named), named
    shown = regent("--help").stdout
    for command in set(re.findall(r"`regent ([a-z]+)", RUNBOOK)):
        assert re.search(rf"(?m)^│ {command} ", shown), command


def test_links_within_the_runbook_lead_somewhere() -> None:
    headings = {name.lower() for name in re.findall(r"(?m)^#+ (\w+)$", RUNBOOK)}
    assert set(re.findall(r"\]\(#(\w+)\)", RUNBOOK)) <= headings


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_a_dashboards_file_is_made_from_its_table(dashboard: Dashboard) -> None:
    assert (FOLDER / f"{dashboard.uid}.json").read_text() == text(dashboard), "run python -m scripts.dashboards"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.uid)
def test_a_dashboards_panels_show_existing_metrics_and_do_not_overlap(dashboard: Dashboard) -> None:
    places: set[tuple[int, int]] = set()
    numbers = []
    for panel in render(dashboard)["panels"]:
        for target in panel.get("targets", ()):
            assert set(METRIC.findall(target["expr"])) <= known(), panel["title"]
        at = panel["gridPos"]
        taken = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not places & taken, panel["title"]
        assert max(x for x, _ in taken) < 24, panel["title"]
        places |= taken
        numbers.append(panel["id"])
    assert len(numbers) == len(set(numbers))


def looks(title: str) -> dict[str, Any]:
    """Returns how a panel shows its values."""
    [found] = [panel for one in EVERY for panel in render(one)["panels"] if panel["title"] == title]
    return dict(found["fieldConfig"]["defaults"])


def colour_of(title: str, value: float) -> str:
    """Returns the colour that a panel's thresholds give a value."""
    steps = looks(title)["thresholds"]["steps"]
    return [str(step["color"]) for step in steps if step["value"] is None or value >= step["value"]][-1]


@pytest.mark.parametrize("dashboard", EVERY, ids=lambda dashboard: dashboard.uid)
def test_every_panel_has_thresholds_that_rise_and_words_for_single_values(dashboard: Dashboard) -> None:
    for panel in render(dashboard)["panels"]:
        if panel["type"] == "row":
            continue
        found = panel["fieldConfig"]["defaults"]
        first, *others = [step["value"] for step in found["thresholds"]["steps"]]
        assert first is None, panel["title"]
        assert others == sorted(others), panel["title"]
        assert isinstance(found["mappings"], list), panel["title"]
        if panel["type"] == "timeseries":
            style = found["custom"]["thresholdsStyle"]["mode"]
            assert (style == "dashed") == bool(others), panel["title"]


def test_what_is_bad_has_another_colour_than_what_is_well() -> None:
    for title in ("Without a leader", "Below min ISR", "Partitions that need attention", "Alerts that fire"):
        assert [colour_of(title, value) for value in (0, 1, 5)] == ["green", "red", "red"], title
    assert [colour_of("Dead brokers", value) for value in (-1, 0, 6)] == ["green", "red", "red"]
    assert [colour_of("Longest wait of a procedure", value) for value in (0, 301, 900)] == ["green", "orange", "red"]
    assert [colour_of("Lease, remaining part", value) for value in (0.05, 0.2, 1)] == ["red", "orange", "green"]
    assert looks("Role flag")["mappings"][0]["options"]["0"]["text"] == "brokers"
    assert looks("Without a leader")["mappings"][0]["options"]["0"]["text"] == "none"


def test_what_is_wrong_comes_first_then_the_role_and_heartbeats_last() -> None:
    panels = render(DASHBOARDS[0])["panels"]
    rows = [panel["title"] for panel in panels if panel["type"] == "row"]
    assert (rows[:2], rows[-1]) == (["What is wrong now", "Role"], "Heartbeats")
    first = [panel for panel in panels if panel["gridPos"]["y"] == 1]
    assert [panel["title"] for panel in first] == [
        "Alerts that fire now", "Dead brokers", "Without a leader", "Below min ISR", "Under-replicated", "Procedures",
        "Longest wait of a procedure",
    ]  # fmt: skip
    assert [panel["options"]["textMode"] for panel in first] == ["name", "name", *["value"] * 5]


def test_without_prometheus_make_verify_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(PrometheusMissing, match=r"promtool is not installed.*apt-get install .*prometheus"):
        promtool("check", "rules", str(RULES))
    assert re.search(r"(?m)^verify-tests:.* prometheus ", (ROOT / "Makefile").read_text())


REGION_RULES = ROOT / "configs" / "prometheus" / "regent-regions-alerts.yml"
HOW_TO = ROOT / "docs" / "how-to"
OF_FILES = re.compile(r"regions (?:backup|restore)|--offline")
REGION_RUNBOOK = (HOW_TO / "runbook-regions.md").read_text()
REGION_METRIC = re.compile(r"\b(?:regent|process)_[a-z_]+[a-z]\b")


SAYING = (
    "admin", "brokers", "cli", "configs", "controller", "metadata_store", "pipeline", "regent_agent", "scripts",
    "state_machines",
)  # fmt: skip
"""Packages with the messages, and the names of panels, that runbooks quote."""
VALUES = re.compile(r'"[^"]*"|\.\.\.|\d[\d,]*|\b[A-Z][A-Z_]*\b|[():]')
"""What stands for a value in a quoted message, and signs that may come before one."""
OF_OTHERS = {"database is locked"}
"""Messages of SQLite."""
NAMED = "1001"
"""The region in the how-to's commands."""


class RegionsView:
    def region_gauges(self) -> RegionGauges:
        return RegionGauges(active=True)


class Broken:
    def region_gauges(self) -> RegionGauges:
        raise RuntimeError("no model yet")


def region_metrics(view: Any = None) -> set[str]:
    """Returns the names of all samples of a scrape."""
    counters = RegionCounters()
    counted = counters.submitted, counters.failed, counters.refusals, counters.hellos_refused, counters.grown
    for counts in (*counted, counters.balance_moves_left_out, counters.node_faults):
        counts["crash"] += 1
    counters.times["crash"].record(1.0)
    regions = RegionsCollector(counters, (view or RegionsView()).region_gauges)
    body, _ = exposition(registry(ProcessMetrics(1, lambda: 0), regions), "")
    return set(re.findall(r"(?m)^([a-z_]+)[{ ]", body.decode()))


def region_rules() -> dict[str, dict[str, Any]]:
    """Returns the rules by alert."""
    [group] = yaml.safe_load(REGION_RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_every_rule_of_regions_names_existing_metrics() -> None:
    for alert, rule in region_rules().items():
        assert set(REGION_METRIC.findall(rule["expr"])) <= region_metrics(), alert


def test_every_alert_of_regions_has_a_severity_and_an_entry_in_the_runbook() -> None:
    assert list(region_rules()) == re.findall(r"(?m)^## (\w+)$", REGION_RUNBOOK), "in the same order"
    for alert, rule in region_rules().items():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}, alert
        assert rule["annotations"]["runbook"] == f"docs/how-to/runbook-regions.md#{alert.lower()}"
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}


def test_the_dashboards_file_is_made_from_its_table() -> None:
    assert (FOLDER / f"{DASHBOARD.uid}.json").read_text() == text(DASHBOARD), "run python -m scripts.dashboards"


def test_its_panels_show_existing_metrics_and_do_not_overlap() -> None:
    places: set[tuple[int, int]] = set()
    for panel in render(DASHBOARD)["panels"]:
        for target in panel.get("targets", ()):
            assert set(REGION_METRIC.findall(target["expr"])) <= region_metrics(), panel["title"]
        at = panel["gridPos"]
        taken = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not places & taken, panel["title"]
        assert max(x for x, _ in taken) < 24, panel["title"]
        places |= taken


def test_a_failing_view_costs_the_gauges_alone() -> None:
    assert region_metrics(Broken()) == region_metrics()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Blocking]:
    with world_in_thread(settings_of(tmp_path_factory.mktemp("how-to"))) as found:
        yield found


def typed(page: Path) -> list[str]:
    """Returns the commands in the blocks of a page."""
    blocks = re.findall(r"(?s)```\n(.*?)```", page.read_text())
    return [line for block in blocks for line in block.splitlines() if line.startswith("regent ")]


def test_the_commands_of_the_how_to_run_in_their_order(world: Blocking) -> None:
    """Those about files of stores run in ``test_cli_regions_backup.py``."""
    commands = [line for line in typed(HOW_TO / "assign-regions.md") if not OF_FILES.search(line)]
    assert len(commands) >= 15
    for line in commands:
        words = [_present(world) if word == NAMED else word for word in shlex.split(line)[1:]]
        regent(*words, "--server", world.socket)


def _present(world: Blocking) -> str:
    """Returns the id of a region of the how-to's table: ids follow from the procedures before."""
    return str(items("regions", "list", "--table", "users", "--server", world.socket)[0]["id"])


def test_commands_within_sentences_exist() -> None:
    """The runbook and the how-to name a command by its first words."""
    pages = REGION_RUNBOOK + (HOW_TO / "assign-regions.md").read_text()
    named = set(re.findall(r"`regent ((?:regions procedures|regions|servers|tables|namespaces) [a-z-]+)", pages))
    assert len(named) >= 8
    for command in named:
        assert "Usage: regent" in regent(*command.split(), "--help").stdout


@cache
def said() -> str:
    """Returns the texts of the product, a line each; a value in one begins a line, too."""
    modules = (module for package in SAYING for module in (ROOT / package).rglob("*.py"))
    nodes = (node for module in modules for node in ast.walk(ast.parse(module.read_text())))
    found = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return "\n".join(found)


@pytest.mark.parametrize("page", [RUNBOOK, REGION_RUNBOOK], ids=["kafka", "regions"])
def test_messages_in_runbooks_are_those_of_the_product(page: str) -> None:
    """An operator looks for the sentence of the log, or of the status, in the page."""
    prose = re.sub(r"(?s)```.*?```", "", page)
    quoted = {" ".join(text.split()) for text in re.findall(r"(?<![*\w])\*([^*`]+?)\*(?!\*)", prose)}
    assert len(quoted) >= 20
    pieces = {(text, piece.strip()) for text in quoted - OF_OTHERS for piece in VALUES.split(text)}
    assert sorted(text for text, piece in pieces if " " in piece and piece not in said()) == []
