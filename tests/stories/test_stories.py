"""Golden stories: the output of this controller to the letter, and the same result as under Kafka's controller.

After every step topic znodes have the same content, and so have state znodes (not the same versions: several writes of
Kafka's are one here). Each broker carried out the same last requests about each partition and the live list. No broker
got more requests with partitions than from Kafka's controller. A live list alone, which Kafka sends with every
UpdateMetadata, goes to a broker at most once more per step. A broker that just joined may get one request more, because
the snapshot repeats decisions. State znodes of a topic with a marker are not compared: they are not written any more.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from state_machines.model.types import Assignment, Broker, Leadership
from tests.stories.brokers import LEADER_AND_ISR, UPDATE_METADATA, Entry, NaiveBroker, Request, differences, shown
from tests.stories.kafka import KafkaSide
from tests.stories.script import Story
from tests.stories.stage import Stage

FOLDER = Path(__file__).parent
STORIES = [Story.read(path) for path in sorted(FOLDER.glob("*.txt"))]


class Play:
    """Both sides of a story, step by step."""

    def __init__(self, *, unlike: bool = False) -> None:
        self.unlike = unlike
        self.stage = Stage()
        self.kafka = KafkaSide(self._created)
        self._lives: dict[int, Broker] = {}
        self._first: dict[str, Assignment] = {}

    def step(self, commands: list[str], kafka: list[list[str]]) -> list[str]:
        """Plays one step and returns its output; fails where the rule is broken."""
        self.stage.begin()
        self._lives = dict(self.stage.registered)
        for topic, found in self.stage.zookeeper.topics.items():
            for partition, assignment in found.partitions.items():
                self._first.setdefault(f"{topic}-{partition}", assignment)
        for command in commands:
            self.stage.play(command)
        if "running" in commands:
            self._same_start()
        self._same_lives()
        for line in kafka:
            self.kafka.play(line)
        broken = [] if self.unlike else self.compare()
        assert not broken, "\n".join([f"after {commands}:", *broken, *self.stage.out])
        return self.stage.out

    def _created(self, name: str) -> Assignment:
        return self._first.setdefault(name, self.stage.assignment(name))

    def _same_start(self) -> None:
        """Copies the znodes and brokers to Kafka's side."""
        self.kafka.states = {f"{t}-{p}": held for (t, p), held in self.stage.zookeeper.states.items()}
        for broker_id in self.stage.brokers:
            self.kafka.brokers[broker_id] = self.stage.brokers[broker_id].copy()
        self.stage.begin()

    def _same_lives(self) -> None:
        """Gives both sides the same incarnations of brokers; a new one knows nothing."""
        found, before, known = self.stage.registered, self._lives, self.kafka.brokers
        self.kafka.brokers = {
            b: known[b] if b in known and before.get(b, life) == life else NaiveBroker(b) for b, life in found.items()
        }
        self.kafka.begin(tuple(sorted(found)), self.stage.cluster.live)

    def compare(self) -> list[str]:
        """Returns the differences that the rule does not allow."""
        held_by_ours = self.stage.zookeeper.states.items()
        ours = {f"{t}-{p}": content(held) for (t, p), held in held_by_ours if t not in self.stage.markers}
        kafkas = {name: content(held) for name, held in self.kafka.states.items() if name in ours}
        broken = [f"znode of {n}: {ours[n]}, under Kafka {kafkas.get(n)}" for n in ours if ours[n] != kafkas.get(n)]
        for name, first in self._first.items():
            topic = name.rpartition("-")[0]
            if (topic in self.stage.zookeeper.topics) == (topic in self.kafka.deleted):
                broken.append(f"topic {topic} is deleted on one side only")
            if topic in self.kafka.deleted:
                continue
            written, kafkas_own = self.stage.assignment(name), self.kafka.assigned.get(name, first)
            if written != kafkas_own:
                broken.append(f"topic znode of {name}: {shown(written)}, under Kafka {shown(kafkas_own)}")
        for broker_id, broker in self.stage.brokers.items():
            broken += differences(broker, self.kafka.brokers[broker_id])
            sent, allowed = self.stage.requests[broker_id], self.kafka.sent[broker_id]
            joined = self._lives.get(broker_id) != self.stage.registered[broker_id]
            if sent[False] > allowed[False] + joined:
                broken.append(f"broker {broker_id}: {sent[False]} requests, from Kafka {allowed[False]}")
            if sent[True] > max(1, allowed[True]):
                broken.append(f"broker {broker_id}: {sent[True]} live lists alone, from Kafka {allowed[True]}")
        return broken


