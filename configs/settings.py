"""The settings of a daemon: frozen, complete and consistent. :func:`configs.loading.load` makes them from outside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic.fields import FieldInfo

from configs.admin_section import AdminSettings
from configs.http_section import HttpSettings
from configs.rules import RULES
from configs.sections import (
    BrokersSettings,
    ControllerSettings,
    JournalSettings,
    ListenerSettings,
    LogSettings,
    Section,
    ShadowSettings,
    StateSettings,
)
from configs.security_section import SecuritySettings
from configs.zookeeper_section import ZooKeeperSettings


class Settings(BaseModel):
    """All sections. Raises ``ValidationError`` if a value, or a relation of two (:mod:`configs.rules`), is wrong."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    zookeeper: ZooKeeperSettings
    controller: ControllerSettings = Field(default_factory=ControllerSettings)
    listener: ListenerSettings
    admin: AdminSettings = Field(default_factory=AdminSettings)
    brokers: BrokersSettings = Field(default_factory=BrokersSettings)
    security: SecuritySettings = Field(default_factory=SecuritySettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    shadow: ShadowSettings = Field(default_factory=ShadowSettings)
    state: StateSettings = Field(default_factory=StateSettings)
    journal: JournalSettings = Field(default_factory=JournalSettings)

    @property
    def secret_file(self) -> Path:
        """The file with the secret that daemons and admin endpoints share."""
        return self.admin.secret_file or self.state.directory / "admin-secret"

    @model_validator(mode="after")
    def _relations(self) -> Self:
        for rule in RULES:
            if broken := rule.check(self):
                raise ValueError(f"{rule.keys[0]} {broken.reason}. Remedy: {broken.remedy}")
        return self


class Key(NamedTuple):
    """A key of the settings: ``name`` is ``section.key``."""

    section: str
    name: str
    field: FieldInfo

    def meta(self, item: str) -> Any:
        """What :func:`configs.values.key` was given as ``item``."""
        extra = self.field.json_schema_extra
        return extra.get(item) if isinstance(extra, dict) else None


def section_type(name: str) -> type[Section]:
    """The model of a section."""
    found = Settings.model_fields[name].annotation
    assert isinstance(found, type)
    assert issubclass(found, Section)
    return found


def keys() -> Iterator[Key]:
    """Every key, in the order of the file."""
    for section in Settings.model_fields:
        for name, field in section_type(section).model_fields.items():
            yield Key(section, f"{section}.{name}", field)


def value_of(settings: Settings, name: str) -> Any:
    """The value of ``section.key``."""
    section, _, item = name.partition(".")
    return getattr(getattr(settings, section), item)


def shown(value: object) -> str:
    """A value as people may see it: secrets as asterisks, text in quotes, nothing as a dash."""
    if value is None:
        return "-"
    if isinstance(value, SecretStr):
        return "******"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else f'"{value}"'


class Difference(NamedTuple):
    """A key whose value changed; ``live`` if a running daemon can take the new one over."""

    name: str
    before: str
    after: str
    live: bool


def differences(before: Settings, after: Settings) -> list[Difference]:
    """What a reload would change, as text that may be logged."""
    found = []
    for key in keys():
        old, new = value_of(before, key.name), value_of(after, key.name)
        if old != new:
            found.append(Difference(key.name, shown(old), shown(new), bool(key.meta("live"))))
    return found
