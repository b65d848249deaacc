"""Has the verb ``loads``: weeks of loads become one file of percentiles."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from pipeline.ending import DONE, FAILED, USAGE, Stopped
from pipeline.verbs.options import Argument, Conf, Master, Option, Quiet, length
from pipeline.verbs.running import Shown, running

EXAMPLES: Final = (
    "regent pipeline loads /var/lib/regent-loads --out p95.parquet",
    "regent pipeline loads monday.csv tuesday.parquet --out p99.parquet --percentile 99 --window 36h",
)
MILLISECOND: Final = timedelta(milliseconds=1)


def loads(
    show: Shown,
    history: Annotated[list[str], Argument("Files of 'regent loads' that were kept, or folders of them.")],
    out: Annotated[str, Option("--out", "Parquet file that is written or replaced, for --loads of other commands.")],
    percentile: Annotated[float, Option("--percentile", "Percentile of each partition.", min=0.1, max=100)] = 95,
    window: Annotated[str, Option("--window", "Samples of this time before the newest one count.")] = "14d",
    master: Master = None,
    conf: Conf = None,
    quiet: Quiet = False,
) -> int:
    """Sum up the loads of days or weeks: a percentile of size and rates for each partition."""
    span = length(window)
    if not span:
        raise Stopped(USAGE, f"--window {window} is no length of time", "give 36h or 14d, for instance")
    with running(master, conf, quiet=quiet) as spark:
        from pipeline.executors import Unfit, workers_of
        from pipeline.inputs import BadInput
        from pipeline.load_history import sum_up
        from pipeline.storage import NothingToRead, first_line

        try:
            found = sum_up(workers_of(spark), history, out, percentile, span // MILLISECOND)
        except (BadInput, NothingToRead) as error:
            raise Stopped(USAGE, str(error)) from None
        except Unfit as error:
            raise Stopped(FAILED, str(error)) from None
        except OSError as error:
            raise Stopped(FAILED, f"{out} cannot be written: {first_line(error)}", "name another file") from None
    if show.for_programs:
        show.document("LoadHistory", [found._asdict()])
    begin, end = (datetime.fromtimestamp(ms / 1e3, UTC).isoformat("T", "seconds") for ms in found[-2:])
    show.message(
        f"{out}: {found.partitions} partitions of {found.samples} samples in {found.files} files, {begin} to {end}",
        style="green",
    )
    return DONE
