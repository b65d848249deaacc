"""Each rule between settings, broken alone: the error names key, value and remedy; the nearest values are accepted.

The table is complete: a rule without a row fails the first test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import pytest
from pydantic import ValidationError

from configs.loading import load
from configs.problems import ConfigError
from configs.rules import RULES
from configs.settings import Settings, section_type
from tests.core.settings_kit import written

Given = dict[str, str | int]
"""Values by ``section.key``."""

NEEDED: Final[Given] = {"zookeeper.connect": "zk1:2181", "listener.advertised_host": "regent1.example.com"}
SASL: Final[Given] = {"security.protocol": "SASL_PLAINTEXT"}
TLS: Final[Given] = {"security.protocol": "SASL_SSL", "security.sasl_file": "/sasl"}
MUTUAL: Final[Given] = {"security.protocol": "SSL", "security.certificate_file": "/own.pem"}
CERTIFICATE: Final[Given] = {"security.certificate_file": "/own.pem"}
AUTHORITY: Final[Given] = {"security.ca_file": "/ca.pem"}
ANYWHERE: Final[Given] = {"http.address": "0.0.0.0:9097"}
OWN_TLS: Final[Given] = {"http.certificate_file": "/own.pem"}


class Row(NamedTuple):
    """A row: ``broken`` breaks the rule of ``keys`` and no other; each of ``accepted`` changes it and breaks none.

    The error shows the first key as ``value``, and contains ``named`` in its reason and remedy.
    """

    keys: tuple[str, ...]
    broken: Given
    value: str
    named: tuple[str, ...]
    accepted: tuple[Given, ...]


ROWS: Final = (
    Row(
        ("controller.loop_stall_ms_max", "zookeeper.session_timeout_ms"),
        {"zookeeper.session_timeout_ms": 6_000, "controller.loop_stall_ms_max": 3_000},
        "3000",
        ("half of zookeeper.session_timeout_ms (3000 ms)", "at most 2999", "session_timeout_ms above 6000"),
        ({"controller.loop_stall_ms_max": 2_999}, {"zookeeper.session_timeout_ms": 6_002}),
    ),
    Row(
        ("controller.id", "brokers.reserved_broker_max_id"),
        {"controller.id": 17_000, "brokers.reserved_broker_max_id": 12_000},
        "17000",
        ("from 12001 up", "brokers.reserved_broker_max_id + 1", "an id above 17000"),
        ({"controller.id": 17_001}, {"brokers.reserved_broker_max_id": 11_999}),
    ),
    Row(
        ("controller.on_absence", "zookeeper.digest", "zookeeper.digest_file"),
        {"controller.on_absence": "hold"},
        '"hold"',
        ("needs credentials", "/etc/credstore/zookeeper-digest", "zookeeper.digest_file", 'on_absence = "brokers"'),
        (
            {"controller.on_absence": "brokers"},
            {"zookeeper.digest": "regent:s3cret"},
            {"zookeeper.digest_file": "/credential"},
        ),
    ),
    Row(
        ("zookeeper.set_acl", "zookeeper.sasl", "zookeeper.sasl_file"),
        {"zookeeper.set_acl": "true"},
        "true",
        (
            "no key sets that identity",
            "zookeeper.sasl_file",
            "/etc/credstore/zookeeper-sasl",
            "zookeeper.certificate_file",
        ),
        (
            {"zookeeper.set_acl": "false"},
            {"zookeeper.sasl": "kafka:s3cret"},
            {"zookeeper.sasl_file": "/credential"},
            {"zookeeper.digest": "kafka:s3cret"},
            {"zookeeper.digest_file": "/credential"},
            {"zookeeper.certificate_file": "/own.pem"},
        ),
    ),
    Row(
        ("listener.frame_timeout_ms", "listener.idle_timeout_ms"),
        {"listener.frame_timeout_ms": 5_001, "listener.idle_timeout_ms": 5_000},
        "5001",
        ("above listener.idle_timeout_ms (5000 ms)", "a larger listener.idle_timeout_ms"),
        ({"listener.frame_timeout_ms": 5_000}, {"listener.idle_timeout_ms": 5_001}),
    ),
    Row(
        ("admin.frame_timeout_ms", "admin.idle_timeout_ms"),
        {"admin.frame_timeout_ms": 5_001, "admin.idle_timeout_ms": 5_000},
        "5001",
        ("above admin.idle_timeout_ms (5000 ms)", "a larger admin.idle_timeout_ms"),
        ({"admin.frame_timeout_ms": 5_000}, {"admin.idle_timeout_ms": 5_001}),
    ),
    Row(
        ("admin.frame_bytes_max", "admin.buffered_bytes_max"),
        {"admin.frame_bytes_max": 2_000_001, "admin.buffered_bytes_max": 2_000_000},
        "2000001",
        ("above admin.buffered_bytes_max (2000000 bytes)", "a larger admin.buffered_bytes_max"),
        ({"admin.frame_bytes_max": 2_000_000}, {"admin.buffered_bytes_max": 2_000_001}),
    ),
    Row(
        ("admin.advertised_port", "admin.port"),
        {"admin.advertised_port": 1, "admin.port": 0},
        "1",
        ("admin.port is 0", "set admin.port, or leave advertised_port at 0"),
        ({"admin.advertised_port": 0}, {"admin.port": 1}),
    ),
    Row(
        ("brokers.retry_backoff_ms", "brokers.retry_backoff_ms_max"),
        {"brokers.retry_backoff_ms": 501, "brokers.retry_backoff_ms_max": 500},
        "501",
        ("above brokers.retry_backoff_ms_max (500 ms)", "a larger brokers.retry_backoff_ms_max"),
        ({"brokers.retry_backoff_ms": 500}, {"brokers.retry_backoff_ms_max": 501}),
    ),
    Row(
        ("brokers.control_plane_listener", "brokers.inter_broker_listener"),
        {"brokers.control_plane_listener": "one", "brokers.inter_broker_listener": "ONE"},
        '"ONE"',
        ("the same as brokers.inter_broker_listener", "leave it empty"),
        ({"brokers.control_plane_listener": "other"}, {"brokers.control_plane_listener": ""}),
    ),
    Row(
        ("listener.advertised_port", "listener.port"),
        {"listener.advertised_port": 1, "listener.port": 0},
        "1",
        ("listener.port is 0", "set listener.port, or leave advertised_port at 0"),
        ({"listener.advertised_port": 0}, {"listener.port": 1}),
    ),
    Row(
        ("security.protocol", "security.sasl_file"),
        SASL,
        '"SASL_PLAINTEXT"',
        ("the daemon's user at the brokers", "security.sasl_file", "user:password"),
        ({"security.protocol": "PLAINTEXT"}, {"security.sasl_file": "/sasl"}),
    ),
    Row(
        ("security.protocol", "security.certificate_file"),
        TLS | AUTHORITY,
        '"SASL_SSL"',
        ("a certificate for the daemon's own listener", "security.certificate_file", "security.key_file"),
        ({"security.protocol": "SASL_PLAINTEXT"}, CERTIFICATE),
    ),
    Row(
        ("security.client_certificates", "security.ca_file"),
        TLS | CERTIFICATE,
        '"required"',
        (
            "the authorities that sign the brokers' certificates",
            "security.ca_file",
            'security.client_certificates = "none"',
        ),
        (AUTHORITY, {"security.client_certificates": "none"}, {"security.protocol": "SASL_PLAINTEXT"}),
    ),
    Row(
        ("security.client_certificates", "security.protocol"),
        MUTUAL | {"security.client_certificates": "none"},
        '"none"',
        ("SSL authenticates no peer", "SASL_SSL", "keystore", "client_certificates"),
        (AUTHORITY | {"security.client_certificates": "required"}, TLS),
    ),
    Row(
        ("admin.tls", "admin.certificate_file"),
        {"admin.tls": "true"},
        "true",
        ("needs a certificate", "admin.certificate_file", "security.certificate_file"),
        ({"admin.tls": "false"}, {"admin.certificate_file": "/own.pem"}, CERTIFICATE),
    ),
    Row(
        ("journal.bytes_max", "journal.segment_bytes"),
        {"journal.bytes_max": 3_999_999, "journal.segment_bytes": 2_000_000},
        "3999999",
        ("two files of journal.segment_bytes (2000000)", "a larger journal.bytes_max"),
        ({"journal.bytes_max": 4_000_000}, {"journal.segment_bytes": 1_999_999}),
    ),
    Row(
        ("http.address", "http.certificate_file", "http.token_file", "http.client_ca_file"),
        ANYWHERE | OWN_TLS,
        '"0.0.0.0:9097"',
        ("from other machines", "http.certificate_file", "http.token_file", "http.client_ca_file", "127.0.0.1:9097"),
        (
            {"http.address": "127.0.0.1:9097"},
            {"http.address": "[::1]:9097"},
            {"http.address": "localhost:0"},
            {"http.address": ""},
            {"http.token_file": "/token"},
            {"http.client_ca_file": "/ca.pem"},
        ),
    ),
    Row(
        ("http.address", "http.certificate_file", "http.token_file", "http.client_ca_file"),
        ANYWHERE | {"http.token_file": "/token"},
        '"0.0.0.0:9097"',
        ("which needs TLS and credentials", "http.certificate_file"),
        (OWN_TLS,),
    ),
    Row(
        ("http.client_ca_file", "http.certificate_file"),
        {"http.client_ca_file": "/ca.pem"},
        '"/ca.pem"',
        ("needs TLS", "http.certificate_file", "http.token_file"),
        (OWN_TLS,),
    ),
)


def environ(folder: Path, given: Given) -> dict[str, str]:
    """Returns values as variables; no credential of this machine is among them."""
    named = {f"REGENT_{name.replace('.', '__').upper()}": str(value) for name, value in (NEEDED | given).items()}
    return {name: value.replace("/credential", f"{folder}/credential") for name, value in named.items()} | {
        "CREDENTIALS_DIRECTORY": str(folder)
    }


def built(given: Given) -> Settings:
    """Builds settings from values in a program."""
    sections: dict[str, dict[str, str | int]] = {}
    for name, value in (NEEDED | given).items():
        section, _, item = name.partition(".")
        sections.setdefault(section, {})[item] = value
    return Settings(**{name: section_type(name).model_validate(values) for name, values in sections.items()})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An empty settings file beside a file with credentials."""
    (tmp_path / "credential").write_text("user:password")
    return written(tmp_path, "")


