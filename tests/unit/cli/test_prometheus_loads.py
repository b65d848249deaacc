"""Loads of partitions from Prometheus, which stands in here as a server of fixed answers."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from cli import prometheus_loads
from cli.exit_codes import Exit
from cli.prometheus_queries import USUAL
from tests.kit.command import items, regent, unwrapped

Series = list[tuple[dict[str, str], str]]


class Answers:
    """Series by query. ``asked``: the moment of each query, and the token with it."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.series: dict[str, Series] = {
            USUAL.size: [({"topic": "a", "partition": str(number)}, "100") for number in range(3)],
            USUAL.bytes_in: [({"topic": "a"}, "90"), ({}, "1e9"), ({"topic": "gone"}, "5")],
            USUAL.records: [
                ({"topic": "a", "partition": "0"}, "2"),
                ({"topic": "a", "partition": "1"}, "1"),
                ({"topic": "a", "partition": "2"}, "NaN"),
            ],
        }
        self.asked: list[tuple[str, str, str]] = []
        self.body: Callable[[str], Any] = lambda query: {
            "status": "success",
            "data": {
                "resultType": "vector",
                "result": [{"metric": labels, "value": [1, value]} for labels, value in self.series.get(query, [])],
            },
        }


@pytest.fixture
def prometheus() -> Iterator[Answers]:
    answers = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            query = form["query"][0]
            answers.asked.append((query, form["time"][0], self.headers.get("Authorization", "")))
            body = answers.body(query)
            encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(answers.status)
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    answers.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield answers
    server.shutdown()
    thread.join()
    server.server_close()


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as opened:
        return list(csv.DictReader(opened))


def test_traffic_of_a_topic_is_divided_as_its_records_are(prometheus: Answers, tmp_path: Path) -> None:
    into = tmp_path / "loads.csv"
    printed = regent("loads", "--prometheus", prometheus.url, "--into", into)
    found = rows(into)
    assert [(row["topic"], row["partition"], row["size_bytes"]) for row in found] == [
        ("a", "0", "100"),
        ("a", "1", "100"),
        ("a", "2", "100"),
    ]
    assert [float(row["bytes_in_per_s"]) for row in found] == [60.0, 30.0, 0.0]
    assert {row["bytes_out_per_s"] for row in found} == {""}
    assert "1 topics have traffic and no partition of known size, and are left out: gone" in unwrapped(printed.stderr)


def test_traffic_is_divided_equally_where_records_are_not_known(prometheus: Answers, tmp_path: Path) -> None:
    into = tmp_path / "loads.jsonl"
    regent("loads", "--prometheus", prometheus.url, "--into", into, "--records-query", "")
    found = [json.loads(line) for line in into.read_text().splitlines()]
    assert [row["bytes_in_per_s"] for row in found] == [30.0, 30.0, 30.0]
    assert all("bytes_out_per_s" not in row for row in found)


def test_moments_of_the_past_have_a_row_for_each_partition(prometheus: Answers, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    into = tmp_path / "loads.csv"
    words = ["--since", "2h", "--step", "30m", "--token-file", tmp_path / "token"]
    [found] = items("loads", "--prometheus", prometheus.url, "--into", into, *words)
    assert (found["moments"], found["rows"], found["partitions"]) == (5, 15, 3)
    moments = sorted({int(row["time_ms"]) for row in rows(into)})
    assert [after - before for before, after in pairwise(moments)] == [1_800_000] * 4
    assert {int(moment) * 1000 for _, moment, _ in prometheus.asked} == set(moments)
    assert {token for _, _, token in prometheus.asked} == {"Bearer secret"}


@pytest.mark.parametrize(
    ("status", "body", "said", "code"),
    [
        (400, {"status": "error", "error": "parse error at 3"}, "refuses max by", Exit.FAILED),
        (200, {"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}, "a scalar", Exit.USAGE),
        (200, b"<html>", "does not respond as Prometheus does", Exit.FAILED),
        (401, b"", "denies access (401)", Exit.NOT_AUTHORISED),
        (200, {"status": "success", "data": {"resultType": "vector", "result": []}}, "no partitions", Exit.FAILED),
    ],
)
def test_an_answer_that_cannot_be_used_is_a_sentence_and_leaves_no_file(
    prometheus: Answers, tmp_path: Path, status: int, body: Any, said: str, code: Exit
) -> None:
    prometheus.status, prometheus.body = status, lambda _: body
    printed = regent("loads", "--prometheus", prometheus.url, "--into", tmp_path / "loads.csv", code=code)
    assert said in unwrapped(printed.stderr)
    assert list(tmp_path.iterdir()) == []


def test_a_large_answer_is_refused(prometheus: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_loads, "RESPONSE_BYTES_MAX", 100)
    printed = regent("loads", "--prometheus", prometheus.url, "--into", tmp_path / "loads.csv", code=Exit.FAILED)
    assert "gives more than 100 bytes" in unwrapped(printed.stderr)


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("--prometheus", "here:9090"), "is no address", Exit.USAGE),
        (("--prometheus", "http://127.0.0.1:1"), "is not reachable", Exit.UNREACHABLE),
        (("--prometheus", "http://h", "--since", "soon"), "--since soon is no time", Exit.USAGE),
        (("--prometheus", "http://h", "--step", "0s"), "--step 0s is no length", Exit.USAGE),
        (("--prometheus", "http://h", "--since", "300d", "--step", "1h"), "moments are more than 2,000", Exit.USAGE),
        (("--prometheus", "http://h", "--since", "2000-01-01", "--step", "1s"), "more than 2,000", Exit.USAGE),
        (("--prometheus", "http://h", "--step", "99999999999d"), "--step 99999999999d is no length", Exit.USAGE),
        (("--prometheus", "http://h", "--since", "2999-01-01"), "is in the future", Exit.USAGE),
        (("--prometheus", "http://h", "--token-file", "/nowhere"), "--token-file /nowhere cannot be read", Exit.USAGE),
    ],
)
def test_wrong_words_are_told(tmp_path: Path, words: tuple[str, ...], said: str, code: Exit) -> None:
    printed = regent("loads", "--into", tmp_path / "loads.csv", *words, code=code)
    assert said in unwrapped(printed.stderr)
