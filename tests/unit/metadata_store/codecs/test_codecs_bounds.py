"""Versions, numbers and forms of znodes at their bounds: read on one side, refused with a reason on the other."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from metadata_store import paths
from metadata_store.codecs.base import MalformedNode
from tests.unit.metadata_store.codecs.test_codecs import DECODERS, MIGRATION

INT32 = (0, 2**31 - 1)
SIGNED32 = (-(2**31), 2**31 - 1)
SIGNED64 = (-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("kind", "text", "known"),
    [
        ("state", '"leader":1,"leader_epoch":1,"controller_epoch":1,"isr":[1]', {1}),
        ("topic", '"partitions":{}', {1, 2, 3}),
        ("broker", '"endpoints":["PLAINTEXT://h:1"]', {2, 3, 4, 5}),
        ("controller", '"brokerid":1', range(-1, 8)),
        (
            "migration",
            '"kraft_controller_id":1,"kraft_controller_epoch":1,"kraft_metadata_offset":1,"kraft_metadata_epoch":1',
            {0},
        ),
        ("partitions", '"partitions":[]', {1}),
        ("log dir event", '"broker":1,"event":1', {1}),
        ("config change", '"entity_path":"a/b","entity_type":"a","entity_name":"b"', {1, 2}),
        ("reassignments", '"partitions":[]', {1}),
        ("config", '"config":{}', {1}),
        ("features", '"status":1', {1, 2}),
        ("cluster id", '"id":"x"', {1}),
        ("producer ids", '"broker":1,"block_start":"0","block_end":"1"', {1}),
        ("acls", '"acls":[]', {1}),
        ("acl change", '"resourceType":"TOPIC","name":"t","patternType":"PREFIXED"', {1}),
    ],
)
def test_known_versions_are_read_and_their_neighbours_refused(kind: str, text: str, known: Collection[int]) -> None:
    for version in range(-1, 8):
        found = DECODERS[kind](f'{{"version":{version},{text}}}'.encode())
        assert isinstance(found, MalformedNode) == (version not in known)
        if isinstance(found, MalformedNode):
            names = ", ".join(map(str, sorted(known)))
            assert found.why in (
                f"version {v!r} is unknown, this program knows {names}" for v in (version, str(version))
            )


@pytest.mark.parametrize(
    ("kind", "text", "bounds"),
    [
        ("state", '{"version":1,"leader":%d,"leader_epoch":1,"controller_epoch":1,"isr":[1]}', SIGNED32),
        ("state", '{"version":1,"leader":1,"leader_epoch":%d,"controller_epoch":1,"isr":[1]}', INT32),
        ("state", '{"version":1,"leader":1,"leader_epoch":1,"controller_epoch":%d,"isr":[1]}', INT32),
        ("state", '{"version":1,"leader":1,"leader_epoch":1,"controller_epoch":1,"isr":[%d]}', INT32),
        ("topic", '{"version":3,"partitions":{"%d":[1]}}', INT32),
        ("topic", '{"version":3,"partitions":{"0":[%d]}}', INT32),
        ("broker", '{"version":2,"endpoints":["PLAINTEXT://h:%d"]}', (0, 65_535)),
        ("controller", '{"brokerid":%d}', SIGNED32),
        ("epoch", "%d", INT32),
        (
            "migration",
            MIGRATION.decode(),
            SIGNED64,
        ),
        ("partitions", '{"version":1,"partitions":[{"topic":"t","partition":%d}]}', INT32),
        ("log dir event", '{"version":1,"broker":%d,"event":1}', INT32),
        ("log dir event", '{"version":1,"broker":1,"event":%d}', (1, 1)),
        ("reassignments", '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[%d]}]}', INT32),
        ("features", '{"version":1,"status":%d}', (0, 1)),
        ("features", '{"version":1,"status":0,"features":{"f":{"max_version_level":%d}}}', SIGNED32),
        ("producer ids", '{"version":1,"broker":%d,"block_start":"0","block_end":"1"}', SIGNED32),
        ("producer ids", '{"version":1,"broker":1,"block_start":"%d","block_end":"7"}', (0, 7)),
        ("producer ids", '{"version":1,"broker":1,"block_start":"7","block_end":"%d"}', (7, 2**63 - 1)),
        (
            "state",
            '{"version":1,"leader":1,"leader_epoch":1,"controller_epoch":1,"isr":[1],"leader_recovery_state":%d}',
            (0, 1),
        ),
    ],
)
def test_numbers_are_read_up_to_their_bounds(kind: str, text: str, bounds: tuple[int, int]) -> None:
    low, high = bounds
    for value in (low, high):
        assert not _refused(DECODERS[kind]((text % value).encode()))
    for value in (low - 1, high + 1):
        assert _refused(DECODERS[kind]((text % value).encode()))


def _refused(found: object) -> bool:
    """Checks whether a znode, or its only entry, cannot be used."""
    return isinstance(found, MalformedNode) or bool(getattr(found, "unusable", False))


@pytest.mark.parametrize(
    ("name", "number"),
    [("0", 0), ("7", 7), ("2147483647", 2**31 - 1), ("2147483648", None), ("99999999999", None)]
    + [(name, None) for name in ("", "-1", "007", "1a", "\u00b2", "\u0663", " 1")],
)
def test_only_plain_decimal_names_of_znodes_are_numbers(name: str, number: int | None) -> None:
    assert paths.number(name) == number
    wanted = ("t", number) if number is not None else None
    assert paths.partition_of_state(f"/brokers/topics/t/partitions/{name}/state") == wanted


# -- what is refused


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize(
    "data",
    [None, b"[]", b"{", b"null", b"\xff\xfe", b'{"version":99}', b"[" * 100_000, b'{"a":' * 100_000, b'{"a":"\xff"}'],
)
def test_bad_data_is_a_value_with_path_and_reason(kind: str, data: bytes | None) -> None:
    found = DECODERS[kind](data)
    assert isinstance(found, MalformedNode)
    assert found.path == "/p"
    assert found.why


@pytest.mark.parametrize(
    ("kind", "data", "why"),
    [
        ("state", b'{"version":1,"leader":1,"leader_epoch":1,"controller_epoch":1}', "isr"),
        ("topic", b'{"version":3,"partitions":{"0":[]}}', "partition 0"),
        ("topic", b'{"version":3,"partitions":{"0":[1,1]}}', "one twice"),
        ("topic", b'{"version":3,"partitions":{},"topic_id":"short"}', "topic_id 'short'"),
        ("topic", b'{"version":3,"partitions":{},"topic_id":"7rWbfVPSS7iSnQ8qgVQ8dh"}', "topic_id"),
        ("broker", b'{"version":4,"endpoints":[],"listener_security_protocol_map":{}}', "no endpoints"),
        ("broker", b'{"version":4,"endpoints":["h:1"],"listener_security_protocol_map":{}}', "endpoint 'h:1'"),
        ("broker", b'{"version":4,"endpoints":["A://h:1"],"listener_security_protocol_map":{}}', "listener A has"),
        ("epoch", "\u0663".encode(), "is not a controller epoch"),
        ("log dir event", b'{"version":1,"broker":3,"event":2}', "event 2 is unknown"),
        ("config change", b'{"version":2,"entity_type":"topics","entity_name":"t"}', "names no entity"),
        ("config change", b'{"version":1,"entity_path":"topics/t"}', "names no entity"),
        ("config change", b'{"version":1,"entity_type":"topics"}', "names no entity"),
        ("config change", b'{"version":1,"entity_name":"t"}', "names no entity"),
        ("features", b'{"version":2,"status":3}', "status 3"),
        ("producer ids", b'{"version":1,"broker":1,"block_start":"5","block_end":"4"}', "the block 5 to 4"),
        ("producer ids", b'{"version":1,"broker":1,"block_start":"x","block_end":"4"}', "'x'"),
    ],
)
def test_the_reason_names_the_fault(kind: str, data: bytes, why: str) -> None:
    found = DECODERS[kind](data)
    assert isinstance(found, MalformedNode)
    assert why in str(found)
