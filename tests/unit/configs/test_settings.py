"""Settings from a file, the environment and defaults, and the example file, which is complete and explained."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from configs import example
from configs.connections import HttpSettings
from configs.loading import load, load_section
from configs.problems import ConfigError
from configs.settings import differences, keys
from configs.values import Address, parse_address
from tests.kit.command import MINIMAL, closed, problems, written


def test_two_keys_are_enough(tmp_path: Path) -> None:
    loaded = load(written(tmp_path, MINIMAL), {})
    assert loaded.settings.zookeeper.connect == "zk1:2181,zk2:2181/kafka"
    assert loaded.settings.controller.on_absence == "brokers"
    assert loaded.settings.controller.loop_stall_ms_max < loaded.settings.zookeeper.session_timeout_ms / 2


def test_the_environment_wins_over_the_file_and_the_file_over_defaults(tmp_path: Path) -> None:
    path = written(tmp_path, MINIMAL + '[log]\nlevel = "warning"\nformat = "json"\n')
    loaded = load(path, {"REGENT_LOG__LEVEL": "debug", "REGENT_LOG__STATE_CHANGE_LEVEL": ""})
    log = loaded.settings.log
    assert (log.level, log.format, log.state_change_level) == ("debug", "json", "info")
    assert loaded.origins["log.level"] == "environment REGENT_LOG__LEVEL"
    assert loaded.origins["log.format"] == str(path)
    assert loaded.origins["log.state_change_level"] == "default"
    assert set(loaded.origins) > {"zookeeper.connect", "state.directory"}


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, MINIMAL)
    assert load(environ={"REGENT_CONFIG": str(path)}).file == path


def test_the_environment_alone_may_hold_all_settings() -> None:
    environ = {"REGENT_ZOOKEEPER__CONNECT": "zk:2181", "REGENT_LISTENER__ADVERTISED_HOST": "::1"}
    settings = load(environ=environ | {"REGENT_BROKERS__SEAL_INTERVAL_MS": "7"}).settings
    assert settings.brokers.seal_interval_ms == 7


def test_variables_of_kubernetes_for_a_service_named_regent_are_not_settings(tmp_path: Path) -> None:
    load(written(tmp_path, MINIMAL), {"REGENT_PORT": "tcp://10.0.0.1:80", "REGENT_SERVICE_HOST": "10.0.0.1"})


def test_one_error_names_every_problem(tmp_path: Path) -> None:
    """The settings have a wrong value in every section, a missing one, unknown ones and a broken relation."""
    text = """
    lonely = 1
    [zookeeper]
    session_timeout_ms = "long"
    sesion_timeout_ms = 5
    [controler]
    id = 7
    [controller]
    id = 2147483647
    [listener]
    advertised_host = "0.0.0.0"
    frame_timeout_ms = 9000
    idle_timeout_ms = 8000
    [brokers]
    seal_interval_ms = -1
    [http]
    socket = "regent.sock"
    [log]
    level = "loud"
    [shadow]
    poll_s = 0
    [state]
    directory = ""
    """
    found = problems(tmp_path, text, {"REGENT_ROLE__ID": "1", "REGENT_LOG__FORMAT": "xml"})
    assert set(found) == {
        "lonely", "zookeeper.connect", "zookeeper.session_timeout_ms", "zookeeper.sesion_timeout_ms", "controler",
        "controller.id", "listener.advertised_host", "listener.frame_timeout_ms", "brokers.seal_interval_ms",
        "http.socket", "log.level", "log.format", "shadow.poll_s", "state.directory", "role",
    }  # fmt: skip
    assert "zookeeper.session_timeout_ms" in found["zookeeper.sesion_timeout_ms"].remedy
    assert found["controler"].remedy == "write controller"
    assert "REGENT_ZOOKEEPER__CONNECT" in found["zookeeper.connect"].remedy
    assert found["log.format"].origin == "environment REGENT_LOG__FORMAT"
    assert "one of auto, console, json" in str(found["log.format"])
    assert '"long"' in str(found["zookeeper.session_timeout_ms"])


BAD = [
    ("zookeeper", "connect", "zk1:99999"),
    ("zookeeper", "connect", "zk1:65536"),
    ("zookeeper", "connect", "zk1:0"),
    ("zookeeper", "connect", "zk1:2181/"),
    ("zookeeper", "connect", "zk1:2181//kafka"),
    ("zookeeper", "connect", "zk1:2181/kafka/"),
    ("zookeeper", "connect", "zk1 2181"),
    ("zookeeper", "connect", ",zk1"),
    ("zookeeper", "connect", "zk1,1.2.3:2181"),
    ("zookeeper", "connect", ""),
    ("controller", "id", "9999"),
    ("controller", "id", "2000000001"),
    ("controller", "ibp", "three"),
    ("controller", "ibp", "3.9-iv0"),
    ("controller", "ibp", "0.10"),
    ("controller", "on_absence", "headless"),
    ("controller", "unclean_leader_election_enable", "perhaps"),
    ("listener", "host", "256.1.1.1"),
    ("listener", "host", "two words"),
    ("listener", "advertised_host", "::"),
    ("listener", "advertised_host", "0.0.0.0"),
    ("listener", "port", "65536"),
    ("listener", "port", "-1"),
    ("brokers", "inter_broker_listener", ""),
    ("brokers", "inter_broker_listener", "IN:TERNAL"),
    ("brokers", "control_plane_listener", "IN:TERNAL"),
    ("http", "socket", f"/{'x' * 96}"),
    ("http", "socket", "relative.sock"),
    ("http", "address", "127.0.0.1"),
    ("http", "address", "127.0.0.1:65536"),
    ("http", "address", "not an address:1"),
    ("http", "address", ":9097"),
    ("http", "certificate_file", "relative.pem"),
    ("state", "directory", "relative/path"),
    ("journal", "topic", "two words"),
    ("journal", "topic", ".."),
    ("journal", "topic_bootstrap", "kafka1"),
    ("journal", "topic_bootstrap", "kafka1:9092,"),
    ("journal", "topic_bootstrap", "kafka1:65536"),
    ("journal", "topic_bytes_max", "1"),
]


@pytest.mark.parametrize(("section", "key", "value"), BAD, ids=lambda part: part[:30])
def test_a_bad_value_is_named_with_its_key(tmp_path: Path, section: str, key: str, value: str) -> None:
    found = problems(tmp_path, f'[{section}]\n{key} = "{value}"\n')
    assert f"{section}.{key}" in found
    assert found[f"{section}.{key}"].value == f'"{value}"'


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("zookeeper", "connect", "localhost"),
        ("zookeeper", "connect", "zk1:1,zk2:65535"),
        ("zookeeper", "connect", "[::1]:2181/kafka"),
        ("zookeeper", "connect", "10.0.0.1:2181/a/b"),
        ("zookeeper", "connect", "zk-1.zk_hs.svc:2181"),
        ("controller", "ibp", "0.10.2"),
        ("controller", "ibp", "2.7-IV1"),
        ("listener", "host", "::"),
        ("listener", "advertised_host", "regent1.example.com."),
        ("brokers", "control_plane_listener", ""),
        ("http", "socket", f"/{'x' * 95}"),
        ("http", "address", "localhost:0"),
        ("journal", "topic", "regent.journal"),
        ("journal", "topic_bootstrap", "kafka1:9092,[::1]:9093"),
        ("http", "address", "[::1]:65535"),
    ],
    ids=lambda part: part[:30],
)
def test_a_good_value_is_taken_as_it_is(tmp_path: Path, section: str, key: str, value: str) -> None:
    settings = load(written(tmp_path, MINIMAL), {f"REGENT_{section}__{key}".upper(): value}).settings
    assert str(getattr(getattr(settings, section), key)) == value


@pytest.mark.parametrize(
    ("text", "address", "loopback"),
    [
        ("127.0.0.2:9097", Address("127.0.0.2", 9097), True),
        ("[::1]:0", Address("::1", 0), True),
        ("localhost:1", Address("localhost", 1), True),
        ("10.0.0.1:1", Address("10.0.0.1", 1), False),
        ("regent1:1", Address("regent1", 1), False),
    ],
)
def test_an_address_is_split_and_known_as_loopback(text: str, address: Address, loopback: bool) -> None:
    assert parse_address(text) == address
    assert parse_address(text).loopback is loopback


def test_names_of_listeners_are_upper_case_as_in_kafka(tmp_path: Path) -> None:
    environ = {"REGENT_BROKERS__INTER_BROKER_LISTENER": "internal", "REGENT_BROKERS__CONTROL_PLANE_LISTENER": "plane"}
    brokers = load(written(tmp_path, MINIMAL), environ).settings.brokers
    assert (brokers.inter_broker_listener, brokers.control_plane_listener) == ("INTERNAL", "PLANE")


def test_a_relation_to_a_wrong_value_is_not_checked(tmp_path: Path) -> None:
    """9 s would be too long for the default session, but the intended one is unknown."""
    text = "[controller]\nloop_stall_ms_max = 9000\n"
    found = problems(tmp_path, MINIMAL + text, {"REGENT_ZOOKEEPER__SESSION_TIMEOUT_MS": "long"})
    assert set(found) == {"zookeeper.session_timeout_ms"}


@pytest.mark.parametrize("text", ["[zookeeper\n", "connect = zk1", "\udcff"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "regent.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=str(path)):
        load(path, {})


def test_a_named_file_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "nothing.toml", {})
    with pytest.raises(ConfigError, match="cannot be read"):
        load(environ={"REGENT_CONFIG": str(tmp_path / "nothing.toml")})


def test_a_default_file_in_a_closed_folder_is_an_error_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of an installation may belong to root alone; without any folder there is no error."""
    file = tmp_path / "private" / "regent.toml"
    monkeypatch.setattr("configs.loading.DEFAULT_FILE", file)
    environ = {"REGENT_ZOOKEEPER__CONNECT": "zk:2181", "REGENT_LISTENER__ADVERTISED_HOST": "::1"}
    assert load(environ=environ).file is None, "without a folder there is no file"
    file.parent.mkdir()
    file.write_text(MINIMAL)
    with closed(file.parent), pytest.raises(ConfigError) as error:
        load(environ=environ)
    text = str(error.value)
    assert f"{file} cannot be read: Permission denied" in text
    assert f"group regent: `chgrp regent {file.parent} {file}`" in text
    assert "--config" in text


