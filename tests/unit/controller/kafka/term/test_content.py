"""Own znodes with content of other clients: it decodes to an error or to nothing."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from controller.kafka.path.adoption import recalled
from controller.role.own_znodes import decode_process, decode_role
from metadata_store.nodes.endpoint_znode import decode_endpoint

BAD = {
    "deep": b'{"x":' + b"[" * 100_000,
    "deep and whole": b'{"x":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "no UTF-8": b'{"holder":"\xff\xfe"}',
    "a surrogate": b'{"holder":"\\ud800"}',
    "a huge number": b'{"id":1' + b"0" * 5_000 + b"}",
    "nothing": b"{",
    "noise": bytes(range(256)),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_content_that_cannot_be_decoded_is_an_error_or_nothing(data: bytes) -> None:
    assert decode_process(data) is None
    assert decode_endpoint(data) is None
    readers: list[Callable[[bytes], object]] = [decode_role, recalled]
    for read in readers:
        with pytest.raises(msgspec.DecodeError):
            read(data)
