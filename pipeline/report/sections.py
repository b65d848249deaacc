"""Makes the sections of the page, each a function of the result."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from pipeline.report.result import Cost, Figure, Quantiles, Recovered, Result, StopCost, TopicReport
from pipeline.report.wording import UNKNOWN, counted, number, seconds, share, size, table, time

STOPS_MAX: Final = 100
DETAILS_MAX: Final = 30
TOPICS_MAX: Final = 200
ROWS_MAX: Final = 100
"""Rows of a table; the JSON and the CSV have all."""


def headline(result: Result) -> str:
    """Says in sentences what happened."""
    planned = sum(stop.planned for stop in result.stops)
    unplanned = len(result.stops) - planned
    cost = result.cost
    whole, longest = seconds(cost.known_s) + _at_most(cost.at_most_s), seconds(cost.longest_s)
    sentences = [
        f"{counted(planned, 'planned stop')} and {counted(unplanned, 'unplanned stop')} of brokers.",
        f"{counted(cost.partitions, 'partition')} had no leader for {whole}, all together.",
        f"A single one had none for {longest}{_at_most(cost.longest_at_most_s)}.",
    ]
    if result.unclean_count:
        sentences.append(f"{counted(result.unclean_count, 'unclean election')}: records may be lost.")
    if cost.unbounded:
        sentences.append(
            f"How long {counted(cost.unbounded, 'interval')} lasted at most is not known, because no session time-out "
            "is: give --session-timeout, or a snapshot."
        )
    if result.gaps:
        sentences.append(f"Rows are missing in {counted(len(result.gaps), 'interval')}: see the end of the page.")
    return "".join(f"<p class=lead>{escape(text)}</p>" for text in sentences)


def stops(result: Result) -> str:
    """Has a line for each stop, and its worst topics."""
    if not result.stops:
        return "<p>No broker stopped.</p>" + _outside(result)
    heads = (
        *("when (UTC)", "broker", "", "led", "no leader for", "at most", "one at most", "down for"),
        *("full ISR after", "preferred after"),
    )
    shown = costliest(result.stops, STOPS_MAX)
    rows = [
        (
            time(stop.begin_us),
            str(stop.broker),
            _kind(stop),
            number(stop.led),
            seconds(stop.cost.known_s),
            seconds(stop.cost.at_most_s),
            seconds(stop.cost.longest_at_most_s),
            UNKNOWN if stop.up_us is None else seconds((stop.up_us - (stop.down_us or stop.begin_us)) / 1e6),
            _recovered(stop.full),
            _recovered(stop.back),
        )
        for stop in shown
    ]
    return (
        table(heads, rows, text=3)
        + "".join(map(_worst, costliest(shown, DETAILS_MAX)))
        + _more(len(result.stops), STOPS_MAX)
        + _outside(result)
    )


def costliest(stops: Sequence[StopCost], count: int) -> list[StopCost]:
    """Returns the stops that cost most, in order of time."""
    ordered = sorted(stops, key=lambda stop: -(stop.cost.at_most_s or stop.cost.known_s))
    return sorted(ordered[:count], key=lambda stop: (stop.begin_us, stop.broker))


def topics(result: Result) -> str:
    """Has a line for each topic, the most expensive first."""
    ordered = sorted(result.topics, key=lambda topic: (-(topic.cost.at_most_s or topic.cost.known_s), topic.topic))
    heads = (
        *("topic", "partitions", "no leader for", "at most", "longest", "availability", "at least", "nines"),
        *("under target", "under min ISR"),
    )
    return table(heads, [_topic(topic) for topic in ordered[:TOPICS_MAX]]) + _more(len(ordered), TOPICS_MAX)


def elections(result: Result) -> str:
    """Has the latencies by reason."""
    heads = (
        *("reason", "elections", "commit: p50", "p90", "p99", "max"),
        *("acknowledgement of the leader: p50", "p90", "p99", "max", "counted", "cause without a time"),
    )
    rows = [
        (
            *(each.reason, number(each.committed.count + each.untimed), *_quantiles(each.committed)),
            *(*_quantiles(each.acknowledged), number(each.acknowledged.count), number(each.untimed)),
        )
        for each in result.elections
    ]
    unclean = [(one.topic, str(one.partition), time(one.at_us)) for one in result.unclean[:ROWS_MAX]]
    listed = f"<h3>Unclean elections</h3>{table(('topic', 'partition', 'when (UTC)'), unclean, text=3)}"
    return (table(heads, rows) if rows else "<p>No leader was elected.</p>") + (listed if unclean else "")


def moves(result: Result) -> str:
    """Has reassignments by topic, and plans."""
    if not result.moves and not result.plans:
        return "<p>No partition was reassigned.</p>"
    heads = ("topic", "partitions", "not ended", "replicas added", "took", "longest", "bytes", "size not known", "rate")
    rows = [
        (
            each.topic,
            number(each.partitions),
            number(each.unfinished),
            number(each.added),
            seconds(each.seconds),
            seconds(each.longest_s),
            size(each.bytes),
            number(each.size_unknown),
            UNKNOWN if each.rate_bytes_per_s is None else f"{size(each.rate_bytes_per_s)}/s",
        )
        for each in result.moves[:ROWS_MAX]
    ]
    plans = [
        (str(plan.pid), time(plan.begin_us), time(plan.end_us), plan.state, plan.result)
        for plan in result.plans[:ROWS_MAX]
    ]
    listed = table(("plan", "begin (UTC)", "end (UTC)", "state", "result"), plans, text=5) if plans else ""
    return (table(heads, rows) if rows else "") + _more(len(result.moves), ROWS_MAX) + listed


def against(result: Result) -> str:
    """Has this report beside the other one; empty without it."""
    other = result.against
    if other is None:
        return ""
    when = f"from {time(other.from_us)} to {time(other.to_us)} UTC"
    what = f"<p>The other one is cluster {escape(other.cluster)} {when}.</p>"
    heads = ("", "this report", "the other one", "difference")
    return (
        "<h2>Against another time</h2>"
        + what
        + table(heads, [_figure(each) for each in other.figures])
        + (table(("topic", *heads[1:]), [_figure(each) for each in other.topics]) if other.topics else "")
    )


def gaps(result: Result) -> str:
    """Lists times without rows; empty where nothing is missing."""
    if not result.gaps:
        return ""
    rows = [(time(gap.begin_us), time(gap.end_us), gap.why) for gap in result.gaps[:ROWS_MAX]]
    return f"<h2>Missing rows</h2>{table(('from (UTC)', 'to (UTC)', 'why'), rows, text=3)}"


def _outside(result: Result) -> str:
    intervals, total = counted(result.outside_stops.intervals, "interval"), seconds(result.outside_stops.known_s)
    return f"<p class=s>By no stop (preferred leaders, drains, reassignments): {intervals}, {total}.</p>"


def _kind(stop: StopCost) -> str:
    kind = "planned" if stop.planned else "unplanned"
    return f"{kind}, seen by the next controller" if stop.between_terms else kind


def _worst(stop: StopCost) -> str:
    if not stop.worst:
        return ""
    rows = [
        (each.topic, number(each.cost.partitions), *_costs(each.cost), seconds(each.cost.longest_at_most_s))
        for each in stop.worst
    ]
    inside = table(("topic", "partitions", "no leader for", "at most", "one at most"), rows)
    return (
        f"<details><summary class=s>Topics of broker {stop.broker}, {time(stop.begin_us)}</summary>{inside}</details>"
    )


def _costs(cost: Cost) -> tuple[str, str]:
    return seconds(cost.known_s), seconds(cost.at_most_s)


def _recovered(of: Recovered) -> str:
    if not of.partitions:
        return "none concerned"
    text = seconds(of.seconds) if of.seconds is not None else f"{of.left} not" if of.left else UNKNOWN
    return f"{text} ({of.unseen} in missing rows)" if of.unseen else text


def _topic(topic: TopicReport) -> tuple[str, ...]:
    return (
        topic.topic,
        number(topic.partitions),
        *_costs(topic.cost),
        seconds(topic.cost.longest_s),
        share(topic.availability),
        share(topic.availability_at_least),
        "no outage" if topic.nines is None else f"{topic.nines:.2f}",
        seconds(topic.under_target_s),
        seconds(topic.under_min_s),
    )


def _quantiles(of: Quantiles) -> tuple[str, ...]:
    return tuple(number(value, "ms") for value in (of.p50_ms, of.p90_ms, of.p99_ms, of.max_ms))


def _figure(each: Figure) -> tuple[str, ...]:
    delta = UNKNOWN if each.delta is None else f"{each.delta:+,.3g} {each.unit}".strip()
    return each.name, number(each.here, each.unit), number(each.there, each.unit), delta


def _at_most(value: float | None) -> str:
    return "" if value is None else f", at most {seconds(value)}"


def _more(count: int, shown: int) -> str:
    return f"<p class=s>{count - shown} more are in the JSON.</p>" if count > shown else ""
