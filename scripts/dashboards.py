"""Writes Grafana's dashboards from their tables: ``python -m scripts.dashboards``. Do not edit the JSON by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from scripts.dashboard_kit import Dashboard, Panel
from scripts.dashboard_panels import DASHBOARDS
from scripts.dashboard_regions import DASHBOARD as REGIONS

FOLDER: Final = Path(__file__).resolve().parent.parent / "configs" / "grafana"
EVERY: Final = (*DASHBOARDS, REGIONS)
SCHEMA_VERSION: Final = 39
"""Schema of Grafana 11; later versions read it, too."""
COLUMNS: Final = 24
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def render(dashboard: Dashboard) -> dict[str, Any]:
    """Returns a dashboard as Grafana reads it."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.text,
        "tags": ["regent"] if dashboard is REGIONS else ["kafka", "regent"],
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "links": [_link(other) for other in DASHBOARDS if dashboard in DASHBOARDS and other is not dashboard],
        "panels": list(_placed(dashboard)),
    }


def _placed(dashboard: Dashboard) -> Iterable[dict[str, Any]]:
    """Places panels from left to right, rows from top to bottom."""
    number, y = 1, 0
    for title, panels in dashboard.rows.items():
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": _at(0, y, COLUMNS, 1),
        }
        number, y, x, tallest = number + 1, y + 1, 0, 0
        for panel in panels:
            if x + panel.width > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            yield {**_panel(panel), "id": number, "gridPos": _at(x, y, panel.width, panel.height)}
            number, x, tallest = number + 1, x + panel.width, max(tallest, panel.height)
        y += tallest


def _at(x: int, y: int, w: int, h: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": w, "h": h}


def _panel(panel: Panel) -> dict[str, Any]:
    targets = [
        {
            "refId": chr(ord("A") + i),
            "datasource": SOURCE,
            "expr": expr,
            "legendFormat": legend or "__auto",
            "range": True,
        }
        for i, (legend, expr) in enumerate(panel.queries.items())
    ]
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": OPTIONS[panel.kind] | ({"textMode": "name"} if panel.names else {}),
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    """Returns how values look: their unit, the words and colours that stand for them, and lines at thresholds."""
    found: dict[str, Any] = {"unit": panel.unit, "mappings": _mappings(panel), "thresholds": _thresholds(panel)}
    if panel.kind != "timeseries":
        return {**found, "color": {"mode": "thresholds"}}
    style = {"mode": "dashed" if len(panel.steps) > 1 else "off"}
    custom = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": False}
    return {**found, "min": 0, "color": {"mode": "palette-classic"}, "custom": {**custom, "thresholdsStyle": style}}


def _thresholds(panel: Panel) -> dict[str, Any]:
    return {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in panel.steps]}


def _mappings(panel: Panel) -> list[dict[str, Any]]:
    words = {str(value): {"text": word, "index": at} for at, (value, word) in enumerate(panel.values.items())}
    return [{"type": "value", "options": words}] if words else []


OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "value",
        "wideLayout": True,
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    },
    "state-timeline": {
        "showValue": "never",
        "mergeValues": True,
        "alignValue": "left",
        "rowHeight": 0.8,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
        "tooltip": {"mode": "single", "sort": "none"},
    },
}


def _variables() -> list[dict[str, Any]]:
    source = {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
    }
    job = {"name": "job", "type": "query", **_values("regent_build_info, job"), "multi": False, "includeAll": False}
    instance = {
        "name": "instance",
        "type": "query",
        **_values('regent_build_info{job="$job"}, instance'),
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
    }
    return [source, job, instance]


def _values(of_label: str) -> dict[str, Any]:
    query = f"label_values({of_label})"
    return {
        "datasource": SOURCE,
        "query": {"query": query, "refId": "variable"},
        "refresh": 2,
        "sort": 1,
        "hide": 0,
    }


def _link(other: Dashboard) -> dict[str, Any]:
    return {
        "title": other.title,
        "type": "link",
        "url": f"/d/{other.uid}",
        "icon": "dashboard",
        "tags": [],
        "tooltip": "",
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
    }


def text(dashboard: Dashboard) -> str:
    """Returns the file's text."""
    return json.dumps(render(dashboard), indent=1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for each in EVERY:
        (FOLDER / f"{each.uid}.json").write_text(text(each), encoding="utf-8")
