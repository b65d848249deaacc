"""Writes the pages of docs/ that are generated from the code: ``python -m scripts.docs`` (or ``make docs``)."""

from __future__ import annotations

from pathlib import Path

from scripts import agent_protocol_page, checklist_page, settings_page
from state_machines.machines import diagrams
from tests.verify.clients import page as clients
from tests.verify.stock_tools import page as stock_tools

DOCS = Path(__file__).resolve().parents[1] / "docs" / "reference"


def main() -> None:
    pages = {
        "state-machines.md": diagrams,
        "checklist.md": checklist_page,
        "settings-keys.md": settings_page,
        "agent-protocol.md": agent_protocol_page,
        "stock-tools.md": stock_tools,
        "clients.md": clients,
    }
    for name, source in pages.items():
        text = source.document()
        page = DOCS / name
        page.write_text(text)
        print(f"wrote {page.relative_to(DOCS.parents[1])}")


if __name__ == "__main__":
    main()
