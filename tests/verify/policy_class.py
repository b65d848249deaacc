"""Writes a Java class that implements Kafka's policies and refuses everything, because a JRE cannot compile."""

from __future__ import annotations

import struct
from pathlib import Path

NAME = "RefusesEverything"
WHY = "this cluster creates no topics and changes no configurations"

_OBJECT = "java/lang/Object"
_POLICY = "org/apache/kafka/server/policy"
_REFUSAL = "org/apache/kafka/common/errors/PolicyViolationException"
_PUBLIC, _SUPER = 0x0001, 0x0020
_CLASS_FILE_VERSION = 50
"""Java 6: the last one whose methods need no stack maps."""
_ALOAD_0, _INVOKESPECIAL, _RETURN, _NEW, _DUP, _LDC_W, _ATHROW = (
    b"\x2a",
    b"\xb7",
    b"\xb1",
    b"\xbb",
    b"\x59",
    b"\x13",
    b"\xbf",
)


class _Constants:
    """Collects the constant pool, each entry once."""

    def __init__(self) -> None:
        self.entries: dict[bytes, int] = {}

    def put(self, entry: bytes) -> bytes:
        """Returns the index of an entry in the format of the class file."""
        return struct.pack(">H", self.entries.setdefault(entry, len(self.entries) + 1))

    def text(self, text: str) -> bytes:
        return self.put(b"\1" + struct.pack(">H", len(text)) + text.encode())

    def type(self, name: str) -> bytes:
        return self.put(b"\7" + self.text(name))

    def string(self, text: str) -> bytes:
        return self.put(b"\x08" + self.text(text))

    def method(self, owner: str, name: str, signature: str) -> bytes:
        what = self.put(b"\x0c" + self.text(name) + self.text(signature))
        return self.put(b"\x0a" + self.type(owner) + what)


def class_file() -> bytes:
    """Returns the compiled class."""
    pool = _Constants()
    construct = _ALOAD_0 + _INVOKESPECIAL + pool.method(_OBJECT, "<init>", "()V") + _RETURN
    text = pool.method(_REFUSAL, "<init>", "(Ljava/lang/String;)V")
    refuse = _NEW + pool.type(_REFUSAL) + _DUP + _LDC_W + pool.string(WHY) + _INVOKESPECIAL + text + _ATHROW
    methods = [
        _method(pool, "<init>", "()V", construct),
        _method(pool, "configure", "(Ljava/util/Map;)V", _RETURN),
        _method(pool, "close", "()V", _RETURN),
        *(
            _method(pool, "validate", f"(L{_POLICY}/{policy}$RequestMetadata;)V", refuse)
            for policy in ("CreateTopicPolicy", "AlterConfigPolicy")
        ),
    ]
    implements = [pool.type(f"{_POLICY}/{policy}") for policy in ("CreateTopicPolicy", "AlterConfigPolicy")]
    head = struct.pack(">H", _PUBLIC | _SUPER) + pool.type(NAME) + pool.type(_OBJECT)
    body = head + _counted(implements) + _counted([]) + _counted(methods) + _counted([])
    constants = struct.pack(">H", len(pool.entries) + 1) + b"".join(pool.entries)
    return b"\xca\xfe\xba\xbe" + struct.pack(">HH", 0, _CLASS_FILE_VERSION) + constants + body


def _method(pool: _Constants, name: str, signature: str, code: bytes) -> bytes:
    body = struct.pack(">HHI", 3, 2, len(code)) + code + _counted([]) + _counted([])
    attribute = pool.text("Code") + struct.pack(">I", len(body)) + body
    return struct.pack(">H", _PUBLIC) + pool.text(name) + pool.text(signature) + _counted([attribute])


def _counted(items: list[bytes]) -> bytes:
    return struct.pack(">H", len(items)) + b"".join(items)


def write(folder: Path) -> Path:
    """Writes the class; the folder belongs on the class path of brokers."""
    (folder / f"{NAME}.class").write_bytes(class_file())
    return folder