def test_every_rule_has_a_row_and_every_row_a_rule() -> None:
    assert {rule.keys for rule in RULES} == {row.keys for row in ROWS}
    assert len({rule.keys for rule in RULES}) == len(RULES), "two rules of the same keys: give their rows a name"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.keys[0] + "-" + row.keys[1])
def test_a_rule_broken_alone_is_named_with_value_and_remedy(file: Path, row: Row) -> None:
    with pytest.raises(ConfigError) as raised:
        load(file, environ(file.parent, row.broken))
    [problem] = raised.value.problems
    origin = f"environment REGENT_{row.keys[0].replace('.', '__').upper()}" if row.keys[0] in row.broken else "default"
    assert (problem.key, problem.value, problem.origin) == (row.keys[0], row.value, origin)
    assert str(problem).startswith(f"{row.keys[0]} = {row.value} (")
    for named in row.named:
        assert named in f"{problem.reason}; {problem.remedy}"
    with pytest.raises(ValidationError) as wrong:
        built(row.broken)
    assert f"{row.keys[0]} {problem.reason}. Remedy: {problem.remedy}" in str(wrong.value)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.keys[0] + "-" + row.keys[1])
def test_the_nearest_accepted_values_break_no_rule(file: Path, row: Row) -> None:
    for change in row.accepted:
        load(file, environ(file.parent, row.broken | change))
        built(row.broken | change)
