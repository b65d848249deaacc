"""What a daemon is doing."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """What the daemon is doing."""

    CONNECTING = "connecting"
    STANDBY = "standby"
    BLOCKED = "blocked"
    CLAIMING = "claiming"
    TAKING_OFFICE = "taking office"
    ACTIVE = "active"
    HANDING_BACK = "handing back"
    SHADOW = "shadow"
    STOPPING = "stopping"
