"""Pages of docs/: link targets and named files exist, every page is in an index, records have one form."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from scripts import pages

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
RECORDS = sorted((DOCS / "decisions").glob("[0-9]*.md"))
FOLDERS = (
    "admin|benchmarks|brokers|cli|configs|controller|docs|metadata_store|pipeline|regent_agent|scripts|"
    "state_machines|testing|tests"
)
NAMED = re.compile(rf"(?<![\w/.-])(?:{FOLDERS})/[\w./-]*\w")
GENERATED = {"conformance.md", "stock-tools.md", "clients.md"}


def name(page: Path) -> str:
    """Returns the name of a page in test ids."""
    return str(page.relative_to(ROOT))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Returns the anchors of a page's headings as GitHub forms them."""
    text = re.sub(r"(?s)```.*?```", "", page.read_text(encoding="utf-8"))
    headings = re.findall(r"(?m)^#+ (.+)$", text)
    return frozenset(re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_has_a_target(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not link.startswith(("http:", "https:")):
            target, _, anchor = link.partition("#")
            found = (page.parent / target).resolve() if target else page
            assert found.exists(), link
            assert not anchor or anchor in anchors(found), link


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GENERATED], ids=name)
def test_every_named_file_exists(page: Path) -> None:
    for path in NAMED.findall(page.read_text(encoding="utf-8").replace("`", " ` ")):
        assert (ROOT / path).exists() or list(ROOT.glob(f"{path}*")), path


OF_USERS: Final = re.compile(r"(?:-[og] |chown |User=)(regent(?:-endpoint)?)\b")
INSTALLATION: Final = "put-it-on-a-cluster.md#systemd"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_user_that_a_command_needs_is_made_before_or_its_creation_is_linked(page: Path) -> None:
    """Commands of the docs give files to users that no package creates."""
    text = page.read_text(encoding="utf-8")
    for used in OF_USERS.finditer(text):
        line_ends = text.find("\n", used.end())
        before = text[:line_ends]
        made = re.search(rf"(?m)^useradd .* {used[1]}$", before)
        assert made or INSTALLATION in before, f"{used[0]}: no step before it creates the user"


def test_a_folder_that_an_installed_file_needs_is_made_before() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if found := re.search(r"(?m)^.*\binstall -m .*/etc/regent/", text):
            before = text[: found.start()]
            assert "install -d -m 0751 -g regent /etc/regent" in before or INSTALLATION in before, page


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    for page in PAGES:
        if page.name != "README.md" and page.parent != DOCS / "decisions":
            assert f"({page.relative_to(DOCS)})" in index, page


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record.stem))
def test_a_record_has_context_decision_and_consequence(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    number = record.name[:3]
    title = re.findall(rf"^# {number}\. (.+)$", text, re.MULTILINE)
    assert re.findall(r"(?m)^## (\w+)$", text) == ["Context", "Decision", "Consequence"]
    assert 10 <= text.count("\n") <= 26
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    assert f"- [{number}]({record.name}) {title[0]}\n" in index


def test_records_are_numbered_without_gaps() -> None:
    assert [int(record.name[:3]) for record in RECORDS] == list(range(1, len(RECORDS) + 1))


def test_the_checklist_is_up_to_date() -> None:
    assert (DOCS / "evidence" / "checklist.md").read_text() == pages.checklist(), "run: make docs"


def test_the_keys_of_the_settings_are_up_to_date() -> None:
    assert (DOCS / "reference" / "settings-keys.md").read_text() == pages.settings_keys(), "run: make docs"


def test_the_page_of_performance_has_both_methods_and_ends_with_that_of_procedures() -> None:
    page = (DOCS / "reference" / "performance.md").read_text(encoding="utf-8")
    methods = [(ROOT / "benchmarks" / part / "method.md").read_text(encoding="utf-8") for part in ("", "procedures")]
    assert methods[0] in page
    assert page.endswith(methods[1].splitlines()[-1] + "\n")


def test_every_named_row_is_on_the_checklist() -> None:
    known = {row for row, _ in pages.rows()}
    for page in PAGES:
        assert set(re.findall(r"\bS4-\d+\b", page.read_text(encoding="utf-8"))) <= known, page
