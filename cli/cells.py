"""Formats values and JSON keys for tables and details."""

from __future__ import annotations

from typing import Any


def cell(value: Any) -> str:
    """Returns a value as a table shows it: lists with commas, no value as a dash, endpoints as ``NAME://host:port``."""
    if value is None or value == [] or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list):
        return ",".join(cell(item) for item in value)
    if isinstance(value, dict):
        endpoint = {"name", "host", "port"} <= value.keys()
        return f"{value['name']}://{value['host']}:{value['port']}" if endpoint else _pairs(value)
    return str(value)


def _pairs(value: dict[str, Any]) -> str:
    return " ".join(f"{name}={cell(item)}" for name, item in value.items())


def label(key: str) -> str:
    """Returns a JSON key as a heading: ``propagationAgeS`` becomes ``propagation age s``."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in key)
