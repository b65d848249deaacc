"""The example file is complete, explained, equal to the defaults, and loads unchanged."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from configs import example
from configs.loading import load
from configs.settings import keys

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
        "regions": {"host", "secret_file", "clients_secret_file", "file", "fence_command"},
    }
    assert settings.model_dump(exclude=files) == plain.model_dump(exclude=files)


def test_every_key_is_explained() -> None:
    for key in keys():
        assert key.field.description, key.name
        assert (key.field.description or "").endswith("."), key.name
