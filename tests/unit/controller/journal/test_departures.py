"""When brokers died is read from the journal's terms just before, as far back as no other controller had one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from controller.journal.segments import SegmentName
from controller.kafka.path.remembered import Departed
from controller.operator.dead_brokers import EarlierDeaths, departures
from state_machines.journal.events import Kind, Row

DOWN, UP = Kind.BROKER_DOWN, Kind.BROKER_UP


def write(folder: Path, epoch: int, *events: tuple[Kind, int, int], cluster: str = "c", again: int = 0) -> None:
    """Writes a term's file: kind, broker and time in milliseconds of each row."""
    folder.mkdir(parents=True, exist_ok=True)
    begin = Row(1, cluster, 7, epoch, 1, 0, 0, Kind.CTL_ELECTED)
    rows = [
        Row(1, cluster, 7, epoch, seq, at_ms * 1_000, 0, kind, broker=broker)
        for seq, (kind, broker, at_ms) in enumerate(events, 2)
    ]
    name = str(SegmentName(epoch, 1, again))
    (folder / name).write_bytes(msgspec.json.Encoder().encode_lines([begin, *rows]))


def test_a_broker_that_died_in_an_earlier_term_and_has_not_come_back_has_its_time(tmp_path: Path) -> None:
    write(tmp_path, 3, (DOWN, 1, 10), (DOWN, 2, 20), (DOWN, 3, 30), (UP, 3, 40))
    write(tmp_path, 4, (UP, 2, 50), (DOWN, 2, 60))
    write(tmp_path, 5, (DOWN, 9, 70))
    assert departures(tmp_path, "c", 5) == {1: 10, 2: 60}, "the present term knows its own deaths"


def test_a_term_of_another_controller_hides_what_was_before_it(tmp_path: Path) -> None:
    """Broker 1 may have come back and gone in epoch 4, which this daemon did not have."""
    write(tmp_path, 3, (DOWN, 1, 10))
    write(tmp_path, 5, (DOWN, 2, 20))
    assert departures(tmp_path, "c", 6) == {2: 20}
    assert departures(tmp_path, "c", 7) == {}


def test_terms_of_another_cluster_and_files_that_cannot_be_read_count_for_nothing(tmp_path: Path) -> None:
    write(tmp_path, 3, (DOWN, 1, 10))
    write(tmp_path, 4, (DOWN, 2, 20), cluster="other")
    assert departures(tmp_path, "c", 5) == {}
    write(tmp_path, 4, (DOWN, 3, 30), again=1)
    assert departures(tmp_path, "c", 5) == {1: 10, 3: 30}
    (tmp_path / str(SegmentName(4, 1, 1))).write_bytes(b"\xff\n")
    assert departures(tmp_path, "c", 5) == {}
    assert departures(tmp_path / "none", "c", 5) == {}


async def test_a_term_learns_once_of_the_deaths_before_it(tmp_path: Path) -> None:
    own: Any = SimpleNamespace(journal=SimpleNamespace(enabled=True), state=SimpleNamespace(directory=tmp_path))
    folder = tmp_path / "events"
    write(folder, 4, (DOWN, 1, 10), (DOWN, 2, 20))
    departed, earlier = Departed(), EarlierDeaths(own)
    controller = SimpleNamespace(departed=departed)
    cluster = SimpleNamespace(brokers={2: None})
    term: Any = SimpleNamespace(claim=SimpleNamespace(epoch=5), controller=controller, cluster=cluster)
    await earlier.refresh(term, None)
    assert departed.since_ms(1) is None, "the cluster's id is not known yet"
    await earlier.refresh(term, "c")
    assert (departed.since_ms(1), departed.since_ms(2)) == (10, None), "broker 2 has come back"
    write(folder, 4, (DOWN, 1, 11))
    await earlier.refresh(term, "c")
    assert departed.since_ms(1) == 10
