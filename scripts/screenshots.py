"""Takes the docs' pictures of a run with faults: ``python -m scripts.screenshots``.

``python -m tests.verify.watched.record`` has made the run before. A Prometheus serves the record. Each dashboard is
drawn twice, while the cluster is well and while two of three brokers are dead, and Chromium takes the pictures. What
``regent status`` printed in both is drawn, too.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import shutil
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from rich.console import Console
from rich.text import Text

from scripts.dashboard_panels import DASHBOARDS
from scripts.dashboards import render
from tests.verify.watched.page import COLUMN_PX, Span, empty_queries, height_of, page
from tests.verify.watched.prometheus import SCRAPE_S, Prometheus
from tests.verify.watched.record import FOLDER

IMAGES: Final = Path(__file__).resolve().parent.parent / "docs" / "images"
WIDTH_PX: Final = 24 * COLUMN_PX + 30
HEAD_PX: Final = 75
ALERTS: Final = 'sum by (alertname) (ALERTS{alertstate="firing"})'
FLAGS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
ALERTS_PX: Final = 960
MOMENTS: Final = {"healthy": "quiet", "bad": "two_brokers_killed"}
"""By the name of a picture the recording that it is of."""
TERMINAL_COLUMNS: Final = 145
FONT_FACE: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Fonts that a picture would load from elsewhere."""
PATIENCE_MS: Final = 20_000


async def main() -> None:
    """Takes all pictures."""
    run = json.loads((FOLDER / "run.json").read_text(encoding="utf-8"))
    IMAGES.mkdir(exist_ok=True)
    prometheus = Prometheus(FOLDER, {}, None)
    await prometheus.boot()
    try:
        scraped = await prometheus.over("up", run["begin"], run["end"], SCRAPE_S)
        whole = Span(min(each["values"][0][0] for each in scraped), run["end"])
        for dashboard in DASHBOARDS:
            drawn = render(dashboard)
            if empty := await empty_queries(drawn, prometheus, whole):
                raise SystemExit(f"no data in the panels {empty} of {dashboard.title}")
            for moment, fault in MOMENTS.items():
                file = FOLDER / f"{dashboard.uid}-{moment}.html"
                file.write_text(await page(drawn, prometheus, _span_of(fault)), encoding="utf-8")
                image = IMAGES / f"{dashboard.uid}-{moment}.png"
                await asyncio.to_thread(picture, file.as_uri(), image, HEAD_PX + height_of(drawn))
        await asyncio.to_thread(picture, _graph(prometheus, whole), IMAGES / "prometheus-alerts.png", ALERTS_PX)
    finally:
        await prometheus.stop()
    for moment, fault in MOMENTS.items():
        printed = (FOLDER / f"{fault}.status").read_text(encoding="utf-8")
        (IMAGES / f"status-{moment}.svg").write_text(terminal(printed, moment), encoding="utf-8")


def _span_of(fault: str) -> Span:
    """Returns the time of a recording."""
    recorded = json.loads((FOLDER / f"{fault}.json").read_text(encoding="utf-8"))
    return Span(recorded["begin"], recorded["end"])


def terminal(printed: str, name: str) -> str:
    """Draws what ``regent status`` has printed on a terminal, as SVG with the fonts of its reader."""
    console = Console(record=True, width=TERMINAL_COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print("[bold]$ regent status[/bold]")
    for line in printed.splitlines():
        console.print(Text.from_ansi(line.rstrip()), overflow="ellipsis", no_wrap=True)
    return FONT_FACE.sub("", console.export_svg(title="regent status", unique_id=name))


def _graph(prometheus: Prometheus, span: Span) -> str:
    """Takes Prometheus' own page of the alerts that fired."""
    minutes = int((span.end - span.begin) // 60) + 1
    end = datetime.fromtimestamp(span.end, UTC).strftime("%Y-%m-%d %H:%M:%S")
    asked = {"g0.expr": ALERTS, "g0.tab": "0", "g0.stacked": "1", "g0.range_input": f"{minutes}m", "g0.end_input": end}
    return f"{prometheus.url}/graph?{urlencode(asked)}"


def picture(url: str, file: Path, height: int, width: int = WIDTH_PX) -> None:
    """Takes a screenshot by a Chromium with an empty profile."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit(
            "Chromium is not installed. On Debian: sudo apt-get install -y --no-install-recommends chromium"
        )
    with tempfile.TemporaryDirectory() as profile:
        size = f"--window-size={width},{height}"
        options = [f"--user-data-dir={profile}", size, f"--virtual-time-budget={PATIENCE_MS}", f"--screenshot={file}"]
        subprocess.run([chromium, *FLAGS, *options, url], check=True, capture_output=True, timeout=120)


if __name__ == "__main__":
    asyncio.run(main())
