"""The steps of the Dockerfile on this machine make an installation that runs by itself."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMPORT_ALL = """
import importlib, pkgutil
for package in ("cli", "controller", "admin", "brokers", "metadata_store", "state_machines", "configs", "regent_agent"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not module.name.startswith("testing.embedded") and module.name != "cli.demo":
            importlib.import_module(module.name)
            print(module.name)
"""


def test_the_build_of_the_image_makes_a_complete_installation(tmp_path: Path) -> None:
    environ = os.environ | {"PYTHON": sys.executable, "PYTHONPATH": ""}
    subprocess.run([ROOT / "scripts/image/build.sh", tmp_path], env=environ, check=True, timeout=600)
    prefix = tmp_path / "opt/regent"
    regent = prefix / "bin/regent"

    def output(*command: str | Path) -> str:
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, env={}).stdout

    assert output(regent, "config", "example") == (ROOT / "configs/example.toml").read_text()
    imported = output(prefix / "bin/python", "-I", "-c", IMPORT_ALL).split()
    assert {"cli.main", "controller.http.server", "metadata_store.port"} <= set(imported)
    (installed,) = prefix.glob("lib/python3*/site-packages/configs/regent.service")
    assert installed.read_text() == (ROOT / "configs/regent.service").read_text()
    assert not list(prefix.glob("bin/pip*")), "an image that nobody installs into needs no pip"
    assert not list(prefix.glob("lib/python3*/site-packages/pytest")), "only what the daemon needs"
    assert list(prefix.glob("lib/python3*/site-packages/controller/__pycache__/*.pyc")), "starts are quick"
    for folder, mode in (("run/regent", 0o750), ("var/lib/regent", 0o750), ("etc/regent", 0o751)):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == mode
