"""``python -m tests.verify.clients.child CLIENT BOOTSTRAP PREFIX``: plays the table, prints the results as JSON.

Each client has a process of its own: some are native code that ends a process by an assertion.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from testing.embedded.jars import fetch
from tests.verify.clients.driver import Driver
from tests.verify.clients.play import play

JARS = Path(__file__).with_name("jars.sha256")
CLIENTS = ("librdkafka", "kafka-python", "aiokafka", "Java 2.8", "Java 4.4")


def driver_of(client: str) -> Driver:
    """Imports the client library, which is installed for this suite only."""
    match client:
        case "librdkafka":
            from tests.verify.clients.librdkafka import Librdkafka

            return Librdkafka()
        case "kafka-python":
            from tests.verify.clients.kafka_python import KafkaPython

            return KafkaPython()
        case "aiokafka":
            from tests.verify.clients.aio import Aiokafka

            return Aiokafka()
        case _:
            from tests.verify.clients.java import Java

            return Java(next(jar for jar in fetch(print_error, JARS) if client.split()[1] in jar.name))


def print_error(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    chosen = driver_of(sys.argv[1])
    found = asyncio.run(play(chosen, sys.argv[2], sys.argv[3], print_error))
    print(json.dumps([f"{chosen.name} {chosen.version}", found]))
