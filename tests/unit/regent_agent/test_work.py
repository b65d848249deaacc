"""What a server has and lists over many operations: lists that stay bytes, and what its service is given."""

from __future__ import annotations

import asyncio
import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regent_agent import codec, protocol
from regent_agent.codec import LENGTH, BadFrame, TooMany, decode_in_portions, decode_request, head_of
from regent_agent.head import PORTION, Listed
from regent_agent.outbox import Outbox
from regent_agent.protocol import (
    CLOSED,
    FAILED,
    FAILED_OPEN,
    OPENED,
    Close,
    Open,
    Owned,
    Regions,
    Register,
    Result,
    Task,
)
from regent_agent.service import OpenedRegion
from regent_agent.work import Work
from tests.kit.deadlines import eventually
from tests.unit.regent_agent.examples import REQUESTS
from tests.unit.regent_agent.kit import Recorded, closes, opens


class Bench:
    """The work of one server without a daemon. ``may_begin``: whether its lease is valid."""

    def __init__(self, service: Recorded | None = None) -> None:
        self.service = service or Recorded()
        self.results = Outbox(lambda: 0.0, lambda: None)
        self.may_begin = True
        self.work = Work(self.service, self.results, lambda: self.may_begin, side_by_side_max=4, queue_max=10)

    async def done(self, *operations: Open | Close | Task) -> list[Result]:
        """Has operations done, and returns their results."""
        for operation in operations:
            self.work.add(operation)
        await eventually(lambda: not self.work.running)
        return self.results.due()

    def owned(self) -> list[tuple[int, int]]:
        return sorted((one.region, one.token) for one in self.work.owned())


class Given(Recorded):
    """A service that notes all that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.opens: list[OpenedRegion] = []
        self.closes: list[OpenedRegion] = []
        self.splits: list[tuple[str, int, str]] = []

    async def open(self, region: OpenedRegion) -> int:
        self.opens.append(region)
        return 8

    async def close(self, region: OpenedRegion) -> None:
        self.closes.append(region)

    async def split(self, server: str, incarnation: int, part: str) -> None:
        self.splits.append((server, incarnation, part))


async def test_a_service_is_given_all_that_the_daemon_says_of_a_region_and_of_a_log() -> None:
    """The next open needs the sequence number of the last one, and a split the process whose log it is."""
    service = Given()
    bench = Bench(service)
    options = {"ttl": "1"}
    [opened] = await bench.done(Open(7, 1, 70, "t", b"b", b"m", 5, options))
    assert (opened.outcome, opened.sequence) == (OPENED, 8)
    [again] = await bench.done(Open(8, 1, 70, "t", b"b", b"m", 5, options))
    assert (again.outcome, again.sequence) == (OPENED, 8), "of this open, not of the one before"
    await bench.done(closes(9, 1, 70), Task(10, "split", "s9", 3, "s9/1"))
    assert service.opens == [OpenedRegion(1, "t", b"b", b"m", 70, 5, options)]
    assert service.closes == [OpenedRegion(1, "t", b"b", b"m", 70, 8, options)]
    assert service.splits == [("s9", 3, "s9/1")]


class Znodes:
    """Answers by znodes. ``says``: the outcome of each move, by its name; an exception: it has none."""

    def __init__(self) -> None:
        self.says: dict[str, bool | Exception] = {}
        self.moves: list[str] = []

    async def begins(self, operation: Open | Close) -> bool:
        return self._move(f"begins {type(operation).__name__.lower()}")

    async def appears(self) -> None:
        self._move("appears")

    async def opened(self, operation: Open, sequence: int) -> bool:
        return self._move("opened")

    async def closed(self, operation: Close) -> bool:
        return self._move("closed")

    def _move(self, name: str) -> bool:
        self.moves.append(name)
        found = self.says.get(name, True)
        if isinstance(found, Exception):
            raise found
        return found


ENDED = OSError("the session has ended")


@pytest.mark.parametrize(
    ("says", "outcome", "is_open"),
    [
        ({}, None, True),
        ({"begins open": False}, FAILED_OPEN, False),
        ({"begins open": ENDED}, FAILED_OPEN, False),
        ({"opened": False}, FAILED_OPEN, False),
        ({"opened": ENDED}, FAILED_OPEN, False),
    ],
)
async def test_an_open_counts_once_its_znode_says_so(
    says: dict[str, bool | Exception], outcome: str | None, is_open: bool
) -> None:
    """Without that the region is closed again, and the agent reports that it is not open."""
    bench = Bench()
    bench.work.answers = znodes = Znodes()
    znodes.says = says
    assert [one.outcome for one in await bench.done(opens(7, 1))] == [outcome] * (outcome is not None)
    assert (bench.owned() == [(1, 7)], 1 in bench.work.opened) == (is_open, is_open)


@pytest.mark.parametrize("says", [True, False, ENDED])
async def test_an_open_that_comes_again_is_open_whatever_became_of_its_znode(says: bool | Exception) -> None:
    """The daemon has stored the owner, deleted the znode, and died; or the server's session has ended meanwhile."""
    bench = Bench()
    bench.work.answers = znodes = Znodes()
    await bench.done(opens(7, 1))
    znodes.says["opened"] = says
    again = await bench.done(Open(8, 1, 7, "t", b"", b"", 0))
    assert [one.outcome for one in again] == ([] if says is True else [OPENED])
    assert (bench.owned(), bench.service.calls) == ([(1, 7)], [("open", 1, 7)])


