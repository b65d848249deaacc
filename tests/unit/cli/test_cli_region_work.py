"""regent regions work, tables work and published against a daemon with a real domain and two servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cli.exit_codes import Exit
from regent_agent.protocol import DATA_BYTES_MAX, VALUE_BYTES_MAX
from tests.kit.command import items, regent, unwrapped
from tests.kit.regions.daemon import COMPACT, Blocking, settings_of, world_in_thread


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Blocking]:
    """Runs the world of all tests here; each has tables of its own."""
    with world_in_thread(settings_of(tmp_path_factory.mktemp("work"))) as found:
        yield found


@pytest.fixture(autouse=True)
def socket(world: Blocking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has commands find the daemon."""
    monkeypatch.setenv("REGENT_SERVER", str(world.socket))


def created(name: str, regions: int = 1) -> list[dict[str, Any]]:
    """Creates a table, and returns its regions."""
    items("tables", "create", name, "--regions", regions, "--wait", "--timeout", 30)
    return items("regions", "list", "--table", name)


@pytest.mark.seed("S2-56")
def test_work_on_a_region_ends_with_what_its_server_says() -> None:
    [region] = created("one")
    [found] = items("regions", "work", region["id"], COMPACT, "--wait")
    assert (found["state"], found["result"]) == ("success", f"{COMPACT} of {region['id']}")
    assert found["detail"] == f"work '{COMPACT}' on region one#{region['id']}"
    [planned] = items("regions", "work", region["id"], COMPACT, "--dry-run")
    assert (planned["state"], planned["detail"]) == ("planned", f"region one#{region['id']}: work '{COMPACT}'")


def test_work_that_fails_says_so_with_the_words_of_the_server() -> None:
    [region] = created("fails")
    words = ("regions", "work", region["id"], COMPACT, "--data", "fail", "--tries", 1, "--wait")
    said = unwrapped(regent(*words, code=Exit.FAILED).stdout)
    assert f"work '{COMPACT}' on region fails#{region['id']} failed 1 times" in said
    assert "OSError: no room" in said
    [found] = items("regions", "describe", region["id"])
    assert (found["state"], found.get("procedure")) == ("OPEN", None)


def test_work_on_a_table_counts_its_regions() -> None:
    created("many", 5)
    [found] = items("tables", "work", "many", "flush", "--wait")
    assert (found["state"], found["result"]) == ("success", "5 regions")
    assert found["detail"] == "work 'flush' on 5 regions of many"


def test_work_that_servers_do_not_name_is_refused_with_their_names() -> None:
    [region] = created("lacks")
    refused = unwrapped(regent("regions", "work", region["id"], "x-index", code=Exit.REFUSED).stderr)
    assert "work 'x-index' is not done by s1,1, s2,1" in refused
    assert "start versions of them that name it among their features" in refused
    assert "is not done by" in regent("tables", "work", "lacks", "x-index", code=Exit.REFUSED).stderr
    [server] = items("servers", "describe", "s1")
    assert {COMPACT, "flush", "inherit", "publish"} <= set(server["features"])


def test_work_needs_a_region_that_is_to_be_open() -> None:
    [region] = created("shut")
    items("regions", "unassign", region["id"], "--yes", "--wait")
    assert "is CLOSED: work needs an open region" in unwrapped(
        regent("regions", "work", region["id"], "flush", code=Exit.REFUSED).stderr
    )
    items("tables", "disable", "shut", "--yes", "--wait")
    assert "table shut is disabled" in regent("tables", "work", "shut", "flush", code=Exit.REFUSED).stderr
    assert "table shut is disabled" in regent("regions", "work", region["id"], "flush", code=Exit.REFUSED).stderr
    assert "does not exist" in regent("regions", "work", 9_999_999, "flush", code=Exit.FAILED).stderr
    assert "does not exist" in regent("tables", "work", "nothing", "flush", code=Exit.FAILED).stderr


@pytest.mark.parametrize("work", ["discard", "stage", "unstage", "commit"])
def test_work_that_procedures_alone_send_is_refused(work: str) -> None:
    [region] = created(work)
    for subject in (("regions", "work", region["id"]), ("tables", "work", work)):
        refused = unwrapped(regent(*subject, work, code=Exit.USAGE).stderr)
        assert f"work '{work}' is sent by procedures of the daemon alone" in refused


def test_data_that_no_server_takes_is_refused() -> None:
    [region] = created("data")
    words = ("regions", "work", region["id"], "flush", "--data", "ä" * (DATA_BYTES_MAX // 2 + 1))
    assert f"at most {DATA_BYTES_MAX} are sent" in unwrapped(regent(*words, code=Exit.USAGE).stderr)


def test_the_nonce_of_work_is_refused_with_other_work() -> None:
    first, second = created("nonce", 2)
    items("regions", "work", first["id"], "flush", "--nonce", "w-1", "--wait")
    again = regent("regions", "work", second["id"], "flush", "--nonce", "w-1", code=Exit.REFUSED).stderr
    assert "the nonce 'w-1' is that of procedure" in unwrapped(again)


@pytest.mark.seed("S2-52")
def test_a_value_is_published_listed_and_removed(world: Blocking) -> None:
    [found] = items("published", "put", "acl", "alice=rw", "--wait", "--reason", "joined")
    assert (found["state"], found["result"], found["reason"]) == ("success", "2 servers", "joined")
    assert found["detail"] == "value acl"
    [listed] = items("published", "list")
    assert (listed["name"], listed["value"], listed["bytes"]) == ("acl", "alice=rw", 8)
    for agent in world.world.agents.values():
        assert agent.published["acl"].data == b"alice=rw"
    items("published", "put", "acl", "alice=r", "--wait")
    assert items("published", "list")[0]["number"] > listed["number"]
    late = world.call(world.world.start("s3"))
    assert late.published["acl"].data == b"alice=r"
    world.call(world.world.kill("s3"))
    items("published", "remove", "acl", "--wait")
    assert items("published", "list") == []
    assert "no value 'acl' is published" in regent("published", "remove", "acl", code=Exit.FAILED).stderr


def test_a_value_that_is_too_long_is_refused() -> None:
    words = ("published", "put", "acl", "ä" * (VALUE_BYTES_MAX // 2 + 1))
    assert f"at most {VALUE_BYTES_MAX} are published" in unwrapped(regent(*words, code=Exit.USAGE).stderr)
