"""Reads loads of partitions from Prometheus, now or at moments of the past, and writes them as ``regent loads`` does.

Prometheus mostly has traffic by topic. That is divided among the topic's partitions as their records are, or equally
where those are not known.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import msgspec

from cli.drafts import Draft
from cli.exit_codes import Exit, Failure
from cli.prometheus_queries import Queries, Source

FIELDS: Final = ("topic", "partition", "size_bytes", "bytes_in_per_s", "bytes_out_per_s", "time_ms")
MOMENTS_MAX: Final = 2_000
RESPONSE_BYTES_MAX: Final = 1024**3
"""About 5 million series."""
TIMEOUT_S: Final = 120.0
REMEDY: Final = "give --size-query and the like with the names of your exporter; labels are topic and partition"

Name = tuple[str, int]


class Found(msgspec.Struct, rename="camel"):
    """Counts the rows of a written file. ``unknown``: topics with traffic of which no partition is known."""

    file: str
    rows: int
    moments: int
    partitions: int
    unknown: Sequence[str]


class _Series(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str = ""
    result: msgspec.Raw = msgspec.Raw(b"[]")


class _Response(msgspec.Struct, rename="camel"):
    status: str
    data: _Data = _Data()
    error: str = ""


class _Values(NamedTuple):
    """Values by partition, and by topic where a series has no partition."""

    of: Mapping[Name, float]
    of_topics: Mapping[str, float]


def write_loads(source: Source, into: Path, moments_s: Sequence[int], queries: Queries) -> Found:
    """Writes the loads at each moment, in seconds of the wall clock; raises :class:`Failure`."""
    if len(moments_s) > MOMENTS_MAX:
        what = f"{len(moments_s)} moments are more than {MOMENTS_MAX:,}"
        raise Failure(Exit.USAGE, what, "give a later --since or a longer --step")
    rows, names, unknown = 0, set[Name](), set[str]()
    try:
        with _client(source) as client, Draft(into) as draft:
            write = draft.writer(FIELDS)
            for moment in moments_s:
                size, entering, leaving, records = (_asked(client, query, moment) for query in queries)
                known = sorted(size.of.keys() | entering.of.keys() | leaving.of.keys())
                rates = [_divided(each, known, records.of) for each in (entering, leaving)]
                unknown |= (entering.of_topics.keys() | leaving.of_topics.keys()) - {topic for topic, _ in known}
                for name in known:
                    bytes_in_size = size.of.get(name)
                    load = (None if bytes_in_size is None else int(bytes_in_size), *(each.get(name) for each in rates))
                    write((*name, *load, moment * 1000))
                rows += len(known)
                names.update(known)
            if not rows:
                raise Failure(Exit.FAILED, f"{source.url} has no partitions: {queries.size} has no result", REMEDY)
            draft.complete(into)
    except OSError as error:
        remedy = "give --into a file in a folder that this user may write to, and free space"
        raise Failure(Exit.FAILED, f"{into} cannot be written: {error.strerror or error}", remedy) from error
    return Found(str(into), rows, len(moments_s), len(names), sorted(unknown))


def _client(source: Source) -> httpx.Client:
    try:
        url = httpx.URL(source.url)
    except httpx.InvalidURL as error:
        raise Failure(
            Exit.USAGE, f"--prometheus {source.url} is no address: {error}", "give http://HOST:9090"
        ) from None
    if url.scheme not in ("http", "https") or not url.host:
        raise Failure(Exit.USAGE, f"--prometheus {source.url} is no address", "give http://HOST:9090")
    headers = {"Authorization": f"Bearer {source.token}"} if source.token else {}
    return httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S)


def _asked(client: httpx.Client, query: str, moment_s: int) -> _Values:
    """Returns the values of a query at a moment; none for an empty query."""
    if not query:
        return _Values({}, {})
    body = _body(client, query, moment_s)
    try:
        response = msgspec.json.decode(body, type=_Response)
        if response.status != "success":
            raise Failure(Exit.FAILED, f"Prometheus refuses {query}: {response.error}", REMEDY)
        if response.data.result_type != "vector":
            raise Failure(Exit.USAGE, f"{query} gives a {response.data.result_type}, and no vector", REMEDY)
        series = msgspec.json.decode(response.data.result, type=list[_Series])
    except msgspec.DecodeError as error:
        what = f"{client.base_url} does not respond as Prometheus does: {error}"
        raise Failure(Exit.FAILED, what, "give the address below which its /api/v1/query is") from None
    of: dict[Name, float] = {}
    of_topics: dict[str, float] = {}
    for one in series:
        _take(one, of, of_topics)
    return _Values(of, of_topics)


def _take(one: _Series, of: dict[Name, float], of_topics: dict[str, float]) -> None:
    """Adds a series; one without a topic, such as a sum of all, and a value that is no number are passed over."""
    topic, partition = one.metric.get("topic", ""), one.metric.get("partition", "")
    try:
        value = float(one.value[1])
    except ValueError:
        value = math.nan
    if not topic or not 0.0 <= value < 2.0**63:
        return
    if not partition:
        of_topics[topic] = max(value, of_topics.get(topic, 0.0))
    elif partition.isascii() and partition.isdigit():
        name = (topic, int(partition))
        of[name] = max(value, of.get(name, 0.0))


def _body(client: httpx.Client, query: str, moment_s: int) -> bytes:
    url = f"{client.base_url}"
    remedy = "check --prometheus, and that it is reachable from here"
    parts, total = [], 0
    try:
        with client.stream("POST", "api/v1/query", data={"query": query, "time": str(moment_s)}) as response:
            if response.status_code in (401, 403):
                raise Failure(Exit.NOT_AUTHORISED, f"{url} denies access ({response.status_code})", "see --token-file")
            for part in response.iter_bytes():
                total += len(part)
                if total > RESPONSE_BYTES_MAX:
                    what = f"{query} gives more than {RESPONSE_BYTES_MAX:,} bytes"
                    raise Failure(Exit.FAILED, what, "sum up by topic and partition, or choose fewer topics")
                parts.append(part)
    except httpx.TimeoutException:
        raise Failure(Exit.UNREACHABLE, f"{url} does not respond within {TIMEOUT_S:.0f} s to {query}", remedy) from None
    except httpx.HTTPError as error:
        raise Failure(Exit.UNREACHABLE, f"{url} is not reachable: {error}", remedy) from None
    return b"".join(parts)


def _divided(values: _Values, known: Sequence[Name], weights: Mapping[Name, float]) -> dict[Name, float]:
    """Returns the values of partitions; those of topics are divided among their partitions."""
    return dict(values.of) | dict(_shares(values, known, weights))


def _shares(values: _Values, known: Sequence[Name], weights: Mapping[Name, float]) -> Iterator[tuple[Name, float]]:
    partitions: dict[str, list[Name]] = defaultdict(list)
    for name in known:
        if name[0] in values.of_topics and name not in values.of:
            partitions[name[0]].append(name)
    for topic, names in partitions.items():
        total = math.fsum(weights.get(name, 0.0) for name in names)
        for name in names:
            share = weights.get(name, 0.0) / total if total > 0 else 1 / len(names)
            yield name, values.of_topics[topic] * share
