"""Makes promtool's tests of the alert rules from what was recorded: ``python -m tests.verify.watched.replay``.

A recording ends while its fault lasts, or after it was mended; its last samples are held, as if it stayed so.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.verify.watched.prometheus import RULES, SCRAPE_S
from tests.verify.watched.record import FOLDER

TESTS: Final = Path(__file__).parents[1] / "alerts"
HELD_S: Final = 70 * 60
"""Longer than the longest ``for`` of the rules."""
FIRED: Final = 'group by (alertname) (max_over_time(ALERTS{alertstate="firing"}[3h]))'
EXPECTED: Final[Mapping[str, frozenset[str]]] = {
    "quiet": frozenset(),
    "broker_killed": frozenset({"RegentUnderReplicated"}),
    "last_replica_killed": frozenset({"RegentOfflinePartitions", "RegentUnderReplicated"}),
    "two_brokers_killed": frozenset({"RegentUnderMinIsr", "RegentUnderReplicated"}),
    "replica_in_sync_lost": frozenset({"RegentUncleanElections"}),
    "broker_frozen": frozenset({"RegentPropagationStuck", "RegentUnderReplicated"}),
    "daemon_killed": frozenset({"RegentDaemonDown"}),
    "daemon_frozen": frozenset({"RegentLoopStalls"}),
    "zookeeper_frozen": frozenset({"RegentZooKeeperSilent", "RegentControllerCount"}),
    "topic_scribbled_on": frozenset({"RegentMalformedZnodes"}),
    "partitions_refused": frozenset({"RegentPartitionsRefused"}),
    "endpoint_frozen": frozenset({"RegentEndpointNotShown"}),
    "older_broker": frozenset({"RegentIbpMismatch"}),
    "journal_disk_full": frozenset({"RegentJournalFailing"}),
    "journal_topic_missing": frozenset({"RegentJournalTopicFailing"}),
    "snapshots_not_written": frozenset({"RegentSnapshotsFailing"}),
    "role_contested": frozenset({"RegentResigning"}),
    "foreign_controller": frozenset({"RegentOutranked"}),
    "twin_started": frozenset({"RegentBlocked"}),
    "only_a_shadow_left": frozenset({"RegentDaemonDown", "RegentBrokerHoldsRole"}),
    "leadership_written_by_hand": frozenset({"RegentDaemonDown", "RegentBrokerHoldsRole", "RegentShadowDiffers"}),
    "moves_paused": frozenset({"RegentMovesPaused"}),
    "plan_paused": frozenset({"RegentPlanPaused"}),
    "record_damaged": frozenset({"RegentProceduresStandStill"}),
    "moved_off_dead_broker": frozenset({"RegentReplicasRemembered", "RegentUnderReplicated"}),
    "plan_waits_for_throttle": frozenset({"RegentProceduresStuck"}),
    "plan_waits_for_broker": frozenset({"RegentProceduresWithoutProgress", "RegentUnderReplicated"}),
}
"""By fault, the alerts that fire in it; all others stay silent."""
AGES: Final = frozenset({"regent_procedures_without_progress_seconds"})
"""Metrics that grow by a second a second where everything stays as it is: so they are held."""
NEEDLESS: Final = (("mode", {"active", "blocked"}), ("le", {"2.5"}), ("by", {"broker"}), ("cause", {"other"}))
"""Labels of which the rules select some values alone."""

Recording = Mapping[str, Any]


def main() -> None:
    """Writes a test for each fault that was recorded."""
    TESTS.mkdir(exist_ok=True)
    for fault in EXPECTED:
        recorded = FOLDER / f"{fault}.json"
        if recorded.exists():
            (TESTS / f"{fault}.yml").write_text(rendered(fault, json.loads(recorded.read_text())), encoding="utf-8")


def rendered(fault: str, recording: Recording) -> str:
    """Returns a file for ``promtool test rules``. A series and its values are on two lines each."""
    steps = int((recording["end"] - recording["begin"]) // SCRAPE_S)
    begin = recording["begin"]
    series = [
        f"      - series: '{_named(each['metric'])}'\n        values: '{_values(each, begin, steps)}'"
        for each in sorted(recording["series"], key=lambda each: _named(each["metric"]))
        if _is_used(each["metric"])
    ]
    fired = [
        f"          - labels: '{{alertname=\"{alert}\"}}'\n            value: 1" for alert in sorted(EXPECTED[fault])
    ]
    expected = "exp_samples:\n" + "\n".join(fired) if fired else "exp_samples: []"
    return (
        f"# Recorded by tests/verify/watched/record.py; the last samples are held for {HELD_S // 60} minutes.\n"
        f"rule_files: [../../../configs/prometheus/{RULES.name}]\n"
        "evaluation_interval: 15s\n"
        "tests:\n"
        f"  - name: {fault}\n"
        f"    interval: {SCRAPE_S}s\n"
        "    input_series:\n" + "\n".join(series) + "\n"
        "    promql_expr_test:\n"
        f"      - expr: {FIRED}\n"
        f"        eval_time: {(steps + HELD_S // SCRAPE_S) * SCRAPE_S}s\n"
        f"        {expected}\n"
    )


def _is_used(metric: Mapping[str, str]) -> bool:
    """Returns whether a rule reads the series."""
    if metric["__name__"] not in used():
        return False
    return all(label not in metric or metric[label] in kept for label, kept in NEEDLESS)


def used() -> set[str]:
    """Returns names of the metrics in the rules' expressions."""
    return set(re.findall(r"\b(?:up|regent_\w+|kafka_controller_\w+)\b", RULES.read_text(encoding="utf-8")))


def _named(metric: Mapping[str, str]) -> str:
    labels = ", ".join(f'{name}="{value}"' for name, value in sorted(metric.items()) if name != "__name__")
    return f"{metric['__name__']}{{{labels}}}"


def _values(series: Mapping[str, Any], begin: float, steps: int) -> str:
    """Returns the last sample of each step; ``stale`` where the target was gone, as Prometheus itself marks it."""
    by_step = {int((at - begin) // SCRAPE_S): value for at, value in series["values"]}
    found = [_short(by_step[step]) if step in by_step else None for step in range(steps)]
    held = HELD_S // SCRAPE_S
    if series["metric"]["__name__"] in AGES and found[-1] is not None:
        return " ".join((*_runs(found), f"{found[-1]}+{SCRAPE_S}x{held - 1}"))
    return " ".join(_runs([*found, *[found[-1]] * held]))


def _runs(values: Sequence[str | None]) -> Iterator[str]:
    """Returns values in promtool's notation: ``1x3`` is four times 1, ``_x3`` three times nothing."""
    seen = False
    for value, group in itertools.groupby(values):
        count = len(list(group))
        if value is not None:
            seen = True
            yield f"{value}x{count - 1}" if count > 1 else value
        elif not seen or count == 1:  # one missing sample is a scrape that came a moment later
            yield f"_x{count}"
        else:
            yield f"stale _x{count - 1}"


def _short(value: str) -> str:
    number = float(value)
    return str(int(number)) if number.is_integer() else f"{number:.4g}"


if __name__ == "__main__":
    main()
