"""Suites that several implementations must pass."""

import pytest

pytest.register_assert_rewrite(
    *(
        f"tests.contracts.{module}"
        for module in (
            "acls",
            "hooks",
            "kafka_commits",
            "kafka_nodes",
            "kafka_support",
            "kafka_topics",
            "nodes",
            "sessions",
            "support",
            "watches",
        )
    )
)
