"""Unpacks an earlier revision from the history of this clone, to run its processes beside those of this one."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from cli.demo.process import DaemonProcess

ROOT: Final = Path(__file__).parents[2]
FORMER: Final = "2558b70650d1c6c3d8f0d48fae321d820d909509"


class Revision(NamedTuple):
    """A revision. ``python``: runs modules of it, with this interpreter."""

    name: str
    python: tuple[str, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """Returns its command ``regent``."""
        return (*self.python, "-m", "cli.main")

    async def run(self, daemon: DaemonProcess, *arguments: str) -> str:
        """Runs a command that must end with exit code 0; returns its standard output."""
        process = await asyncio.create_subprocess_exec(
            *self.command, *arguments, "--config", str(daemon.config),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        assert process.returncode == 0, (self.name, arguments, out.decode(), err.decode())
        return out.decode()

    async def items(self, daemon: DaemonProcess, *arguments: str) -> list[dict[str, Any]]:
        """Returns what a command prints as JSON."""
        found: list[dict[str, Any]] = json.loads(await self.run(daemon, *arguments, "-o", "json"))["items"]
        return found


def unpacked(folder: Path) -> dict[str, Revision]:
    """Unpacks the earlier revision, and returns both by name, "former" and "present"; skips where it is not there."""
    if subprocess.run(
        ["git", "cat-file", "-e", f"{FORMER}^{{commit}}"], cwd=ROOT, capture_output=True, check=False
    ).returncode:
        pytest.skip(f"this clone has no revision {FORMER[:8]}: git fetch --unshallow")
    archive = subprocess.run(["git", "archive", FORMER], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x"], cwd=folder, input=archive, check=True)
    return {
        name: Revision(name, ("env", "-C", str(root), sys.executable))
        for name, root in (("former", folder), ("present", ROOT))
    }
