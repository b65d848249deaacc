"""Checks the relations of settings. Each rule names its keys, the values found and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from configs.all_sections import AllSections
from configs.values import Address, parse_address

GENERATED_IDS_MARGIN: Final = 5_000
"""Least distance of ``controller.id`` above the first id that a broker generates for itself."""

BY_SYSTEMD: Final = "systemd passes it to the daemon, and a command by hand reads it there as root"


class Broken(NamedTuple):
    """The reason why a rule is broken, which continues a sentence that begins with key and value, and the remedy."""

    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A relation between ``keys``; an error is reported under the first of them."""

    keys: tuple[str, ...]
    check: Callable[[AllSections], Broken | None]


def _loop_stall(s: AllSections) -> Broken | None:
    half = s.zookeeper.session_timeout_ms // 2
    if s.controller.loop_stall_ms_max < half:
        return None
    return Broken(
        f"is not below half of zookeeper.session_timeout_ms ({half} ms): a frozen daemon would keep its session",
        f"give at most {half - 1}, or a zookeeper.session_timeout_ms above {2 * s.controller.loop_stall_ms_max}",
    )


def _id_beyond_generated(s: AllSections) -> Broken | None:
    least = s.brokers.reserved_broker_max_id + GENERATED_IDS_MARGIN
    if s.controller.id > least:
        return None
    return Broken(
        f"is among the ids that brokers generate for themselves, from {s.brokers.reserved_broker_max_id + 1} up "
        "(brokers.reserved_broker_max_id + 1)",
        f"give an id above {least}",
    )


def _hold_needs_digest(s: AllSections) -> Broken | None:
    if s.controller.on_absence == "brokers" or s.zookeeper.digest or s.zookeeper.digest_file:
        return None
    return Broken(
        "locks brokers out of the election by an ACL, which needs credentials, and none are set",
        f"write one line user:password into /etc/credstore/zookeeper-digest ({BY_SYSTEMD}), or name such a file by "
        'zookeeper.digest_file, or set on_absence = "brokers"',
    )


def _set_acl_needs_identity(s: AllSections) -> Broken | None:
    zookeeper = s.zookeeper
    given = (zookeeper.sasl, zookeeper.sasl_file, zookeeper.digest, zookeeper.digest_file, zookeeper.certificate_file)
    if not zookeeper.set_acl or any(given):
        return None
    return Broken(
        "closes the daemon's znodes to all but the brokers' identity, and no key sets that identity",
        "set zookeeper.sasl_file to the user of the section Client in the brokers' JAAS file, or write that "
        f"user:password into /etc/credstore/zookeeper-sasl ({BY_SYSTEMD}), or set zookeeper.certificate_file to a "
        "certificate with the brokers' subject",
    )


def _open_regions(s: AllSections) -> Broken | None:
    regions = s.regions
    if not regions.enabled or regions.secret_file or Address(s.regions_host, regions.port).loopback:
        return None
    return Broken(
        "serves other machines without a secret, so each of them could register servers and get all regions",
        "set regions.secret_file, or remove this key: without a secret the daemon listens on 127.0.0.1",
    )


def _nodes_need_zookeeper(s: AllSections) -> Broken | None:
    if s.regions.transport == "poll" or s.regions.store == "zookeeper":
        return None
    return Broken(
        'is "zookeeper", and regions.store is "sqlite": there is no ZooKeeper for the znodes',
        'set regions.store to "zookeeper", or this key to "poll"',
    )


def _servers_identity_needs_daemons(s: AllSections) -> Broken | None:
    zookeeper = s.zookeeper
    given = (zookeeper.sasl, zookeeper.sasl_file, zookeeper.digest, zookeeper.digest_file, zookeeper.set_acl)
    if s.regions.servers_identity is None or any(given):
        return None
    return Broken(
        "gives servers rights, and the daemon has no identity of its own: any client may write the domain's znodes",
        f"write one line user:password into /etc/credstore/zookeeper-digest ({BY_SYSTEMD}), or name such a file by "
        "zookeeper.digest_file, or remove this key",
    )


def _clients_secret_needs_servers(s: AllSections) -> Broken | None:
    if s.regions.clients_secret_file is None or s.regions.secret_file is not None:
        return None
    return Broken(
        "is the secret of clients alone, and servers need none: a client could register as a server",
        "set regions.secret_file, too",
    )


def _frame_within_idle(s: AllSections) -> Broken | None:
    if s.listener.frame_timeout_ms <= s.listener.idle_timeout_ms:
        return None
    return Broken(
        f"is above listener.idle_timeout_ms ({s.listener.idle_timeout_ms} ms), which would close the connection first",
        "give a smaller value, or a larger listener.idle_timeout_ms",
    )


