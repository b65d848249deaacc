"""Protocols and mechanisms between brokers that no shorter test covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.cluster.secured_ways import works_both_ways


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SASL_PLAINTEXT", "SCRAM-SHA-256"), ("SASL_PLAINTEXT", "PLAIN"), ("SSL", "PLAIN")],
)
async def test_both_directions(tmp_path: Path, protocol: str, mechanism: str) -> None:
    await works_both_ways(tmp_path, protocol, mechanism)
