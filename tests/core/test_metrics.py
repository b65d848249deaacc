"""Scrapes: in every mode, before anything is known, with the names that dashboards for Kafka's controller use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from unittest import mock

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from controller.metrics.counters import QUEUE_TIME_KEPT_S, Counters
from controller.metrics.exposition import About, DaemonCollector, exposition, registry
from controller.metrics.gauges import HOLDERS, BrokerGauges, Gauges, HolderKind, ShownMode
from controller.metrics.metric_families import LABELS_MAX
from controller.term.dispatch import KAFKA_STATES


@dataclass
class View:
    shown: Gauges
    broken: bool = False

    def gauges(self) -> Gauges:
        if self.broken:
            raise KeyError("half initialised")
        return self.shown


BUSY = Gauges(
    mode=ShownMode.ACTIVE, controller_epoch=7, lease_remaining_s=12.5, zookeeper_connected=True, session_timeout_s=18,
    lease_remaining_part=0.75, heartbeat_age_s=3.5, holder="daemon", role_flag="regent", reassigning_partitions=2,
    event_queue_size=4, ibp_mismatch_brokers=1, malformed_znodes=2, endpoint_shown=True, controller_state=2,
    offline_partitions=3, preferred_replica_imbalance=5, topics=6, partitions=60, active_brokers=2,
    under_replicated_partitions=9,
    brokers={1: BrokerGauges(queued=2, age_s=0.5, unacknowledged_partitions=8), 2: BrokerGauges(queued=1)},
)  # fmt: skip


def scrape(counters: Counters, view: View, accept: str = "") -> dict[str, float]:
    """Every sample by ``name{label="value"}``."""
    body, _ = exposition(registry(DaemonCollector(About("1.2.3", 1_000_001), counters, view, KAFKA_STATES)), accept)
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


def test_the_names_of_kafkas_controller() -> None:
    """Those of facts that dashboards and the usual alerts query, in jmx_exporter's lower case."""
    found = scrape(Counters(unclean_elections=3), View(BUSY))
    controller = "kafka_controller_kafkacontroller"
    assert found[f"{controller}_activecontrollercount"] == 1
    assert found[f"{controller}_offlinepartitionscount"] == 3
    assert found[f"{controller}_preferredreplicaimbalancecount"] == 5
    assert found[f"{controller}_controllerstate"] == 2
    assert found[f"{controller}_globaltopiccount"] == 6
    assert found[f"{controller}_globalpartitioncount"] == 60
    assert found[f"{controller}_activebrokercount"] == 2
    assert found[f"{controller}_fencedbrokercount"] == 0
    assert found[f"{controller}_zkmigrationstate"] == 4
    for name in ("topics", "replicas"):
        assert found[f"{controller}_{name}todeletecount"] == found[f"{controller}_{name}ineligibletodeletecount"] == 0
    assert found["kafka_controller_controllereventmanager_eventqueuesize"] == 4
    assert found["kafka_controller_controllerchannelmanager_totalqueuesize"] == 3
    assert found['kafka_controller_controllerchannelmanager_queuesize{broker_id="1"}'] == 2
    assert found["kafka_controller_controllerstats_uncleanleaderelections_total"] == 3
    assert found["kafka_controller_controllerstats_uncleanleaderelectionspersec"] == 3


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
    change = "kafka_controller_controllerstats_topicchangerateandtimems"
    assert found[f"{change}_count"] == 101, "kinds of one Kafka state are one timer"
    assert found[f'{change}{{quantile="0.5"}}'] == pytest.approx(51, abs=1)
    assert found[f'{change}{{quantile="0.999"}}'] == pytest.approx(1_000)
    assert found["kafka_controller_controllerstats_topicdeletionrateandtimems_count"] == 0, "alerts need the series"
    assert found['kafka_controller_controllereventmanager_eventqueuetimems{quantile="0.99"}'] == pytest.approx(250)
    requests = "kafka_controller_controllerchannelmanager_requestrateandqueuetimems"
    assert found[f'{requests}_count{{broker_id="1"}}'] == 1
    assert f'{requests}_count{{broker_id="9"}}' not in found, "a broker that is gone is not shown"


