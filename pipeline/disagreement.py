"""Declares the error of two ways of counting that differ."""

from __future__ import annotations


class Disagreement(RuntimeError):
    """Two ways of counting the same differ: a defect of regent, so no result leaves. The message names the figures."""