def _admin_frame_within_idle(s: AllSections) -> Broken | None:
    if s.admin.frame_timeout_ms <= s.admin.idle_timeout_ms:
        return None
    return Broken(
        f"is above admin.idle_timeout_ms ({s.admin.idle_timeout_ms} ms), which would close the connection first",
        "give a smaller value, or a larger admin.idle_timeout_ms",
    )


def _admin_fits_buffer(s: AllSections) -> Broken | None:
    if s.admin.frame_bytes_max <= s.admin.buffered_bytes_max:
        return None
    return Broken(
        f"is above admin.buffered_bytes_max ({s.admin.buffered_bytes_max} bytes): such a request could never arrive",
        "give a smaller value, or a larger admin.buffered_bytes_max",
    )


def _admin_fixed_port_advertised(s: AllSections) -> Broken | None:
    if s.admin.port or not s.admin.advertised_port:
        return None
    return Broken(
        "is set while admin.port is 0 (any free port), so clients would learn a port without a listener",
        "set admin.port, or leave advertised_port at 0",
    )


def _backoffs(s: AllSections) -> Broken | None:
    if s.brokers.retry_backoff_ms <= s.brokers.retry_backoff_ms_max:
        return None
    return Broken(
        f"is above brokers.retry_backoff_ms_max ({s.brokers.retry_backoff_ms_max} ms)",
        "give a smaller value, or a larger brokers.retry_backoff_ms_max",
    )


def _listeners_differ(s: AllSections) -> Broken | None:
    if s.brokers.control_plane_listener != s.brokers.inter_broker_listener:
        return None
    return Broken(
        "is the same as brokers.inter_broker_listener, which Kafka does not allow",
        "leave it empty where the brokers have no control.plane.listener.name",
    )


def _fixed_port_advertised(s: AllSections) -> Broken | None:
    if s.listener.port or not s.listener.advertised_port:
        return None
    return Broken(
        "is set while listener.port is 0 (any free port), so brokers would learn a port without a listener",
        "set listener.port, or leave advertised_port at 0",
    )


def _journal_files(s: AllSections) -> Broken | None:
    if 2 * s.journal.segment_bytes <= s.journal.bytes_max:
        return None
    return Broken(
        f"has no room for two files of journal.segment_bytes ({s.journal.segment_bytes})",
        "give a smaller journal.segment_bytes, or a larger journal.bytes_max",
    )


def _topic_needs_journal(s: AllSections) -> Broken | None:
    if s.journal.enabled or not s.journal.topic:
        return None
    return Broken("gets the rows of the journal, which is switched off", "set journal.enabled, or leave the topic out")


def _sasl_needs_user(s: AllSections) -> Broken | None:
    if not s.security.protocol.startswith("SASL") or s.security.sasl_file:
        return None
    return Broken(
        "needs the daemon's user at the brokers, and none is set",
        "set security.sasl_file (one line user:password)",
    )


def _tls_needs_certificate(s: AllSections) -> Broken | None:
    if not s.security.protocol.endswith("SSL") or s.security.certificate_file:
        return None
    return Broken(
        "needs a certificate for the daemon's own listener, and none is set",
        "set security.certificate_file, and security.key_file where the key is in a file of its own",
    )


def _admin_tls_needs_certificate(s: AllSections) -> Broken | None:
    if not s.admin.tls or s.admin.certificate_file or s.security.certificate_file:
        return None
    return Broken("needs a certificate, and none is set", "set admin.certificate_file, or security.certificate_file")


def _client_certificates_need_authority(s: AllSections) -> Broken | None:
    security = s.security
    if not security.protocol.endswith("SSL") or security.client_certificates == "none" or security.ca_file:
        return None
    return Broken(
        "needs the authorities that sign the brokers' certificates, and none are set",
        'set security.ca_file, or security.client_certificates = "none" with SASL_SSL',
    )


def _tls_alone_needs_client_certificates(s: AllSections) -> Broken | None:
    if s.security.protocol != "SSL" or s.security.client_certificates != "none":
        return None
    return Broken(
        "accepts every connection as a broker: SSL authenticates no peer without certificates",
        "use SASL_SSL, or give the brokers a keystore and leave client_certificates out",
    )


def _http_needs_credentials(s: AllSections) -> Broken | None:
    http = s.http
    if not http.address or parse_address(http.address).loopback:
        return None
    if http.certificate_file and (http.token_file or http.client_ca_file):
        return None
    return Broken(
        "is reachable from other machines, which needs TLS and credentials",
        "set http.certificate_file and one of http.token_file and http.client_ca_file, or give a loopback address such "
        "as 127.0.0.1:9097",
    )


def _http_clients_need_tls(s: AllSections) -> Broken | None:
    if not s.http.client_ca_file or s.http.certificate_file:
        return None
    return Broken(
        "needs TLS, because clients present certificates in its handshake",
        "set http.certificate_file, or use http.token_file instead",
    )


