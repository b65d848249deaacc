"""Notifies systemd on a real datagram socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.process.systemd import ServiceManager


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """Returns systemd's socket, and the value of NOTIFY_SOCKET."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@regent-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(name.replace("@", "\0", 1))
        receiver.settimeout(5)
        yield receiver, name


def test_each_notification_has_its_assignments(manager: tuple[socket.socket, str]) -> None:
    receiver, name = manager
    service = ServiceManager({"NOTIFY_SOCKET": name})
    service.ready("standby")
    service.alive()
    service.status("active with epoch 5")
    service.stopping("handing back")
    assert [receiver.recv(200) for _ in range(4)] == [
        b"READY=1\nSTATUS=standby",
        b"WATCHDOG=1",
        b"STATUS=active with epoch 5",
        b"STOPPING=1\nSTATUS=handing back",
    ]
    service.reloading()
    first, second = receiver.recv(200).split(b"\n")
    assert first == b"RELOADING=1"
    assert int(second.removeprefix(b"MONOTONIC_USEC=")) > 0
    service.reloaded()
    assert receiver.recv(200) == b"READY=1"


def test_a_missing_or_full_socket_of_systemd_blocks_no_notification(tmp_path: Path) -> None:
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).alive()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        service = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        for _ in range(2_000):
            service.alive()


def test_without_systemd_no_notification_is_sent() -> None:
    service = ServiceManager({})
    service.ready("standby")
    assert service.watchdog_s is None


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "1"}, 1e-6),
        ({"WATCHDOG_USEC": "0"}, None),
        ({}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_interval_is_that_of_this_process(environ: dict[str, str], seconds: float | None) -> None:
    assert ServiceManager(environ).watchdog_s == seconds
