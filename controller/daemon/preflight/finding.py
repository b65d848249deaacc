"""Defines the findings of the preflight's checks."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct


class Level(StrEnum):
    """Result of a check; only a refusal prevents a take-over."""

    OK = "ok"
    WARNING = "warning"
    REFUSED = "refused"


class Finding(Struct, frozen=True):
    """The result of one check: its sentence and, unless the level is OK, the remedy."""

    name: str
    level: Level
    text: str
    remedy: str = ""


class PreflightReport(Struct, frozen=True):
    """All findings, in the order of the checks."""

    findings: Sequence[Finding]

    @property
    def refusals(self) -> list[Finding]:
        """Returns the findings that prevent a take-over."""
        return [finding for finding in self.findings if finding.level is Level.REFUSED]

    @property
    def warnings(self) -> list[Finding]:
        """Returns the findings that do not."""
        return [finding for finding in self.findings if finding.level is Level.WARNING]

    def sentence(self) -> str:
        """Returns all refusals in one line, or the number of passed checks."""
        if not self.refusals:
            return f"{len(self.findings)} checks passed, {len(self.warnings)} of them with a warning"
        return "; ".join(f"{f.name}: {f.text} (remedy: {f.remedy})" for f in self.refusals)


def ok(name: str, text: str) -> Finding:
    """Creates a finding without a problem."""
    return Finding(name, Level.OK, text)


def warn(name: str, text: str, remedy: str) -> Finding:
    """Creates a finding that an operator should know before a take-over."""
    return Finding(name, Level.WARNING, text, remedy)


def refuse(name: str, text: str, remedy: str) -> Finding:
    """Creates a finding that prevents a take-over."""
    return Finding(name, Level.REFUSED, text, remedy)
