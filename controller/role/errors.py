"""Declares the errors by which a queue position or a claim fails."""

from __future__ import annotations


class ClaimRefused(Exception):
    """A condition that forbids a claim; the text names it and its remedy."""


class PositionLost(LookupError):
    """The loss of this session's lock node: another client or an expired session has removed it."""
