"""Scrapes in every mode, and before any value is known, with the names that dashboards for Kafka's controller use."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from unittest import mock

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from controller.kafka.metrics.exposition import KafkaCollector, KafkaState
from controller.kafka.metrics.values import (
    HOLDERS,
    QUEUE_TIME_KEPT_S,
    BrokerGauges,
    Counters,
    Gauges,
    HolderKind,
    ShownMode,
)
from controller.kafka.term.dispatch import KAFKA_STATES
from controller.metrics import LABELS_MAX, exposition, registry

CONTROLLER = "kafka_controller_kafkacontroller"
QUEUE = "kafka_controller_controllereventmanager"
CHANNELS = "kafka_controller_controllerchannelmanager"
STATS = "kafka_controller_controllerstats"


@dataclass
class View:
    shown: Gauges
    broken: bool = False

    def gauges(self) -> Gauges:
        if self.broken:
            raise KeyError("half initialised")
        return self.shown


BUSY = Gauges(
    mode=ShownMode.ACTIVE, controller_epoch=101, lease_remaining_s=102, lease_remaining_part=103, heartbeat_age_s=104,
    standstill_s=132,
    holder="daemon", role_flag="regent", zookeeper_connected=True, session_timeout_s=105, event_queue_size=106,
    ibp_mismatch_brokers=107, outranking_brokers=108, malformed_znodes=109, endpoint_shown=True,
    controller_state=111, offline_partitions=112, under_replicated_partitions=113, under_min_isr_partitions=114,
    live_procedures={("drain", "waiting"): 130}, paused_plans=131,
    idle_s={("reassign", "other"): 132.5}, copied_bytes=133, plan_bytes=134, throttles_bytes_per_s={2: 135},
    dead_brokers={4: 136},
    procedures=124, procedures_stuck=125, procedures_unusable=126, procedures_stand_still=True,
    preferred_replica_imbalance=115, reassigning_partitions=116, drained_brokers=127, topics=117, partitions=118,
    paused=True, remembered_replicas=128, unstopped_replicas=129, topics_to_delete=119,
    replicas_to_delete=120, topics_ineligible_to_delete=121, replicas_ineligible_to_delete=122, active_brokers=123,
    brokers={
        1: BrokerGauges(queued=20, age_s=0.5, unacknowledged_partitions=8, refused_partitions=9),
        2: BrokerGauges(queued=13),
    },
)  # fmt: skip
GAUGES = {
    "regent_term_epoch": 101, "regent_lease_remaining_seconds": 102, "regent_lease_remaining_ratio": 103,
    "regent_heartbeat_age_seconds": 104, "regent_standstill_seconds": 132,
    "regent_zookeeper_session_timeout_seconds": 105,
    "regent_event_queue_size": 106,
    "regent_ibp_mismatch_brokers": 107, "regent_outranking_brokers": 108, "regent_malformed_znodes": 109,
    "regent_under_replicated_partitions": 113,
    "regent_under_min_isr_partitions": 114, "regent_reassigning_partitions": 116, "regent_drained_brokers": 127,
    "regent_moves_paused": 1, "regent_remembered_replicas": 128, "regent_unstopped_replicas": 129,
    "regent_zookeeper_connected": 1,
    'regent_live_procedures{kind="drain",state="waiting"}': 130, "regent_paused_plans": 131,
    'regent_procedures_without_progress_seconds{cause="other",kind="reassign"}': 132.5,
    "regent_plan_copied_bytes": 133, "regent_plan_bytes": 134,
    'regent_broker_throttle_bytes_per_second{broker_id="2"}': 135, 'regent_dead_broker_replicas{broker_id="4"}': 136,
    "regent_procedures": 124, "regent_procedures_stuck": 125, "regent_procedures_unusable": 126,
    "regent_procedures_stand_still": 1,
    "regent_admin_endpoint_shown": 1, "regent_role_wanted": 1, 'regent_role_held{by="daemon"}': 1,
    'regent_broker_propagation_age_seconds{broker_id="1"}': 0.5,
    'regent_broker_propagation_age_seconds{broker_id="2"}': 0,
    'regent_broker_unacknowledged_partitions{broker_id="1"}': 8,
    'regent_broker_refused_partitions{broker_id="1"}': 9,
    f"{CONTROLLER}_activecontrollercount": 1, f"{CONTROLLER}_controllerstate": 111,
    f"{CONTROLLER}_offlinepartitionscount": 112, f"{CONTROLLER}_preferredreplicaimbalancecount": 115,
    f"{CONTROLLER}_globaltopiccount": 117, f"{CONTROLLER}_globalpartitioncount": 118,
    f"{CONTROLLER}_topicstodeletecount": 119, f"{CONTROLLER}_replicastodeletecount": 120,
    f"{CONTROLLER}_topicsineligibletodeletecount": 121, f"{CONTROLLER}_replicasineligibletodeletecount": 122,
    f"{CONTROLLER}_activebrokercount": 123, f"{CONTROLLER}_fencedbrokercount": 0, f"{CONTROLLER}_zkmigrationstate": 4,
    f"{QUEUE}_eventqueuesize": 106, f"{CHANNELS}_totalqueuesize": 33, f'{CHANNELS}_queuesize{{broker_id="1"}}': 20,
}  # fmt: skip
"""Samples of :data:`BUSY`: each of its values is shown under its names."""
COUNTED = {
    "commits": "regent_commits_total", "writes": "regent_writes_total", "conflicts": "regent_conflicts_total",
    "unknown_outcomes": "regent_unknown_outcomes_total", "fenced": "regent_fenced_total",
    "terms": "regent_terms_total", "standstills": "regent_standstills_total",
    "interim_terms": "regent_interim_terms_total",
    "repaired_assignments": "regent_repaired_assignments_total", "recorded_calls": "regent_recorded_calls_total",
    "unrecorded_calls": "regent_unrecorded_calls_total",
    "shadow_compared": "regent_shadow_compared_total",
    "shadow_differences": "regent_shadow_differences_total", "journal_rows": "regent_journal_rows_total",
    "journal_rows_lost": "regent_journal_rows_lost_total", "journal_bytes": "regent_journal_bytes",
    "journal_topic_rows": "regent_journal_topic_rows_total",
    "journal_topic_rows_lost": "regent_journal_topic_rows_lost_total",
    "journal_topic_bytes_waiting": "regent_journal_topic_bytes_waiting",
    "snapshots": "regent_snapshots_total", "snapshot_failures": "regent_snapshot_failures_total",
    "unclean_elections": f"{STATS}_uncleanleaderelections_total",
}  # fmt: skip
REASONS = {
    "refusals": ("regent_refusals_total", "reason"), "failures": ("regent_failures_total", "reason"),
    "resignations": ("regent_resignations_total", "reason"), "answers": ("regent_broker_answers_total", "error"),
}  # fmt: skip
HISTOGRAMS = {
    "heartbeats": "regent_heartbeat_seconds", "commit_time": "regent_commit_seconds",
    "propagation": "regent_propagation_lag_seconds", "queue_time": "regent_event_queue_seconds",
}  # fmt: skip


def scraped(counters: Counters, view: View) -> KafkaCollector:
    return KafkaCollector(counters, view, KAFKA_STATES)


def scrape(counters: Counters, view: View) -> dict[str, float]:
    """Returns every sample by ``name{label="value"}``."""
    body, _ = exposition(registry(scraped(counters, view)), "")
    return samples(text_string_to_metric_families(body.decode()))


def samples(families: object) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in families:  # type: ignore[attr-defined]
        assert isinstance(family, Metric)
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            key = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert key not in found, f"twice: {key}"
            found[key] = sample.value
    return found


def test_every_value_of_the_daemon_has_its_names() -> None:
    found = scrape(Counters(), View(BUSY))
    assert {name: found.get(name) for name in GAUGES} == GAUGES
    shown = {value for value in vars_of(BUSY).values() if isinstance(value, int | float) and value > 100}
    for by_label in (BUSY.live_procedures, BUSY.idle_s, BUSY.throttles_bytes_per_s, BUSY.dead_brokers):
        shown |= {*by_label.values()}
    assert shown == {value for value in GAUGES.values() if value > 100}, "a new gauge needs its row"


def vars_of(gauges: Gauges) -> dict[str, object]:
    return {field.name: getattr(gauges, field.name) for field in fields(gauges)}


def test_every_count_of_the_daemon_has_its_name() -> None:
    given = {name: 201 + at for at, name in enumerate(COUNTED)}
    counters = Counters(**given)  # type: ignore[arg-type]
    for name, (_, label) in REASONS.items():
        getattr(counters, name).update({f"{label} of {name}": 7})
    counters.journal_failing, counters.journal_topic_failing = "No space left on device", "no broker can be reached"
    found = scrape(counters, View(BUSY))
    assert {name: found.get(COUNTED[name]) for name in given} == given
    assert found[f"{STATS}_uncleanleaderelectionspersec"] == given["unclean_elections"]
    for name, (metric, label) in REASONS.items():
        assert found[f'{metric}{{{label}="{label} of {name}"}}'] == 7
    assert (found["regent_journal_failing"], found["regent_journal_topic_failing"]) == (1, 1)
    plain = {field.name for field in fields(Counters) if field.type == "int"}
    assert plain == COUNTED.keys(), "a new counter needs its row"


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_a_histogram_counts_durations_in_seconds_up_to_each_bound(name: str) -> None:
    counters = Counters()
    for seconds in (0.01, 0.02, 3.0, 60.0):
        getattr(counters, name).record(seconds)
    found, metric = scrape(counters, View(BUSY)), HISTOGRAMS[name]
    counted = {"0.005": 0, "0.01": 1, "0.025": 2, "5.0": 3, "30.0": 3, "+Inf": 4}
    assert {bound: found[f'{metric}_bucket{{le="{bound}"}}'] for bound in counted} == counted
    assert found[f"{metric}_count"] == 4
    assert found[f"{metric}_sum"] == pytest.approx(63.03)


def test_own_names_end_in_base_units() -> None:
    units = re.compile(
        r"_(seconds|ratio|held|wanted|bytes|total|info|partitions|replicas|brokers|znodes|size|epoch|connected|failing|role|shown"
        r"|moves_paused|paused_plans|procedures|procedures_stand_still|procedures_stuck|procedures_unusable)"
    )
    assert all(units.search(name) for name in scrape(Counters(), View(BUSY)) if name.startswith("regent_"))


@pytest.mark.kafka("ControllerEventManagerTest.testEventQueueTime")
def test_timers_have_count_and_quantiles_in_milliseconds() -> None:
    counters = Counters()
    for ms in range(1, 101):
        counters.events["topic_change"].record(ms / 1e3)
    counters.events["partition_modifications"].record(1.0)
    counters.queue_time.record(0.25)
    counters.broker_requests[1].record(0.03)
    counters.broker_requests[9].record(0.03)
    found = scrape(counters, View(BUSY))
    change = f"{STATS}_topicchangerateandtimems"
    assert found[f"{change}_count"] == 101, "kinds of one Kafka state are one timer"
    assert found[f"{change}_sum"] == pytest.approx(6_050)
    assert found[f'{change}{{quantile="0.5"}}'] == pytest.approx(51)
    assert found[f'{change}{{quantile="0.75"}}'] == pytest.approx(76)
    assert found[f'{change}{{quantile="0.999"}}'] == pytest.approx(1_000)
    assert found[f"{STATS}_topicdeletionrateandtimems_count"] == 0, "alerts need the series"
    assert found[f'{QUEUE}_eventqueuetimems{{quantile="0.99"}}'] == pytest.approx(250)
    assert found[f'{CHANNELS}_requestrateandqueuetimems_count{{broker_id="1"}}'] == 1
    assert f'{CHANNELS}_requestrateandqueuetimems_count{{broker_id="9"}}' not in found, "only live brokers are shown"


@pytest.mark.kafka("ControllerEventManagerTest.testEventQueueTimeResetOnTimeout")
def test_an_idle_queue_shows_no_old_waiting_times() -> None:
    counters = Counters()
    quantile = f'{QUEUE}_eventqueuetimems{{quantile="0.99"}}'
    with mock.patch("controller.metrics.time.monotonic", return_value=1_000.0) as now:
        counters.queue_time.record(0.5)
        counters.events["broker_change"].record(0.5)
        now.return_value += QUEUE_TIME_KEPT_S
        assert scrape(counters, View(BUSY))[quantile] == 500
        now.return_value += 0.1
        found = scrape(counters, View(BUSY))
        assert found[quantile] == 0
        assert found[f"{QUEUE}_eventqueuetimems_count"] == 1, "counters never fall"
        assert found[f'{STATS}_leaderelectionrateandtimems{{quantile="0.99"}}'] == 500
        counters.queue_time.record(0.02)
        assert scrape(counters, View(BUSY))[quantile] == 20


def test_states_of_the_controller_have_kafkas_numbers() -> None:
    """Kafka has no event for number 16 in ZooKeeper mode."""
    assert [state.number for state in KafkaState] == [*range(1, 16), 17]


@pytest.mark.parametrize("mode", list(ShownMode))
def test_each_mode_is_one_gauge_and_kafkas_names_show_the_model_while_active_alone(mode: ShownMode) -> None:
    """A sum over several daemons counts each partition once."""
    found = scrape(Counters(), View(Gauges(mode=mode, offline_partitions=3)))
    assert {m: found[f'regent_role{{mode="{m}"}}'] for m in ShownMode} == {m: float(m is mode) for m in ShownMode}
    assert found[f"{CONTROLLER}_activecontrollercount"] == float(mode is ShownMode.ACTIVE)
    shown = 3 if mode in (ShownMode.ACTIVE, ShownMode.SUSPENDED) else 0
    assert found[f"{CONTROLLER}_offlinepartitionscount"] == shown


@pytest.mark.parametrize("holder", HOLDERS)
def test_the_holder_of_the_role_is_shown_in_every_mode(holder: HolderKind) -> None:
    for mode in ShownMode:
        found = scrape(Counters(), View(Gauges(mode=mode, holder=holder)))
        assert {h: found[f'regent_role_held{{by="{h}"}}'] for h in HOLDERS} == {h: float(h == holder) for h in HOLDERS}
        assert found["regent_role_wanted"] == 0


def test_an_unreadable_state_costs_gauges_but_not_the_scrape(caplog: pytest.LogCaptureFixture) -> None:
    view = View(BUSY, broken=True)
    metrics = registry(scraped(Counters(commits=5), view))
    for expected in (1.0, 2.0, 3.0):
        body, _ = exposition(metrics, "")
        found = samples(text_string_to_metric_families(body.decode()))
        assert found["regent_scrape_failures_total"] == expected
        assert (found["regent_commits_total"], found["regent_term_epoch"]) == (5, 0)
        assert found['regent_role{mode="starting"}'] == 1
    assert "could not be read" in caplog.text
    view.broken = False
    assert scrape(Counters(), view)["regent_term_epoch"] == 101


@pytest.mark.parametrize(("reasons", "shown"), [(LABELS_MAX, LABELS_MAX), (LABELS_MAX + 50, LABELS_MAX + 1)])
def test_reasons_are_bounded_and_their_sum_stays(reasons: int, shown: int) -> None:
    counters = Counters()
    for number in range(reasons):
        counters.refusals[f"reason {number}"] = 2
    found = {name: value for name, value in scrape(counters, View(BUSY)).items() if "regent_refusals" in name}
    assert (len(found), sum(found.values())) == (shown, 2 * reasons)
    assert found.get('regent_refusals_total{reason="other"}', 0) == 2 * (reasons - LABELS_MAX)


def test_no_metric_is_labelled_by_partition_or_topic() -> None:
    counters = Counters()
    counters.events["alter_partition"].record(0.1)
    labels = {name for sample in scrape(counters, View(BUSY)) for name in re.findall(r'(\w+)="', sample)}
    assert labels <= {
        "version", "controller_id", "mode", "reason", "error", "event", "le", "quantile", "broker_id", "generation",
        "by", "kind", "state", "cause",
    }  # fmt: skip


def test_the_accept_header_selects_openmetrics() -> None:
    body, content_type = exposition(
        registry(scraped(Counters(unclean_elections=1), View(BUSY))), "application/openmetrics-text; version=1.0.0"
    )
    assert content_type.startswith("application/openmetrics-text")
    found = samples(parse_openmetrics(body.decode()))  # type: ignore[no-untyped-call]
    assert found[f"{STATS}_uncleanleaderelections_total"] == 1
