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
from tests.kit.command import written

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

    The error contains ``named`` in its reason and remedy.
    """

    keys: tuple[str, ...]
    broken: Given
    named: tuple[str, ...]
    accepted: tuple[Given, ...]


def at_most(smaller: str, larger: str, most: int, unit: str) -> Row:
    """Makes the row of a rule by which one number must not exceed another."""
    named = f"above {larger} ({most} {unit})", f"a larger {larger}"
    return Row((smaller, larger), {smaller: most + 1, larger: most}, named, ({smaller: most}, {larger: most + 1}))


def fixed_port(section: str) -> Row:
    """Makes the row of a rule by which an advertised port needs a fixed one."""
    advertised, port = f"{section}.advertised_port", f"{section}.port"
    named = f"{port} is 0", f"set {port}, or leave advertised_port at 0"
    return Row((advertised, port), {advertised: 1, port: 0}, named, ({advertised: 0}, {port: 1}))


ROWS: Final = (
    at_most("listener.frame_timeout_ms", "listener.idle_timeout_ms", 5_000, "ms"),
    at_most("admin.frame_timeout_ms", "admin.idle_timeout_ms", 5_000, "ms"),
    at_most("admin.frame_bytes_max", "admin.buffered_bytes_max", 2_000_000, "bytes"),
    at_most("brokers.retry_backoff_ms", "brokers.retry_backoff_ms_max", 500, "ms"),
    at_most("regions.frame_timeout_ms", "regions.idle_timeout_ms", 20_000, "ms"),
    Row(
        ("regions.lease_ms", "regions.idle_timeout_ms"),
        {"regions.lease_ms": 20_000, "regions.idle_timeout_ms": 20_000},
        ("not below regions.idle_timeout_ms (20000 ms)", "a larger regions.idle_timeout_ms"),
        ({"regions.lease_ms": 19_999}, {"regions.idle_timeout_ms": 20_001}),
    ),
    Row(
        ("regions.connections_per_address_max", "regions.connections_max"),
        {"regions.connections_per_address_max": 501, "regions.connections_max": 500},
        ("above regions.connections_max (500)", "a larger regions.connections_max"),
        ({"regions.connections_per_address_max": 500}, {"regions.connections_max": 501}),
    ),
    fixed_port("admin"),
    fixed_port("listener"),
    Row(
        ("controller.loop_stall_ms_max", "zookeeper.session_timeout_ms"),
        {"zookeeper.session_timeout_ms": 6_000, "controller.loop_stall_ms_max": 3_000},
        ("half of zookeeper.session_timeout_ms (3000 ms)", "at most 2999", "session_timeout_ms above 6000"),
        ({"controller.loop_stall_ms_max": 2_999}, {"zookeeper.session_timeout_ms": 6_002}),
    ),
    Row(
        ("controller.id", "brokers.reserved_broker_max_id"),
        {"controller.id": 17_000, "brokers.reserved_broker_max_id": 12_000},
        ("from 12001 up", "brokers.reserved_broker_max_id + 1", "an id above 17000"),
        ({"controller.id": 17_001}, {"brokers.reserved_broker_max_id": 11_999}),
    ),
    Row(
        ("controller.on_absence", "zookeeper.digest", "zookeeper.digest_file"),
        {"controller.on_absence": "hold"},
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
        ("brokers.control_plane_listener", "brokers.inter_broker_listener"),
        {"brokers.control_plane_listener": "one", "brokers.inter_broker_listener": "ONE"},
        ("the same as brokers.inter_broker_listener", "leave it empty"),
        ({"brokers.control_plane_listener": "other"}, {"brokers.control_plane_listener": ""}),
    ),
    Row(
        ("journal.topic", "journal.enabled"),
        {"journal.topic": "regent", "journal.enabled": "false"},
        ("which is switched off", "set journal.enabled"),
        ({"journal.topic": ""}, {"journal.enabled": "true"}),
    ),
    Row(
        ("security.protocol", "security.sasl_file"),
        SASL,
        ("the daemon's user at the brokers", "security.sasl_file", "user:password"),
        ({"security.protocol": "PLAINTEXT"}, {"security.sasl_file": "/sasl"}),
    ),
    Row(
        ("security.protocol", "security.certificate_file"),
        TLS | AUTHORITY,
        ("a certificate for the daemon's own listener", "security.certificate_file", "security.key_file"),
        ({"security.protocol": "SASL_PLAINTEXT"}, CERTIFICATE),
    ),
    Row(
        ("security.client_certificates", "security.ca_file"),
        TLS | CERTIFICATE,
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
        ("SSL authenticates no peer", "SASL_SSL", "keystore", "client_certificates"),
        (AUTHORITY | {"security.client_certificates": "required"}, TLS),
    ),
    Row(
        ("admin.tls", "admin.certificate_file"),
        {"admin.tls": "true"},
        ("needs a certificate", "admin.certificate_file", "security.certificate_file"),
        ({"admin.tls": "false"}, {"admin.certificate_file": "/own.pem"}, CERTIFICATE),
    ),
    Row(
        ("journal.bytes_max", "journal.segment_bytes"),
        {"journal.bytes_max": 3_999_999, "journal.segment_bytes": 2_000_000},
        ("two files of journal.segment_bytes (2000000)", "a larger journal.bytes_max"),
        ({"journal.bytes_max": 4_000_000}, {"journal.segment_bytes": 1_999_999}),
    ),
    Row(
        ("http.address", "http.certificate_file", "http.token_file", "http.client_ca_file"),
        ANYWHERE | OWN_TLS,
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
        ("which needs TLS and credentials", "http.certificate_file"),
        (OWN_TLS,),
    ),
    Row(
        ("http.client_ca_file", "http.certificate_file"),
        {"http.client_ca_file": "/ca.pem"},
        ("needs TLS", "http.certificate_file", "http.token_file"),
        (OWN_TLS,),
    ),
    Row(
        ("regions.host", "regions.secret_file"),
        {"regions.host": "0.0.0.0"},
        ("each of them could register servers", "set regions.secret_file"),
        ({"regions.host": "127.0.0.1"}, {"regions.host": "::1"}, {"regions.secret_file": "/secret"}),
    ),
    Row(
        ("regions.clients_secret_file", "regions.secret_file"),
        {"regions.clients_secret_file": "/clients"},
        ("a client could register as a server", "set regions.secret_file, too"),
        ({"regions.secret_file": "/secret"},),
    ),
    Row(
        ("regions.transport", "regions.store"),
        {"regions.transport": "zookeeper"},
        ("there is no ZooKeeper for the znodes", 'set regions.store to "zookeeper"'),
        ({"regions.transport": "zookeeper", "regions.store": "zookeeper"},),
    ),
    Row(
        ("regions.servers_identity", "zookeeper.digest", "zookeeper.digest_file"),
        {"regions.servers_identity": "sasl:kv"},
        ("the daemon has no identity of its own", "/etc/credstore/zookeeper-digest"),
        ({"zookeeper.digest": "regent:secret"}, {"zookeeper.sasl": "regent:secret"}),
    ),
    Row(
        ("regions.merge_size_bytes", "regions.split_size_bytes"),
        {"regions.merge_size_bytes": 501, "regions.split_size_bytes": 1_000},
        ("would soon be split again", "give at most 500", "1002 or more"),
        ({"regions.merge_size_bytes": 500}, {"regions.split_size_bytes": 0}, {"regions.split_size_bytes": 1_002}),
    ),
    Row(
        ("regions.fence", "regions.fence_command"),
        {"regions.fence": "command"},
        ("needs a command", "regions.fence_command", '"lease" or "log"'),
        ({"regions.fence": "log"}, {"regions.fence_command": '["/sbin/fence"]'}),
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
    """Writes an empty settings file beside a file with credentials."""
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
    assert (problem.key, problem.origin) == (row.keys[0], origin)
    assert problem.value.strip('"').lower() == str(row.broken.get(row.keys[0], "required")).lower()
    assert str(problem).startswith(f"{row.keys[0]} = {problem.value} (")
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