def _regions_frame_within_idle(s: AllSections) -> Broken | None:
    if s.regions.frame_timeout_ms <= s.regions.idle_timeout_ms:
        return None
    return Broken(
        f"is above regions.idle_timeout_ms ({s.regions.idle_timeout_ms} ms), which would close the connection first",
        "give a smaller value, or a larger regions.idle_timeout_ms",
    )


def _regions_lease_within_idle(s: AllSections) -> Broken | None:
    if s.regions.lease_ms < s.regions.idle_timeout_ms:
        return None
    return Broken(
        f"is not below regions.idle_timeout_ms ({s.regions.idle_timeout_ms} ms), which would close connections of "
        "servers between two polls",
        "give a smaller value, or a larger regions.idle_timeout_ms",
    )


def _regions_address_connections(s: AllSections) -> Broken | None:
    if s.regions.connections_per_address_max <= s.regions.connections_max:
        return None
    return Broken(
        f"is above regions.connections_max ({s.regions.connections_max}) and has no effect",
        "give a smaller value, or a larger regions.connections_max",
    )


def _regions_merge_below_half(s: AllSections) -> Broken | None:
    merge, split = s.regions.merge_size_bytes, s.regions.split_size_bytes
    if not split or 2 * merge <= split:
        return None
    return Broken(
        f"is above half of regions.split_size_bytes ({split} bytes): what is merged would soon be split again",
        f"give at most {split // 2}, or regions.split_size_bytes of {2 * merge} or more",
    )


def _regions_fence_needs_command(s: AllSections) -> Broken | None:
    if s.regions.fence != "command" or s.regions.fence_command:
        return None
    return Broken(
        "needs a command that fences a crashed server, and none is set",
        'set regions.fence_command, or regions.fence = "lease" or "log"',
    )


RULES: Final = (
    Rule(("controller.loop_stall_ms_max", "zookeeper.session_timeout_ms"), _loop_stall),
    Rule(("controller.id", "brokers.reserved_broker_max_id"), _id_beyond_generated),
    Rule(("controller.on_absence", "zookeeper.digest", "zookeeper.digest_file"), _hold_needs_digest),
    Rule(("zookeeper.set_acl", "zookeeper.sasl", "zookeeper.sasl_file"), _set_acl_needs_identity),
    Rule(("regions.host", "regions.secret_file"), _open_regions),
    Rule(("regions.clients_secret_file", "regions.secret_file"), _clients_secret_needs_servers),
    Rule(("regions.transport", "regions.store"), _nodes_need_zookeeper),
    Rule(("regions.servers_identity", "zookeeper.digest", "zookeeper.digest_file"), _servers_identity_needs_daemons),
    Rule(("listener.frame_timeout_ms", "listener.idle_timeout_ms"), _frame_within_idle),
    Rule(("admin.frame_timeout_ms", "admin.idle_timeout_ms"), _admin_frame_within_idle),
    Rule(("admin.frame_bytes_max", "admin.buffered_bytes_max"), _admin_fits_buffer),
    Rule(("admin.advertised_port", "admin.port"), _admin_fixed_port_advertised),
    Rule(("brokers.retry_backoff_ms", "brokers.retry_backoff_ms_max"), _backoffs),
    Rule(("brokers.control_plane_listener", "brokers.inter_broker_listener"), _listeners_differ),
    Rule(("listener.advertised_port", "listener.port"), _fixed_port_advertised),
    Rule(("security.protocol", "security.sasl_file"), _sasl_needs_user),
    Rule(("security.protocol", "security.certificate_file"), _tls_needs_certificate),
    Rule(("security.client_certificates", "security.ca_file"), _client_certificates_need_authority),
    Rule(("security.client_certificates", "security.protocol"), _tls_alone_needs_client_certificates),
    Rule(("admin.tls", "admin.certificate_file"), _admin_tls_needs_certificate),
    Rule(("journal.bytes_max", "journal.segment_bytes"), _journal_files),
    Rule(("journal.topic", "journal.enabled"), _topic_needs_journal),
    Rule(("http.address", "http.certificate_file", "http.token_file", "http.client_ca_file"), _http_needs_credentials),
    Rule(("http.client_ca_file", "http.certificate_file"), _http_clients_need_tls),
    Rule(("regions.frame_timeout_ms", "regions.idle_timeout_ms"), _regions_frame_within_idle),
    Rule(("regions.lease_ms", "regions.idle_timeout_ms"), _regions_lease_within_idle),
    Rule(("regions.merge_size_bytes", "regions.split_size_bytes"), _regions_merge_below_half),
    Rule(("regions.fence", "regions.fence_command"), _regions_fence_needs_command),
    Rule(("regions.connections_per_address_max", "regions.connections_max"), _regions_address_connections),
)
