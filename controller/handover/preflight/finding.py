"""What a check of the preflight found."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct


class Level(StrEnum):
    """A warning does not stand in the way; a refusal does."""

    OK = "ok"
    WARNING = "warning"
    REFUSED = "refused"


class Finding(Struct, frozen=True):
    """The result of one check: ``what`` was found and, unless all is well, what would mend it."""

    name: str
    level: Level
    what: str
    remedy: str = ""


class PreflightReport(Struct, frozen=True):
    """All findings, in the order of the checks."""

    findings: Sequence[Finding]

    @property
    def refusals(self) -> list[Finding]:
        """What stands in the way."""
        return [finding for finding in self.findings if finding.level is Level.REFUSED]

    @property
    def warnings(self) -> list[Finding]:
        """What does not, and should be known."""
        return [finding for finding in self.findings if finding.level is Level.WARNING]

    def sentence(self) -> str:
        """All refusals in one line, or that there are none."""
        if not self.refusals:
            return f"{len(self.findings)} checks passed, {len(self.warnings)} of them with a warning"
        return "; ".join(f"{f.name}: {f.what} (remedy: {f.remedy})" for f in self.refusals)


def ok(name: str, what: str) -> Finding:
    """All is well."""
    return Finding(name, Level.OK, what)


def warn(name: str, what: str, remedy: str) -> Finding:
    """Possible, and worth knowing."""
    return Finding(name, Level.WARNING, what, remedy)


def refuse(name: str, what: str, remedy: str) -> Finding:
    """Not before this is mended."""
    return Finding(name, Level.REFUSED, what, remedy)