def content(held: Leadership) -> Leadership:
    """Returns the part that must be the same on both sides."""
    return replace(held, controller_epoch=0, version=0)


def marked(story: Story) -> object:
    """Returns the story as a case, with its marks."""
    marks = (pytest.mark.seed(*story.seeds), pytest.mark.kafka(*story.kafka_tests))
    return pytest.param(story, id=story.path.stem, marks=marks)


@pytest.mark.parametrize("story", [marked(story) for story in STORIES])
def test_a_story_has_its_output_and_the_result_of_kafkas_controller(
    story: Story, request: pytest.FixtureRequest
) -> None:
    play = Play(unlike=story.unlike)
    found = [replace(step, output=play.step(step.commands, step.kafka)) for step in story.steps]
    if request.config.getoption("--rewrite-stories"):
        story.path.write_text(replace(story, steps=found).text())
    else:
        for step, known in zip(found, story.steps, strict=True):
            assert step.output == known.output, f"{story.path.name}: after {step.commands}"


DEATH = [
    "W t-0 leader 2 epoch 1 isr 2",
    "L 2 t-0",
    "U 2,3 t-0",
    "W t-1 leader 2 epoch 1 isr 2",
    "L 2 t-0 t-1",
    "U 2,3 t-0 t-1",
]


@pytest.mark.parametrize(
    ("trace", "broken"),
    [
        pytest.param(DEATH, "", id="as it is"),
        pytest.param(["W t-0 leader 2 epoch 1 isr 2,3", *DEATH[1:]], "znode of t-0", id="another ISR"),
        pytest.param(["W t-0 leader 2 epoch 2 isr 2", *DEATH[1:]], "znode of t-0", id="another leader epoch"),
        pytest.param(DEATH[:3] + DEATH[4:], "znode of t-1", id="one write less"),
        pytest.param([DEATH[0], *DEATH[2:4], DEATH[5]], "order of t-0", id="a replica without a request"),
        pytest.param([*DEATH[:4], "L 2 new t-1", DEATH[5]], "order of t-1", id="sent as new"),
        pytest.param([*DEATH[:5], "U 2 t-0 t-1"], "metadata of t-1", id="a broker that misses metadata"),
        pytest.param([*DEATH, "S 2 t-1"], "order of t-1", id="a replica that is stopped"),
        pytest.param([DEATH[0], DEATH[3], *DEATH[5:]], "2 requests, from Kafka 1", id="fewer requests"),
        pytest.param([*DEATH, "live 1,2,3", "U 2,3 t-0 t-1"], "offline 1", id="an offline replica that is not"),
    ],
)
def test_a_difference_from_the_trace_of_kafka_breaks_the_rule(trace: list[str], broken: str) -> None:
    play = Play()
    given = ["brokers 1,2,3", "given t-0 replicas 1,2 leader 1", "given t-1 replicas 2,1 leader 2", "running"]
    play.step(given, [])
    if not broken:
        play.step(["brokers gone 1"], [line.split() for line in trace])
        return
    with pytest.raises(AssertionError) as found:
        play.step(["brokers gone 1"], [line.split() for line in trace])
    assert broken in str(found.value)


def test_a_broker_ignores_a_known_leader_epoch_and_a_leader_that_is_not_live() -> None:
    """KAFKA-4443."""
    known = NaiveBroker(1)
    known.take(Request(UPDATE_METADATA, {}, (1, 2)))
    first = Entry(2, 5, (2, 1), (1, 2))
    known.take(Request(LEADER_AND_ISR, {"t-0": first}))
    known.take(Request(LEADER_AND_ISR, {"t-0": replace(first, isr=(2,))}))
    known.take(Request(LEADER_AND_ISR, {"t-0": replace(first, epoch=6, leader=3)}))
    assert known.orders == {"t-0": (LEADER_AND_ISR, first)}
    assert known.copy().orders == known.orders
    assert differences(known, known.copy()) == []
    assert len(differences(known, NaiveBroker(1))) == 2


def test_a_rewritten_story_keeps_its_commands_and_trace() -> None:
    for story in STORIES:
        assert Story.read(story.path).text() == story.path.read_text()
        assert story.seeds
