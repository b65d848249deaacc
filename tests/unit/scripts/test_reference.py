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
from tests.kit.command import regent

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
PAGES = ("settings", "cli", "http", "metrics", "logs", "journal")
TEXT = "\n".join((REFERENCE / f"{page}.md").read_text() for page in PAGES)


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
    shown = regent("--help").stdout
    commands = re.findall(r"(?m)^│ ([a-z][a-z-]+) ", shown)
    assert {"run", "status", "describe", "list", "config"} <= set(commands)
    for command in commands:
        assert re.search(rf"`{command}\b", TEXT), command


def test_every_rule_between_settings_is_documented() -> None:
    for rule in RULES:
        for key in rule.keys:
            assert f"`{key}" in TEXT, key
    known = {key.name for key in keys()}
    sections = "|".join({key.section for key in keys()})
    for name in set(re.findall(rf"`((?:{sections})\.[a-z_]+)[` ]", TEXT)):
        assert name in known, name
