"""Adopts settings of brokers that Kafka's controller obeys, and picks the value of each that holds here.

A value in the daemon's own settings holds. Otherwise the value of the live brokers is adopted, the stricter one where
they differ. Until a broker has reported its value, the strictest value holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

Value = bool | int | str
Reported = Mapping[str, str | None]
"""A broker's settings by their names at brokers, as it reported them."""


class Setting(NamedTuple):
    """A setting: ``key`` of section ``[controller]`` is ``name`` at brokers, with Kafka's ``default``.

    ``stricter`` chooses among values. ``unknown`` holds until a broker has reported its value; None: actions that
    depend on the setting wait. ``guard``: the stricter value prevents a loss or an action.
    """

    key: str
    name: str
    default: Value
    unknown: Value | None
    stricter: Callable[[Iterable[Value]], Value]
    guard: bool


def _least(values: Iterable[Value]) -> Value:
    return min(values, key=int)


def _most(values: Iterable[Value]) -> Value:
    return max(values, key=int)


def _named_first(values: Iterable[Value]) -> Value:
    return next((value for value in values if value), "")


DELETE: Final = "delete_topic_enable"
UNCLEAN: Final = "unclean_leader_election_enable"
BALANCE: Final = "auto_leader_rebalance_enable"
BALANCE_INTERVAL: Final = "leader_imbalance_check_interval_seconds"
BALANCE_PERCENTAGE: Final = "leader_imbalance_per_broker_percentage"
PARTITIONS: Final = "num_partitions"
REPLICATION: Final = "default_replication_factor"
WINDOWS: Final = "quota_window_num"
WINDOW_SECONDS: Final = "quota_window_size_seconds"
EXPIRY_CHECK: Final = "delegation_token_expiry_check_interval_ms"
REMOTE: Final = "remote_log_storage_system_enable"
POLICY: Final = "ignore_create_topic_policy"

SETTINGS: Final = (
    Setting(DELETE, "delete.topic.enable", True, None, _least, True),
    Setting(UNCLEAN, "unclean.leader.election.enable", False, False, _least, True),
    Setting(BALANCE, "auto.leader.rebalance.enable", True, False, _least, True),
    Setting(BALANCE_INTERVAL, "leader.imbalance.check.interval.seconds", 300, 300, _most, False),
    Setting(BALANCE_PERCENTAGE, "leader.imbalance.per.broker.percentage", 10, 10, _most, False),
    Setting(PARTITIONS, "num.partitions", 1, None, _least, False),
    Setting(REPLICATION, "default.replication.factor", 1, None, _most, True),
    Setting(WINDOWS, "controller.quota.window.num", 11, 11, _least, False),
    Setting(WINDOW_SECONDS, "controller.quota.window.size.seconds", 1, 1, _least, False),
    Setting(EXPIRY_CHECK, "delegation.token.expiry.check.interval.ms", 3_600_000, 3_600_000, _least, False),
    Setting(REMOTE, "remote.log.storage.system.enable", False, None, _least, True),
    Setting(POLICY, "create.topic.policy.class.name", "", None, _named_first, True),
)
NAMES: Final = tuple(setting.name for setting in SETTINGS)


class InForce(Struct, frozen=True):
    """The value of a setting that holds.

    ``reported``: the values of the brokers that count; ``chosen``: the daemon's own settings give it.
    """

    setting: Setting
    value: Value | None
    reported: Mapping[int, Value]
    chosen: bool

    @property
    def adopted(self) -> bool:
        """Checks whether the value is the brokers'."""
        return bool(self.reported) and not self.chosen

    @property
    def differing(self) -> bool:
        """Checks whether brokers have different values."""
        return len(set(self.reported.values())) > 1

    @property
    def strictest(self) -> Value | None:
        """Returns the strictest value of the brokers; None where no broker has reported one."""
        return self.setting.stricter(self.reported.values()) if self.reported else None

    @property
    def apart(self) -> bool:
        """Checks whether a value of ours is not that of the brokers."""
        return self.chosen and bool(self.reported) and set(self.reported.values()) != {self.value}

    @property
    def weaker(self) -> bool:
        """Checks whether the daemon's value takes away what a broker's value guards."""
        if not self.setting.guard or not self.apart or self.strictest is None or self.value is None:
            return False
        return self.setting.stricter((self.value, self.strictest)) != self.value


