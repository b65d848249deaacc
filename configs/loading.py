"""Makes :class:`configs.settings.Settings` from a TOML file and the environment, with the origin of each value.

The environment wins over the file, the file over the defaults. One error reports all problems at once.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from configs.connections import ZooKeeperSettings
from configs.credentials import (
    CREDENTIALS,
    GIVEN_SECRET,
    credential_name,
    endpoint_problems,
    systemd_credential,
    with_credential,
)
from configs.problems import ConfigError, Problem, section_problems, unknown_section
from configs.regions_section import RegionsSettings
from configs.rules import RULES
from configs.sections import Section
from configs.settings import Settings, keys, section_type, shown, value_of

DEFAULT_FILE: Final = Path("/etc/regent/regent.toml")
FILE_VARIABLE: Final = "REGENT_CONFIG"
PREFIX: Final = "REGENT_"
KAFKA: Final[Mapping[str, dict[str, Any]]] = {"zookeeper": {"connect": ""}, "listener": {"advertised_host": ""}}
"""Sections without which a daemon with regions is no controller of a Kafka cluster, and their values then."""
Raw = dict[str, dict[str, Any]]
S = TypeVar("S", bound=Section)


def is_setting(variable: str) -> bool:
    """Checks whether a variable of the environment sets a key; without two underscores none does: REGENT_CONFIG."""
    return variable.startswith(PREFIX) and "__" in variable.removeprefix(PREFIX)


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, the file that was read (if any) and, by ``section.key``, the origin of each value."""

    settings: Settings
    file: Path | None
    origins: Mapping[str, str]


def load(
    file: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    endpoint: bool = False,
    kafka_optional: bool = False,
) -> Loaded:
    """Reads and checks the settings. ``file`` must exist if given, or if ``REGENT_CONFIG`` names it.

    ``endpoint`` is for the process of the admin endpoint, which reads no credential that only the daemon may read.
    ``kafka_optional``: with the section ``[regions]``, those of the Kafka cluster may be left out.

    Raises :class:`configs.problems.ConfigError` with every problem found.
    """
    sources = _Sources.read(file, environ)
    sections, problems = sources.sections(kafka_optional=kafka_optional)
    wrong = {problem.key for problem in problems}
    read, unread = _credentials(sections, environ, endpoint=endpoint), list[Problem]()
    for section, key in read:
        sections[section], more = with_credential(section, key, sections[section], sources.origins, environ)
        unread += more
    if endpoint:
        if any(section == "zookeeper" for section, _ in read):
            zookeeper = sections["zookeeper"]
            assert isinstance(zookeeper, ZooKeeperSettings)
            unread = endpoint_problems(zookeeper, unread, sources.origins)
        sections |= _of_endpoint(sections, environ)
    problems += unread
    wrong |= {problem.key for problem in unread if problem.key == "zookeeper.set_acl"}
    problems += relation_problems(sections, wrong, sources.origins)
    if problems:
        raise ConfigError(problems, sources.file)
    return Loaded(Settings.model_validate(sections), sources.file, _complete(sources.origins))


def load_section(kind: type[S], file: Path | None = None, environ: Mapping[str, str] = os.environ) -> S:
    """Reads a single section, for commands that need no more; it ignores problems in other sections."""
    name = next(name for name in Settings.model_fields if section_type(name) is kind)
    sources = _Sources.read(file, environ)
    section, problems = section_problems(name, kind, sources.raw.get(name, {}), sources.origins)
    if problems:
        raise ConfigError(problems, sources.file)
    assert isinstance(section, kind)
    return section


def is_without_kafka(file: Path | None = None, environ: Mapping[str, str] = os.environ) -> bool:
    """Checks whether a daemon with these settings assigns regions, and is no controller of a Kafka cluster."""
    return bool(_Sources.read(file, environ).without_kafka())