@pytest.mark.parametrize(
    ("says", "outcome", "is_open"),
    [
        ({}, None, False),
        ({"begins close": False}, FAILED, True),
        ({"begins close": ENDED}, CLOSED, False),
        ({"closed": False}, CLOSED, False),
        ({"closed": ENDED}, CLOSED, False),
    ],
)
async def test_a_close_is_reported_where_its_znode_does_not_say_it(
    says: dict[str, bool | Exception], outcome: str | None, is_open: bool
) -> None:
    bench = Bench()
    bench.work.answers = znodes = Znodes()
    await bench.done(opens(7, 1))
    znodes.says = says
    assert [one.outcome for one in await bench.done(closes(9, 1, 7))] == [outcome] * (outcome is not None)
    assert (bench.owned() == [(1, 7)]) is is_open


async def test_a_close_that_is_to_be_reported_moves_no_znode() -> None:
    bench = Bench()
    bench.work.answers = znodes = Znodes()
    [closed] = await bench.done(Close(9, 1, 7, reported=True))
    assert (closed.outcome, znodes.moves) == (CLOSED, [])


async def test_a_close_with_a_later_token_closes_the_region() -> None:
    bench = Bench()
    await bench.done(opens(7, 1))
    assert [one.outcome for one in await bench.done(closes(9, 1, 8))] == [CLOSED]
    assert bench.service.calls == [("open", 1, 7), ("close", 1, 7)]
    assert not bench.owned()


async def test_a_close_that_raised_is_done_when_it_is_sent_again_and_no_other_close_ends_it() -> None:
    """A region that the service still has is listed until the service has closed it."""
    bench = Bench()
    await bench.done(opens(1, 1), opens(2, 2))
    bench.service.failures["close"] = [OSError("disk"), OSError("disk")]
    assert [one.outcome for one in await bench.done(closes(3, 1, 1))] == [FAILED]
    assert [one.outcome for one in await bench.done(closes(3, 1, 1))] == [FAILED]
    assert [one.outcome for one in await bench.done(closes(4, 2, 2))] == [CLOSED]
    assert bench.owned() == [(1, 1)]
    assert [one.outcome for one in await bench.done(closes(3, 1, 1))] == [CLOSED]
    assert bench.service.calls.count(("close", 1, 1)) == 3
    assert not bench.owned()


async def test_a_region_is_listed_with_the_highest_token_of_what_is_open_and_what_waits() -> None:
    bench = Bench()
    await bench.done(opens(9, 1))
    bench.may_begin = False
    bench.work.add(opens(7, 1))
    assert bench.work.owned() == [Owned(1, 9)]
    bench.work.add(opens(11, 1))
    assert bench.work.owned() == [Owned(1, 11)]