def in_force(
    chosen: Mapping[str, Value], reported: Mapping[int, Reported], live: Iterable[int] | None = None
) -> dict[str, InForce]:
    """Returns the values that hold, by key.

    ``chosen``: values of the daemon's settings; ``reported``: values of brokers at any time. Live brokers count;
    where none of them has reported a value, brokers that did before.
    """
    counted = {broker: reported[broker] for broker in sorted(reported if live is None else live) if broker in reported}
    return {setting.key: _holds(setting, chosen, counted or dict(sorted(reported.items()))) for setting in SETTINGS}


def _holds(setting: Setting, chosen: Mapping[str, Value], reported: Mapping[int, Reported]) -> InForce:
    values = {broker: value_of(setting, own) for broker, own in reported.items()}
    if setting.key in chosen:
        return InForce(setting, chosen[setting.key], values, True)
    value = setting.stricter(values.values()) if values else setting.unknown
    return InForce(setting, value, values, False)


def value_of(setting: Setting, reported: Reported) -> Value:
    """Returns a broker's value, Kafka's default where it reported none or one that cannot be read."""
    text = (reported.get(setting.name) or "").strip()
    if isinstance(setting.default, bool):
        return text.lower() == "true" if text else setting.default
    if isinstance(setting.default, int):
        return int(text) if text.isdecimal() else setting.default
    return text


def shown(value: Value | None) -> str:
    """Formats a value for operators."""
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) or "none"


def source(found: InForce) -> str:
    """Returns the origin of the value."""
    if found.chosen:
        return "set by us"
    if not found.reported:
        return "no broker has reported it yet"
    holders = [b for b, value in found.reported.items() if value == found.value]
    return f"adopted from brokers {_named(holders)}"


NAMED_MAX: Final = 10
"""Brokers that a source names."""
SETTINGS_NAMED_MAX: Final = 8
"""Settings that one sentence names."""


def adopted_sentence(before: Mapping[str, InForce], found: Mapping[str, InForce]) -> str | None:
    """Returns a sentence on the values adopted from brokers since ``before``, by origin; None where nothing changed.

    The first time the sentence names the values that differ from Kafka's defaults.
    """
    known = {key: one.value for key, one in before.items() if one.adopted}
    adopted = [one for one in found.values() if one.adopted]
    news = [one for one in adopted if one.value != known.get(one.setting.key, one.setting.default)]
    if not adopted or (known and not news):
        return None
    by_source: dict[str, list[str]] = {}
    for one in news[:SETTINGS_NAMED_MAX]:
        by_source.setdefault(source(one), []).append(f"{one.setting.name}={shown(one.value)}")
    parts = [f"{origin}: {', '.join(values)}" for origin, values in by_source.items()]
    if more := len(news) - SETTINGS_NAMED_MAX:
        parts += [f"{more} more (regent config show)"] if more > 0 else []
    if not known:
        parts.append(f"{len(adopted) - len(news)} are Kafka's defaults")
    return "settings of the brokers hold: " + "; ".join(parts)


def _named(brokers: list[int]) -> str:
    more = len(brokers) - NAMED_MAX
    return ",".join(map(str, brokers[:NAMED_MAX])) + (f" and {more} more" if more > 0 else "")


def advice(found: InForce) -> str | None:
    """Returns the difference and its remedy; None where all brokers have the same value."""
    setting = found.setting
    others = {b: value for b, value in found.reported.items() if value != found.value}
    if not others:
        return None
    they = "; ".join(
        f"{shown(value)} on brokers {_named([b for b, v in others.items() if v == value])}"
        for value in sorted(set(others.values()), key=str)
    )
    if found.chosen:
        return f"{setting.name} is {they}: leave controller.{setting.key} out, or give the brokers the same value"
    return f"{setting.name} is {they}: give every broker the same value; the stricter one holds"
