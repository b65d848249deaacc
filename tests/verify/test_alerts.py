"""promtool replays recordings of real faults: the alerts of each fault fire, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verify.watched.prometheus import RULES, promtool
from tests.verify.watched.replay import EXPECTED, TESTS


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
