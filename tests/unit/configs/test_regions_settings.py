"""The section [regions]: what switches it on, when Kafka may be absent, its defaults, its secret."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from brokers.regions.secret import NO_SECRETS, regions_secrets, secrets_in
from brokers.security.authentication import SecurityUnusable
from cli.exit_codes import Exit
from configs.advice import advice
from configs.loading import load
from configs.problems import ConfigError
from configs.regions_section import RegionsSettings
from configs.settings import Settings
from controller.regions.dispatcher import DispatchLimits
from tests.kit.command import MINIMAL, items, problems, regent, unwrapped, written

DIGEST = {"REGENT_ZOOKEEPER__DIGEST": "regent:secret"}
ALONE = '[regions]\nhost = "127.0.0.1"\n'


def loaded(folder: Path, text: str, environ: dict[str, str] | None = None) -> Settings:
    """Loads the settings of a daemon."""
    return load(written(folder, text), environ or {}, kafka_optional=True).settings


@pytest.mark.parametrize("text", ["[regions]\n", ALONE, "[regions]\nenabled = true\n"])
def test_the_section_alone_is_a_daemon_without_kafka(tmp_path: Path, text: str) -> None:
    settings = loaded(tmp_path, text)
    assert (settings.regions.enabled, settings.has_kafka) == (True, False)


def test_the_environment_alone_switches_it_on() -> None:
    settings = load(environ={"REGENT_REGIONS__PORT": "0"}, kafka_optional=True).settings
    assert (settings.regions.enabled, settings.has_kafka, settings.regions.port) == (True, False, 0)


def test_without_the_section_no_regions_are_assigned(tmp_path: Path) -> None:
    settings = loaded(tmp_path, MINIMAL)
    assert (settings.regions.enabled, settings.has_kafka) == (False, True)


def test_both_run_in_one_daemon(tmp_path: Path) -> None:
    settings = loaded(tmp_path, MINIMAL + ALONE)
    assert (settings.regions.enabled, settings.has_kafka) == (True, True)


@pytest.mark.parametrize("text", ["[regions]\nenabled = false\n", '[regions]\n[zookeeper]\nconnect = "zk:2181"\n'])
def test_a_section_of_kafka_or_no_regions_need_all_of_kafka(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"listener\.advertised_host is not set"):
        loaded(tmp_path, text)


def test_commands_about_kafka_need_its_sections(tmp_path: Path) -> None:
    assert {"zookeeper.connect", "listener.advertised_host"} == problems(tmp_path, ALONE).keys()


def test_options_about_kafka_are_refused_without_it(tmp_path: Path) -> None:
    file = written(tmp_path, ALONE)
    for option in ("--shadow", "--takeover"):
        assert "add [zookeeper]" in regent("run", option, "--config", file, code=Exit.USAGE).stderr


def test_the_settings_are_checked_and_shown_without_kafka(tmp_path: Path) -> None:
    file = written(tmp_path, ALONE)
    assert "the settings are right" in regent("config", "check", "--config", file).stderr
    shown = {row["key"]: row["value"] for row in items("config", "show", "--config", file)}
    assert shown["regions.enabled"] == "true"


def test_the_file_of_the_store_is_in_the_state_directory(tmp_path: Path) -> None:
    text = f'[regions]\n[state]\ndirectory = "{tmp_path}"\n'
    assert loaded(tmp_path, text).regions_file == tmp_path / "regions.db"
    assert loaded(tmp_path, '[regions]\nfile = "/x/y.db"\n').regions_file == Path("/x/y.db")


@pytest.mark.seed("S3-40", "S3-41", "S3-42")
def test_defaults_of_batches() -> None:
    """150 ms, 32 operations in a batch, 128 batches on their way, as HBase's dispatcher."""
    found = RegionsSettings()
    assert (found.delay_ms, found.batch_max, found.in_flight_max) == (150, 32, 128)
    assert DispatchLimits() == DispatchLimits(found.delay_ms, found.batch_max, found.in_flight_max)


def test_defaults_of_the_start() -> None:
    found = RegionsSettings()
    assert (found.servers_min, found.startup_wait_ms, found.lease_ms) == (1, 60_000, 10_000)


def test_without_a_secret_no_other_machine_is_served(tmp_path: Path) -> None:
    assert loaded(tmp_path, "[regions]\n").regions_host == "127.0.0.1"
    assert loaded(tmp_path, '[regions]\nsecret_file = "/x"\n').regions_host == "0.0.0.0"
    for host in ("127.0.0.1", "localhost", "::1"):
        assert loaded(tmp_path, f'[regions]\nhost = "{host}"\n').regions_host == host
    for host in ("0.0.0.0", "::", "10.0.0.1", "kv.example"):
        text = f'[regions]\nhost = "{host}"\n'
        with pytest.raises(ConfigError, match=r"regions\.host (.|\n)*set regions\.secret_file"):
            loaded(tmp_path, text)
        assert loaded(tmp_path, text + 'secret_file = "/x"\n').regions_host == host
        assert not loaded(tmp_path, MINIMAL + text + "enabled = false\n").regions.enabled


