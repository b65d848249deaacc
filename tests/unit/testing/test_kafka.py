"""A broker's settings file, and the controlled shutdown in its log."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testing.embedded import jvm, kafka
from testing.embedded.kafka import ControlledShutdown, EmbeddedBroker
from testing.embedded.zookeeper import digest

BEGIN = "INFO [KafkaServer id=1] Starting controlled shutdown (kafka.server.KafkaServer)\n"
RETRY = "INFO [KafkaServer id=1] Retrying controlled shutdown (2 retries remaining) (kafka.server.KafkaServer)\n"
DONE = "INFO [KafkaServer id=1] Controlled shutdown request returned successfully after 24ms (kafka.server)\n"


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddedBroker:
    monkeypatch.setattr(kafka, "java_command", lambda options, main, *rest, classes=(): ["java", *options, main, *rest])
    return EmbeddedBroker(7, tmp_path, "127.0.0.1:1/kafka", ibp="2.7-IV1", rack="a", properties={"num.io.threads": 9})


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (BEGIN + DONE, ControlledShutdown(tries=1, succeeded=True, took_ms=24)),
        (BEGIN + RETRY + RETRY + DONE, ControlledShutdown(tries=3, succeeded=True, took_ms=24)),
        (BEGIN + RETRY + RETRY, ControlledShutdown(tries=3, succeeded=False, took_ms=None)),
        ("started\n", ControlledShutdown(tries=0, succeeded=False, took_ms=None)),
    ],
)
def test_a_controlled_shutdown_is_read_from_the_log(
    broker: EmbeddedBroker, log: str, expected: ControlledShutdown
) -> None:
    broker.log.write_text(log)
    assert broker.controlled_shutdown() == expected
    assert expected.first_try == (expected.succeeded and expected.tries == 1)


def test_the_settings_file_has_the_options_and_given_properties_override(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    lines = dict(line.split("=", 1) for line in (tmp_path / "server.properties").read_text().splitlines())
    assert lines["inter.broker.protocol.version"] == "2.7-IV1"
    assert lines["broker.rack"] == "a"
    assert lines["num.io.threads"] == "9", "given properties override"
    assert lines["zookeeper.connect"] == "127.0.0.1:1/kafka"
    assert re.fullmatch(r"CLIENT://127.0.0.1:\d+,INTERNAL://127.0.0.1:\d+", lines["listeners"])


def test_digest_as_zookeeper_computes_it() -> None:
    assert digest("super", "test") == "super:D/InIHSb7yEEbrWz8b9l71RjZJU="


def test_properties_are_one_per_line(tmp_path: Path) -> None:
    assert jvm.write_properties(tmp_path / "p", {"a": 1, "b.c": "x"}).read_text() == "a=1\nb.c=x\n"
