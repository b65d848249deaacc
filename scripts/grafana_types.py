"""Checks the dashboards against Grafana's own types: ``python -m scripts.grafana_types``. Needs npm and its registry.

The compiler of TypeScript refuses a field that Grafana does not know, and a value of another type, in whole
dashboards, in each panel, and in the options of its visualisation.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from scripts.dashboards import EVERY, render

FOLDER: Final = Path(__file__).resolve().parent.parent / "build" / "grafana"
PACKAGES: Final = ("@grafana/schema@13.2.3", "typescript@5.9.3")
VISUALISATIONS: Final = {"timeseries": "timeseries", "stat": "stat", "state-timeline": "statetimeline"}
TYPES: Final = "./node_modules/@grafana/schema/dist/types/raw"
COMPILER: Final = ("--noEmit", "--strict", "--skipLibCheck", "--moduleResolution", "bundler", "--module", "esnext")
HEAD: Final = """\
// In JSON an enumeration is the text of one of its members.
type Json<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Json<T[K]> } : T;
"""


def main() -> int:
    """Checks the dashboards; returns the exit code of the compiler."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    (FOLDER / "check.ts").write_text("\n".join([HEAD, *_imports(), *_values()]), encoding="utf-8")
    install = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", *PACKAGES]
    subprocess.run(install, cwd=FOLDER, check=True)
    return subprocess.run(["npx", "tsc", *COMPILER, "check.ts"], cwd=FOLDER, check=False).returncode


def _imports() -> Iterator[str]:
    yield f"import type {{ Dashboard, Panel, RowPanel }} from '{TYPES}/dashboard/x/types.gen';"
    for name in VISUALISATIONS.values():
        yield f"import type * as {name} from '{TYPES}/composable/{name}/panelcfg/x/types.gen';"


def _values() -> Iterator[str]:
    number = 0
    for dashboard in EVERY:
        found = render(dashboard)
        for kind, value in (("Dashboard", found), *(part for panel in found["panels"] for part in _parts(panel))):
            number += 1
            yield f"export const value{number}: Json<{kind}> = {json.dumps(value)};"


def _parts(panel: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    if panel["type"] == "row":
        yield "RowPanel", panel
        return
    yield "Panel", panel
    name = VISUALISATIONS[panel["type"]]
    yield f"{name}.Options", panel["options"]
    if custom := panel["fieldConfig"]["defaults"].get("custom"):
        yield f"{name}.FieldConfig", custom


if __name__ == "__main__":
    sys.exit(main())