@pytest.mark.kafka("ControllerEventManagerTest.testEventQueueTimeResetOnTimeout")
def test_an_idle_queue_shows_no_old_waiting_times() -> None:
    counters = Counters()
    quantile = 'kafka_controller_controllereventmanager_eventqueuetimems{quantile="0.99"}'
    with mock.patch("controller.metrics.counters.time.monotonic", return_value=1_000.0) as now:
        counters.queue_time.record(0.5)
        counters.events["broker_change"].record(0.5)
        now.return_value += QUEUE_TIME_KEPT_S
        assert scrape(counters, View(BUSY))[quantile] == 500
        now.return_value += 0.1
        found = scrape(counters, View(BUSY))
        assert found[quantile] == 0
        assert found["kafka_controller_controllereventmanager_eventqueuetimems_count"] == 1, "counters never fall"
        assert found['kafka_controller_controllerstats_leaderelectionrateandtimems{quantile="0.99"}'] == 500
        counters.queue_time.record(0.02)
        assert scrape(counters, View(BUSY))[quantile] == 20


def test_own_names_are_in_base_units() -> None:
    counters = Counters(commits=5, writes=50, conflicts=4, unknown_outcomes=3, interim_terms=1, terms=2, fenced=1)
    counters.refusals.update({"no live replica in the ISR": 7})
    counters.queue_time.record(0.02)
    counters.queue_time.record(0.2)
    counters.loop_lag.record(60)
    found = scrape(counters, View(BUSY))
    assert found['regent_build_info{controller_id="1000001",version="1.2.3"}'] == 1
    assert found["regent_term_epoch"] == 7
    assert found["regent_lease_remaining_seconds"] == 12.5
    assert found["regent_lease_remaining_ratio"] == 0.75
    assert found["regent_heartbeat_age_seconds"] == 3.5
    assert found["regent_reassigning_partitions"] == 2
    assert found["regent_ibp_mismatch_brokers"] == 1
    assert found["regent_malformed_znodes"] == 2
    assert found["regent_admin_endpoint_shown"] == 1
    assert found["regent_commits_total"] == 5
    assert found["regent_conflicts_total"] == 4
    assert found["regent_unknown_outcomes_total"] == 3
    assert found["regent_interim_terms_total"] == 1
    assert found['regent_refusals_total{reason="no live replica in the ISR"}'] == 7
    assert found['regent_broker_propagation_age_seconds{broker_id="1"}'] == 0.5
    assert found['regent_broker_unacknowledged_partitions{broker_id="1"}'] == 8
    assert found['regent_event_queue_seconds_bucket{le="0.01"}'] == 0
    assert found['regent_event_queue_seconds_bucket{le="0.025"}'] == 1
    assert found['regent_event_queue_seconds_bucket{le="+Inf"}'] == found["regent_event_queue_seconds_count"] == 2
    assert found["regent_event_queue_seconds_sum"] == pytest.approx(0.22)
    assert found['regent_loop_lag_seconds_bucket{le="30.0"}'] == 0
    assert found['regent_loop_lag_seconds_bucket{le="+Inf"}'] == 1
    assert found["regent_loop_lag_seconds_count"] == 1
    units = re.compile(
        r"_(seconds|ratio|held|wanted|bytes|total|info|partitions|brokers|znodes|size|epoch|connected|failing|role|shown)"
    )
    assert all(units.search(name) for name in found if name.startswith("regent_"))


