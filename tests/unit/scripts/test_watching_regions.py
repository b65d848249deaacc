"""Alert rules, runbook and dashboard of regions agree with each other and the metrics; the how-to's commands run."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.metrics.exposition import ProcessMetrics, exposition, registry
from controller.regions.metrics.counters import RegionCounters
from controller.regions.metrics.exposition import RegionsCollector
from controller.regions.metrics.gauges import RegionGauges
from scripts.dashboard_regions import DASHBOARD
from scripts.dashboards import FOLDER, render, text
from tests.kit.cli_kit import items, regent
from tests.kit.regions_world import Blocking, settings_of, world_in_thread

ROOT = Path(__file__).parents[3]
RULES = ROOT / "configs" / "prometheus" / "regent-regions-alerts.yml"
HOW_TO = ROOT / "docs" / "how-to"
RUNBOOK = (HOW_TO / "runbook-regions.md").read_text()
METRIC = re.compile(r"\b(?:regent|process)_[a-z_]+[a-z]\b")


SAYS = (
    "controller/regions/domain.py",
    "controller/regions/zookeeper_claim.py",
    "metadata_store/catalog/znodes.py",
    "metadata_store/catalog/zookeeper_reading.py",
    "metadata_store/records/codec.py",
)
"""Modules with the messages that the runbook names."""
NAMED = "1001"
"""The region in the how-to's commands."""


class View:
    def region_gauges(self) -> RegionGauges:
        return RegionGauges(active=True)


class Broken:
    def region_gauges(self) -> RegionGauges:
        raise RuntimeError("no model yet")


def known(view: Any = None) -> set[str]:
    """Returns the names of all samples of a scrape."""
    counters = RegionCounters()
    for counts in (counters.submitted, counters.failed, counters.refusals, counters.hellos_refused):
        counts["crash"] += 1
    counters.times["crash"].record(1.0)
    body, _ = exposition(registry(ProcessMetrics(1, lambda: 0), RegionsCollector(counters, view or View())), "")
    return set(re.findall(r"(?m)^([a-z_]+)[{ ]", body.decode()))


def rules() -> dict[str, dict[str, Any]]:
    """Returns the rules by alert."""
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def test_every_rule_names_existing_metrics() -> None:
    for alert, rule in rules().items():
        assert set(METRIC.findall(rule["expr"])) <= known(), alert


def test_every_alert_has_a_severity_and_an_entry_in_the_runbook() -> None:
    assert list(rules()) == re.findall(r"(?m)^## (\w+)$", RUNBOOK), "in the same order"
    for alert, rule in rules().items():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}, alert
        assert rule["annotations"]["runbook"] == f"docs/how-to/runbook-regions.md#{alert.lower()}"
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}


def test_the_dashboards_file_is_made_from_its_table() -> None:
    assert (FOLDER / f"{DASHBOARD.uid}.json").read_text() == text(DASHBOARD), "run python -m scripts.dashboards"


def test_its_panels_show_existing_metrics_and_do_not_overlap() -> None:
    places: set[tuple[int, int]] = set()
    for panel in render(DASHBOARD)["panels"]:
        for target in panel.get("targets", ()):
            assert set(METRIC.findall(target["expr"])) <= known(), panel["title"]
        at = panel["gridPos"]
        taken = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not places & taken, panel["title"]
        assert max(x for x, _ in taken) < 24, panel["title"]
        places |= taken


def test_a_failing_view_costs_the_gauges_alone() -> None:
    assert known(Broken()) == known()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Blocking]:
    with world_in_thread(settings_of(tmp_path_factory.mktemp("how-to"))) as found:
        yield found


def typed(page: Path) -> list[str]:
    """Returns the commands in the blocks of a page."""
    blocks = re.findall(r"(?s)```\n(.*?)```", page.read_text())
    return [line for block in blocks for line in block.splitlines() if line.startswith("regent ")]


def test_the_commands_of_the_how_to_run_in_their_order(world: Blocking) -> None:
    commands = typed(HOW_TO / "assign-regions.md")
    assert len(commands) >= 15
    for line in commands:
        words = [_present(world) if word == NAMED else word for word in shlex.split(line)[1:]]
        regent(*words, "--server", world.socket)


def _present(world: Blocking) -> str:
    """Returns the id of a region of the how-to's table: ids follow from the procedures before."""
    return str(items("regions", "list", "--table", "users", "--server", world.socket)[0]["id"])


def test_commands_within_sentences_exist() -> None:
    """The runbook and the how-to name a command by its first words."""
    pages = RUNBOOK + (HOW_TO / "assign-regions.md").read_text()
    named = set(re.findall(r"`regent ((?:regions procedures|regions|servers|tables|namespaces) [a-z-]+)", pages))
    assert len(named) >= 8
    for command in named:
        assert "Usage: regent" in regent(*command.split(), "--help").stdout


def texts(of: Path) -> str:
    """Returns the texts of a module, as far as they have no values in them."""
    tree = ast.parse(of.read_text())
    found = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return "\n".join(found)


def test_messages_about_a_store_in_zookeeper_are_those_of_the_product() -> None:
    _, _, section = RUNBOOK.partition("## A store in ZooKeeper that does not open")
    _, _, damaged = RUNBOOK.partition("## RegentRegionsDamaged")
    both = section + damaged.partition("\n## ")[0].replace("NO_AUTH*", "*")
    named = [text for text in re.findall(r"\*([^*]+)\*", both.replace("\n", " ")) if " " in text]
    assert len(named) >= 7
    product = "\n".join(texts(ROOT / path) for path in SAYS)
    assert [text for text in named if text not in product] == []
