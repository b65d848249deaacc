"""What came of a decision, in numbers and in one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from state_machines.decision import Change, Refusal


class Report:
    """Counts of one carried-out decision. ``why`` is the event that it answers, ``reason`` the same in one word."""

    def __init__(self, why: str, reason: str = "") -> None:
        self.why = why
        self.reason = reason
        self.decided_us = 0
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.unclean = 0
        self.written = 0
        self.conflicts = 0
        self.unknown = 0
        self.failed: Counter[str] = Counter()

    def applied(self, changes: Iterable[Change]) -> None:
        """Changes that ZooKeeper holds now."""
        for change in changes:
            self.done[change.why] += 1
            before, after = change.before, change.after
            if after.leader >= 0 and after.leader != before.leader and before.has_leadership:
                self.unclean += after.leader not in before.isr

    def refuse(self, refusals: Iterable[Refusal]) -> None:
        """What was not done, by reason."""
        self.refused.update(refusal.why for refusal in refusals)

    def sentence(self) -> str:
        """One line for the log."""
        parts = [f"{count} x {why}" for why, count in self.done.most_common()]
        if self.refused:
            parts.append("not done: " + ", ".join(f"{n} x {why}" for why, n in self.refused.most_common(4)))
        if self.failed:
            parts.append("failed: " + ", ".join(f"{n} x {why}" for why, n in self.failed.most_common(4)))
        if self.conflicts:
            parts.append(f"{self.conflicts} decided again after a conflict")
        if self.unknown:
            parts.append(f"{self.unknown} read back after a lost reply")
        return f"{self.why}: {'; '.join(parts) or 'nothing to change'}"
