"""``python -m tests.verify.clients``: prints what differs; exit code 1 where that is not explained.

``--write`` keeps the results for docs/evidence/clients.md.
"""

from __future__ import annotations

import asyncio
import json
import sys

from tests.verify.clients.compare import RESULTS, differences, play_all


def main() -> int:
    """Runs the comparison; progress goes to standard error."""
    played = asyncio.run(play_all(_progress))
    found = list(differences(played))
    unexplained = [one for one in found if one.accepted() is None]
    for one in unexplained:
        print(one)
    if "--write" in sys.argv[1:]:
        RESULTS.write_text(json.dumps(played, indent=1) + "\n", encoding="utf-8")
    _progress(f"{len(found)} differ, {len(unexplained)} of them without an explanation")
    return 1 if unexplained else 0


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
