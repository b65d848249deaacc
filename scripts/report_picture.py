"""Takes the docs' picture of a report: ``python -m scripts.report_picture REPORT.html``.

The page is that of a demo: ``make demo PIPELINE=1`` has made it and names it. Chromium takes the picture.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from scripts.screenshots import IMAGES, picture

WIDTH_PX: Final = 1_280
HEIGHT_PX: Final = 1_180


def main() -> None:
    """Takes the picture."""
    parser = argparse.ArgumentParser(prog="python -m scripts.report_picture", description=__doc__)
    parser.add_argument("page", type=Path, help="report.html of a demo")
    page: Path = parser.parse_args().page
    picture(page.resolve().as_uri(), IMAGES / "report.png", HEIGHT_PX, WIDTH_PX)


if __name__ == "__main__":
    main()