@pytest.mark.parametrize("mode", list(ShownMode))
def test_each_mode_is_one_gauge_of_several(mode: ShownMode) -> None:
    """While not active nothing of Kafka's is counted twice over several daemons."""
    found = scrape(Counters(), View(Gauges(mode=mode, offline_partitions=3)))
    assert {m: found[f'regent_role{{mode="{m}"}}'] for m in ShownMode} == {m: float(m is mode) for m in ShownMode}
    assert found["kafka_controller_kafkacontroller_activecontrollercount"] == float(mode is ShownMode.ACTIVE)
    shown = 3 if mode in (ShownMode.ACTIVE, ShownMode.SUSPENDED) else 0
    assert found["kafka_controller_kafkacontroller_offlinepartitionscount"] == shown


@pytest.mark.parametrize("holder", HOLDERS)
def test_who_holds_the_role_is_shown_in_every_mode(holder: HolderKind) -> None:
    for mode in ShownMode:
        found = scrape(Counters(), View(Gauges(mode=mode, holder=holder)))
        assert {h: found[f'regent_role_held{{by="{h}"}}'] for h in HOLDERS} == {h: float(h == holder) for h in HOLDERS}
        assert found["regent_role_wanted"] == 0


def test_the_session_the_queue_and_propagation_have_histograms_in_seconds() -> None:
    counters = Counters()
    for timer in (counters.heartbeats, counters.commit_time, counters.propagation, counters.queue_time):
        timer.record(0.02)
        timer.record(3.0)
    found = scrape(counters, View(BUSY))
    for name in ("heartbeat", "commit", "propagation_lag", "event_queue"):
        assert found[f'regent_{name}_seconds_bucket{{le="0.025"}}'] == 1, name
        assert found[f'regent_{name}_seconds_bucket{{le="5.0"}}'] == found[f"regent_{name}_seconds_count"] == 2, name


def test_a_state_that_cannot_be_read_costs_gauges_not_the_scrape(caplog: pytest.LogCaptureFixture) -> None:
    view = View(BUSY, broken=True)
    metrics = registry(DaemonCollector(About("1", 1), Counters(commits=5), view, KAFKA_STATES))
    for expected in (1.0, 2.0):
        body, _ = exposition(metrics, "")
        found = samples(text_string_to_metric_families(body.decode()))
        assert found["regent_scrape_failures_total"] == expected
        assert found["regent_commits_total"] == 5
        assert found['regent_role{mode="starting"}'] == 1
    assert "could not be read" in caplog.text
    view.broken = False
    assert scrape(Counters(), view)["regent_term_epoch"] == 7


def test_reasons_are_bounded_and_nothing_is_lost() -> None:
    counters = Counters()
    for number in range(LABELS_MAX + 50):
        counters.refusals[f"reason {number}"] = 2
    reasons = {name: value for name, value in scrape(counters, View(BUSY)).items() if "regent_refusals" in name}
    assert len(reasons) == LABELS_MAX + 1
    assert sum(reasons.values()) == 2 * (LABELS_MAX + 50)
    assert reasons['regent_refusals_total{reason="other"}'] == 100


def test_no_metric_is_labelled_by_partition_or_topic() -> None:
    counters = Counters()
    counters.events["alter_partition"].record(0.1)
    body, _ = exposition(registry(DaemonCollector(About("1", 1), counters, View(BUSY), KAFKA_STATES)), "")
    labels = {
        label
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        for label in sample.labels
    }
    assert labels <= {
        "version", "controller_id", "mode", "reason", "error", "event", "le", "quantile", "broker_id", "generation",
        "by",
    }  # fmt: skip


def test_openmetrics_where_it_is_asked_for() -> None:
    metrics = registry(DaemonCollector(About("1", 1), Counters(unclean_elections=1), View(BUSY), KAFKA_STATES))
    body, content_type = exposition(metrics, "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    found = samples(parse_openmetrics(body.decode()))  # type: ignore[no-untyped-call]
    assert found["kafka_controller_controllerstats_uncleanleaderelections_total"] == 1
