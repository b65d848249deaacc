"""Formats, bounds and reloads the log: a sentence a line, JSON without a terminal, no locals, no wait for a reader."""

from __future__ import annotations

import io
import json
import logging
import os
import threading
from collections.abc import Iterator

import pytest

from cli.daemon_process import reloaded
from configs.sections import LogSettings
from configs.settings import Settings
from controller.process import logs
from controller.process.logs import LIBRARIES, STATE_CHANGE, logging_to, set_levels
from metadata_store.kazoo_adapter.library_log import library_log
from tests.kit.kafka.role import changed

log = logging.getLogger("regent.test")
SETTINGS = Settings.model_validate({"zookeeper": {"connect": "zk1"}, "listener": {"advertised_host": "regent1"}})


@pytest.fixture(autouse=True)
def levels_as_before() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in (None, "regent", STATE_CHANGE, *LIBRARIES)]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def logged(settings: LogSettings, stream: io.StringIO | None = None) -> str:
    stream = stream or io.StringIO()
    with logging_to(settings, stream):
        log.info("took the role with epoch %d because %s", 5, "nobody held it", extra={"epoch": 5, "name_": "Jörg"})
        log.debug("quiet")
    return stream.getvalue()


def test_a_line_is_json_without_a_terminal() -> None:
    text = logged(LogSettings())
    assert '"name_": "Jörg"' in text, "not escaped"
    line = json.loads(text)
    assert line["event"] == "took the role with epoch 5 because nobody held it"
    assert (line["level"], line["logger"], line["epoch"]) == ("info", "regent.test", 5)
    assert line["timestamp"].endswith("Z")
    assert list(line)[:4] == ["timestamp", "level", "logger", "event"]


def test_a_line_is_text_on_a_terminal_with_colors_unless_unwanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = logged(LogSettings(), Terminal())
    assert "took the role with epoch 5 because nobody held it" in text
    assert "\x1b" not in text
    assert not text.startswith("{")
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b" in logged(LogSettings(), Terminal())


@pytest.mark.parametrize(("chosen", "as_json"), [("json", True), ("console", False)])
def test_a_chosen_format_holds_on_every_stream(chosen: str, as_json: bool) -> None:
    settings = LogSettings.model_validate({"format": chosen})
    for stream in (io.StringIO(), Terminal()):
        assert logged(settings, stream).startswith("{") == as_json


def test_a_library_line_that_repeats_is_logged_once_a_minute_with_the_number_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [1e9]
    monkeypatch.setattr("metadata_store.kazoo_adapter.library_log.time.monotonic", lambda: now_s[0])
    stream = io.StringIO()
    with logging_to(LogSettings(format="console"), stream):
        for second in (0, 1, 2, 61):
            now_s[0] = 1e9 + second
            library_log().warning("Connection dropped: %s", "refused")
    found = [line for line in stream.getvalue().splitlines() if "dropped" in line]
    assert len(found) == 2
    assert "(2 more times since)" in found[1]


def test_lines_of_a_process_that_shares_the_stream_carry_its_name_and_pid() -> None:
    stream = io.StringIO()
    with logging_to(LogSettings(format="json"), stream, process="admin-endpoint"):
        log.info("listens")
    found = json.loads(stream.getvalue())
    assert (found["process"], found["pid"]) == ("admin-endpoint", os.getpid())


@pytest.mark.parametrize("form", ["json", "console"])
def test_tracebacks_show_no_locals(form: str) -> None:
    stream = io.StringIO()
    with logging_to(LogSettings.model_validate({"format": form}), stream):
        password = "s3cret"
        try:
            raise ValueError(f"length {len(password)}")
        except ValueError:
            log.exception("broke")
    text = stream.getvalue()
    assert "ValueError: length 6" in text
    assert "test_logs.py" in text
    assert "s3cret" not in text


def test_levels_differ_for_the_daemon_state_changes_and_libraries() -> None:
    stream = io.StringIO()
    with logging_to(LogSettings(level="info", state_change_level="error", format="console"), stream):
        logging.getLogger(STATE_CHANGE).warning("a partition moved")
        logging.getLogger("kazoo.client").info("library chatter")
        logging.getLogger("regent.metadata_store.kazoo").info("chatter under our name")
        logging.getLogger("kazoo.client").warning("library warning")
        set_levels(LogSettings(level="debug", state_change_level="debug"))
        log.debug("after the reload")
        logging.getLogger(STATE_CHANGE).debug("now it shows")
        logging.getLogger("kazoo.client").info("library detail")
    text = stream.getvalue()
    assert "a partition moved" not in text
    assert "chatter" not in text
    for sentence in ("library warning", "after the reload", "now it shows", "library detail"):
        assert sentence in text


def test_a_line_keeps_the_values_of_its_call() -> None:
    stream = io.StringIO()
    isr = [1, 2, 3]
    with logging_to(LogSettings(), stream):
        log.info("isr is %s", isr)
        isr.clear()
    assert json.loads(stream.getvalue())["event"] == "isr is [1, 2, 3]"


def test_lines_that_a_stalled_reader_leaves_are_dropped_without_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "QUEUED_LINES_MAX", 5)
    monkeypatch.setattr(logs, "FLUSH_S_MAX", 0.05)
    monkeypatch.setattr(logging, "raiseExceptions", False)
    reading, writing = os.pipe()
    finished = threading.Event()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "w") as pipe:

        def life() -> None:
            with logging_to(LogSettings(), pipe) as queued:
                for _ in range(100):
                    log.info("x" * 4_096)
                assert queued.dropped >= 50
            finished.set()

        threading.Thread(target=life, daemon=True).start()
        assert finished.wait(60)
        os.set_blocking(reading, False)
        while reader.read(65_536):
            pass


def test_a_reload_applies_log_levels_and_repeats_what_needs_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wanted = changed(changed(SETTINGS, "log", level="debug", format="json"), "controller", drain_timeout_ms=4_321)
    restart = [
        ("WARNING", "controller.drain_timeout_ms stays 10000 until a restart (the new value is 4321)"),
        ("WARNING", 'log.format stays "auto" until a restart (the new value is "json")'),
    ]
    found = SETTINGS
    for live in ([("INFO", 'log.level is "debug" from now on (it was "info")')], [], []):
        caplog.clear()
        found = reloaded(found, wanted)
        assert sorted((r.levelname, r.getMessage()) for r in caplog.records) == sorted(live + restart)
        assert logging.getLogger("regent").level == logging.DEBUG
        assert found == changed(SETTINGS, "log", level="debug")
    caplog.clear()
    assert reloaded(found, found) == found
    assert caplog.messages == ["the settings were read again; nothing differs"]
