"""Asks the operator's policy for topics before they are created: in time, few at once, and refused where it fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

import msgspec
from msgspec import Struct

from configs.sections import ControllerSettings
from controller.process.policy_hooks import CommandHook, Hook, HttpHook, PolicyFailed
from controller.process.policy_jvm import JvmHook
from controller.process.wording import counted

log = logging.getLogger("regent.controller")

JAVA = "java"
"""First item of the setting for the policy class of the brokers."""

CALL_S_MAX = 60.0
"""Longest wait of a call for its verdicts: admin clients wait for as long by default."""

NO_ANSWER = "controller.create_topic_policy gave no answer, so nothing is created: {}; try again"
"""Reason for clients: the setting's value, which may have credentials, is not theirs."""

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

    async def verdicts(self, wanted: Sequence[TopicFields], within_s: float = CALL_S_MAX) -> Verdicts:
        """Asks for each topic; one that gets no answer in time, or an error, is refused with the cause.

        ``within_s``: for all of them; the caller waits no longer. Each has its own time at least.
        """
        causes: dict[str, str] = {}
        within_s = min(CALL_S_MAX, max(within_s, self._timeout_s))
        asked = {asyncio.ensure_future(self._verdict(one, causes)): one.topic for one in wanted}
        try:
            _, late = await asyncio.wait(asked, timeout=within_s)
        finally:
            for one in asked:
                one.cancel()
        causes |= {asked[one]: f"its turn did not come within {within_s:g} s" for one in late}
        _tell(causes)
        refused = {topic: NO_ANSWER.format(cause) for topic, cause in causes.items()}
        return {topic: refused.get(topic) or one.result() for one, topic in asked.items()}

    async def _verdict(self, fields: TopicFields, causes: dict[str, str]) -> str | None:
        """Returns the policy's answer; enters into ``causes`` why there is none."""
        async with self._free:
            try:
                hook = self._hook()
                if hook is None:
                    return None
                async with asyncio.timeout(self._timeout_s):
                    return await hook.ask(msgspec.json.encode(fields))
            except TimeoutError:
                causes[fields.topic] = f"it did not answer within {self._timeout_s:g} s"
            except PolicyFailed as failed:
                causes[fields.topic] = str(failed)
            except Exception as error:  # a fault of asking: it ends this topic alone
                log.exception("the policy could not be asked about topic %s", fields.topic)
                causes[fields.topic] = f"the daemon could not ask it ({type(error).__name__})"
            return None

    def _hook(self) -> Hook | None:
        """Returns the hook; a new one where brokers have another class by now. None where they have no class."""
        key = self._class_name() if self.needs_class else self._words[0]
        if key is None:
            raise PolicyFailed("no broker has reported its create.topic.policy.class.name yet")
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


def _tell(causes: Mapping[str, str]) -> None:
    """Logs one line for the topics of a call."""
    for topic, cause in islice(causes.items(), 1):
        log.warning(
            "%s not created, because the policy gave no answer, the first is %s: %s; mend "
            "controller.create_topic_policy, and have the client try again",
            counted(len(causes), "topic"),
            topic,
            cause,
        )