def test_a_secret_that_clients_share_with_servers_is_advised_against(tmp_path: Path) -> None:
    text = '[regions]\nsecret_file = "/x"\n'
    assert any("regions.clients_secret_file is not set" in one for one in advice(loaded(tmp_path, text)))
    assert not advice(loaded(tmp_path, text + 'clients_secret_file = "/y"\n'))
    assert not advice(loaded(tmp_path, ALONE))


def test_a_secret_of_clients_needs_one_of_servers(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"regions\.clients_secret_file (.|\n)*set regions\.secret_file, too"):
        loaded(tmp_path, '[regions]\nclients_secret_file = "/y"\n')


def test_answers_by_znodes_need_a_store_in_zookeeper(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"regions\.transport (.|\n)*set regions\.store to \"zookeeper\""):
        loaded(tmp_path, '[regions]\ntransport = "zookeeper"\n')
    both = MINIMAL + '[regions]\ntransport = "zookeeper"\nstore = "zookeeper"\n'
    assert loaded(tmp_path, both).regions.transport == "zookeeper"
    assert loaded(tmp_path, "[regions]\n").regions.transport == "poll"


@pytest.mark.parametrize(
    ("identity", "why"),
    [
        ("digest:kv:IJwNVeVdalTt4CTgTGj8D0vK3KI=", None),
        ("sasl:kv", None),
        ("x509:CN=kv, O=example", None),
        ("world:anyone", None),
        ("digest:kv:secret", "has an id that the scheme digest does not know"),
        ("world:kv", "has an id that the scheme world does not know"),
        ("ip:10.0.0.1", "is not SCHEME:ID"),
        ("kv", "is not SCHEME:ID"),
        ("sasl: kv", "does not know"),
    ],
)
def test_the_identity_of_servers_is_one_of_an_acl(tmp_path: Path, identity: str, why: str | None) -> None:
    text = MINIMAL + f'[regions]\nservers_identity = "{identity}"\n'
    if why is None:
        found = loaded(tmp_path, text, DIGEST)
        assert found.regions.servers_identity == identity
        return
    with pytest.raises(ConfigError, match=why):
        loaded(tmp_path, text, DIGEST)


def test_servers_with_the_daemons_identity_are_advised_against(tmp_path: Path) -> None:
    text = MINIMAL + '[regions]\nstore = "zookeeper"\ntransport = "zookeeper"\n'
    name = "regions.servers_identity is not set"
    assert any(name in one for one in advice(loaded(tmp_path, text, DIGEST)))
    assert not any(name in one for one in advice(loaded(tmp_path, text + 'servers_identity = "sasl:kv"\n', DIGEST)))
    assert not any(name in one for one in advice(loaded(tmp_path, text)))


def test_a_secret_is_one_line_and_a_second_one_while_it_is_replaced(tmp_path: Path) -> None:
    path, first, second = tmp_path / "secret", "0123456789abcdef", "fedcba9876543210"
    path.write_text(f"{first}\n")
    assert secrets_in("regions.secret_file", path) == (first,)
    path.write_text(f"{first}\n{second}\n")
    assert secrets_in("regions.secret_file", path) == (first, second)
    for text in ("short\n", "", "\n", f"{first}\n\n", f"{first}\n{second}\n{first}x\n", f"{first} {second}\n"):
        path.write_text(text)
        with pytest.raises(SecurityUnusable, match=r"^regions\.secret_file .* 16 to 1000 characters"):
            secrets_in("regions.secret_file", path)
    with pytest.raises(SecurityUnusable, match="cannot be read"):
        secrets_in("regions.secret_file", tmp_path / "none")


def test_servers_and_clients_may_not_have_the_same_secret(tmp_path: Path) -> None:
    servers, clients = tmp_path / "servers", tmp_path / "clients"
    servers.write_text("0123456789abcdef\nfedcba9876543210\n")
    clients.write_text("fedcba9876543210\n")
    with pytest.raises(SecurityUnusable, match="hold the same secret"):
        regions_secrets(servers, clients)
    clients.write_text("of-clients-alone\n")
    found = regions_secrets(servers, clients)
    assert [found.serves(one) for one in ("0123456789abcdef", "fedcba9876543210", "of-clients-alone", "")] == [
        True, True, False, None,
    ]  # fmt: skip
    assert NO_SECRETS.serves("")
    assert NO_SECRETS.serves("any")


