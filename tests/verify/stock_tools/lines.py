"""The command lines: topics, configurations, groups and offsets, log directories, features, ACLs."""

from __future__ import annotations

from typing import Final

from tests.verify.stock_tools.lines_moves import ELECTIONS, MOVES, OUTAGES
from tests.verify.stock_tools.steps import Act, Does, Group, Line

UPDATE_FEATURES: Final = "UpdateFeatures is not answered yet"
SCRAM: Final = "AlterUserScramCredentials is not answered yet"

CREATION: Final = Group(
    "Topics are created",
    (
        Line("kafka-topics --list"),
        Line("kafka-topics --create --topic orders --replica-assignment 1:2:3,2:3:1,3:1:2"),
        Line("kafka-topics --create --topic orders"),
        Line("kafka-topics --create --topic orders --if-not-exists"),
        Line("kafka-topics --create --topic counted --partitions 4 --replication-factor 2"),
        Line("kafka-topics --create --topic defaults"),
        Line("kafka-topics --create --topic single --replica-assignment 1 --config min.insync.replicas=1"),
        Line(
            "kafka-topics --create --topic metric.a --partitions 1 --config retention.ms=60000"
            " --config cleanup.policy=compact"
        ),
        Line("kafka-topics --create --topic metric_a --partitions 1"),
        Line("kafka-topics --create --topic wrong --partitions 0"),
        Line("kafka-topics --create --topic wrong --partitions many"),
        Line("kafka-topics --create --topic wrong --replication-factor 0"),
        Line("kafka-topics --create --topic wrong --replication-factor 4"),
        Line("kafka-topics --create --topic 'wrong name'"),
        Line("kafka-topics --create --topic .."),
        Line(f"kafka-topics --create --topic {'n' * 250}"),
        Line("kafka-topics --create --topic __cluster_metadata"),
        Line("kafka-topics --create --topic wrong --replica-assignment 1:1"),
        Line("kafka-topics --create --topic wrong --replica-assignment 1:2,3"),
        Line("kafka-topics --create --topic wrong --replica-assignment 1:x"),
        Line("kafka-topics --create --topic wrong --replica-assignment 1:2 --partitions 1"),
        Line("kafka-topics --create --topic wrong --config retention.ms=soon"),
        Line("kafka-topics --create --topic wrong --config cleanup.policy=shred"),
        Line("kafka-topics --create --topic wrong --config min.insync.replicas=0"),
        Line("kafka-topics --create --topic wrong --config no.such.config=1"),
        Line("kafka-topics --create --topic wrong --config retention.ms"),
        Line("kafka-topics --create"),
        Line("kafka-topics --create --delete --topic wrong"),
        Line("kafka-topics --topic orders"),
        Line("kafka-topics --list"),
        Line("kafka-topics --list --exclude-internal"),
        Line("kafka-topics --list --topic 'metric.*'"),
    ),
)
DESCRIPTION: Final = Group(
    "Topics are described",
    (
        Line("kafka-topics --describe --topic orders"),
        Line("kafka-topics --describe --topic counted", placed=True),
        Line("kafka-topics --describe --topic defaults", placed=True),
        Line("kafka-topics --describe --topic 'metric.*'", placed=True),
        Line("kafka-topics --describe --topic missing"),
        Line("kafka-topics --describe --topic missing --if-exists"),
        Line("kafka-topics --describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ"),
        Line("kafka-topics --describe --topics-with-overrides --exclude-internal", placed=True),
        Line("kafka-topics --describe --exclude-internal --partition-size-limit-per-response 2", placed=True),
        Line("kafka-topics --describe --under-replicated-partitions"),
        Line("kafka-topics --describe --unavailable-partitions"),
        Line("kafka-topics --describe --under-min-isr-partitions"),
        Line("kafka-topics --describe --at-min-isr-partitions --topic orders"),
        Line("kafka-topics --describe --under-replicated-partitions --unavailable-partitions"),
    ),
)
GROWTH: Final = Group(
    "Topics grow",
    (
        Line("kafka-topics --alter --topic counted --partitions 6"),
        Line("kafka-topics --describe --topic counted", placed=True),
        Line("kafka-topics --alter --topic counted --partitions 6"),
        Line("kafka-topics --alter --topic counted --partitions 5"),
        Line("kafka-topics --alter --topic counted --partitions 0"),
        Line("kafka-topics --alter --topic missing --partitions 6"),
        Line("kafka-topics --alter --topic missing --partitions 6 --if-exists"),
        Line("kafka-topics --alter --topic orders --partitions 4 --replica-assignment 1:2:3,2:3:1,3:1:2,2:1:3"),
        Line("kafka-topics --alter --topic orders --partitions 5 --replica-assignment 1:2:3,2:3:1,3:1:2,2:1:3,1:2"),
        Line("kafka-topics --alter --topic orders --partitions 5 --replica-assignment 1:2:3,2:3:1,3:1:2,2:1:3,1:2:9"),
        Line("kafka-topics --alter --topic orders --partitions 5 --replica-assignment 1:2:3,2:3:1,3:1:2,2:1:3,1:1:2"),
        Line("kafka-topics --alter --topic orders --partitions 6 --replica-assignment 1:2:3,2:3:1,3:1:2,2:1:3,1:2:3"),
        Line("kafka-topics --alter --topic orders"),
        Line("kafka-topics --describe --topic orders"),
    ),
)
CONFIGURATIONS: Final = Group(
    "Configurations",
    (
        Line("kafka-configs --describe --entity-type topics --entity-name metric.a"),
        Line("kafka-configs --describe --entity-type topics --entity-name orders --all"),
        Line("kafka-configs --describe --topic missing"),
        Line("kafka-configs --alter --topic orders --add-config retention.ms=120000,max.message.bytes=2000000"),
        Line("kafka-configs --alter --topic orders --add-config retention.ms=soon"),
        Line("kafka-configs --alter --topic orders --add-config no.such.config=1"),
        Line("kafka-configs --alter --topic missing --add-config retention.ms=120000"),
        Line("kafka-configs --describe --topic orders"),
        Line("kafka-configs --alter --topic orders --delete-config retention.ms,max.message.bytes"),
        Line("kafka-configs --describe --topic orders", until=r"orders are:\n$"),
        Line("kafka-configs --describe --broker 1"),
        Line("kafka-configs --describe --broker 1 --all"),
        Line("kafka-configs --describe --entity-type brokers"),
        Line("kafka-configs --alter --broker 1 --add-config log.cleaner.threads=2"),
        Line("kafka-configs --alter --broker 1 --add-config broker.id=7"),
        Line("kafka-configs --alter --broker-defaults --add-config log.retention.ms=3600000"),
        Line("kafka-configs --describe --broker-defaults"),
        Line("kafka-configs --describe --entity-type brokers", until="log.retention.ms"),
        Line("kafka-configs --alter --broker 1 --delete-config log.cleaner.threads"),
        Line("kafka-configs --alter --broker-defaults --delete-config log.retention.ms"),
        Line("kafka-configs --describe --entity-type broker-loggers --entity-name 1"),
        Line("kafka-configs --alter --broker-logger 2 --add-config kafka.server=WARN"),
        Line("kafka-configs --alter --broker-logger 2 --add-config kafka.server=LOUD"),
        Line("kafka-configs --alter --broker-logger 2 --delete-config kafka.server"),
        Line("kafka-configs --alter --client sender --add-config producer_byte_rate=1000000"),
        Line("kafka-configs --describe --client sender"),
        Line("kafka-configs --describe --entity-type clients"),
        Line("kafka-configs --alter --client sender --delete-config producer_byte_rate"),
        Line("kafka-configs --alter --user alice --add-config consumer_byte_rate=1000000"),
        Line("kafka-configs --alter --user alice --delete-config consumer_byte_rate"),
        Line("kafka-configs --alter --ip 127.0.0.9 --add-config connection_creation_rate=100"),
        Line("kafka-configs --alter --ip 127.0.0.9 --delete-config connection_creation_rate"),
        Line(
            "kafka-configs --alter --user alice --add-config SCRAM-SHA-256=[iterations=4096,password=secret]",
            waiting=SCRAM,
        ),
        Line(
            "kafka-configs --alter --user alice --add-config SCRAM-SHA-256=[iterations=1,password=secret]",
            waiting=SCRAM,
        ),
        Line("kafka-configs --describe --user alice", waiting=SCRAM),
        Line("kafka-configs --alter --user alice --delete-config SCRAM-SHA-256", waiting=SCRAM),
        Line("kafka-configs --alter --user nobody --delete-config SCRAM-SHA-512", waiting=SCRAM),
    ),
)
READING: Final = Group(
    "Groups, offsets, records and log directories",
    (
        Act(Does.WRITES, "orders", 10),
        Act(Does.CONSUMES, "orders"),
        Line("kafka-consumer-groups --list"),
        Line("kafka-consumer-groups --list --state"),
        Line("kafka-consumer-groups --describe --group readers"),
        Line("kafka-consumer-groups --describe --group readers --state"),
        Line("kafka-consumer-groups --describe --group readers --members"),
        Line("kafka-consumer-groups --describe --all-groups --offsets"),
        Line("kafka-consumer-groups --describe --group nobody"),
        Line("kafka-consumer-groups --reset-offsets --group readers --topic orders --to-earliest --dry-run"),
        Line("kafka-consumer-groups --reset-offsets --group readers --topic orders:0 --shift-by -3 --execute"),
        Line("kafka-consumer-groups --reset-offsets --group readers --topic missing --to-earliest --execute"),
        Line("kafka-consumer-groups --delete-offsets --group readers --topic orders:1"),
        Line("kafka-consumer-groups --describe --group readers"),
        Line("kafka-consumer-groups --delete --group readers"),
        Line("kafka-consumer-groups --delete --group nobody"),
        Line("kafka-consumer-groups --list"),
        Line("kafka-get-offsets --topic orders"),
        Line("kafka-get-offsets --topic orders --time earliest"),
        Line("kafka-get-offsets --topic-partitions orders:0-2,single:0"),
        Line("kafka-get-offsets --topic orders --partitions 7"),
        Line("kafka-get-offsets --topic missing"),
        Line("kafka-get-offsets --exclude-internal-topics"),
        Line("kafka-delete-records --offset-json-file {files}/records.json"),
        Line("kafka-delete-records --offset-json-file {files}/broken.json"),
        Line("kafka-get-offsets --topic orders --time earliest"),
        Line("kafka-log-dirs --describe --topic-list orders,single"),
        Line("kafka-log-dirs --describe --topic-list orders --broker-list 1,2"),
        Line("kafka-log-dirs --describe --broker-list 9"),
        Line("kafka-log-dirs --describe --topic-list missing"),
        Line("kafka-transactions list"),
        Line("kafka-transactions describe --transactional-id nobody"),
    ),
)
CLUSTER: Final = Group(
    "Features, versions and ACLs",
    (
        Line("kafka-features describe", waiting=UPDATE_FEATURES),
        Line("kafka-features upgrade --feature no.such.feature=1", waiting=UPDATE_FEATURES),
        Line("kafka-features upgrade --metadata 3.9", waiting=UPDATE_FEATURES),
        Line("kafka-features downgrade --feature metadata.version=1 --unsafe", waiting=UPDATE_FEATURES),
        Line("kafka-features disable --feature no.such.feature", waiting=UPDATE_FEATURES),
        Line("kafka-features upgrade --feature metadata.version=many"),
        Line("kafka-broker-api-versions"),
        Line("kafka-acls --list"),
        Line("kafka-acls --add --allow-principal User:alice --operation Read --topic orders"),
        Line(
            "kafka-acls --add --allow-principal User:alice --producer --topic metric --resource-pattern-type prefixed"
        ),
        Line("kafka-acls --add --allow-principal User:alice --operation Fly --topic orders"),
        Line("kafka-acls --add --allow-principal alice --operation Read --topic orders"),
        Line("kafka-acls --list --topic orders", until="alice"),
        Line("kafka-acls --list --principal User:alice", until="(?s)orders.*metric|metric.*orders"),
        Line("kafka-acls --remove --force --allow-principal User:alice --operation Read --topic orders"),
        Line("kafka-acls --remove --force --topic metric --resource-pattern-type prefixed"),
        Line("kafka-acls --list", until=r"\A\s*\Z"),
    ),
)
DELETION: Final = Group(
    "Topics are deleted",
    (
        Line("kafka-topics --delete --topic missing"),
        Line("kafka-topics --delete --topic missing --if-exists"),
        Line("kafka-topics --delete --topic counted"),
        Line("kafka-topics --delete --topic 'metric.*|defaults'"),
        Line("kafka-topics --describe --topic counted"),
        Line("kafka-topics --create --topic counted --replica-assignment 3:2"),
        Line("kafka-topics --describe --topic counted"),
        Line("kafka-topics --delete --topic counted"),
        Line("kafka-topics --delete"),
        Line("kafka-topics --list"),
    ),
)
END: Final = Group(
    "The rest is deleted",
    (
        Line("kafka-topics --delete --topic 'large|orders|risky|single'"),
        Line("kafka-topics --list"),
        Line("kafka-topics --describe"),
    ),
)

GROUPS: Final = (
    CREATION,
    DESCRIPTION,
    GROWTH,
    CONFIGURATIONS,
    READING,
    CLUSTER,
    MOVES,
    ELECTIONS,
    DELETION,
    OUTAGES,
    END,
)
"""In the order in which they run: each stands on what those before it left."""
LINES: Final = tuple(step for group in GROUPS for step in group.steps if isinstance(step, Line))
