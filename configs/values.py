"""Declares keys of settings and validates values beyond their types.

A validator raises ``ValueError`` with the rest of a sentence that begins with the key and its value.
"""

from __future__ import annotations

import ipaddress
import json
import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

REQUIRED: Final[Any] = ...
"""Default of a key that has none."""


def key(
    default: Any,
    description: str,
    *,
    sample: Any = None,
    remedy: str = "",
    live: bool = False,
    environment_only: bool = False,
    ge: float | None = None,
    le: float | None = None,
) -> Any:
    """Declares a settings key.

    ``sample`` is the value that the example shows where there is no default; ``remedy`` is the advice of an error
    beyond the limits. ``live`` marks a key that a running daemon applies on SIGHUP, ``environment_only`` a secret.
    """
    extra = {"sample": sample, "remedy": remedy, "live": live, "environment_only": environment_only}
    return Field(default, description=description, json_schema_extra=extra, ge=ge, le=le)


_LABEL: Final = r"[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*\.?")
_SERVER = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:/,\s]+)(:(?P<port>\d{1,5}))?")
_IBP = re.compile(r"(0\.\d+\.\d+|[1-9]\d*\.\d+)(-IV\d+)?")
_LISTENER = re.compile(r"[A-Za-z0-9_.-]{1,249}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_IDENTITIES: Final = {
    "digest": re.compile(r"[^:\s]+:[A-Za-z0-9+/]{27}="),
    "sasl": re.compile(r"\S+"),
    "x509": re.compile(r".+"),
    "world": re.compile(r"anyone"),
}
"""Ids of ZooKeeper's schemes as ACLs have them; that of ``digest`` ends with the SHA-1 of ``user:password``."""
_SOCKET_PATH_BYTES_MAX: Final = 96
"""``sun_path`` of Linux holds 107 bytes; the rest is for the socket's temporary name before it is renamed."""


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _host(value: str) -> str:
    looks_numeric = re.fullmatch(r"[0-9.]+", value) is not None
    if not _is_address(value) and (looks_numeric or not _HOST.fullmatch(value)):
        raise ValueError("is neither a host name nor an IP address")
    return value


def _advertised_host(value: str) -> str:
    _host(value)
    if _is_address(value) and ipaddress.ip_address(value).is_unspecified:
        raise ValueError("is the address of every interface, to which no broker can connect")
    return value


def _connect(value: str) -> str:
    servers, slash, chroot = value.partition("/")
    for server in servers.split(","):
        found = _SERVER.fullmatch(server.strip())
        if not found:
            raise ValueError(f"contains {server!r}, which is not host:port")
        _host(found["host"].strip("[]"))
        if found["port"] and not 1 <= int(found["port"]) <= 65535:
            raise ValueError(f"contains {server!r}, whose port is not from 1 to 65535")
    if slash and (not chroot or chroot.endswith("/") or "//" in value):
        raise ValueError(f"ends in the path {slash + chroot!r}, which has an empty part")
    return value


class Address(NamedTuple):
    """A host and port to listen on. Port 0 is any free one."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """Returns whether only this machine can connect to the address."""
        return self.host == "localhost" or (_is_address(self.host) and ipaddress.ip_address(self.host).is_loopback)


def parse_address(value: str) -> Address:
    """Parses ``host:port``, with an IPv6 address in brackets; raises ``ValueError`` for anything else."""
    found = _SERVER.fullmatch(value)
    if not found or not found["port"] or int(found["port"]) > 65_535:
        raise ValueError("is not host:port with a port from 0 to 65535")
    return Address(_host(found["host"].strip("[]")), int(found["port"]))


def _optional_address(value: str) -> str:
    if value:
        parse_address(value)
    return value


def _ibp(value: str) -> str:
    if not _IBP.fullmatch(value):
        raise ValueError("is not an inter.broker.protocol.version")
    return value


def _listener_name(value: str) -> str:
    if value and not _LISTENER.fullmatch(value):
        raise ValueError("is not a listener name")
    return value.upper()


def _topic(value: str) -> str:
    if value and (not _TOPIC.fullmatch(value) or value in {".", ".."}):
        raise ValueError("is not a name of a topic")
    return value


def _bootstrap(value: str) -> str:
    for server in value.split(",") if value else ():
        found = _SERVER.fullmatch(server.strip())
        if not found or not found["port"]:
            raise ValueError(f"contains {server!r}, which is not host:port")
    return value and _connect(value)


def _named_listener(value: str) -> str:
    if not value:
        raise ValueError("is empty")
    return _listener_name(value)


def _absolute(value: Path) -> Path:
    if not value.is_absolute():
        raise ValueError("is not an absolute path")
    return value


def _command(value: object) -> object:
    """Checks a program with its arguments; a text is a list in JSON, from the environment."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError("is not a list in JSON") from None
    if not isinstance(value, list | tuple) or not value or not all(isinstance(one, str) for one in value):
        raise ValueError("is not a list of texts, the program first")
    if not Path(value[0]).is_absolute():
        raise ValueError("does not begin with the absolute path of a program")
    if any("\0" in one for one in value):
        raise ValueError("contains a NUL, which no argument may have")
    return value


