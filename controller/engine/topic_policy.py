"""Asks the operator's policy for topics before they are created: in time, few at once, and refused where it fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from configs.sections import ControllerSettings
from controller.process.policy_hooks import CommandHook, Hook, HttpHook, PolicyFailed
from controller.process.policy_jvm import JvmHook

log = logging.getLogger("regent.controller")

JAVA = "java"
"""First item of the setting for the policy class of the brokers."""

Verdicts = Mapping[str, str | None]
"""Why topics are refused, by name; None where they may be created."""


class TopicFields(Struct, frozen=True, rename="camel"):
    """Kafka's ``CreateTopicPolicy.RequestMetadata``: counts or assignments, the others are null."""

    topic: str
    num_partitions: int | None
    replication_factor: int | None
    replicas_assignments: Mapping[int, Sequence[int]] | None
    configs: Mapping[str, str]


class TopicPolicy:
    """Asks the policy that the settings name. ``class_name``: returns the brokers' policy class, for a JVM.

    ``needs_class``: whether it asks that class, which may be none.
    """

    def __init__(self, settings: ControllerSettings, class_name: Callable[[], str | None] = lambda: None) -> None:
        assert settings.create_topic_policy is not None
        self._words = settings.create_topic_policy
        self.needs_class = self._words[0] == JAVA
        self._timeout_s = settings.create_topic_policy_timeout_ms / 1000
        self._free = asyncio.Semaphore(settings.create_topic_policy_calls_max)
        self._class_name = class_name
        self._hooks: dict[str, Hook] = {}

    async def verdicts(self, wanted: Sequence[TopicFields]) -> Verdicts:
        """Asks for each topic; one that gets no answer in time, or an error, is refused with the cause."""
        asked = [asyncio.ensure_future(self._verdict(one)) for one in wanted]
        try:
            found = await asyncio.gather(*asked)
        finally:
            for one in asked:
                one.cancel()
        return {one.topic: why for one, why in zip(wanted, found, strict=True)}

    async def _verdict(self, fields: TopicFields) -> str | None:
        async with self._free:
            try:
                hook = self._hook()
                if hook is None:
                    return None
                async with asyncio.timeout(self._timeout_s):
                    why = await hook.ask(msgspec.json.encode(fields))
            except TimeoutError:
                why = self._failed(fields.topic, f"it did not answer within {self._timeout_s:g} s")
            except PolicyFailed as failed:
                why = self._failed(fields.topic, str(failed))
            return why

    def _failed(self, topic: str, cause: str) -> str:
        name = " ".join(self._words)
        log.warning(
            "topic %s is not created, because the policy gave no answer: %s; mend controller.create_topic_policy = %s, "
            "and have the client try again", topic, cause, name,
        )  # fmt: skip
        return f"controller.create_topic_policy = {name} gave no answer, so nothing is created: {cause}; try again"

    def _hook(self) -> Hook | None:
        """Returns the hook; a new one where brokers have another class by now. None where they have no class."""
        key = (self._class_name() or "") if self.needs_class else self._words[0]
        if key and key not in self._hooks:
            self._hooks[key] = self._made(key)
        return self._hooks.get(key)

    def _made(self, key: str) -> Hook:
        if self.needs_class:
            return JvmHook(key, *self._words[1:])
        if key.startswith(("http://", "https://")):
            return HttpHook(key, self._timeout_s)
        return CommandHook(self._words)

    async def close(self) -> None:
        """Ends what hooks have started."""
        await asyncio.gather(*(hook.close() for hook in self._hooks.values()))
