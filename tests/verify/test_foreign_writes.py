"""Every foreign write at every request of every handler, where tests/unit plays each at every fourth request."""

from __future__ import annotations

import pytest

from tests.kit.deadlines import in_virtual_time
from tests.kit.kafka.foreign_writes import ACTS, strange_ends


@pytest.mark.parametrize("name", ACTS)
@in_virtual_time
async def test_a_foreign_write_at_each_request_of_a_handler_ends_as_if_it_came_before_or_after(name: str) -> None:
    found = [strange for foreign in ACTS if foreign != name for strange in await strange_ends(name, foreign)]
    assert not found, "\n".join(found)