@dataclass(frozen=True, slots=True)
class _Sources:
    """Merged raw values by section and key, each with its origin."""

    file: Path | None
    raw: Raw
    origins: dict[str, str]
    problems: list[Problem]

    @classmethod
    def read(cls, file: Path | None, environ: Mapping[str, str]) -> _Sources:
        path = _file_to_read(file, environ)
        sources = cls(path, {}, {}, [])
        if path is not None:
            sources._add_file(path)
        sources._add_environment(environ)
        return sources

    def _add_file(self, path: Path) -> None:
        for section, values in _parse(path).items():
            if not isinstance(values, dict):
                reason = "is outside every section" if section not in Settings.model_fields else "is not a section"
                remedy = "put keys below a line [section]; `regent config example` prints all"
                self.problems.append(Problem(section, shown(values), str(path), reason, remedy))
                continue
            self.raw.setdefault(section, {})
            for name, value in values.items():
                self._put(section, name, value, str(path))

    def _add_environment(self, environ: Mapping[str, str]) -> None:
        for variable, value in sorted(environ.items()):
            section, _, name = variable.removeprefix(PREFIX).lower().partition("__")
            if is_setting(variable) and value != "":
                self._put(section, name, value, f"environment {variable}")

    def _put(self, section: str, name: str, value: object, origin: str) -> None:
        self.raw.setdefault(section, {})[name] = value
        self.origins[f"{section}.{name}"] = origin

    def sections(self, *, kafka_optional: bool) -> tuple[dict[str, Section], list[Problem]]:
        """Returns every section, with defaults or samples in place of wrong values, and the problems."""
        problems = list(self.problems)
        unknown = [name for name in self.raw if name not in Settings.model_fields]
        problems += [unknown_section(name, self.raw[name], self.origins) for name in unknown]
        sections = {}
        absent = self.without_kafka() if kafka_optional else frozenset()
        for name in Settings.model_fields:
            if name in absent:
                sections[name] = section_type(name).model_construct(None, **KAFKA[name])
                continue
            sections[name], found = section_problems(name, section_type(name), self._given(name), self.origins)
            problems += found
        return sections, problems

    def without_kafka(self) -> frozenset[str]:
        """Returns the absent sections where regions are to be assigned, and there is no Kafka cluster."""
        regions, _ = section_problems("regions", RegionsSettings, self._given("regions"), self.origins)
        assert isinstance(regions, RegionsSettings)
        absent = KAFKA.keys() - {"zookeeper"} if regions.store == "zookeeper" else KAFKA.keys()
        return frozenset(absent) if regions.enabled and absent.isdisjoint(self.raw) else frozenset()

    def _given(self, name: str) -> dict[str, Any]:
        """Returns the raw values of a section; the one of regions is off where it is absent."""
        return self.raw.get(name, {"enabled": False} if name == "regions" else {})


def _file_to_read(file: Path | None, environ: Mapping[str, str]) -> Path | None:
    if file is not None:
        return file
    if named := environ.get(FILE_VARIABLE):
        return Path(named)
    return DEFAULT_FILE if _is_there(DEFAULT_FILE) else None


def _is_there(path: Path) -> bool:
    """Returns True also for a file in a folder that may not be entered: reading it then reports why."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        remedy = "name a file that exists and may be read (--config, or REGENT_CONFIG)"
        if isinstance(error, PermissionError):
            remedy = (
                f"run it as a user that may enter {path.parent} and read the file (group regent: "
                f"`chgrp regent {path.parent} {path}`), or name another file (--config, or REGENT_CONFIG)"
            )
        raise ConfigError([Problem("", str(path), "", f"cannot be read: {error.strerror}", remedy)], path) from None
    except UnicodeDecodeError as error:
        problem = Problem("", str(path), "", f"is not UTF-8 text: {error.reason}", "save the file as UTF-8")
        raise ConfigError([problem], path) from None
    except tomllib.TOMLDecodeError as error:
        problem = Problem("", str(path), "", f"is not TOML: {error}", "correct that place; texts need quotes in TOML")
        raise ConfigError([problem], path) from None


def relation_problems(sections: Mapping[str, Any], wrong: set[str], origins: Mapping[str, str]) -> list[Problem]:
    """Returns the problems of relations between keys, of which none is ``wrong`` by itself."""
    settings = Settings.model_construct(None, **sections)
    problems = []
    for rule in RULES:
        if wrong.intersection(rule.keys):
            continue
        if broken := rule.check(settings):
            name = rule.keys[0]
            value, origin = shown(value_of(settings, name)), origins.get(name, "default")
            problems.append(Problem(name, value, origin, broken.reason, broken.remedy))
    return problems


def _credentials(sections: Mapping[str, Any], environ: Mapping[str, str], *, endpoint: bool) -> list[tuple[str, str]]:
    """Returns the credentials that this process reads.

    An endpoint needs no digest to lock brokers out, and it may have its own identity.
    """
    if not endpoint:
        return list(CREDENTIALS)
    own = [(section, key) for section, key in CREDENTIALS if section == "admin"]
    if any(_is_given(sections[section], section, key, environ) for section, key in own):
        return own
    return [pair for pair in CREDENTIALS if pair != ("zookeeper", "digest") or sections["zookeeper"].set_acl]


def _is_given(found: Section, section: str, key: str, environ: Mapping[str, str]) -> bool:
    files = (
        getattr(found, key),
        getattr(found, f"{key}_file"),
        systemd_credential(credential_name(section, key), environ),
    )
    return any(files)


def _of_endpoint(sections: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Section]:
    """Returns the sections for an admin endpoint, with the identity of ``admin`` at ZooKeeper and no broker lock-out.

    The secret that it shares with daemons may come from systemd, which reads the daemon's file for it.
    """
    admin, zookeeper = sections["admin"], sections["zookeeper"]
    if (given := systemd_credential(GIVEN_SECRET, environ)) is not None:
        admin = admin.model_copy(update={"secret_file": given})
    if admin.zookeeper_digest or admin.zookeeper_sasl:
        own = {"digest": admin.zookeeper_digest, "sasl": admin.zookeeper_sasl, "digest_file": None, "sasl_file": None}
        zookeeper = zookeeper.model_copy(update=own)
    controller = sections["controller"].model_copy(update={"on_absence": "brokers"})
    return {"admin": admin, "zookeeper": zookeeper, "controller": controller}


def _complete(origins: Mapping[str, str]) -> dict[str, str]:
    return {key.name: origins.get(key.name, "default") for key in keys()}
