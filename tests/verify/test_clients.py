"""Admin clients of every kind get the same results under both controllers: docs/evidence/clients.md."""

from __future__ import annotations

import pytest

from tests.verify.clients.accepted import ACCEPTED
from tests.verify.clients.compare import differences, play_all
from tests.verify.stock_tools.one_jvm import has_compiler


@pytest.mark.timeout(1_800)
async def test_admin_clients_get_the_same_results_from_both_controllers() -> None:
    played = await play_all(print)
    assert len(played["regent"]) == (5 if has_compiler() else 3)
    found = list(differences(played))
    unexplained = [str(one) for one in found if one.accepted() is None]
    assert not unexplained, "\n".join(unexplained)
    shown = [one.accepted() for one in found]
    stale = [one.why for one in ACCEPTED if one not in shown]
    assert not stale, f"explained, and there is no such difference any more: {stale}"