async def test_a_server_with_the_most_regions_refuses_a_further_open_and_goes_on_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One region is open, one could not be closed, and one is about to be opened: all of them count."""
    monkeypatch.setattr("regent_agent.work.OWNED_MAX", 3)
    bench = Bench()
    service, results, work = bench.service, bench.results, bench.work
    service.failures["close"] = [OSError("disk")]
    for operation in (opens(1, 1), opens(2, 2)):
        work.add(operation)
    await eventually(lambda: len(work.opened) == 2)
    work.add(closes(3, 2, 2))
    await eventually(lambda: len(work.opened) == 1 and not work.running)
    service.hold[3] = asyncio.Event()
    work.add(opens(4, 3))
    assert [result.outcome for result in results.due()][-1] != FAILED_OPEN, "the third one is admitted"
    work.add(opens(5, 4))
    [refused] = results.due()
    assert (refused.pid, refused.outcome) == (5, FAILED_OPEN)
    work.add(closes(6, 1, 1))
    service.hold[3].set()
    await eventually(lambda: ("close", 1, 1) in service.calls and not work.running)
    work.add(opens(7, 5))
    await eventually(lambda: not work.running)
    assert {one.pid: one.outcome for one in results.due()}[7] == OPENED


NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, (1 << 64) - 1) | st.integers(-40, 300)


def body(request: protocol.Request) -> bytes:
    return codec.encode(request)[LENGTH.size :]


@pytest.mark.parametrize("name", REQUESTS)
def test_all_requests_are_the_same_in_portions(name: str) -> None:
    frame = body(REQUESTS[name])
    found = decode_in_portions(frame)
    if isinstance(found, Register | Regions):
        found = msgspec.structs.replace(found, owned=list(found.owned))
    assert found == decode_request(frame)


@given(owned=st.lists(st.builds(Owned, NUMBERS, NUMBERS), max_size=40), later=st.lists(NUMBERS | st.text(), max_size=3))
def test_a_list_keeps_its_entries_between_fields_of_a_later_version(owned: list[Owned], later: list[object]) -> None:
    entry = ["register", "s1", 5, "a:1", "v", [[one.region, one.token] for one in owned], ["flush"], *later]
    found = decode_in_portions(msgspec.msgpack.encode(entry))
    assert isinstance(found, Register)
    assert isinstance(found.owned, Listed)
    assert (found.server, found.incarnation, found.address, found.software) == ("s1", 5, "a:1", "v")
    assert (list(found.owned), found.features) == (owned, ["flush"])
    assert len(found.owned) == len(owned)


@pytest.mark.parametrize("count", [0, 1, 15, 16, PORTION - 1, PORTION, PORTION + 1, 3 * PORTION + 100, 65_536])
def test_a_list_of_any_length_is_cut_into_portions(count: int) -> None:
    owned = [Owned(number, number << 20) for number in range(count)]
    found = decode_in_portions(body(Regions("s1", 5, 1, owned)))
    assert isinstance(found, Regions)
    assert list(found.owned) == owned


def test_entries_of_a_later_version_are_read_without_their_new_fields() -> None:
    frame = msgspec.msgpack.encode(["regions", "s1", 5, 1, [[1, 7, "later"], [2, 8]]])
    found = decode_in_portions(frame)
    assert isinstance(found, Regions)
    assert list(found.owned) == [Owned(1, 7), Owned(2, 8)]


@pytest.mark.parametrize(
    "owned",
    [b"\x91\x01", b"\x91\x92\x01\xa1x", b"\x92\x92\x01\x01", b"\xc0", b"\xdc\x00", b"\x91\x91\x01", b"\xa1x"],
)
def test_a_list_of_anything_else_is_malformed_before_any_entry_is_used(owned: bytes) -> None:
    with pytest.raises(BadFrame):
        decode_in_portions(b"\x95\xa7regions\xa1s\x01\x01" + owned)


def test_a_list_beyond_its_bound_is_refused_and_named() -> None:
    frame = b"\x95\xa7regions\xa1s\x01\x01\xdd" + (250_001).to_bytes(4, "big") + b"\x92\x01\x01" * 250_001
    with pytest.raises(TooMany, match="owned: more than the 250000 that a Regions may have there"):
        decode_in_portions(frame)


def test_a_message_of_too_many_fields_makes_no_objects() -> None:
    frame = b"\xdd" + (8_000_000).to_bytes(4, "big") + b"\xa7regions" + b"\x01" * 7_999_999
    tracemalloc.start()
    try:
        with pytest.raises(BadFrame, match="more than 64 fields"):
            decode_in_portions(frame)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 64 * 1024


def test_a_list_takes_its_bytes_and_one_portion_of_objects() -> None:
    owned = [Owned(number, (1 << 40) + number) for number in range(100_000)]
    frame = body(Regions("s1", 5, 1, owned))
    tracemalloc.start()
    try:
        found = decode_in_portions(frame)
        assert isinstance(found, Regions)
        assert sum(1 for _ in found.owned) == len(owned)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 256 * 1024


@pytest.mark.parametrize("cut", [0, 1, 8, 9, 12, 20, 30, 4_000])
def test_first_fields_are_read_from_the_first_bytes_alone(cut: int) -> None:
    frame = body(Register("server", 1 << 40, "a:1", "v1", [Owned(1, 1)] * 20_000))
    found = head_of(frame[:cut])
    if cut < 10:
        assert found is None
        return
    assert found is not None
    assert found.kind is Register
    expected = {"server": "server", "incarnation": 1 << 40, "address": "a:1", "software": "v1"}
    assert found.fields.items() <= expected.items()
    assert found.whole == (cut == 4_000)
    if found.whole:
        assert (found.fields, found.entries) == (expected, 20_000)


def test_a_tag_in_a_longer_form_names_its_kind() -> None:
    assert codec.kind_of(b"\x94\xd9\x06follow\x01\x01\x90") is protocol.Follow
    assert codec.kind_of(b"\x94\xa6follow\x01\x01\x90") is protocol.Follow
    assert codec.kind_of(b"\x94\xa6fellow\x01\x01\x90") is None
    assert codec.kind_of(b"\x94\x06") is None


@given(hostile=st.binary(max_size=60))
def test_hostile_bytes_have_a_head_or_none(hostile: bytes) -> None:
    for data in (hostile, b"\x96\xa8register" + hostile, b"\x95\xa7regions\xa1s" + hostile):
        head_of(data)
        codec.kind_of(data)
        try:
            decode_in_portions(data)
        except BadFrame:
            continue