def test_a_section_must_be_a_table(tmp_path: Path) -> None:
    assert "section" in problems(tmp_path, "zookeeper = 5")["zookeeper"].reason


def test_a_single_section_ignores_problems_of_the_others(tmp_path: Path) -> None:
    path = written(tmp_path, '[controler]\nid = 1\n[http]\nsocket = "/tmp/r.sock"\n')
    assert load_section(HttpSettings, path, {}).socket == Path("/tmp/r.sock")
    with pytest.raises(ConfigError):
        load_section(HttpSettings, written(tmp_path, "[http]\nsocket = 5\n"), {})


def test_settings_cannot_be_changed(tmp_path: Path) -> None:
    settings = load(written(tmp_path, MINIMAL), {}).settings
    with pytest.raises(ValidationError):
        settings.log.level = "debug"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        settings.log = settings.log  # type: ignore[misc]


def test_a_reload_lists_changes_and_which_are_live(tmp_path: Path) -> None:
    before = load(written(tmp_path, MINIMAL), {"REGENT_ZOOKEEPER__DIGEST": "a:old"}).settings
    changed = {"REGENT_LOG__LEVEL": "debug", "REGENT_CONTROLLER__ID": "1000002", "REGENT_ZOOKEEPER__DIGEST": "a:new"}
    found = {d.name: d for d in differences(before, load(written(tmp_path, MINIMAL), changed).settings)}
    assert set(found) == {"log.level", "controller.id", "zookeeper.digest"}
    assert found["log.level"].live
    assert not found["controller.id"].live
    assert (found["controller.id"].before, found["controller.id"].after) == ("1000001", "1000002")
    assert "new" not in found["zookeeper.digest"].after


