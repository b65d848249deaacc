"""Makes the sections of the page, each a function of the result."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from pipeline.report.against import EACH_STOP
from pipeline.report.result import (
    Comparison,
    Cost,
    Figure,
    LossReport,
    Now,
    Quantiles,
    Recovered,
    Result,
    StopCost,
    TopicReport,
    Usual,
)
from pipeline.report.wording import UNKNOWN, counted, left_out, name, number, seconds, share, table, time

STOPS_MAX: Final = 100
DETAILS_MAX: Final = 15
TOPICS_MAX: Final = 100
ROWS_MAX: Final = 50
"""Rows of a table; the JSON and the CSV have all."""
SUMS: Final = "Sum: seconds of all partitions together. At most: with the time in which nobody had noticed the death."
SAME_SHARE: Final = 0.1
"""Changes that a verdict takes for none."""
NAMED: Final = 3
"""Topics that the head of the page names."""
COMPARED_MIN: Final = 3
"""Stops of which a verdict says that all of them were better, or worse."""


def headline(result: Result) -> str:
    """Says in sentences what happened."""
    planned = sum(stop.planned for stop in result.stops)
    unplanned = len(result.stops) - planned
    cost = result.cost
    sentences = [
        f"{counted(planned, 'planned stop')} and {counted(unplanned, 'unplanned stop')} of brokers.",
        _whole(cost),
    ]
    if result.unclean_count:
        sentences.insert(0, f"{counted(result.unclean_count, 'unclean election')}: records may be lost.")
    if dear := sorted(result.stops, key=lambda stop: -(stop.cost.at_most_s or stop.cost.known_s))[:1]:
        sentences.append(_costliest(dear[0]))
    if worse := sum(_worst_of_all(stop.usual) for stop in result.stops):
        sentences.append(
            f"{counted(worse, 'stop')} cost more for each partition than each of the last ones of the kind before."
        )
    if cost.unbounded:
        sentences.append(
            f"How long {counted(cost.unbounded, 'interval')} lasted at most is not known, because no session time-out "
            "is: give --session-timeout, or a snapshot."
        )
    if result.gaps:
        sentences.append(f"Rows are missing in {counted(len(result.gaps), 'interval')}: see the end of the page.")
    return "".join(f"<p class=lead>{escape(text)}</p>" for text in sentences)


def _whole(cost: Cost) -> str:
    most, longest = _at_most(cost.at_most_s), _at_most(cost.longest_at_most_s)
    partitions = counted(cost.partitions, "partition")
    return (
        f"{partitions} had no leader for {seconds(cost.known_s)} in sum{most}; a single one for "
        f"{seconds(cost.longest_s)}{longest}."
    )


def _costliest(stop: StopCost) -> str:
    kind, cost = "planned" if stop.planned else "unplanned", stop.cost
    topics = ", ".join(name(each.topic) for each in stop.worst[:NAMED])
    return (
        f"The costliest: broker {stop.broker} at {time(stop.begin_us)}, {kind}: {counted(stop.led, 'partition')} for "
        f"{seconds(cost.known_s)}{_at_most(cost.at_most_s)}{f', most of {topics}' if topics else ''}."
    )


def stops(result: Result) -> str:
    """Has a line for each stop, and its worst topics."""
    if not result.stops:
        return "<p>No broker stopped.</p>" + _outside(result)
    heads = (
        *("when (UTC)", "broker", "", "led", "no leader (sum)", "at most (sum)", "longest, at most", "down for"),
        *("full ISR after", "preferred after", "beside those before"),
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
            verdict(stop.usual),
        )
        for stop in shown
    ]
    return (
        f"<p class=s>{SUMS}</p>"
        + table(heads, rows, text=3)
        + left_out(len(result.stops), STOPS_MAX, "stops, which cost less,")
        + "".join(map(_worst, costliest(shown, DETAILS_MAX)))
        + ("<p class=s>Topics of other stops are in the JSON.</p>" if len(result.stops) > DETAILS_MAX else "")
        + _outside(result)
    )


def costliest(stops: Sequence[StopCost], count: int) -> list[StopCost]:
    """Returns the stops that cost most, in order of time."""
    ordered = sorted(stops, key=lambda stop: -(stop.cost.at_most_s or stop.cost.known_s))
    return sorted(ordered[:count], key=lambda stop: (stop.begin_us, stop.broker))


def verdict(of: Usual | None) -> str:
    """Says whether a stop cost more for each partition than the last ones of its kind."""
    if of is None:
        return "first of its kind"
    if of.stops >= COMPARED_MIN and of.worse_than in (0, of.stops):
        return f"worse than all {of.stops}" if of.worse_than else f"worse than none of {of.stops}"
    return f"worse than {of.worse_than} of {of.stops}"


def topics(result: Result) -> str:
    """Has a line for each topic, the most expensive first."""
    ordered = sorted(result.topics, key=lambda topic: (-(topic.cost.at_most_s or topic.cost.known_s), topic.topic))
    heads = (
        *("topic", "partitions", "no leader (sum)", "at most (sum)", "longest", "availability", "at least", "nines"),
        *("under target (sum)", "under min ISR (sum)"),
    )
    listed = table(heads, [_topic(topic) for topic in ordered[:TOPICS_MAX]])
    return listed + left_out(len(ordered), TOPICS_MAX, "topics, which cost less,")


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
    unclean = [(name(one.topic), str(one.partition), time(one.at_us)) for one in result.unclean[:ROWS_MAX]]
    more = left_out(result.unclean_count, len(unclean), "elections").replace("are in the JSON", "are in the journal")
    listed = f"<h3>Unclean elections</h3>{table(('topic', 'partition', 'when (UTC)'), unclean, text=3)}{more}"
    return (table(heads, rows) if rows else "<p>No leader was elected.</p>") + (listed if unclean else "")


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
        + _better_or_worse(other)
        + table(heads, [_figure(each) for each in other.figures])
        + (table(("topic", *heads[1:]), [_figure(each) for each in other.topics]) if other.topics else "")
    )


def _better_or_worse(other: Comparison) -> str:
    """Says whether a stop cost more or less than in the other report; empty where one of them has no stops."""
    here, there = next(((each.here, each.there) for each in other.figures if each.name == EACH_STOP), (None, None))
    if here is None or not there:
        return ""
    change = (here - there) / there
    than = (
        f"{abs(change):.0%} {'more' if change > 0 else 'less'} than"
        if abs(change) >= SAME_SHARE
        else "about as much as"
    )
    return f"<p>A stop cost {seconds(here)} without a leader in sum, {than} in the other one ({seconds(there)}).</p>"


def gaps(result: Result) -> str:
    """Lists times without rows; empty where nothing is missing."""
    if not result.gaps:
        return ""
    rows = [(time(gap.begin_us), time(gap.end_us), gap.why) for gap in result.gaps[:ROWS_MAX]]
    listed = table(("from (UTC)", "to (UTC)", "why"), rows, text=3)
    return f"<h2>Missing rows</h2>{listed}{left_out(len(result.gaps), ROWS_MAX, 'times')}"


def _outside(result: Result) -> str:
    intervals, total = counted(result.outside_stops.intervals, "interval"), seconds(result.outside_stops.known_s)
    return f"<p class=s>By no stop (preferred leaders, drains, reassignments): {intervals}, {total}.</p>"


def _worst_of_all(of: Usual | None) -> bool:
    return of is not None and of.worse_than == of.stops >= COMPARED_MIN


def _kind(stop: StopCost) -> str:
    kind = "planned" if stop.planned else "unplanned"
    return f"{kind}, seen by the next controller" if stop.between_terms else kind


def _worst(stop: StopCost) -> str:
    if not stop.worst:
        return ""
    rows = [
        (name(each.topic), number(each.cost.partitions), *_costs(each.cost), seconds(each.cost.longest_at_most_s))
        for each in stop.worst
    ]
    inside = table(("topic", "partitions", "no leader (sum)", "at most (sum)", "longest, at most"), rows)
    return (
        f"<details><summary class=s>Topics of broker {stop.broker}, {time(stop.begin_us)}</summary>{inside}</details>"
    )


def _costs(cost: Cost) -> tuple[str, str]:
    return seconds(cost.known_s), seconds(cost.at_most_s)


def _recovered(of: Recovered) -> str:
    if not of.partitions:
        return "not needed"
    text = seconds(of.seconds) if of.seconds is not None else f"{of.left} not yet" if of.left else UNKNOWN
    return f"{text} ({of.unseen} in missing rows)" if of.unseen else text


def _topic(topic: TopicReport) -> tuple[str, ...]:
    return (
        name(topic.topic),
        number(topic.partitions),
        *_costs(topic.cost),
        seconds(topic.cost.longest_s),
        share(topic.availability),
        share(topic.availability_at_least),
        "no outage" if topic.nines is None else f"{topic.nines:.2f}",
        seconds(topic.under_target_s),
        _under_min(topic),
    )


def _under_min(topic: TopicReport) -> str:
    """Formats the time under min ISR, with how long of the window the setting is not known."""
    known = topic.under_min_s is not None and topic.min_isr_unknown_s
    left = f" ({seconds(topic.min_isr_unknown_s)} of the time {UNKNOWN})" if known else ""
    return seconds(topic.under_min_s) + left


def _quantiles(of: Quantiles) -> tuple[str, ...]:
    return tuple(number(value, "ms") for value in (of.p50_ms, of.p90_ms, of.p99_ms, of.max_ms))


def _figure(each: Figure) -> tuple[str, ...]:
    delta = UNKNOWN if each.delta is None else f"{each.delta:+,.3g} {each.unit}".strip()
    return name(each.name), number(each.here, each.unit), number(each.there, each.unit), delta


def _at_most(value: float | None) -> str:
    return "" if value is None else f", at most {seconds(value)}"


LOSSES_MAX: Final = 60
"""Rows of the table: the worst ones; the JSON has all."""
PARTITIONS_NAMED: Final = 2


def now_section(of: Now | None) -> str:
    """Has a line for each broker and each rack, the worst one first; says so where there is no snapshot."""
    if of is None:
        return "<p class=s>Not known without a snapshot: give --snapshot.</p>"
    heads = (
        *("lost", "led", "left without a leader", "get under min ISR"),
        *("a planned stop: no leader (sum)", "a death: no leader (sum)", "a death: at most (sum)"),
    )
    rows = [
        (
            each.lost,
            number(each.led),
            _offline(each),
            number(each.under_min_isr),
            *(_about(value) for value in (each.planned_s, each.unplanned_s, each.unplanned_at_most_s)),
        )
        for each in of.losses[:LOSSES_MAX]
    ]
    return (
        f"<p class=s>By the snapshot of {time(of.at_us)} UTC. Seconds of all led partitions together are foretold, "
        f"by the median of the {_last(of.planned_stops, 'planned stop')} and the "
        f"{_last(of.unplanned_stops, 'unplanned stop')}. A partition that is left without a leader has none until its "
        f"broker is back.</p>{table(heads, rows)}{left_out(len(of.losses), LOSSES_MAX, 'brokers and racks')}"
    )


def _last(count: int, noun: str) -> str:
    return f"last {noun}" if count == 1 else f"last {counted(count, noun)}"


def _offline(each: LossReport) -> str:
    if not each.offline:
        return "0"
    named = ", ".join(map(name, each.named[:PARTITIONS_NAMED]))
    more = ", ..." if each.offline > PARTITIONS_NAMED else ""
    return f"{each.offline:,} ({named}{more})"


def _about(value: float | None) -> str:
    return UNKNOWN if value is None else f"about {seconds(value)}"
