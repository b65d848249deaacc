"""Declares the modes of a daemon."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """The present activity of a daemon, as status and log lines show it."""

    CONNECTING = "connecting"
    STANDBY = "standby"
    BLOCKED = "blocked"
    CLAIMING = "claiming"
    TAKING_OFFICE = "taking office"
    ACTIVE = "active"
    HANDING_BACK = "handing back"
    SHADOW = "shadow"
    STOPPING = "stopping"
