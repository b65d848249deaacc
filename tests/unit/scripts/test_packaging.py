"""Installed files agree with the settings and with each other."""

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
from configs.connections import HttpSettings
from configs.credentials import CREDENTIALS, GIVEN_SECRET
from configs.loading import DEFAULT_FILE
from configs.sections import ControllerSettings, ListenerSettings, StateSettings
from scripts.package import packages_of_extras
from tests.kit.documented import documented

ROOT = Path(__file__).parents[3]
HOW_TO = ROOT / "docs" / "how-to"
UNIT = ROOT / "configs" / "regent.service"
ENDPOINT_UNIT = ROOT / "configs" / "regent-admin-endpoint.service"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LISTENER = ListenerSettings(advertised_host="regent1")
INSTALLED = ("scripts/image/build.sh", f" {DEFAULT_FILE.parent} ", f" {DEFAULT_FILE} ")


def unit(file: Path = UNIT) -> dict[str, str]:
    """Returns the last value of each directive."""
    return dict(line.split("=", 1) for line in file.read_text().splitlines() if re.match(r"^[A-Z]\w+=", line))


def credentials(file: Path) -> list[str]:
    """Returns the names of credentials that systemd passes, with their files where these are named."""
    return re.findall(r"(?m)^LoadCredential=(\S+)$", file.read_text())


def instructions(name: str) -> list[str]:
    """Returns the arguments of each such instruction in the Dockerfile's last stage."""
    joined = DOCKERFILE.replace("\\\n", " ")
    stage = joined.rpartition("\nFROM ")[2]
    return re.findall(rf"(?m)^{name} +(.*)$", stage)


def test_the_units_time_outs_exceed_the_daemons() -> None:
    settings, http = ControllerSettings(), HttpSettings()
    assert int(unit()["TimeoutStopSec"]) * 1_000 >= 2 * (settings.drain_timeout_ms + http.stop_timeout_ms)
    assert int(unit()["WatchdogSec"]) * 1_000 >= 2 * settings.loop_stall_ms_max


def test_the_units_folders_are_those_of_the_settings() -> None:
    found = unit()
    assert HttpSettings().socket.parent == Path("/run", found["RuntimeDirectory"])
    assert StateSettings().directory == Path("/var/lib", found["StateDirectory"])
    assert Path("/etc", found["ConfigurationDirectory"]) == DEFAULT_FILE.parent
    assert credentials(UNIT) == [f"{section}-{key}".replace("_", "-") for section, key in CREDENTIALS]


def test_the_endpoints_user_reads_the_shared_secret_alone() -> None:
    found = unit(ENDPOINT_UNIT)
    assert found["User"] not in ("root", unit()["User"])
    assert found["Group"] != unit()["Group"], "the daemon's group reads its files"
    assert "SupplementaryGroups" not in found
    state = StateSettings().directory
    assert credentials(ENDPOINT_UNIT) == [
        f"{DEFAULT_FILE.name}:{DEFAULT_FILE}",
        f"{GIVEN_SECRET}:{state / 'admin-secret'}",
        *(f"{section}-{key}".replace("_", "-") for section, key in CREDENTIALS if section == "admin"),
    ]
    assert found["InaccessiblePaths"].split() == ["-/run/regent", f"-{state}"]
    assert found["ExecStart"].endswith(f"--config ${{CREDENTIALS_DIRECTORY}}/{DEFAULT_FILE.name}")


def test_the_endpoints_memory_limit_exceeds_its_own_limits() -> None:
    admin, most = AdminSettings(), unit(ENDPOINT_UNIT)["MemoryMax"]
    assert most == "1G"
    assert admin.buffered_bytes_max + admin.connections_max * 300_000 + 200_000_000 < 2**30


def test_the_daemons_unit_does_not_start_the_endpoint() -> None:
    assert unit()["Environment"] == "REGENT_ADMIN__BESIDE_DAEMON=false REGENT_ADMIN__AWAITED=true"
    assert ENDPOINT_UNIT.name in unit()["Wants"]
    assert unit(ENDPOINT_UNIT)["PartOf"] == UNIT.name
    assert AdminSettings().beside_daemon, "by hand one command starts both"


