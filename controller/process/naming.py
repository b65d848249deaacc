"""Names this daemon for people: by its id in a Kafka cluster, else by its host and process."""

from __future__ import annotations

import os
import socket

from configs.settings import Settings


def name_of(settings: Settings) -> str:
    """Returns the name of this daemon. Daemons without a Kafka cluster have no ids that differ."""
    return str(settings.controller.id) if settings.has_kafka else f"{socket.gethostname()}:{os.getpid()}"
