"""Settings from outside: a file, the environment, defaults; what is wrong is told all at once, with the remedy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import ValidationError

from configs.credentials import systemd_credential
from configs.http_section import HttpSettings
from configs.loading import load, load_section
from configs.problems import ConfigError, Problem
from configs.sections import ListenerSettings
from configs.settings import Settings, differences
from configs.zookeeper_section import ZooKeeperSettings

MINIMAL = """
[zookeeper]
connect = "zk1:2181,zk2:2181/kafka"
[listener]
advertised_host = "regent1.example.com"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "regent.toml"
    path.write_text(text)
    return path


def problems(tmp_path: Path, text: str, environ: dict[str, str] | None = None) -> dict[str, Problem]:
    """What is wrong with a file, by key."""
    with pytest.raises(ConfigError) as raised:
        load(written(tmp_path, text), environ or {})
    found = raised.value.problems
    assert all(problem.reason and problem.remedy for problem in found)
    return {problem.key: problem for problem in found}


def test_two_keys_are_enough(tmp_path: Path) -> None:
    loaded = load(written(tmp_path, MINIMAL), {})
    assert loaded.settings.zookeeper.connect == "zk1:2181,zk2:2181/kafka"
    assert loaded.settings.controller.on_absence == "brokers"
    assert loaded.settings.controller.loop_stall_ms_max < loaded.settings.zookeeper.session_timeout_ms / 2


def test_the_environment_wins_over_the_file_and_the_file_over_the_defaults(tmp_path: Path) -> None:
    path = written(tmp_path, MINIMAL + '[log]\nlevel = "warning"\nformat = "json"\n')
    loaded = load(path, {"REGENT_LOG__LEVEL": "debug", "REGENT_LOG__STATE_CHANGE_LEVEL": ""})
    log = loaded.settings.log
    assert (log.level, log.format, log.state_change_level) == ("debug", "json", "info")
    assert loaded.origins["log.level"] == "environment REGENT_LOG__LEVEL"
    assert loaded.origins["log.format"] == str(path)
    assert loaded.origins["log.state_change_level"] == "default"
    assert set(loaded.origins) > {"zookeeper.connect", "state.directory"}


def test_the_file_is_named_by_the_environment(tmp_path: Path) -> None:
    path = written(tmp_path, MINIMAL)
    assert load(environ={"REGENT_CONFIG": str(path)}).file == path


def test_a_whole_daemon_may_be_configured_by_the_environment() -> None:
    environ = {"REGENT_ZOOKEEPER__CONNECT": "zk:2181", "REGENT_LISTENER__ADVERTISED_HOST": "::1"}
    settings = load(environ=environ | {"REGENT_BROKERS__SEAL_INTERVAL_MS": "7"}).settings
    assert settings.brokers.seal_interval_ms == 7


def test_variables_of_kubernetes_for_a_service_named_regent_are_not_settings(tmp_path: Path) -> None:
    load(written(tmp_path, MINIMAL), {"REGENT_PORT": "tcp://10.0.0.1:80", "REGENT_SERVICE_HOST": "10.0.0.1"})


