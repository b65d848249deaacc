"""Declares UpdateFeatures, AlterUserScramCredentials, and the SASL exchange that the endpoint forwards and reads."""

from __future__ import annotations

from msgspec import Struct

from brokers.wire.errors import Error


class FeatureUpdate(Struct, frozen=True, gc=False):
    """The requested level of a feature.

    v0 has ``allow_downgrade``, v1 ``upgrade_type``: 1 upgrade, 2 safe downgrade, 3 unsafe downgrade.
    """

    feature: str
    max_version_level: int
    allow_downgrade: bool = False
    upgrade_type: int = 1


class UpdateFeaturesRequest(Struct, frozen=True):
    """UpdateFeatures; ``validate_only`` from v1 on."""

    timeout_ms: int
    feature_updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


class UpdatedFeature(Struct, frozen=True, gc=False):
    """The outcome for one feature."""

    feature: str
    error_code: int = Error.NONE
    error_message: str | None = None


class UpdateFeaturesResponse(Struct, frozen=True):
    """The response to UpdateFeatures."""

    results: tuple[UpdatedFeature, ...] = ()
    error_code: int = Error.NONE
    error_message: str | None = None
    throttle_time_ms: int = 0


class ScramDeletion(Struct, frozen=True, gc=False):
    """A credential to remove; ``mechanism`` 1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    name: str
    mechanism: int


class ScramUpsertion(Struct, frozen=True, gc=False):
    """A credential to set, its password salted already."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"ScramUpsertion(name={self.name!r}, mechanism={self.mechanism}, iterations={self.iterations})"


class AlterUserScramCredentialsRequest(Struct, frozen=True):
    """AlterUserScramCredentials."""

    deletions: tuple[ScramDeletion, ...]
    upsertions: tuple[ScramUpsertion, ...]


class AlteredUser(Struct, frozen=True, gc=False):
    """The outcome for one user's credentials."""

    user: str
    error_code: int = Error.NONE
    error_message: str | None = None


class AlterUserScramCredentialsResponse(Struct, frozen=True):
    """The response to AlterUserScramCredentials."""

    results: tuple[AlteredUser, ...]
    throttle_time_ms: int = 0


class SaslHandshakeRequest(Struct, frozen=True):
    """The mechanism that the client requests.

    Version 0 is not offered: bytes without any header follow it, indistinguishable from requests.
    """

    mechanism: str


class SaslHandshakeResponse(Struct, frozen=True):
    """The broker's error code and its mechanisms."""

    error_code: int
    mechanisms: tuple[str, ...]


class SaslAuthenticateRequest(Struct, frozen=True):
    """A step of the client."""

    auth_bytes: bytes

    def __repr__(self) -> str:
        return "SaslAuthenticateRequest()"


class SaslAuthenticateResponse(Struct, frozen=True):
    """A step of the broker. ``session_lifetime_ms`` 0: for as long as the connection lives (v1 on; KIP-368)."""

    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int = 0

    def __repr__(self) -> str:
        return f"SaslAuthenticateResponse(error_code={self.error_code})"
