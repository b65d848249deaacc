"""Responds to DescribeLogDirs v0 to v4 with the logs that a simulated broker has."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from brokers.wire.messages import read_request, response_codec
from brokers.wire.messages.nodes import DescribedReplica, DescribedTopic, DescribeLogDirsResponse, LogDir
from brokers.wire.primitives import NO_TAGS
from brokers.wire.versions import Api
from state_machines.model.replica_logs import LogDirectory
from testing.simulated.hosting import Hosting


def respond_to_log_dirs(frame: bytes, hosting: Hosting) -> bytes:
    """Returns the response to a request, both without their lengths; raises :class:`Malformed`."""
    topics = read_request(frame).body.topics
    wanted = None if topics is None else [(topic.topic, number) for topic in topics for number in topic.partitions]
    codec = response_codec(Api.DESCRIBE_LOG_DIRS, int.from_bytes(frame[2:4], "big"))
    body = codec.write(DescribeLogDirsResponse(tuple(map(_listed, hosting.directories(wanted)))))
    return frame[4:8] + (NO_TAGS if codec.flexible else b"") + body


def _listed(directory: LogDirectory) -> LogDir:
    by_topic = groupby(directory.logs, key=attrgetter("topic"))
    topics = tuple(
        DescribedTopic(
            topic,
            tuple(DescribedReplica(log.partition, log.size_bytes, log.offset_lag, log.is_future) for log in logs),
        )
        for topic, logs in by_topic
    )
    return LogDir(directory.path, directory.error, topics=topics)