def _policy_hook(value: object) -> object:
    """Checks a policy on new topics: a program with arguments, one address, or ``java`` with a class path."""
    if isinstance(value, list | tuple) and value and value[0] == "java":
        if len(value) not in (2, 3) or not all(isinstance(one, str) and one and "\0" not in one for one in value):
            raise ValueError("has not a class path, and at most a properties file, behind java")
        return value
    if isinstance(value, list | tuple) and len(value) == 1 and str(value[0]).startswith(("http://", "https://")):
        return value
    return _command(value)


def _policy_hook_text(value: object) -> object:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError("is not a list in JSON") from None
    return _policy_hook(value)


def _socket_path(value: Path) -> Path:
    if len(bytes(_absolute(value))) > _SOCKET_PATH_BYTES_MAX:
        raise ValueError(f"is longer than {_SOCKET_PATH_BYTES_MAX} bytes")
    return value


def check_digest(value: SecretStr) -> SecretStr:
    """Raises ``ValueError`` unless ``value`` is ``user:password`` on one line."""
    user, colon, password = value.get_secret_value().partition(":")
    if not (user and colon and password) or len(value.get_secret_value().split()) != 1:
        raise ValueError("is not user:password on one line")
    return value


def _zookeeper_identity(value: str) -> str:
    scheme, _, name = value.partition(":")
    if scheme not in _IDENTITIES or not name or value.strip() != value or not value.isprintable():
        raise ValueError(f"is not SCHEME:ID, with one of the schemes {', '.join(sorted(_IDENTITIES))}")
    if not _IDENTITIES[scheme].fullmatch(name):
        form = ": USER:HASH is one, not a password" if scheme == "digest" else ""
        raise ValueError(f"has an id that the scheme {scheme} does not know{form}")
    return value


Host = Annotated[str, AfterValidator(_host)]
AdvertisedHost = Annotated[str, AfterValidator(_advertised_host)]
OptionalAdvertisedHost = Annotated[str, AfterValidator(lambda value: value and _advertised_host(value))]
OptionalAddress = Annotated[str, AfterValidator(_optional_address)]
ConnectString = Annotated[str, AfterValidator(_connect)]
Ibp = Annotated[str, AfterValidator(_ibp)]
ListenerName = Annotated[str, AfterValidator(_named_listener)]
OptionalConnectString = Annotated[str, AfterValidator(_bootstrap)]
OptionalTopic = Annotated[str, AfterValidator(_topic)]
OptionalListenerName = Annotated[str, AfterValidator(_listener_name)]
Digest = Annotated[SecretStr, AfterValidator(check_digest)]
ZooKeeperIdentity = Annotated[str, AfterValidator(_zookeeper_identity)]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
Command = Annotated[tuple[str, ...], BeforeValidator(_command)]
PolicyHook = Annotated[tuple[str, ...], BeforeValidator(_policy_hook_text)]
SocketPath = Annotated[Path, AfterValidator(_socket_path)]
Level = Literal["debug", "info", "warning", "error"]
