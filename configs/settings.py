"""The settings of a daemon: frozen, complete and consistent. :func:`configs.loading.load` makes them from outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

from pydantic import SecretStr, model_validator
from pydantic.fields import FieldInfo

from configs.all_sections import AllSections
from configs.rules import RULES
from configs.sections import Section


class Settings(AllSections):
    """All sections. Raises ``ValidationError`` if a value, or a relation of two (:mod:`configs.rules`), is wrong."""

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


class SettingChange(NamedTuple):
    """A key whose value changed; ``live`` if a running daemon can take the new one over."""

    name: str
    before: str
    after: str
    live: bool


def differences(before: Settings, after: Settings) -> list[SettingChange]:
    """What a reload would change, as text that may be logged."""
    found = []
    for key in keys():
        old, new = value_of(before, key.name), value_of(after, key.name)
        if old != new:
            found.append(SettingChange(key.name, shown(old), shown(new), bool(key.meta("live"))))
    return found
