"""Lists intended differences, each with its reason."""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Accepted(NamedTuple):
    """``line`` matches the command lines that it is about; ``lost`` and ``extra`` match, as a whole, every line of
    output that only Kafka's cluster, or only regent's, gives. ``codes``: exit codes that may differ so. ``sometimes``:
    it does not show in every run.
    """

    line: str
    lost: str
    extra: str
    why: str
    codes: tuple[int, int] | None = None
    sometimes: bool = False

    def covers(self, line: str) -> bool:
        """Returns whether this entry is about a command line."""
        return re.search(self.line, line) is not None

    def explains(self, line: str, codes: tuple[int, int], lost: tuple[str, ...], extra: tuple[str, ...]) -> bool:
        """Returns whether this entry covers all of a difference."""
        return (
            self.covers(line)
            and codes in {(codes[0], codes[0]), self.codes}
            and all(re.fullmatch(self.lost, one) for one in lost)
            and all(re.fullmatch(self.extra, one) for one in extra)
        )


ACCEPTED: Final = (
    Accepted(
        "kafka-configs --describe --entity-type brokers$",
        lost="",
        extra="Dynamic configs for broker DAEMON are:",
        why="The daemon is one more node of the cluster; it has no dynamic configurations.",
    ),
    Accepted(
        "kafka-log-dirs --describe",
        lost=r"Received log directory information from brokers [\d,]+|ERROR: .* existent brokers: [\d,]+",
        extra=r"Received log .* from brokers [\d,]+,DAEMON|ERROR: .* existent brokers: [\d,]+,DAEMON|"
        r'\{"broker": "DAEMON", .*"partitions": \[\]\}\}',
        why="The daemon is one more node of the cluster; its one directory is empty.",
    ),
    Accepted(
        "kafka-broker-api-versions",
        lost="",
        extra=r"ENDPOINT \(id: DAEMON rack: null\) -> \(|\t\w+\(\d+\): .*|\)",
        why="The daemon is one more node of the cluster; it offers what brokers offer to clients.",
    ),
    Accepted(
        "kafka-configs --describe --entity-type broker-loggers",
        lost=r"  [\w.$]+=\w+ sensitive=false .*",
        extra=r"  [\w.$]+=\w+ sensitive=false .*",
        why="A broker lists the loggers of the code that has run in it, and Kafka's controller runs in a broker.",
        sometimes=True,
    ),
    Accepted(
        "kafka-reassign-partitions --(verify|cancel)",
        lost=r".*Clearing broker-level throttles on brokers [\d,]+",
        extra=r".*Clearing broker-level throttles on brokers [\d,]+,DAEMON",
        why="The tool clears throttles on every node; the daemon has none, and says that this is done.",
    ),
    Accepted(
        "kafka-leader-election",
        lost=r".*NotAvailableException: Failed to elect leader for partition .* under strategy [\w()]+",
        extra=r".*NotAvailableException: .*",
        why="An election that finds no leader has the same error, and a text that says why.",
    ),
    Accepted(
        "kafka-leader-election --election-type unclean --topic led-by-nobody",
        lost=r"Timeout waiting for election results|Caused by: .*electLeaders.*|.*AdminCommandFailedException: .*",
        extra=r".*EligibleLeadersNotAvailableException: .*|.*1 replica\(s\) could not be elected",
        why="Kafka's controller fails at a partition that never had a leader, and the call is never answered.",
    ),
    Accepted(
        "kafka-topics --create --topic led-by-nobody .*--command-config",
        lost=r".*timed out.*|Caused by: .*DisconnectException: .*",
        extra=r".*timed out.*|Caused by: .*DisconnectException: .*",
        why="The controller's time-out and the client's end at the same moment: either may be first.",
        sometimes=True,
    ),
)
