"""The service: requests, flushes, what a process may answer, and how it begins and ends."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from pathlib import Path

import pytest

from examples.kv import content, logs, options, regions, server
from examples.kv.content import Entry
from examples.kv.protocol import KEY_BYTES_MAX, PUT_COUNT_MAX, SCAN_BYTES_MAX, VALUE_BYTES_MAX
from examples.kv.service import Conflict, Invalid, KeyValueService, NotOwner, Suspended
from examples.kv.writer import Fenced
from regent_agent.protocol import (
    DEAD,
    INVALID,
    NOT_ACTIVE,
    UNAUTHENTICATED,
    Refused,
    Register,
    Registered,
    Request,
    Response,
)
from tests.kit.deadlines import eventually
from tests.kit.examples.processes import Servers, error_of, region, service, take_over
from tests.unit.regent_agent.kit import StandIn


async def test_what_was_put_is_read_and_listed(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv:
        assert await kv.open(region(5)) == 1
        assert await kv.get(1, 5, b"k") is None
        assert [await kv.put(1, 5, key, b"v") for key in (b"c", b"a", b"b", b"a")] == [2, 3, 4, 5]
        assert await kv.get(1, 5, b"a") == Entry(b"v", 5)
        listed, more = await kv.scan(1, 5, b"b", 1_000)
        assert [key for key, _ in listed] == [b"b", b"c"]
        assert not more
        assert await kv.scan(1, 5, b"", 2) == ([(b"a", Entry(b"v", 5)), (b"b", Entry(b"v", 4))], True)


async def test_many_puts_have_versions_in_a_row(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv, service(tmp_path, "b") as other:
        await kv.open(region(5))
        assert await kv.put_many(1, 5, [(b"c", b"1"), (b"a", b"2"), (b"c", b"3")]) == 4
        listed, _ = await kv.scan(1, 5, b"", 1_000)
        assert listed == [(b"a", Entry(b"2", 3)), (b"c", Entry(b"3", 4))]
        await kv.put(1, 5, b"b", b"4")
        assert [key for key, _ in (await kv.scan(1, 5, b"", 1_000))[0]] == [b"a", b"b", b"c"]
        await take_over(other, "a", region(6, sequence=1))
        assert await other.get(1, 6, b"a") == Entry(b"2", 3)


async def test_many_puts_are_set_together_or_refused(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv:
        await kv.open(region(5, end=b"m"))
        refused: list[tuple[list[tuple[bytes, bytes]], type[Exception]]] = [
            ([], Invalid),
            ([(b"a", b"")] * (PUT_COUNT_MAX + 1), Invalid),
            ([(b"a", b""), (b"a", bytes(VALUE_BYTES_MAX + 1))], Invalid),
            ([(b"a", b""), (b"m", b"")], NotOwner),
        ]
        for entries, error in refused:
            assert isinstance(await error_of(kv.put_many(1, 5, entries)), error)
        assert await kv.scan(1, 5, b"", 1) == ([], False)


async def test_a_response_to_a_scan_is_bounded(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv:
        await kv.open(region(5))
        for number in range(4):
            await kv.put(1, 5, b"%d" % number, bytes(SCAN_BYTES_MAX // 3))
        listed, more = await kv.scan(1, 5, b"", 1_000)
        assert ([key for key, _ in listed], more) == ([b"0", b"1"], True)


async def test_only_one_of_many_compare_and_puts_writes(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv:
        await kv.open(region(5))
        for version in (0, 2):
            calls = (kv.compare_and_put(1, 5, b"k", b"%d" % number, version) for number in range(20))
            results = await asyncio.gather(*calls, return_exceptions=True)
            [written] = [result for result in results if isinstance(result, int)]
            conflicts = [result for result in results if isinstance(result, Conflict)]
            assert len(conflicts) == 19
            assert {conflict.found.sequence for conflict in conflicts if conflict.found} == {written}


async def test_requests_with_another_token_or_key_are_refused(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv:
        await kv.open(region(5, start=b"b", end=b"m"))
        for call in (
            kv.get(2, 5, b"c"),
            kv.get(1, 4, b"c"),
            kv.put(1, 6, b"c", b""),
            kv.put(1, 5, b"a", b""),
            kv.compare_and_put(1, 5, b"m", b"", 0),
            kv.scan(1, 4, b"", 1),
        ):
            assert isinstance(await error_of(call), NotOwner)


async def test_a_suspended_server_refuses_until_it_resumes(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv:
        await kv.open(region(5))
        kv.suspend()
        for call in (kv.get(1, 5, b"k"), kv.put(1, 5, b"k", b""), kv.scan(1, 5, b"", 1)):
            assert isinstance(await error_of(call), Suspended)
        kv.resume()
        await kv.put(1, 5, b"k", b"")


@pytest.mark.parametrize(("key", "value"), [(KEY_BYTES_MAX + 1, 0), (0, VALUE_BYTES_MAX + 1)])
async def test_long_keys_and_values_are_refused(tmp_path: Path, key: int, value: int) -> None:
    async with service(tmp_path, "a") as kv:
        await kv.open(region(5))
        with pytest.raises(Invalid, match="at most"):
            await kv.put(1, 5, bytes(key), bytes(value))


async def test_a_region_that_was_closed_opens_elsewhere_with_all(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv, service(tmp_path, "b") as other:
        await kv.open(region(5))
        await kv.put(1, 5, b"k", b"v")
        await kv.close(region(5))
        assert isinstance(await error_of(kv.get(1, 5, b"k")), NotOwner)
        assert await other.open(region(6, sequence=1)) == 3
        assert await other.get(1, 6, b"k") == Entry(b"v", 2)
        await kv.close(region(5))


async def test_a_put_that_waits_while_its_region_closes_is_kept(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv, service(tmp_path, "b") as other:
        await kv.open(region(5))
        put = asyncio.create_task(kv.put(1, 5, b"k", b"v"))
        await asyncio.sleep(0)
        await kv.close(region(5))
        await put
        await other.open(region(6))
        assert await other.get(1, 6, b"k") == Entry(b"v", 2)


async def test_the_edits_of_a_dead_process_are_recovered(tmp_path: Path) -> None:
    async with service(tmp_path, "a", segment_bytes=1_000) as kv, service(tmp_path, "b") as other:
        await kv.open(region(5))
        versions = [await kv.put(1, 5, b"%d" % number, bytes(100)) for number in range(50)]
        assert await take_over(other, "a", region(6, sequence=1)) == 52
        assert [await other.get(1, 6, b"%d" % number) for number in range(50)] == [
            Entry(bytes(100), version) for version in versions
        ]


async def test_a_fenced_process_answers_nothing(tmp_path: Path) -> None:
    async with service(tmp_path, "a") as kv, service(tmp_path, "b") as other:
        await kv.open(region(5))
        await kv.put(1, 5, b"k", b"before")
        await take_over(other, "a", region(6))
        await other.put(1, 6, b"k", b"after")
        for call in (
            kv.put(1, 5, b"k", b"late"),
            kv.get(1, 5, b"k"),
            kv.scan(1, 5, b"", 1),
            kv.compare_and_put(1, 5, b"k", b"late", 99),
        ):
            assert isinstance(await error_of(call), Fenced)
        await kv.close(region(5))  # its flush writes a file that nobody reads
        async with service(tmp_path, "c") as third:
            await take_over(third, "b", region(7))
            found = await third.get(1, 7, b"k")
            assert found is not None
            assert found.value == b"after"


async def test_flushes_bound_the_log(tmp_path: Path) -> None:
    """Regions with few edits are flushed, too, once they keep a long log."""
    async with service(tmp_path, "a", segment_bytes=2_000, flush_bytes=20_000) as kv, service(tmp_path, "b") as other:
        await kv.open(region(5, number=1))
        await kv.open(region(6, number=2))
        await kv.put(2, 6, b"rare", b"v")
        await kv.put(2, 6, b"other", b"v")
        for number in range(400):
            await kv.put(1, 5, b"%d" % (number % 40), bytes(200))
        await eventually(lambda: len(logs.segments(tmp_path / "logs/a,1")) <= 14)
        await kv.put(2, 6, b"rare", b"w")
        await take_over(other, "a", region(7, number=1))
        await other.open(region(8, number=2))
        assert await other.get(2, 8, b"rare") == Entry(b"w", 4)
        assert await other.get(2, 8, b"other") == Entry(b"v", 3)
        assert await other.get(1, 7, b"39") == Entry(bytes(200), 401)


async def test_a_segment_stays_while_one_region_needs_it(tmp_path: Path) -> None:
    """The flushes of one region delete no segment with edits of another, which goes on to put."""
    async with service(tmp_path, "a", segment_bytes=500, flush_bytes=1_000) as kv, service(tmp_path, "b") as other:
        await kv.open(region(5, number=1))
        await kv.open(region(6, number=2))
        for number in range(6):
            await kv.put(2, 6, b"%d" % number, b"v")
            await kv.put(1, 5, b"k", bytes(600))
        await eventually(lambda: kv._upkeep._task is not None and kv._upkeep._task.done())
        await take_over(other, "a", region(7, number=2))
        assert [key for key, _ in (await other.scan(2, 7, b"", 10))[0]] == [b"%d" % number for number in range(6)]


async def test_puts_during_a_flush_are_kept(tmp_path: Path) -> None:
    async with service(tmp_path, "a", flush_bytes=10) as kv, service(tmp_path, "b") as other:
        await kv.open(region(5))
        puts = (kv.put(1, 5, b"%d" % number, bytes(20)) for number in range(200))
        await asyncio.gather(*puts)
        await eventually(lambda: flushed(tmp_path) > 1)
        await take_over(other, "a", region(6))
        listed, _ = await other.scan(1, 6, b"", 1_000)
        assert len(listed) == 200


def flushed(data: Path) -> int:
    return content.read(data / f"regions/1/{5:020}.sqlite").sequence


async def test_a_flush_that_fails_ends_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with service(tmp_path, "a", flush_bytes=10) as kv:
        await kv.open(region(5))

        def fail(*_: object) -> None:
            raise OSError("disk is full")

        monkeypatch.setattr(regions, "save", fail)
        await kv.put(1, 5, b"k", bytes(20))
        await eventually(lambda: failed(kv))
        with pytest.raises(OSError, match="disk is full"):
            await kv.get(1, 5, b"k")


def failed(kv: KeyValueService) -> bool:
    return kv._log.failed.done()


async def test_a_close_whose_flush_fails_may_be_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with service(tmp_path, "a") as kv, service(tmp_path, "b") as other:
        await kv.open(region(5))
        await kv.put(1, 5, b"k", b"v")
        replace = os.replace
        monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk is full")))
        assert isinstance(await error_of(kv.close(region(5))), OSError)
        assert isinstance(await error_of(kv.put(1, 5, b"k", b"w")), NotOwner)
        monkeypatch.setattr(os, "replace", replace)
        await kv.close(region(5))
        await other.open(region(6))
        assert await other.get(1, 6, b"k") == Entry(b"v", 2)


@pytest.mark.parametrize("code", [UNAUTHENTICATED, INVALID])
async def test_a_server_that_is_refused_ends_with_what_would_make_it_succeed(tmp_path: Path, code: str) -> None:
    async def refuses(_: Request) -> Response:
        return Refused(code, "secret: it is that of clients: give that of regions.secret_file")

    async with StandIn().running() as daemon, Servers(daemon.address, tmp_path).running() as servers:
        daemon.responses[Register] = refuses
        server = servers.all["kv-1"] = await servers.launch("kv-1")
        assert await server.ended() == 8
        text = server.text.read_text()
        assert "give that of regions.secret_file" in text.splitlines()[-1]
        assert "Traceback" not in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_before_it_is_a_member_ends_it_in_silence(tmp_path: Path, number: signal.Signals) -> None:
    async def refuses(_: Request) -> Response:
        return Refused(NOT_ACTIVE, "this daemon stands by")

    async with StandIn().running() as daemon, Servers(daemon.address, tmp_path).running() as servers:
        daemon.responses[Register] = refuses
        server = servers.all["kv-1"] = await servers.launch("kv-1")
        await eventually(lambda: bool(daemon.seen(Register)))
        server.signal(number)
        assert await server.ended() == 0
        assert "Traceback" not in server.text.read_text()


async def test_the_secret_is_the_first_line_of_the_daemons_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("ours\nformer\n")
    parser = argparse.ArgumentParser(exit_on_error=False)
    options.add_daemons(parser)
    given = ["--daemons", "127.0.0.1:9190"]
    assert parser.parse_args([*given, "--secret-file", str(file)]).secret == "ours"
    assert parser.parse_args(given).secret == ""
    file.write_text("\n")
    for path, says in ((file, "has no first line"), (tmp_path / "none", "cannot be read")):
        with pytest.raises(argparse.ArgumentError, match=says):
            parser.parse_args([*given, "--secret-file", str(path)])


@pytest.mark.parametrize("given", ["127.0.0.1", ":9190", "127.0.0.1:x", "127.0.0.1:9190,", ""])
def test_a_daemon_without_host_or_port_is_refused_with_an_example(given: str) -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    options.add_daemons(parser)
    with pytest.raises(argparse.ArgumentError, match="write host:port, for instance"):
        parser.parse_args(["--daemons", given])


async def test_a_server_that_cannot_begin_ends_with_the_option_to_correct(tmp_path: Path) -> None:
    async with StandIn().running() as daemon, Servers(daemon.address, tmp_path).running() as servers:
        (tmp_path / "file").touch()
        port = str(daemon.address[1])
        cases = [
            ("kv 1", (), 2, "a server named 'kv 1'"),
            ("kv-1", ("--data", str(tmp_path / "file")), 4, "correct --data"),
            ("kv-2", ("--port", port), 2, "correct --host and --port"),
        ]
        for name, arguments, code, says in cases:
            server = servers.all[name] = await servers.launch(name, arguments)
            assert await server.ended() == code
            text = server.text.read_text()
            assert (says in text.splitlines()[-1], "Traceback" in text) == (True, False), text


FENCED = 1 << 60


async def test_a_server_whose_clock_is_behind_takes_the_incarnation_after_the_fenced_one(tmp_path: Path) -> None:
    async def registered(request: Request) -> Response:
        assert isinstance(request, Register)
        if request.incarnation <= FENCED:
            return Refused(DEAD, f"it is not above {FENCED}", FENCED)
        return Registered(1, 60_000, 20, False, "log")

    async with StandIn(hold_ms=20).running() as daemon:
        daemon.responses[Register] = registered
        options = argparse.Namespace(
            name="kv-1",
            host="127.0.0.1",
            port=0,
            data=tmp_path,
            daemons=(daemon.address,),
            secret="",
            leave_s=1.0,
            segment_bytes=1 << 20,
            transport="poll",
        )
        running = asyncio.ensure_future(server._run(options))
        await eventually(lambda: [one.incarnation > FENCED for one in daemon.seen(Register)] == [False, True])
        assert daemon.seen(Register)[1].incarnation == FENCED + 1
        await eventually((tmp_path / "logs" / f"kv-1,{FENCED + 1}").is_dir)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize("text", ["127.0.0.1", "127.0.0.1:x/svc", "a:1,b", ":2181", "a:0", "a:99999", "a:²"])
def test_an_address_of_zookeeper_that_nobody_can_reach_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--name", "kv-1", "--data", str(tmp_path), "--daemons", "127.0.0.1:7000", "--transport", "zookeeper"]
    monkeypatch.setattr("sys.argv", ["kv", *words, "--zookeeper", text])
    with pytest.raises(SystemExit):
        server.main()
    assert f"in {text!r} is not HOST:PORT" in capsys.readouterr().err