def test_the_unit_notifies_reloads_and_restarts() -> None:
    found = unit()
    assert (found["Type"], found["Restart"]) == ("notify", "on-failure")
    assert found["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert found["RestartPreventExitStatus"] == "2 3"


@pytest.mark.parametrize("file", [UNIT, ENDPOINT_UNIT], ids=lambda file: file.stem)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_accepts_the_unit_and_finds_it_hardened(tmp_path: Path, file: Path) -> None:
    for each in (UNIT, ENDPOINT_UNIT):
        text = each.read_text().replace("ExecStart=/opt/regent/bin/regent", f"ExecStart={sys.executable}")
        (tmp_path / each.name).write_text(text)
    copy = tmp_path / file.name
    copy.write_text(file.read_text().replace("ExecStart=/opt/regent/bin/regent", f"ExecStart={sys.executable}"))
    verified = analyze("verify", "--man=no", str(copy))
    assert verified.returncode == 0, verified.stderr
    assert str(copy) not in verified.stderr
    hardened = analyze("security", "--offline=true", "--threshold=20", "--no-pager", str(copy))
    assert hardened.returncode == 0, hardened.stdout[-500:]


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


def test_the_image_has_a_numeric_user_sigterm_and_a_health_check() -> None:
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", instructions("USER")[-1]), "Kubernetes checks runAsNonRoot by number"
    assert instructions("STOPSIGNAL") == ["SIGTERM"]
    assert json.loads(instructions("HEALTHCHECK")[0].partition("CMD ")[2]) == ["regent", "health"]
    assert json.loads(instructions("ENTRYPOINT")[0]) == ["regent"], "no shell between: signals reach the daemon"
    assert json.loads(instructions("CMD")[0]) == ["run"]
    assert instructions("EXPOSE") == [f"{LISTENER.port} {AdminSettings().port}"]
    assert instructions("VOLUME") == [str(StateSettings().directory)]


def test_after_the_documented_installation_the_service_can_read_its_settings() -> None:
    """systemd does not change the folder's owner, so root gives it to the service's group."""
    lines = (HOW_TO / "put-it-on-a-cluster.md").read_text().split("### systemd")[1].split("```")[1].splitlines()
    script, folder, file = (next(i for i, line in enumerate(lines) if part in line) for part in INSTALLED)
    assert script < folder < file, "the script makes the folder for root alone"
    service = unit()
    mode, group = re.findall(r"-m (\d+) -g (\w+)", lines[folder])[0]
    assert (mode, group) == (service["ConfigurationDirectoryMode"], service["Group"])
    assert f"-m 0640 -g {group} " in lines[file]


def removed() -> list[str]:
    """Returns the paths that the documented way to uninstall removes."""
    return [word for line in documented("Uninstall") if line.startswith("rm ") for word in line.split()[2:]]


def test_every_installed_path_and_user_is_uninstalled() -> None:
    installed, gone = documented("systemd"), documented("Uninstall")
    users = {line.split()[-1] for line in installed if line.startswith("useradd")}
    assert users == {line.split()[-1] for line in gone if line.startswith("userdel")} == {"regent", "regent-endpoint"}
    paths = removed()
    for name in (UNIT.name, ENDPOINT_UNIT.name):
        assert f"/etc/systemd/system/{name}" in paths
    assert {line.split()[-1] for line in installed if line.startswith("ln -s")} <= set(paths)
    made = re.findall(r'"\$root(/\S+)"', (ROOT / "scripts/image/build.sh").read_text())
    assert {"/opt/regent", *made} <= set(paths)
    handed = {name for file in (UNIT, ENDPOINT_UNIT) for name in credentials(file) if ":" not in name}
    assert {f"/etc/credstore/{name}" for name in handed} <= set(paths)


def test_a_daemon_for_regions_alone_is_uninstalled_without_what_a_cluster_needs() -> None:
    installed, gone = documented("Run it"), documented("Uninstall a daemon for regions alone")
    users = {line.split()[-1] for line in installed if line.startswith("useradd")}
    assert users == {line.split()[-1] for line in gone if line.startswith("userdel")} == {"regent"}
    paths = {word for line in gone if line.startswith("rm ") for word in line.split()[2:]}
    assert {line.split()[-1] for line in installed if line.startswith("ln -s")} <= paths
    assert {"/opt/regent", "/etc/regent", "/var/lib/regent", "/run/regent", f"/etc/systemd/system/{UNIT.name}"} <= paths
    assert not [line for line in gone if "handback" in line or "endpoint" in line]


def test_an_upgrade_repeats_steps_of_the_installation() -> None:
    installed, upgrade = documented("systemd"), documented("Upgrade")
    assert upgrade[0] == "scripts/image/build.sh"
    assert upgrade[1] in installed, "the same units"
    restart = upgrade.index("systemctl restart regent")
    assert upgrade.index("systemctl daemon-reload") < upgrade.index("regent config check") < restart
    assert upgrade[restart + 1] == "regent health --ready"


def test_the_base_image_is_pinned_by_its_digest() -> None:
    """Both stages use one image, which the tag may not name any more."""
    [base] = re.findall(r"(?m)^ARG PYTHON_IMAGE=(.*)$", DOCKERFILE)
    assert re.fullmatch(r"python:3\.11-slim@sha256:[0-9a-f]{64}", base)
    assert [line.split()[0] for line in re.findall(r"(?m)^FROM (.*)$", DOCKERFILE)] == ["${PYTHON_IMAGE}"] * 2


def test_the_image_is_built_by_the_script_alone() -> None:
    assert re.findall(r"(?m)^RUN +(.*)$", DOCKERFILE) == ["scripts/image/build.sh"]
    script = (ROOT / "scripts/image/build.sh").read_text()
    copied = [re.sub(r"--\S+ ", "", line).split()[0] for line in instructions("COPY")]
    assert all(f"/{path.split('/', 1)[1]}" in script for path in copied), copied
    assert f"ExecStart={copied[0]}/bin/regent run" in UNIT.read_text()


def test_the_build_context_is_exactly_the_needed_files() -> None:
    lines = (ROOT / ".dockerignore").read_text().split()
    let_in = {line.removeprefix("!") for line in lines if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    files = {"pyproject.toml", "requirements.lock", "scripts/image", project["project"]["readme"]}
    assert let_in == packages | files | set(project["project"]["license-files"])
    assert lines[0] == "*"
    assert all((ROOT / name).exists() for name in let_in)


def test_every_installed_file_is_in_the_package() -> None:
    """The wheel takes whole folders, with the files beside modules."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "configs" in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {"example.toml", UNIT.name, ENDPOINT_UNIT.name} <= {path.name for path in (ROOT / "configs").iterdir()}
    watching = {path.name for folder in ("prometheus", "grafana") for path in (ROOT / "configs" / folder).iterdir()}
    assert watching == {
        "regent-alerts.yml", "regent-regions-alerts.yml", "regent-cluster.json", "regent-performance.json",
        "regent-regions.json",
    }  # fmt: skip


def test_the_documented_ways_to_install_use_the_lock() -> None:
    for text in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        assert not re.findall(r"(?m)^.*pip install(?!.*--require-hashes).*$", text.read_text()), text
    assert "make venv-pipeline" in (HOW_TO / "read-the-journal.md").read_text()


def test_every_documented_extra_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [
        ROOT / "README.md",
        *HOW_TO.glob("*.md"),
        ROOT / "pipeline/session.py",
        ROOT / "testing/embedded/java.py",
    ]
    named = {extra for text in texts for extra in re.findall(r"(?:\.|regent-controller)\[(\w+)\]", text.read_text())}
    assert {"java", "pipeline"} <= named <= project["optional-dependencies"].keys()


def test_modules_of_an_extra_may_lack_their_packages_when_the_wheel_is_proven() -> None:
    assert {"pyspark", "numpy", "numba", "pyarrow", "pandas"} <= set(packages_of_extras())
    assert not {"msgspec", "kazoo", "typer"} & set(packages_of_extras())
