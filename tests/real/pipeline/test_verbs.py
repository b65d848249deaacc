"""``python -m pipeline``: the options of ``regent pipeline``, its exit codes and its documents, by argparse alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pytest
import typer

from cli.exit_codes import Exit
from pipeline import ending
from pipeline.__main__ import main
from pipeline.verbs import VERBS
from pipeline.verbs.options import Argument, Option, parameters_of, run
from pipeline.verbs.running import Plain, Shown
from pipeline.verbs.stream import Told
from tests.kit.command import command
from tests.real.pipeline.logs import change, sound, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERB_NAMES = [verb.__name__ for verb, _ in VERBS]


def probe(
    show: Shown,
    names: Annotated[list[str], Argument("Names.")],
    into: Annotated[str, Option("--into", "Place.")],
    times: Annotated[int, Option("--times", "Number, 100% sure.", min=1, max=3)] = 1,
    share: Annotated[float | None, Option("--share", "Share.", min=0.5)] = None,
    each: Annotated[list[str] | None, Option("--each", "One of some.")] = None,
    flag: Annotated[bool, Option("--flag", "Flag.")] = False,
) -> int:
    """Print what was given."""
    show.document("Probe", [[names, into, times, share, each, flag]])
    return ending.DONE


def test_values_are_of_their_types(capsys: pytest.CaptureFixture[str]) -> None:
    words = "probe a b --into c --times 3 --share 0.5 --each d --each e --flag"
    assert run([probe], words.split()) == Exit.DONE
    assert json.loads(capsys.readouterr().out)["items"] == [[["a", "b"], "c", 3, 0.5, ["d", "e"], True]]
    run([probe], ["probe", "a", "--into", "c"])
    assert json.loads(capsys.readouterr().out)["items"] == [[["a"], "c", 1, None, None, False]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--into c --times 4", "4 is more than 3"),
        ("--into c --times 1.5", "'1.5' is no whole number"),
        ("--into c --share nan", "nan is less than 0.5"),
        ("--in c", "required: --into"),
    ],
)
def test_a_wrong_value_is_wrong_usage(capsys: pytest.CaptureFixture[str], words: str, said: str) -> None:
    with pytest.raises(SystemExit) as ended:
        run([probe], ["probe", "a", *words.split()])
    assert ended.value.code == Exit.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", VERB_NAMES)
def test_a_verb_has_the_same_options_in_both_commands(name: str) -> None:
    [verb] = [verb for verb, _ in VERBS if verb.__name__ == name]
    group = command().commands["pipeline"]  # type: ignore[attr-defined]
    shared = {"form", "server", "no_color", "request_timeout", "config"}
    theirs = {one.name: one.default for one in group.commands[name].params if one.name not in shared}
    own = {one.name: None if one.required else one.default for one in parameters_of(verb)}
    assert theirs == own


def test_exit_codes_are_those_of_regent() -> None:
    assert (ending.DONE, ending.FAILED, ending.USAGE, ending.REFUSED) == (
        Exit.DONE,
        Exit.FAILED,
        Exit.USAGE,
        Exit.REFUSED,
    )
    assert typer.Exit(ending.REFUSED).exit_code == Exit.REFUSED


def test_verbs_are_described_without_typer_and_without_libraries_of_the_extra(tmp_path: Path) -> None:
    """Where only a zip of the code is: on machines of a Spark cluster."""
    gone = ("typer", "rich", "click", "numpy", "numba", "pyarrow", "pyspark", "pandas")
    script = f"import sys, runpy; sys.modules.update(dict.fromkeys({gone!r}))\n"
    script += "sys.argv[1:] = ['report', '--help']; runpy.run_module('pipeline', run_name='__main__')"
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "--fail-over" in ran.stdout


def test_a_broken_journal_is_refused_as_by_regent(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The session that runs is used, and stays."""
    journals = write(tmp_path / "journals", [change((5, 9), isr0=[1, 3])(sound("c"))])
    bronze = str(tmp_path / "bronze")
    assert main(["ingest", *journals, "--into", bronze]) == Exit.DONE
    assert capsys.readouterr().out == ""
    assert main(["audit", bronze]) == Exit.REFUSED
    printed = capsys.readouterr()
    assert printed.out.startswith("A10: orders-0 at epoch 5, row 9: ")
    assert "1 violation," in printed.err
    assert main(["audit", str(tmp_path), "-o", "json"]) == Exit.FAILED
    [error] = json.loads(capsys.readouterr().err)["items"]
    assert error["remedy"] == "run 'regent pipeline ingest' first"
    assert spark.range(1).count() == 1


def test_loads_are_summed_up_on_spark(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.csv").write_text("topic,partition,time_ms,size_bytes\na,0,1000,5\na,0,2000,7\n")
    out = tmp_path / "loads.parquet"
    words = ["loads", str(tmp_path / "own.csv"), "--out", str(out)]
    assert main([*words, "--percentile", "50", "-o", "json"]) == Exit.DONE
    [found] = json.loads(capsys.readouterr().out)["items"]
    assert (found["samples"], found["partitions"]) == (2, 1)
    [row] = spark.read.parquet(str(out)).collect()
    assert (row.topic, row.partition, row.size_bytes, row.samples) == ("a", 0, 5, 2)
    (tmp_path / "own.csv").write_text("topic,partition,size_bytes\na,0,5\n")
    assert main(words) == Exit.USAGE
    assert "it has no column time_ms" in capsys.readouterr().err


def test_a_stream_names_the_files_that_it_has_not_read(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(Plain(json_wanted=False), quiet=True)
    told.end("/lake", ["d1/a.jsonl", "d2/b.jsonl"])
    said = capsys.readouterr().err
    assert "not read yet: d1/a.jsonl and 1 other file, which may still grow; --closed-after 0s reads" in said
    told.end("/lake", [])
    assert "not read" not in capsys.readouterr().err
