"""A server that is no member yet: it ends with the text of a refusal, and at a signal without a traceback."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path

import pytest

from examples.kv import options
from regent_agent.protocol import INVALID, NOT_ACTIVE, UNAUTHENTICATED, Refused, Register, Request, Response
from tests.kit.polling import eventually
from tests.unit.examples.process_kit import Servers
from tests.unit.regent_agent.stand_in import StandIn


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
