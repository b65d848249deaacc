"""Runs ``regent run`` without its protection from its own freeze: only the fence and the brokers are left.

It has no stall guard and a lease that never ends, and it ignores the watches on its own claim.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import uvloop

from configs.loading import load
from controller.kafka.term.term import Term
from controller.main import run
from controller.role.lease import Lease
from metadata_store import paths
from metadata_store.port import WatchEvent


class Endless(Lease):
    """Is valid for ever."""

    def valid(self) -> bool:
        return True

    def remaining_s(self) -> float:
        return self.session_timeout_s


handle = Term.watched


def watched_without_claim(self: Term, event: WatchEvent) -> None:
    """Drops watch events of the claim, and handles all others."""
    if event.path not in {paths.CONTROLLER, paths.CONTROLLER_EPOCH}:
        handle(self, event)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path)
    parser.add_argument("--takeover", action="store_true")
    given = parser.parse_args()
    Term.watched = watched_without_claim  # type: ignore[method-assign]
    settings = load(given.config).settings
    return uvloop.run(
        run(settings, takeover=given.takeover, guarded=False, new_lease=lambda session_s, _: Endless(session_s))
    )


if __name__ == "__main__":
    sys.exit(main())
