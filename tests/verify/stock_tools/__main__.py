"""``python -m tests.verify.stock_tools``: prints what differs; exit code 1 where that is not explained.

With ``--separately`` each line starts a JVM of its own, as the scripts of the tools do; without it they share one, for
which a JDK must be there.
"""

from __future__ import annotations

import asyncio
import sys

from tests.verify.stock_tools.compare import differences, play
from tests.verify.stock_tools.lines import LINES


def main() -> int:
    """Runs the comparison; progress goes to standard error."""
    played = asyncio.run(play(_progress, separately="--separately" in sys.argv[1:]))
    found = list(differences(played))
    unexplained = [one for one in found if one.accepted() is None and not one.line.waiting]
    for one in unexplained:
        print(one)
    differing = {one.line for one in found}
    for line in (line for line in LINES if line.waiting and line not in differing):
        print(f"marked as waiting, and there is no difference: {line.text}", file=sys.stderr)
    lines = {site: len(results) for site, results in played.items()}
    print(f"{lines}: {len(found)} differ, {len(unexplained)} of them without an explanation", file=sys.stderr)
    return 1 if unexplained else 0


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