def test_advice_about_a_secret_that_both_have_never_overwrites_that_of_servers(tmp_path: Path) -> None:
    """The same file may have two names, and the name that is advised may be taken. The advice is given as it is."""
    folder = tmp_path / "etc of regent"
    folder.mkdir()
    servers, linked, taken = folder / "regions-secret", tmp_path / "linked", folder / "regions-secret-clients"
    servers.write_text("0123456789abcdef\n")
    servers.chmod(0o640)
    linked.symlink_to(servers)
    taken.write_text("something else\n")
    for clients in (servers, linked):
        with pytest.raises(SecurityUnusable) as found:
            regions_secrets(servers, clients)
        [(command, setting)] = re.findall(r", by (.*) , and set (.*)$", str(found.value))
        written = Path(tomllib.loads(setting)["regions"]["clients_secret_file"])
        assert not written.exists()
        subprocess.run(["bash", "-c", f"umask 0; {command}"], check=True)
        assert written.stat().st_mode & 0o777 == 0o640, "no user may read it that may not read that of servers"
        assert regions_secrets(servers, written).serves(written.read_text().strip()) is False
        written.unlink()


def test_advice_about_a_file_without_a_secret_keeps_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_text("-----BEGIN PRIVATE KEY-----\n")
    with pytest.raises(SecurityUnusable) as found:
        secrets_in("regions.secret_file", path)
    assert f"> {path}" not in str(found.value)
    path.write_text("")
    with pytest.raises(SecurityUnusable, match=f"> {path}"):
        secrets_in("regions.secret_file", path)


def test_a_fence_by_command_needs_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'regions\.fence = "command"(.|\n)*set regions\.fence_command') as found:
        loaded(tmp_path, '[regions]\nfence = "command"\n')
    assert len(found.value.problems) == 1
    text = '[regions]\nfence = "command"\nfence_command = ["/sbin/fence", "--"]\n'
    assert loaded(tmp_path, text).regions.fence_command == ("/sbin/fence", "--")
    assert loaded(tmp_path, text.replace('"command"', '"lease"')).regions.fence_command, "former servers may need it"


def test_the_environment_has_the_command_as_json(tmp_path: Path) -> None:
    environ = {"REGENT_REGIONS__FENCE_COMMAND": '["/sbin/fence", "a b"]'}
    assert loaded(tmp_path, ALONE, environ).regions.fence_command == ("/sbin/fence", "a b")
    with pytest.raises(ConfigError, match=r"REGENT_REGIONS__FENCE_COMMAND\) is not a list in JSON"):
        loaded(tmp_path, ALONE, {"REGENT_REGIONS__FENCE_COMMAND": "/sbin/fence a"})


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("[]", "is not a list of texts, the program first"),
        ('["/sbin/fence", 1]', "is not a list of texts, the program first"),
        ("7", "is not a list of texts, the program first"),
        ('["fence"]', "does not begin with the absolute path of a program"),
        ('["/sbin/fence", "\\u0000"]', "contains a NUL"),
    ],
)
def test_a_command_that_could_never_run_is_refused_with_an_example(tmp_path: Path, command: str, why: str) -> None:
    with pytest.raises(ConfigError) as found:
        loaded(tmp_path, f"{ALONE}fence_command = {command}\n")
    [problem] = found.value.problems
    assert why in problem.reason
    assert '["/usr/local/sbin/fence-server", "--"]' in problem.remedy


def test_config_check_looks_whether_the_command_can_be_run(tmp_path: Path) -> None:
    file = written(tmp_path, f'{ALONE}fence_command = ["/bin/sh", "{tmp_path}/fence"]\n')
    assert "the settings are right" in regent("config", "check", "--config", file).stderr
    shown = {row["key"]: row["value"] for row in items("config", "show", "--config", file)}
    assert shown["regions.fence_command"] == f'["/bin/sh", "{tmp_path}/fence"]'
    file = written(tmp_path, f'{ALONE}fence_command = ["{tmp_path}/fence"]\n')
    assert f"this user cannot run {tmp_path}/fence" in unwrapped(
        regent("config", "check", "--config", file, code=Exit.USAGE).stderr
    )


def test_config_check_reads_the_secret(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("short\n")
    file = written(tmp_path, ALONE + f'secret_file = "{path}"\n')
    assert "16 to 1000 characters" in regent("config", "check", "--config", file, code=Exit.USAGE).stderr


def test_regions_may_be_kept_in_zookeeper_without_kafka(tmp_path: Path) -> None:
    settings = loaded(tmp_path, '[regions]\nstore = "zookeeper"\n[zookeeper]\nconnect = "zk:2181"\n')
    assert (settings.has_kafka, settings.zookeeper.connect) == (False, "zk:2181")


def test_a_store_in_zookeeper_needs_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper\.connect is not set"):
        loaded(tmp_path, '[regions]\nstore = "zookeeper"\n')
