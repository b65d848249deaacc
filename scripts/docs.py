"""Writes the pages of docs/ that are generated from the code: ``python -m scripts.docs`` (or ``make docs``)."""

from __future__ import annotations

from pathlib import Path

from state_machines import diagrams

DOCS = Path(__file__).resolve().parents[1] / "docs"


def main() -> None:
    page = DOCS / "state-machines.md"
    page.write_text(diagrams.document())
    print(f"wrote {page.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
