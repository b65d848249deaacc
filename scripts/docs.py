"""Writes the pages of docs/ that are generated from the code: ``python -m scripts.docs`` (or ``make docs``)."""

from __future__ import annotations

from pathlib import Path

from scripts import agent_protocol_page, checklist_page, settings_page
from state_machines.machines import diagrams
from tests.verify.clients import page as clients
from tests.verify.stock_tools import page as stock_tools

DOCS = Path(__file__).resolve().parents[1] / "docs"


def main() -> None:
    pages = {
        "reference/state-machines.md": diagrams,
        "evidence/checklist.md": checklist_page,
        "reference/settings-keys.md": settings_page,
        "reference/agent-protocol.md": agent_protocol_page,
        "evidence/stock-tools.md": stock_tools,
        "evidence/clients.md": clients,
    }
    for name, source in pages.items():
        text = source.document()
        page = DOCS / name
        page.write_text(text)
        print(f"wrote {page.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
