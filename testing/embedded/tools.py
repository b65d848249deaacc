"""Runs Kafka's own command-line tools, as their scripts start them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from testing.embedded.jvm import java_command, write_log4j

CLASSES: Final[Mapping[str, str]] = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-acls": "kafka.admin.AclCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
}
LOG4J: Final = (
    "log4j.rootLogger=WARN, stderr\n"
    "log4j.appender.stderr=org.apache.log4j.ConsoleAppender\n"
    "log4j.appender.stderr.Target=System.err\n"
    "log4j.appender.stderr.layout=org.apache.log4j.PatternLayout\n"
    "log4j.appender.stderr.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
)
"""As Kafka's ``tools-log4j.properties`` has it."""


class Finished(NamedTuple):
    """A tool's output and exit code."""

    code: int
    out: str
    err: str


class Tools:
    """Tools against one bootstrap server; ``folder`` holds their logging configuration, ``jvm`` are JVM options."""

    def __init__(self, bootstrap: str, folder: Path, timeout_s: float = 60.0, jvm: Sequence[str] = ()) -> None:
        self._bootstrap = bootstrap
        self._log4j = write_log4j(folder, LOG4J)
        self._timeout_s = timeout_s
        self._jvm_options = jvm

    async def run(self, tool: str, *arguments: str) -> Finished:
        """Runs a tool to its end; raises TimeoutError, then it is killed."""
        options = [f"-Dlog4j.configuration={self._log4j}", "-Xmx128m", *self._jvm_options]
        command = java_command(options, CLASSES[tool], "--bootstrap-server", self._bootstrap, *arguments)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
        try:
            async with asyncio.timeout(self._timeout_s):
                out, err = await process.communicate()
        except BaseException:
            process.kill()
            await process.wait()
            raise
        return Finished(await process.wait(), out.decode(), err.decode())
