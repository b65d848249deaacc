"""docs/reference names every metric, command, exit code and rule between settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric

from cli.exit_codes import Exit
from configs.rules import RULES
from configs.settings import keys
from controller.kafka.metrics.exposition import KafkaCollector, KafkaState
from controller.kafka.metrics.values import BrokerGauges, Counters, Gauges
from controller.kafka.term.dispatch import KAFKA_STATES
from controller.metrics import ProcessMetrics
from controller.regions.metrics import RegionCounters, RegionGauges, RegionsCollector
from tests.unit.cli.test_cli_help import commands
from tests.unit.controller.process.test_texts import app

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
PAGES = ("settings", "cli", "http", "metrics", "logs", "journal")
TEXT = "\n".join((REFERENCE / f"{page}.md").read_text() for page in PAGES)


OF_ACTS = (
    "/v1/regions/*/*",
    "/v1/regions/all/*",
    "/v1/regions/balancer/*",
    "/v1/regions/procedures/*/*",
    "/v1/regions/servers/*/*",
    "/v1/regions/tables/*/*",
)
"""Routes whose last part is one of several acts."""


class View:
    def gauges(self) -> Gauges:
        return Gauges(brokers={1: BrokerGauges()})

    def region_gauges(self) -> RegionGauges:
        return RegionGauges()


def families() -> list[Metric]:
    kafka = KafkaCollector(Counters(), View(), KAFKA_STATES)
    return [
        *ProcessMetrics(1, lambda: 0).collect(),
        *kafka.collect(),
        *RegionsCollector(RegionCounters(), View().region_gauges).collect(),
    ]


def test_every_metric_is_documented() -> None:
    timers = {f"kafka_controller_controllerstats_{state.timer.lower()}rateandtimems" for state in KafkaState}
    for family in families():
        if family.name not in timers:
            suffix = "_total" if family.type == "counter" and family.name.startswith("regent_") else ""
            assert re.search(rf"`{family.name}{suffix}[`{{]|`{family.name}_info`", TEXT), family.name
    assert f"{len(timers) - 1} more" in TEXT


def test_every_documented_metric_exists() -> None:
    names = {family.name for family in families()}
    suffixes = r"(_total|_info|_count|_bucket|_sum)$"
    mentioned = set(re.findall(r"\b(?:regent|kafka_controller)_[a-z_]+[a-z]\b", TEXT))
    unknown = {name for name in mentioned if name not in names and re.sub(suffixes, "", name) not in names}
    assert unknown == set()


@pytest.mark.parametrize("code", list(Exit))
def test_every_exit_code_is_documented(code: Exit) -> None:
    assert re.search(rf"(?m)^\| {code.value} \|", TEXT)


def test_every_command_is_documented() -> None:
    rows = re.findall(r"(?m)^\| (.*?) \|", (REFERENCE / "cli.md").read_text())
    entries = [code for row in rows for code in re.findall(r"`([^`]+)`", row)]
    assert {"run", "status", "describe topic", "list brokers", "config check"} <= commands().keys()
    for words in commands():
        assert any(re.match(rf"{words}(?![\w-])", entry) for entry in entries), words


def documented_paths() -> set[str]:
    """Returns the paths of the page, with a star for each part in capitals, which stands for a name or number."""
    found: list[list[str]] = []
    for row in re.findall(r"(?m)^\| (`/v1/.*)", (REFERENCE / "http.md").read_text()):
        for path in re.findall(r"`((?:/v1|\.\.\.)/[^`]+)`", row):
            parts = path.split("/")[1:]
            if path.startswith("..."):
                parts = continued(found[-1], parts)
            found.append(parts)
    return {"/" + "/".join("*" if part.isupper() else part for part in parts) for parts in found}


def continued(before: list[str], parts: list[str]) -> list[str]:
    """Returns the path that dots stand for: up to the part that both have, to a name, or beside the last part."""
    if parts[0] in before:
        return before[: before.index(parts[0])] + parts
    return (before if before[-1].isupper() else before[:-1]) + parts


def test_every_route_is_documented_and_every_documented_one_exists(tmp_path: Path) -> None:
    routes = {re.sub(r"{[a-z_]+}", "*", path) for path in app(tmp_path).openapi()["paths"] if path.startswith("/v1")}
    of_acts = {path: re.compile(re.escape(path[:-1]).replace(r"\*", "[*]") + "[a-z-]+") for path in OF_ACTS}
    wanted = documented_paths() - {"/v1/..."}
    assert len(routes) > 90
    assert routes >= of_acts.keys()
    assert routes - wanted - of_acts.keys() == set()
    assert {path for path in wanted - routes if not any(form.fullmatch(path) for form in of_acts.values())} == set()
    for path, form in of_acts.items():
        assert any(map(form.fullmatch, wanted)), path


def test_every_rule_between_settings_is_documented() -> None:
    for rule in RULES:
        for key in rule.keys:
            assert f"`{key}" in TEXT, key
    known = {key.name for key in keys()}
    sections = "|".join({key.section for key in keys()})
    for name in set(re.findall(rf"`((?:{sections})\.[a-z_]+)[` ]", TEXT)):
        assert name in known, name
