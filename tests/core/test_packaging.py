"""The files that people install agree with the settings and with each other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from configs.admin_section import AdminSettings
from configs.http_section import HttpSettings
from configs.loading import CREDENTIALS, DEFAULT_FILE
from configs.sections import ControllerSettings, ListenerSettings, StateSettings

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "configs" / "regent.service"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LISTENER = ListenerSettings(advertised_host="regent1")
INSTALLED = ("scripts/image/build.sh", f" {DEFAULT_FILE.parent} ", f" {DEFAULT_FILE} ")


def unit() -> dict[str, str]:
    """Last value of each directive."""
    return dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if re.match(r"^[A-Z]\w+=", line))


def instructions(name: str) -> list[str]:
    """Arguments of each such instruction of the Dockerfile's last stage, and of those before for ``COPY``."""
    joined = DOCKERFILE.replace("\\\n", " ")
    stage = joined.rpartition("\nFROM ")[2]
    return re.findall(rf"(?m)^{name} +(.*)$", stage)


def test_the_units_times_leave_the_daemon_its_own() -> None:
    settings, http = ControllerSettings(), HttpSettings()
    assert int(unit()["TimeoutStopSec"]) * 1_000 >= 2 * (settings.drain_timeout_ms + http.stop_timeout_ms)
    assert int(unit()["WatchdogSec"]) * 1_000 >= 2 * settings.loop_stall_ms_max


def test_the_units_folders_are_those_of_the_settings() -> None:
    found = unit()
    assert HttpSettings().socket.parent == Path("/run", found["RuntimeDirectory"])
    assert StateSettings().directory == Path("/var/lib", found["StateDirectory"])
    assert Path("/etc", found["ConfigurationDirectory"]) == DEFAULT_FILE.parent
    loaded = re.findall(r"^LoadCredential=zookeeper-(\w+)$", UNIT.read_text(), re.MULTILINE)
    assert tuple(loaded) == CREDENTIALS


def test_the_unit_notifies_reloads_and_restarts() -> None:
    found = unit()
    assert (found["Type"], found["Restart"]) == ("notify", "on-failure")
    assert found["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert found["RestartPreventExitStatus"] == "2 3"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_accepts_the_unit_and_finds_it_hardened(tmp_path: Path) -> None:
    copy = tmp_path / "regent.service"
    copy.write_text(UNIT.read_text().replace("ExecStart=/opt/regent/bin/regent", f"ExecStart={sys.executable}"))
    verified = analyze("verify", "--man=no", str(copy))
    assert verified.returncode == 0, verified.stderr
    assert str(copy) not in verified.stderr
    hardened = analyze("security", "--offline=true", "--threshold=20", "--no-pager", str(copy))
    assert hardened.returncode == 0, hardened.stdout[-500:]


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


def test_the_image_runs_as_a_number_stops_by_sigterm_and_knows_its_health() -> None:
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", instructions("USER")[-1]), "Kubernetes checks runAsNonRoot by number"
    assert instructions("STOPSIGNAL") == ["SIGTERM"]
    assert json.loads(instructions("HEALTHCHECK")[0].partition("CMD ")[2]) == ["regent", "health"]
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["regent"], "no shell between: signals reach the daemon"
    assert json.loads(instructions("CMD")[0]) == ["run"]
    assert instructions("EXPOSE") == [f"{LISTENER.port} {AdminSettings().port}"]
    assert instructions("VOLUME") == [str(StateSettings().directory)]


def test_the_documented_installation_lets_the_service_read_its_settings() -> None:
    """systemd leaves the owner of this folder as it is: made by root, it must be the service's group's."""
    lines = (ROOT / "docs" / "operations.md").read_text().split("### systemd")[1].split("```")[1].splitlines()
    script, folder, file = (next(i for i, line in enumerate(lines) if part in line) for part in INSTALLED)
    assert script < folder < file, "the script makes the folder for root alone"
    service = unit()
    mode, group = re.findall(r"-m (\d+) -g (\w+)", lines[folder])[0]
    assert (mode, group) == (service["ConfigurationDirectoryMode"], service["Group"])
    assert f"-m 0640 -g {group} " in lines[file]


def test_the_image_is_built_by_the_script_alone() -> None:
    assert re.findall(r"(?m)^RUN +(.*)$", DOCKERFILE) == ["scripts/image/build.sh"]
    script = (ROOT / "scripts/image/build.sh").read_text()
    copied = [re.sub(r"--\S+ ", "", line).split()[0] for line in instructions("COPY")]
    assert all(f"/{path.split('/', 1)[1]}" in script for path in copied), copied
    assert f"ExecStart={copied[0]}/bin/regent run" in UNIT.read_text()


def test_the_context_holds_what_the_build_needs_and_no_more() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    files = {"pyproject.toml", "requirements.lock", "scripts/image", project["project"]["readme"]}
    assert let_in == packages | files | set(project["project"]["license-files"])
    assert lines[0] == "*"
    assert all((ROOT / name).exists() for name in let_in)


def test_what_people_install_is_in_the_package() -> None:
    """Files beside modules: the wheel takes whole folders, so they need no list of their own."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "configs" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {"example.toml", "regent.service"} <= {path.name for path in (ROOT / "configs").iterdir()}


def test_extras_that_people_are_told_of_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [
        ROOT / "README.md",
        ROOT / "docs/operations.md",
        ROOT / "pipeline/session.py",
        ROOT / "brokers/embedded/java.py",
    ]
    named = {extra for text in texts for extra in re.findall(r"(?:\.|regent-controller)\[(\w+)\]", text.read_text())}
    assert {"java", "pipeline"} <= named <= project["optional-dependencies"].keys()
