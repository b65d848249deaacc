"""Encodes rows of the catalog as znodes: their paths, and their JSON with its checksum as the last line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, get_type_hints
from urllib.parse import quote

import msgspec

from metadata_store.catalog.rows import (
    NAMES,
    HeirRow,
    MarkRow,
    ParentRow,
    PublishedRow,
    RegionRow,
    ServerRow,
    Small,
    SnapshotPartRow,
    SnapshotRow,
    TableRow,
)
from metadata_store.records import codec

VERSION: Final = 1
"""Version of the format of all rows that every release may pass over, or store anew with what it knows of them."""
HEIR_VERSION: Final = 2
"""Version of the format of a region that refers to others: a release without these would open it without its data.

It is the latest one; a daemon that finds a newer one does not begin.
"""
HEIRS: Final = "heirs"
PARENTS: Final = "parents"
BUCKET_IDS: Final = 1_000
"""Ids of one bucket: a list of a million names would be larger than ZooKeeper's ``jute.maxbuffer``."""
REGIONS: Final = "regions"


class BadRow(Exception):
    """A znode that holds no row; the text says why. ``body``: its JSON, where its checksum is right."""

    body: bytes = b""


class Newer(Exception):
    """A znode of a later release, which this daemon must not pass over; the text says why."""


class NamespaceRow(NamedTuple):
    """A namespace."""

    name: str


class BuriedRow(NamedTuple):
    """The highest incarnation of a server that was fenced. ``number``: of the latest time, see ``Bury``."""

    name: str
    incarnation: int
    number: int = 0


Row = TableRow | RegionRow | ServerRow | MarkRow | NamespaceRow | BuriedRow | Small

JSON_NAMES: Final = {"version": "table_version"}
"""Names of fields in znodes that differ, because ``version`` is that of the format."""
FIELDS: Final = {stored: field for field, stored in JSON_NAMES.items()}
"""The fields of these names."""


class _Head(msgspec.Struct):
    version: int = VERSION


_head = msgspec.json.Decoder(_Head)


class Form(NamedTuple):
    """How a kind of row is stored. ``folder``: below the root; ``names``: how many of its first fields name it.

    ``fields``: their names in a znode.
    """

    folder: str
    make: Callable[..., Row]
    names: int
    decoder: msgspec.json.Decoder[Any]
    fields: tuple[str, ...]

    def decode(self, data: bytes | None) -> Row:
        """Decodes the data of a znode; raises :class:`BadRow` and :class:`Newer`."""
        body = _unsealed(data)
        try:
            if (version := _head.decode(body).version) > HEIR_VERSION:
                raise Newer(f"format {version} is newer than this daemon's ({HEIR_VERSION}): upgrade the daemon")
            return self.make(*msgspec.structs.astuple(self.decoder.decode(body))[:-1])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            bad = BadRow(str(error))
            bad.body = body
            raise bad from error


def _form(folder: str, make: Any, names: int) -> Form:
    defaults: dict[str, Any] = make._field_defaults
    fields: list[Any] = []
    for name, hint in get_type_hints(make).items():
        field = JSON_NAMES.get(name, name), hint
        fields.append((*field, defaults[name]) if name in defaults else field)
    struct = msgspec.defstruct(make.__name__, [*fields, ("version", int, VERSION)], frozen=True, gc=False)
    return Form(folder, make, names, msgspec.json.Decoder(struct), tuple(one[0] for one in fields))


FORMS: Final = {
    TableRow: _form("tables", TableRow, 1),
    NamespaceRow: _form("namespaces", NamespaceRow, 1),
    ServerRow: _form("servers", ServerRow, 2),
    BuriedRow: _form("buried", BuriedRow, 1),
    MarkRow: _form("marks", MarkRow, 2),
    RegionRow: _form(REGIONS, RegionRow, 1),
    HeirRow: _form(HEIRS, HeirRow, NAMES[HeirRow]),
    ParentRow: _form(PARENTS, ParentRow, NAMES[ParentRow]),
    SnapshotRow: _form("snapshots", SnapshotRow, NAMES[SnapshotRow]),
    SnapshotPartRow: _form("snapshot_parts", SnapshotPartRow, NAMES[SnapshotPartRow]),
    PublishedRow: _form("published", PublishedRow, NAMES[PublishedRow]),
}
FOLDERS: Final = tuple(form.folder for kind, form in FORMS.items() if kind not in NAMES)
"""Folders that are made with the first row; those of rows that come one at a time are made with the first of these."""
_encoder = msgspec.json.Encoder()


def readable(kind: type[Row], body: bytes) -> dict[str, Any]:
    """Returns the fields of a row that is none, by name, which have their types."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        try:
            fields[name] = msgspec.convert(found[JSON_NAMES.get(name, name)], hint)
        except (msgspec.ValidationError, KeyError, TypeError):
            continue
    return fields


def encode(row: Row, version: int = VERSION) -> bytes:
    """Encodes a row. ``version``: of the format."""
    body = _encoder.encode({"version": version, **dict(zip(FORMS[type(row)].fields, row, strict=True))})
    return b"%b\n%08x" % (body, codec.checksum(body))


def path_of(row: Row) -> str:
    """Returns the path of a row below the root."""
    if isinstance(row, RegionRow):
        return region_path(row.id)
    form = FORMS[type(row)]
    return path_in(form.folder, *map(str, row[: form.names]))


def path_in(folder: str, *names: str | int) -> str:
    """Returns a path below the root; names are quoted where a path could not hold them."""
    return f"{folder}/{','.join(map(_quoted, names))}"


def bucket_of(id_: int) -> int:
    """Returns the bucket of a region."""
    return id_ // BUCKET_IDS


def bucket_path(bucket: int) -> str:
    """Returns the path of a bucket below the root."""
    return f"{REGIONS}/{bucket:07}"


def region_path(id_: int) -> str:
    """Returns the path of a region below the root."""
    return f"{REGIONS}/{id_ // BUCKET_IDS:07}/{id_:010}"


def heir_path(id_: int) -> str:
    """Returns the path of what a region refers to, below the root."""
    return f"{HEIRS}/{id_}"


def _quoted(name: str | int) -> str:
    text = quote(str(name), safe=":")
    return text if text.strip(".") else text.replace(".", "%2E")


def _unsealed(data: bytes | None) -> bytes:
    """Returns the JSON of a znode whose checksum is right; raises :class:`BadRow`."""
    body, _, seal = (data or b"").rpartition(b"\n")
    if len(seal) != codec.SEAL_DIGITS:
        raise BadRow("it has no checksum as its last line")
    if seal != b"%08x" % codec.checksum(body):
        raise BadRow(codec.DIFFERS)
    return body
