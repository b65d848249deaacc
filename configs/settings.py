"""Declares the settings of a daemon: frozen, complete and consistent. :func:`configs.loading.load` loads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

from pydantic import SecretStr, model_validator
from pydantic.fields import FieldInfo

from configs.all_sections import AllSections
from configs.rules import RULES
from configs.sections import Section


class Settings(AllSections):
    """All sections. Raises ``ValidationError`` for a wrong value or a broken relation (:mod:`configs.rules`)."""

    @model_validator(mode="after")
    def require_relations(self) -> Self:
        """Refuses settings that break a rule."""
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
        """Returns the argument ``item`` of the key's :func:`configs.values.key`."""
        extra = self.field.json_schema_extra
        return extra.get(item) if isinstance(extra, dict) else None


def section_type(name: str) -> type[Section]:
    """Returns the model of a section."""
    found = Settings.model_fields[name].annotation
    assert isinstance(found, type)
    assert issubclass(found, Section)
    return found


def keys() -> Iterator[Key]:
    """Yields every key, in the order of the file."""
    for section in Settings.model_fields:
        for name, field in section_type(section).model_fields.items():
            yield Key(section, f"{section}.{name}", field)


def value_of(settings: Settings, name: str) -> Any:
    """Returns the value of ``section.key``."""
    section, _, item = name.partition(".")
    return getattr(getattr(settings, section), item)


def shown(value: object) -> str:
    """Returns a value for people to read: secrets as asterisks, text in quotes, None as a dash."""
    if value is None:
        return "-"
    if isinstance(value, SecretStr):
        return "******"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    return str(value) if isinstance(value, int | float) else f'"{value}"'


class SettingChange(NamedTuple):
    """A key whose value changed; ``live`` if a running daemon can apply the new one."""

    name: str
    before: str
    after: str
    live: bool


def differences(before: Settings, after: Settings) -> list[SettingChange]:
    """Returns the changes of a reload, as text that may be logged."""
    found = []
    for key in keys():
        old, new = value_of(before, key.name), value_of(after, key.name)
        if old != new:
            found.append(SettingChange(key.name, shown(old), shown(new), bool(key.meta("live"))))
    return found
