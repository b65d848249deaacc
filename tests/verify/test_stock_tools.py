"""Kafka's own tools cannot tell regent's cluster from Kafka's: docs/stock-tools.md."""

from __future__ import annotations

import pytest

from tests.verify.stock_tools.accepted import ACCEPTED
from tests.verify.stock_tools.compare import differences, play


@pytest.mark.timeout(1_100)
async def test_stock_tools_say_the_same_of_both_controllers() -> None:
    played = await play(print)
    found = list(differences(played))
    unexplained = [str(one) for one in found if one.accepted() is None and not one.line.waiting]
    assert not unexplained, "\n".join(unexplained)
    shown = [one.accepted() for one in found]
    stale = [one.why for one in ACCEPTED if one not in shown and not one.sometimes]
    assert not stale, f"explained, and there is no such difference any more: {stale}"
