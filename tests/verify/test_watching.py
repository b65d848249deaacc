"""promtool replays recordings of real faults, and a real Prometheus scrapes a real run."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from scripts.dashboard_panels import DASHBOARDS
from scripts.dashboards import render
from tests.kit.deadlines import eventually
from tests.verify.watched.faults import broker_killed, daemon_killed, quiet
from tests.verify.watched.page import Span, empty_queries, page
from tests.verify.watched.prometheus import RULES, SCRAPE_S, promtool
from tests.verify.watched.replay import EXPECTED, TESTS
from tests.verify.watched.stage import Watched, watched


def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("fault", sorted(EXPECTED))
def test_a_fault_raises_its_alerts_and_no_other(fault: str) -> None:
    done = promtool("test", "rules", str(TESTS / f"{fault}.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_alert_too_many_and_one_too_few_are_found(tmp_path: Path) -> None:
    recorded = (TESTS / "daemon_killed.yml").read_text().replace("../../../configs/prometheus/", "")
    rules = RULES.read_text()
    for change in (('up{job="regent"} == 0', 'up{job="regent"} == 2'), ("!= 1\n", "== 1\n")):
        assert change[0] in rules
        (tmp_path / RULES.name).write_text(rules.replace(*change))
        (tmp_path / "test.yml").write_text(recorded)
        done = promtool("test", "rules", str(tmp_path / "test.yml"))
        assert done.returncode != 0, change


async def test_no_panel_is_empty_after_a_run_with_faults(tmp_path: Path) -> None:
    began_s = time.time()
    async with watched(tmp_path) as s:
        await eventually(lambda: scraped(s), 60)
        assert (await unauthorised(s)) == 401
        for fault in (quiet, broker_killed, daemon_killed):
            async with fault(s):
                pass
        await eventually(lambda: whole(s, began_s), 60)
        assert await s.prometheus.firing() <= {"RegentLoopStalls"}, "all is mended; the machine may be slow"
        for dashboard in DASHBOARDS:
            drawn = await page(render(dashboard), s.prometheus, Span(began_s, time.time()))
            assert "no data" not in drawn


async def scraped(s: Watched) -> bool:
    """Returns whether Prometheus has scraped both daemons and evaluated the rules."""
    up = await s.prometheus.query('up{job="regent"} == 1')
    return len(up) == len(s.ports)


async def whole(s: Watched, began_s: float) -> bool:
    """Returns whether every query of the dashboards has data; rates need some scrapes."""
    span = Span(began_s, time.time() + SCRAPE_S)
    empty = [text for dashboard in DASHBOARDS for text in await empty_queries(render(dashboard), s.prometheus, span)]
    assert not empty, empty
    return True


async def unauthorised(s: Watched) -> int:
    """Returns the status of a scrape without the token."""
    port = next(iter(s.ports.values()))
    async with httpx.AsyncClient(verify=False) as client:  # it is about the token
        return (await client.get(f"https://127.0.0.1:{port}/metrics")).status_code