FILE = Path(example.__file__).with_name("example.toml")


def test_the_example_is_generated_from_the_settings() -> None:
    assert FILE.read_text() == example.render(), "run: python -m configs.example > configs/example.toml"


CERTIFICATES = ("ca_file", "certificate_file", "key_file")
ADMIN_CREDENTIALS = ("zookeeper_digest_file", "zookeeper_digest", "zookeeper_sasl_file", "zookeeper_sasl")


def test_the_example_loads_unchanged() -> None:
    settings = load(FILE, {}).settings
    assert settings.listener.advertised_host == "regent1.example.com"


def test_every_key_is_in_the_example_with_its_default(tmp_path: Path) -> None:
    """It loads without the comment signs before keys, too, and then equals the defaults."""
    full = re.sub(r"(?m)^#(?=\w+ = )", "", FILE.read_text())
    shown = {f"{section}.{name}" for section, items in tomllib.loads(full).items() for name in items}
    secrets = {key.name for key in keys() if key.meta("environment_only")}
    assert shown | secrets == {key.name for key in keys()}
    path = tmp_path / "full.toml"
    path.write_text(re.sub(r"/etc/regent/(admin-)?zookeeper-(digest|sasl)", str(tmp_path / "secret"), full))
    (tmp_path / "secret").write_text("user:password")
    settings = load(path, {}).settings
    plain = load(FILE, {}).settings
    files: Any = {
        "controller": {"create_topic_policy"},
        "zookeeper": True,
        "admin": {"secret_file", *CERTIFICATES[1:], *ADMIN_CREDENTIALS},
        "http": {"token_file", "client_ca_file", *CERTIFICATES[1:]},
        "security": {"sasl_file", "sasl_brokers_file", *CERTIFICATES},
        "regions": {"host", "secret_file", "clients_secret_file", "file", "servers_identity", "fence_command"},
    }
    assert settings.model_dump(exclude=files) == plain.model_dump(exclude=files)


def test_every_key_is_explained() -> None:
    for key in keys():
        assert key.field.description, key.name
        assert (key.field.description or "").endswith("."), key.name
