"""Story files: events, the trace of Kafka's controller, and to the letter the output of this one.

A file starts with lines of ``#`` (among them ``# seeds: S4-6 ...``, and ``# tests: ...`` with names of
docs/evidence/kafka-tests.csv; and ``# unlike Kafka``, where the two sides are not to be compared). Steps follow,
separated by blank lines: commands (see :mod:`tests.stories.stage`), then lines ``kafka ...`` (see
:mod:`tests.stories.kafka`), then ``----`` and the output, which ``pytest tests/stories --rewrite-stories`` writes anew.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

RULER = "----"


class Step(Struct):
    """A step of a story."""

    commands: list[str]
    kafka: list[list[str]]
    output: list[str]


class Story(Struct):
    """A parsed file."""

    path: Path
    header: list[str]
    steps: list[Step]

    @property
    def seeds(self) -> list[str]:
        """The rows of the checklist that the story covers."""
        return self._named("seeds")

    @property
    def kafka_tests(self) -> list[str]:
        """The tests of Kafka's that show the same."""
        return self._named("tests")

    @property
    def unlike(self) -> bool:
        """Whether Kafka's controller behaves differently, on purpose."""
        return any(line.startswith("# unlike Kafka") for line in self.header)

    def _named(self, kind: str) -> list[str]:
        return [row for line in self.header if line.startswith(f"# {kind}:") for row in line.split()[2:]]

    @staticmethod
    def read(path: Path) -> Story:
        """Parses a file; each step has commands and a ruler."""
        blocks = [block.splitlines() for block in path.read_text().strip().split("\n\n")]
        header, *steps = blocks
        assert all(line.startswith("#") for line in header), f"{path.name}: begins with its header"
        return Story(path, header, [_step(path, block) for block in steps])

    def text(self) -> str:
        """Returns the file's content."""
        blocks = [self.header, *(_lines(step) for step in self.steps)]
        return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _step(path: Path, block: list[str]) -> Step:
    assert RULER in block, f"{path.name}: no {RULER} after {block[0]!r}"
    at = block.index(RULER)
    before = block[:at]
    kafka = [line.split()[1:] for line in before if line.startswith("kafka ")]
    return Step([line for line in before if not line.startswith("kafka ")], kafka, block[at + 1 :])


def _lines(step: Step) -> list[str]:
    return [*step.commands, *(" ".join(["kafka", *line]) for line in step.kafka), RULER, *step.output]
