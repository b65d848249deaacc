"""Suites that several implementations must pass."""

import pytest

pytest.register_assert_rewrite(
    *(
        f"tests.contracts.{module}"
        for module in (
            "acls",
            "broker_isr",
            "broker_support",
            "brokers",
            "hooks",
            "kafka_commits",
            "kafka_nodes",
            "kafka_support",
            "kafka_topics",
            "nodes",
            "sessions",
            "simulated_process",
            "support",
            "watches",
        )
    )
)
