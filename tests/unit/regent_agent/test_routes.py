"""The cache of routes: it holds no overlaps, and older news never replace newer ones."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from regent_agent.protocol import Route
from regent_agent.routes import RouteCache


def route(region: int, start: bytes, end: bytes, token: int = 1, server: str = "s1", table: str = "t") -> Route:
    return Route(region, table, start, end, token, server, f"{server}:7000" if server else "")


LOW, HIGH = route(1, b"", b"m"), route(2, b"m", b"")


def filled(*routes: Route, routes_max: int = 100) -> RouteCache:
    cache = RouteCache(routes_max)
    for known in routes:
        cache.put(known, 5)
    return cache


def test_a_key_has_the_route_that_contains_it() -> None:
    cache = filled(LOW, HIGH)
    assert [cache.find("t", key) for key in (b"", b"lzz", b"m", b"zz")] == [LOW, LOW, HIGH, HIGH]
    assert cache.find("another", b"a") is None


def test_a_region_that_is_gone_leaves_to_those_with_its_keys_and_to_no_newer_news() -> None:
    """The halves come in its place where both are news; a client that has located one of them keeps it."""
    gone = msgspec.structs.replace(route(2, b"m", b"", 0, ""), gone=True)
    left, right = route(3, b"m", b"t", 8), route(4, b"t", b"", 9)
    cache = filled(LOW, HIGH)
    cache.refresh([gone, left], 6)
    assert [cache.find("t", key) for key in (b"a", b"m", b"t")] == [LOW, left, None]
    cache.put(right, 7)
    cache.refresh([gone], 7)
    assert [cache.find("t", key) for key in (b"m", b"t")] == [left, right]
    newer = filled(HIGH)
    newer.refresh([gone], 4)
    assert newer.find("t", b"x") == HIGH


def test_a_gap_has_no_route() -> None:
    cache = filled(route(1, b"c", b"f"))
    assert [cache.find("t", key) for key in (b"b", b"f")] == [None, None]


def test_newer_news_replace_a_route_and_older_ones_do_not() -> None:
    cache = filled(LOW)
    moved = route(1, b"", b"m", 7, "s2")
    cache.put(moved, 6)
    cache.put(LOW, 5)
    assert cache.find("t", b"a") == moved


def test_the_halves_of_a_split_region_replace_it() -> None:
    cache = filled(LOW, HIGH)
    left, right = route(3, b"m", b"t", 8), route(4, b"t", b"", 9)
    cache.put(left, 6)
    assert cache.find("t", b"x") is None
    cache.put(right, 6)
    assert [cache.find("t", key) for key in (b"a", b"n", b"x")] == [LOW, left, right]


def test_news_of_unknown_routes_are_left_out() -> None:
    cache = filled(LOW)
    cache.refresh([HIGH, route(1, b"", b"m", 7, "s2")], 6)
    assert cache.find("t", b"z") is None
    assert len(cache) == 1


def test_only_that_route_or_an_older_one_is_doubted() -> None:
    moved = route(1, b"", b"m", 7, "s2")
    cache = filled(moved, HIGH)
    cache.doubt(LOW)
    assert cache.find("t", b"a") == moved
    cache.doubt(moved)
    assert cache.find("t", b"a") is None
    assert cache.find("t", b"a", doubted=True) == moved
    assert cache.find("t", b"m") == HIGH


def test_any_news_replace_a_route_that_is_doubted() -> None:
    for news in (LOW, route(1, b"", b"m", 7, "s2")):
        cache = filled(LOW)
        cache.doubt(LOW)
        cache.refresh([news], 0)
        assert cache.find("t", b"a") == news


def test_the_routes_that_were_not_used_for_longest_give_way() -> None:
    cache = filled(LOW, HIGH, routes_max=2)
    assert cache.find("t", b"a") == LOW
    cache.put(route(9, b"", b"", table="u"), 5)
    assert [cache.find("t", b"a"), cache.find("t", b"z")] == [LOW, None]
    assert len(cache) == 2


def test_routes_whose_changes_did_not_come_are_forgotten() -> None:
    cache = filled(LOW, route(3, b"", b"", table="u"))
    cache.put(route(4, b"", b"", table="v"), 9)
    cache.forget_unfollowed(["t"], 8)
    assert sorted(cache.tables()) == ["t", "v"]


def test_any_news_replace_outdated_routes() -> None:
    cache = filled(LOW)
    cache.outdate()
    moved = route(1, b"", b"m", 7, "s2")
    cache.put(moved, 0)
    assert cache.find("t", b"a") == moved


def test_a_table_is_forgotten() -> None:
    cache = filled(LOW, HIGH, route(3, b"", b"", table="u"))
    cache.forget_table("t")
    cache.forget_table("t")
    assert cache.tables() == ["u"]


BOUNDS = st.sampled_from([b"", b"b", b"d", b"f", b"h"])


@given(st.lists(st.tuples(BOUNDS, BOUNDS, st.integers(0, 5), st.integers(1, 9)), max_size=12))
def test_routes_never_overlap_and_each_key_has_the_latest_news(puts: list[tuple[bytes, bytes, int, int]]) -> None:
    cache, model = RouteCache(4), list[tuple[Route, int]]()
    for start, end, change, token in puts:
        if end and end <= start:
            continue
        news = route(token, start, end, token)
        cache.put(news, change)
        overlapping = [known for known in model if overlaps(known[0], news)]
        if all(known[1] <= change for known in overlapping):
            model = [known for known in model if known not in overlapping] + [(news, change)]
            model = model[-4:]
    for key in (b"", b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"z"):
        expected = [known for known, _ in model if known.start <= key and (not known.end or key < known.end)]
        assert len(expected) <= 1
        assert cache.find("t", key) == (expected[0] if expected else None)
        model.sort(key=lambda known: known[0] in expected)  # a route that is found is used


def overlaps(one: Route, other: Route) -> bool:
    return (not one.end or other.start < one.end) and (not other.end or one.start < other.end)
