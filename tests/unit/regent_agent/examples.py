"""One message of each kind with all fields, and one with the required fields only; their bytes are in golden.txt.

``python -m tests.unit.regent_agent.examples`` writes the file anew. Bytes that are there must never change:
others speak them.
"""

from __future__ import annotations

from pathlib import Path

from regent_agent.codec import encode
from regent_agent.protocol import (
    CLOSED,
    DEAD,
    DONE,
    FAILED_OPEN,
    OPENED,
    VERSION,
    Accepted,
    Changes,
    Close,
    Follow,
    Hello,
    Independent,
    Leave,
    Left,
    ListRoutes,
    Loads,
    Locate,
    Open,
    Operations,
    Owned,
    Poll,
    Published,
    Refused,
    RegionLoad,
    Regions,
    Register,
    Registered,
    Report,
    Request,
    Response,
    Result,
    Route,
    Routes,
    Source,
    Task,
    Welcome,
    Work,
)

GOLDEN = Path(__file__).parent / "golden.txt"
FORMER = Path(__file__).parent / "former.txt"
"""Frames of an older version, which is out there: they never change."""
HEAD = "# Frames of the protocol: name of an example, and its bytes in hexadecimal digits with the length first.\n"

LOW = Route(17, "shop:orders", b"", b"\x80", 4_711, "s1", "s1:7000")
NOWHERE = Route(18, "shop:orders", b"\x80", b"")
GONE = Route(19, "shop:orders", b"", b"\x80", gone=True)
HALF = Open(4_717, 20, 4_717, "shop:orders", b"", b"\x40", sources=[Source(19, b"", b"\x80", 4_711, 42, "nightly")])
OPEN = Open(4_711, 17, 4_711, "shop:orders", b"", b"\x80", 41, {"ttl_s": "60"})

REQUESTS: dict[str, Request] = {
    "hello": Hello(VERSION, "s3cret", b"0123456789abcdef", seen_epoch=3, seen_token=4711),
    "hello-short": Hello(VERSION),
    "register": Register("s1", 1_700_000_000_000_000, "s1:7000", "2.1", [Owned(17, 4_711)], ["inherit", "flush"]),
    "register-short": Register("s1", 5, "s1:7000"),
    "poll": Poll("s1", 5, 3, 9, {"requests": 120}),
    "poll-short": Poll("s1", 5, 3, 0),
    "report": Report(
        "s1",
        5,
        3,
        [
            Result(4_711, OPENED, 42),
            Result(4_712, FAILED_OPEN, text="OSError: disk"),
            Result(4_713, CLOSED),
            Result(4_714, DONE, parts=["s9/1", "s9/2"]),
            Result(4_718, DONE, data=b"\x40"),
        ],
        9,
    ),
    "report-short": Report("s1", 5, 3, [Result(4_713, CLOSED)]),
    "regions": Regions("s1", 5, 3, [Owned(17, 4_711), Owned(2**63 - 1, 2**63 - 1)]),
    "independent": Independent("s1", 5, 3, [Owned(20, 4_717)]),
    "loads": Loads("s1", 5, 3, [RegionLoad(17, 10, 20, 1 << 30, 4), RegionLoad(20)]),
    "leave": Leave("s1", 5, 3),
    "locate": Locate("shop:orders", b"\x00\xff"),
    "list_routes": ListRoutes("shop:orders", b"\x80", 10),
    "list_routes-short": ListRoutes("shop:orders"),
    "follow": Follow(3, 8, ["shop:orders"]),
    "follow-short": Follow(3, 8),
}
RESPONSES: dict[str, Response] = {
    "welcome": Welcome(VERSION, 3, "regent-1"),
    "welcome-short": Welcome(VERSION, 3),
    "registered": Registered(3, 30_000, 10_000, False, "log", ["independent", "loads"], [Published("acl", 2, b"7")]),
    "registered-short": Registered(3, 30_000, 10_000),
    "operations": Operations(
        3,
        9,
        [
            OPEN,
            Open(4_715, 18, 4_715, "shop:orders", b"\x80", b""),
            Close(4_713, 17, 4_711),
            Task(4_714, "fence", "s9", 4),
            Task(4_716, "split", "s9", 4, "s9/1"),
            HALF,
            Work(4_718, "split_key", 17, 4_711, "shop:orders"),
            Work(4_719, "stage", data=b"acl"),
        ],
        True,
    ),
    "operations-short": Operations(3, 9),
    "accepted": Accepted([4_711]),
    "accepted-short": Accepted(),
    "left": Left(2),
    "routes": Routes(3, 8, [LOW, NOWHERE]),
    "changes": Changes(3, 9, [LOW, GONE], True),
    "changes-short": Changes(3, 9),
    "refused": Refused(DEAD, "its log is fenced: start it again"),
    "refused-above": Refused(DEAD, "s1,5 is not above 7", 7),
}
PROOF = bytes(range(16))
START = 1_764_300_000_000_000
CONVERSATION: dict[str, Request | Response] = {
    "talk-01-polls": Hello(VERSION, "0123456789abcdef", PROOF),
    "talk-02-polls": Welcome(VERSION, 7, "1"),
    "talk-03-polls": Register("s1", START, "s1:7000", "2.1"),
    "talk-04-polls": Registered(7, 10_000, 2_500, True, "lease"),
    "talk-05-polls": Poll("s1", START, 7, 0),
    "talk-06-polls": Operations(7, 1, [Open(1_002, 1_001, 1_002, "users", b"", b"m")]),
    "talk-07-polls": Poll("s1", START, 7, 1, {"requests": 120}),
    "talk-08-reports": Hello(VERSION, "0123456789abcdef", PROOF),
    "talk-09-reports": Welcome(VERSION, 7, "1"),
    "talk-10-reports": Report("s1", START, 7, [Result(1_002, OPENED, 1)], 1),
    "talk-11-reports": Accepted(),
    "talk-12-polls": Operations(7, 2),
    "talk-13-polls": Poll("s1", START, 7, 2, {"requests": 121}),
    "talk-14-reports": Leave("s1", START, 7),
    "talk-15-reports": Left(1),
    "talk-16-polls": Operations(7, 3, [Close(1_009, 1_001, 1_002)]),
    "talk-17-polls": Poll("s1", START, 7, 3, {"requests": 0}),
    "talk-18-reports": Report("s1", START, 7, [Result(1_009, CLOSED)], 3),
    "talk-19-reports": Accepted(),
    "talk-20-reports": Leave("s1", START, 7),
    "talk-21-reports": Left(0),
}
"""A server registers, opens a region, and leaves; the page of the protocol shows it."""
REQUESTS |= {name: one for name, one in CONVERSATION.items() if isinstance(one, Request)}
RESPONSES |= {name: one for name, one in CONVERSATION.items() if isinstance(one, Response)}


def golden() -> str:
    """Returns the file that the examples make."""
    lines = [f"{name} {encode(message).hex()}\n" for name, message in {**REQUESTS, **RESPONSES}.items()]
    return HEAD + "".join(lines)


if __name__ == "__main__":
    GOLDEN.write_text(golden(), encoding="utf-8")
