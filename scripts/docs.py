"""Writes the pages of docs/ that are generated from the code: ``python -m scripts.docs`` (or ``make docs``)."""

from __future__ import annotations

from pathlib import Path

from scripts import agent_protocol_page, pages
from tests.verify.clients import page as clients
from tests.verify.stock_tools import page as stock_tools

DOCS = Path(__file__).resolve().parents[1] / "docs"


def main() -> None:
    made = {
        "reference/state-machines.md": pages.state_machines,
        "evidence/checklist.md": pages.checklist,
        "reference/region-znodes.md": pages.region_znodes,
        "reference/settings-keys.md": pages.settings_keys,
        "reference/agent-protocol.md": agent_protocol_page.document,
        "evidence/stock-tools.md": stock_tools.document,
        "evidence/clients.md": clients.document,
    }
    for name, text_of in made.items():
        text = text_of()
        page = DOCS / name
        page.write_text(text)
        print(f"wrote {page.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