def test_everything_wrong_is_reported_at_once(tmp_path: Path) -> None:
    """One wrong value in every section, a missing one, unknown ones and a relation: one answer names them all."""
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


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("zookeeper", "connect", '"zk1:99999"'),
        ("zookeeper", "connect", '"zk1:2181/"'),
        ("zookeeper", "connect", '"zk1:2181//kafka"'),
        ("zookeeper", "connect", '"zk1 2181"'),
        ("zookeeper", "connect", '",zk1"'),
        ("zookeeper", "connect", '""'),
        ("controller", "id", "1001"),
        ("controller", "id", "2000000001"),
        ("controller", "ibp", '"three"'),
        ("controller", "ibp", '"3.9-iv0"'),
        ("controller", "on_absence", '"headless"'),
        ("controller", "unclean_leader_election_enable", '"perhaps"'),
        ("listener", "host", '"256.1.1.1"'),
        ("listener", "host", '"two words"'),
        ("listener", "advertised_host", '"::"'),
        ("listener", "port", "65536"),
        ("brokers", "inter_broker_listener", '""'),
        ("brokers", "inter_broker_listener", '"IN:TERNAL"'),
        ("http", "socket", f'"/{"x" * 96}"'),
        ("state", "directory", '"relative/path"'),
    ],
)
def test_a_bad_value_is_named_with_its_key(tmp_path: Path, section: str, key: str, value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(written(tmp_path, f"[{section}]\n{key} = {value}\n"), {})
    assert f"{section}.{key}" in {problem.key for problem in raised.value.problems}


@pytest.mark.parametrize(
    "connect", ["localhost", "zk1:2181,zk2:2181", "[::1]:2181/kafka", "10.0.0.1:2181/a/b", "zk-1.zk_hs.svc:2181"]
)
def test_connect_strings_of_all_kinds(connect: str) -> None:
    assert ZooKeeperSettings(connect=connect).connect == connect


@pytest.mark.parametrize(
    ("text", "key", "named"),
    [
        ("[controller]\nloop_stall_ms_max = 9000\n", "controller.loop_stall_ms_max", "9000"),
        ("[brokers]\nreserved_broker_max_id = 999000\n", "controller.id", "999001"),
        ('[controller]\non_absence = "hold"\n', "controller.on_absence", "digest_file"),
        ("[admin]\nframe_timeout_ms = 600000\nidle_timeout_ms = 1000\n", "admin.frame_timeout_ms", "1000 ms"),
        ("[admin]\nbuffered_bytes_max = 1048576\n", "admin.frame_bytes_max", "1048576 bytes"),
        ("[admin]\nport = 0\nadvertised_port = 9096\n", "admin.advertised_port", "admin.port"),
        ("[brokers]\nretry_backoff_ms = 5000\n", "brokers.retry_backoff_ms", "1000 ms"),
        ('[brokers]\ncontrol_plane_listener = "internal"\n', "brokers.control_plane_listener", "inter_broker_listener"),
    ],
)
def test_relations_are_checked_and_their_numbers_named(tmp_path: Path, text: str, key: str, named: str) -> None:
    found = problems(tmp_path, MINIMAL + text)
    assert set(found) == {key}
    assert named in str(found[key])


def test_a_relation_to_a_wrong_value_is_not_judged(tmp_path: Path) -> None:
    """9 s would be too long for the default session, but nobody knows which one was meant."""
    text = "[controller]\nloop_stall_ms_max = 9000\n"
    found = problems(tmp_path, MINIMAL + text, {"REGENT_ZOOKEEPER__SESSION_TIMEOUT_MS": "long"})
    assert set(found) == {"zookeeper.session_timeout_ms"}


def test_settings_made_in_a_program_obey_the_same_relations() -> None:
    with pytest.raises(ValidationError, match="loop_stall_ms_max"):
        Settings(
            zookeeper=ZooKeeperSettings(connect="zk:2181", session_timeout_ms=6_000),
            listener=ListenerSettings(advertised_host="127.0.0.1"),
        )


def test_an_advertised_port_needs_a_fixed_one(tmp_path: Path) -> None:
    found = problems(tmp_path, MINIMAL + "port = 0\nadvertised_port = 9095\n")
    assert set(found) == {"listener.advertised_port"}


@pytest.mark.parametrize("key", ["digest", "sasl"])
def test_credentials_stand_in_a_file_and_are_never_shown(tmp_path: Path, key: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("regent:s3cret\n")
    loaded = load(written(tmp_path, MINIMAL), {f"REGENT_ZOOKEEPER__{key.upper()}_FILE": str(secret)})
    found = getattr(loaded.settings.zookeeper, key)
    assert found.get_secret_value() == "regent:s3cret"
    assert loaded.origins[f"zookeeper.{key}"] == f"file {secret}"
    assert "s3cret" not in repr(loaded) + str(loaded.settings)


def test_credentials_come_from_systemd_where_nothing_else_names_them(tmp_path: Path) -> None:
    for key in ("digest", "sasl"):
        (tmp_path / f"zookeeper-{key}").write_text(f"{key}:s3cret")
    loaded = load(written(tmp_path, MINIMAL), {"CREDENTIALS_DIRECTORY": str(tmp_path)}).settings.zookeeper
    assert loaded.digest is not None
    assert loaded.sasl is not None
    assert (loaded.digest.get_secret_value(), loaded.sasl.get_secret_value()) == ("digest:s3cret", "sasl:s3cret")
    assert load(written(tmp_path, MINIMAL), {"CREDENTIALS_DIRECTORY": "/nowhere"}).settings.zookeeper.digest is None


def test_credentials_allow_holding_the_role(tmp_path: Path) -> None:
    environ = {"REGENT_ZOOKEEPER__DIGEST": "regent:s3cret", "REGENT_CONTROLLER__ON_ABSENCE": "hold"}
    assert load(written(tmp_path, MINIMAL), environ).settings.controller.on_absence == "hold"


@pytest.mark.parametrize("inline", ["regent:s3cret", "s3cret"])
def test_credentials_are_refused_in_the_settings_file(tmp_path: Path, inline: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(written(tmp_path, f'[zookeeper]\nconnect = "zk"\ndigest = "{inline}"\n'), {})
    assert "zookeeper.digest_file" in str(raised.value)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("content", ["no colon", "user:", ":password", "a:b\nc:d", None])
def test_a_credentials_file_that_is_no_use(tmp_path: Path, content: str | None) -> None:
    secret = tmp_path / "digest"
    if content is not None:
        secret.write_text(content)
    found = problems(tmp_path, MINIMAL, {"REGENT_ZOOKEEPER__DIGEST_FILE": str(secret)})
    assert "user:password" in found["zookeeper.digest_file"].remedy


def test_wrong_credentials_in_the_environment_are_not_repeated(tmp_path: Path) -> None:
    found = problems(tmp_path, MINIMAL, {"REGENT_ZOOKEEPER__DIGEST": "s3cret"})
    assert "s3cret" not in str(found["zookeeper.digest"])


def test_credentials_given_twice(tmp_path: Path) -> None:
    environ = {"REGENT_ZOOKEEPER__DIGEST": "a:b", "REGENT_ZOOKEEPER__DIGEST_FILE": "/etc/x"}
    assert "remove one" in problems(tmp_path, MINIMAL, environ)["zookeeper.digest_file"].remedy


@pytest.mark.parametrize("text", ["[zookeeper\n", "connect = zk1", "\udcff"])
def test_a_file_that_is_not_toml(tmp_path: Path, text: str) -> None:
    path = tmp_path / "regent.toml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match=str(path)):
        load(path, {})


def test_a_file_that_is_not_there_is_an_error_only_if_it_was_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "nothing.toml", {})
    with pytest.raises(ConfigError, match="cannot be read"):
        load(environ={"REGENT_CONFIG": str(tmp_path / "nothing.toml")})


def test_a_default_file_that_may_not_be_reached_is_told_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation whose folder belongs to root alone: not as if there were no file, and no traceback."""
    file = tmp_path / "private" / "regent.toml"
    monkeypatch.setattr("configs.loading.DEFAULT_FILE", file)
    environ = {"REGENT_ZOOKEEPER__CONNECT": "zk:2181", "REGENT_LISTENER__ADVERTISED_HOST": "::1"}
    assert load(environ=environ).file is None, "without a folder there is no file"
    file.parent.mkdir()
    file.write_text(MINIMAL)
    with entered_by_nobody(file.parent), pytest.raises(ConfigError) as error:
        load(environ=environ)
    text = str(error.value)
    assert f"{file} cannot be read: Permission denied" in text
    assert f"group regent: `chgrp regent {file.parent} {file}`" in text
    assert "--config" in text


@contextmanager
def entered_by_nobody(folder: Path) -> Iterator[None]:
    """A folder of mode 0; root, whom no mode stops, is somebody else meanwhile."""
    folder.chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65_534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(0o700)


def test_a_section_that_is_no_table(tmp_path: Path) -> None:
    assert "section" in problems(tmp_path, "zookeeper = 5")["zookeeper"].reason


def test_one_section_alone_does_not_mind_the_rest(tmp_path: Path) -> None:
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


def test_a_reload_tells_what_changed_and_what_needs_a_restart(tmp_path: Path) -> None:
    before = load(written(tmp_path, MINIMAL), {"REGENT_ZOOKEEPER__DIGEST": "a:old"}).settings
    changed = {"REGENT_LOG__LEVEL": "debug", "REGENT_CONTROLLER__ID": "1000002", "REGENT_ZOOKEEPER__DIGEST": "a:new"}
    found = {d.name: d for d in differences(before, load(written(tmp_path, MINIMAL), changed).settings)}
    assert set(found) == {"log.level", "controller.id", "zookeeper.digest"}
    assert found["log.level"].live
    assert not found["controller.id"].live
    assert (found["controller.id"].before, found["controller.id"].after) == ("1000001", "1000002")
    assert "new" not in found["zookeeper.digest"].after


def test_a_systemd_credential_allows_holding_the_role(tmp_path: Path) -> None:
    (tmp_path / "zookeeper-digest").write_text("regent:s3cret")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path), "REGENT_CONTROLLER__ON_ABSENCE": "hold"}
    assert load(written(tmp_path, MINIMAL), environ).settings.controller.on_absence == "hold"


@pytest.mark.parametrize(
    ("name", "needs"),
    [("zookeeper-digest", "REGENT_CONTROLLER__ON_ABSENCE=hold"), ("zookeeper-sasl", "REGENT_ZOOKEEPER__SET_ACL=true")],
)
def test_a_command_by_hand_reads_what_systemd_would_hand_to_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, needs: str
) -> None:
    environ = dict([needs.split("=")])
    store = tmp_path / "credstore"
    monkeypatch.setattr("configs.credentials.STORE", store)
    with pytest.raises(ConfigError, match=f"into /etc/credstore/{name} .*reads it there as root"):
        load(written(tmp_path, MINIMAL), environ)
    store.mkdir()
    (store / name).write_text("regent:s3cret")
    loaded = load(written(tmp_path, MINIMAL), environ)
    assert loaded.origins[name.replace("-", ".")] == f"file {store / name}"
    with pytest.raises(ConfigError, match="/etc/credstore"):
        load(written(tmp_path, MINIMAL), environ | {"CREDENTIALS_DIRECTORY": str(tmp_path)})
    with entered_by_nobody(store):
        assert systemd_credential(name, {}) is None, "to all but root it is as if there were none"


def test_set_acl_needs_somebody_to_be(tmp_path: Path) -> None:
    environ = {"REGENT_ZOOKEEPER__SET_ACL": "true"}
    with pytest.raises(ConfigError, match=r"(?s)zookeeper.set_acl = true .*set zookeeper.sasl_file"):
        load(written(tmp_path, MINIMAL), environ)
    assert load(written(tmp_path, MINIMAL), environ | {"REGENT_ZOOKEEPER__SASL": "kafka:s"}).settings.zookeeper.set_acl


def test_an_endpoint_with_an_identity_of_its_own_reads_no_credential_of_the_daemon(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("announcer:s3cret")
    environ = {
        "REGENT_CONTROLLER__ON_ABSENCE": "hold",
        "REGENT_ZOOKEEPER__DIGEST_FILE": str(tmp_path / "not-for-the-endpoint"),
        "REGENT_ZOOKEEPER__SASL_FILE": str(tmp_path / "not-for-the-endpoint"),
        "REGENT_ADMIN__ZOOKEEPER_DIGEST_FILE": str(tmp_path / "own"),
    }
    with pytest.raises(ConfigError, match=r"cannot be read"):
        load(written(tmp_path, MINIMAL), environ)
    found = load(written(tmp_path, MINIMAL), environ, endpoint=True).settings
    assert found.zookeeper.digest is not None
    assert found.zookeeper.digest.get_secret_value() == "announcer:s3cret"
    assert (found.zookeeper.sasl, found.controller.on_absence) == (None, "brokers")


@pytest.mark.parametrize("given", ["", "SASL_FILE", "DIGEST_FILE"])
def test_an_endpoint_without_an_identity_of_its_own_says_so_and_what_would_mend_it(tmp_path: Path, given: str) -> None:
    """As in its unit: of the daemon's password it knows at most where it is."""
    environ = {"REGENT_ZOOKEEPER__SET_ACL": "true", "CREDENTIALS_DIRECTORY": str(tmp_path)}
    if given:
        environ[f"REGENT_ZOOKEEPER__{given}"] = str(tmp_path / "not-for-the-endpoint")
    with pytest.raises(ConfigError) as raised:
        load(written(tmp_path, MINIMAL), environ, endpoint=True)
    [problem] = raised.value.problems
    assert (problem.key, problem.origin) == ("zookeeper.set_acl", "environment REGENT_ZOOKEEPER__SET_ACL")
    assert "the admin endpoint has no identity of its own at ZooKeeper" in problem.reason
    assert (f"zookeeper.{given.lower()} " if given else "the daemon's is not set") in problem.reason
    for named in ("admin.zookeeper_digest_file", "admin.zookeeper_sasl_file"):
        assert named in problem.reason
    for named in ("/etc/credstore/admin-zookeeper-digest", "admin-zookeeper-sasl", "restart regent.service"):
        assert named in problem.remedy
    (tmp_path / "admin-zookeeper-digest").write_text("announcer:s3cret")
    found = load(written(tmp_path, MINIMAL), environ, endpoint=True).settings.zookeeper
    assert (found.sasl, found.digest is not None) == (None, True), "the remedy mends it"


def test_an_identity_of_the_endpoint_that_cannot_be_read_is_what_is_wrong(tmp_path: Path) -> None:
    environ = {
        "REGENT_ZOOKEEPER__SET_ACL": "true",
        "REGENT_ZOOKEEPER__SASL_FILE": str(tmp_path / "not-for-the-endpoint"),
        "REGENT_ADMIN__ZOOKEEPER_SASL_FILE": str(tmp_path / "gone"),
    }
    with pytest.raises(ConfigError, match=r"admin.zookeeper_sasl_file = .*gone.* cannot be read"):
        load(written(tmp_path, MINIMAL), environ, endpoint=True)


def test_an_endpoint_that_is_the_daemons_child_is_whom_the_daemon_is(tmp_path: Path) -> None:
    (tmp_path / "sasl").write_text("kafka:s3cret")
    environ = {"REGENT_ZOOKEEPER__SET_ACL": "true", "REGENT_ZOOKEEPER__SASL_FILE": str(tmp_path / "sasl")}
    assert load(written(tmp_path, MINIMAL), environ, endpoint=True).settings.zookeeper.sasl is not None


def test_an_endpoint_takes_what_systemd_hands_to_it(tmp_path: Path) -> None:
    (tmp_path / "admin-zookeeper-digest").write_text("announcer:s3cret")
    (tmp_path / "admin-secret").write_text("00")
    environ = {
        "CREDENTIALS_DIRECTORY": str(tmp_path),
        "REGENT_ZOOKEEPER__DIGEST_FILE": str(tmp_path / "not-for-the-endpoint"),
    }
    found = load(written(tmp_path, MINIMAL), environ, endpoint=True).settings
    assert found.secret_file == tmp_path / "admin-secret"
    named = environ | {"REGENT_ADMIN__SECRET_FILE": "/var/lib/regent/admin-secret"}
    found = load(written(tmp_path, MINIMAL), named, endpoint=True).settings
    assert found.secret_file == tmp_path / "admin-secret", "its user may not open the daemon's own file"
    assert found.zookeeper.digest is not None
    assert found.zookeeper.digest.get_secret_value() == "announcer:s3cret"
    environ.pop("REGENT_ZOOKEEPER__DIGEST_FILE")
    assert load(written(tmp_path, MINIMAL), environ).settings.secret_file == Path("/var/lib/regent/admin-secret")


def test_an_endpoint_does_not_read_the_digest_that_locks_brokers_out(tmp_path: Path) -> None:
    environ = {
        "REGENT_CONTROLLER__ON_ABSENCE": "hold",
        "REGENT_ZOOKEEPER__DIGEST_FILE": str(tmp_path / "not-for-the-endpoint"),
    }
    assert load(written(tmp_path, MINIMAL), environ, endpoint=True).settings.zookeeper.digest is None
