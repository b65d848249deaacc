"""Declares the settings of the domain that assigns regions to servers; see :mod:`configs.sections`."""

from __future__ import annotations

from typing import Literal

from configs.sections import Section
from configs.values import AbsolutePath, Command, Host, ZooKeeperIdentity, key


class RegionsSettings(Section):
    """The assignment of single-owner regions to the servers of any service, beside Kafka's controller or without it."""

    enabled: bool = key(
        True,
        "Whether the daemon assigns regions. It does where the section [regions] is given and this key is not false. "
        "Without the sections [zookeeper] and [listener] it then does nothing else.",
        sample=False,
    )
    host: Host | None = key(
        None,
        "Address to listen on for servers and clients. Without this key it is 0.0.0.0, all addresses of this machine, "
        "where regions.secret_file is set, and else 127.0.0.1. Without a secret no other machine is served.",
        sample="0.0.0.0",  # noqa: S104  # servers are on other machines
        remedy='give an address of this machine, or "0.0.0.0" for all of them',
    )
    port: int = key(9190, "Port to listen on; 0 takes a free one.", ge=0, le=65_535)
    secret_file: AbsolutePath | None = key(
        None,
        "File with one line, the secret that servers send first. While it is replaced, a second line has the other "
        "one. Without regions.clients_secret_file it is the secret of clients, too. Without this key the daemon "
        "listens on a loopback address, and every process of this machine may register servers.",
        sample="/etc/regent/regions-secret",
        remedy="name a file with one line of 16 to 1000 characters that the daemon may read and others may not",
    )
    clients_secret_file: AbsolutePath | None = key(
        None,
        "File as regions.secret_file, with the secret of clients. A connection that gives it may ask for routes, and "
        "for nothing else. Without this key a client needs the secret of servers, with which it could register one.",
        sample="/etc/regent/regions-clients-secret",
        remedy="name a file with one line of 16 to 1000 characters that the daemon may read and others may not",
    )
    store: Literal["sqlite", "zookeeper"] = key(
        "sqlite",
        "Where regions and procedures are kept. sqlite: in regions.file, for daemons on one machine. zookeeper: below "
        "/regent/regions of zookeeper.connect, for daemons on several. One daemon is active, the others stand by. "
        "Without the section [listener], a section [zookeeper] is then no cluster of Kafka.",
    )
    file: AbsolutePath | None = key(
        None,
        "File of the store, on a local disk. Without this key it is regions.db in state.directory.",
        sample="/var/lib/regent/regions.db",
        remedy="give an absolute path on a local disk that only the daemon's user may write to",
    )
    transport: Literal["poll", "zookeeper"] = key(
        "poll",
        "How servers answer. poll: in reports to the daemon. zookeeper: a server with a ZooKeeper client moves a znode "
        'of the region, below /regent/regions/unassigned. It needs regions.store = "zookeeper".',
    )
    servers_identity: ZooKeeperIdentity | None = key(
        None,
        "Identity of servers at ZooKeeper, as an ACL has it, for regions.transport zookeeper: digest:USER:HASH, "
        "sasl:USER, x509:SUBJECT or world:anyone. It may move the znodes of regions, and write nothing else. Without "
        "this key servers need the daemon's identity, with which they could write all else of the domain.",
        sample="digest:kv:IJwNVeVdalTt4CTgTGj8D0vK3KI=",
        remedy="give SCHEME:ID; of user:password the hash is printf user:password | openssl sha1 -binary | base64",
    )
    node_timeout_ms: int = key(
        30_000,
        "Time, in milliseconds, after which a znode of a region in transition that has not moved is taken from its "
        "server, and its open counts as failed. The next server gets twice the time. An open that its server has not "
        "begun with waits as long as that server moves other znodes.",
        ge=1_000,
        le=3_600_000,
    )
    lease_ms: int = key(
        10_000,
        "Time without a poll after which a server counts as crashed, in milliseconds. Servers poll four times in it.",
        ge=1_000,
        le=600_000,
    )
    fence: Literal["lease", "log", "command"] = key(
        "lease",
        "How a crashed server is kept from writing before its regions go elsewhere. lease: its lease runs out, and it "
        "suspends itself. log: another server fences its log and splits it. command: regions.fence_command exits "
        "with 0.",
    )
    fence_command: Command | None = key(
        None,
        "Program and arguments that the daemon runs, without a shell, to fence a crashed server; name, incarnation and "
        "address of the server follow. It exits with 0 once that process can write nothing, else it is run again. In "
        "the environment it is a list in JSON.",
        sample=["/usr/local/sbin/fence-server", "--"],
        remedy='give a list such as ["/usr/local/sbin/fence-server", "--"], with the absolute path of a program first',
    )
    fence_timeout_ms: int = key(
        30_000,
        "Longest run of regions.fence_command, in milliseconds. After it the command is killed, and counts as failed.",
        ge=100,
        le=600_000,
    )
    servers_min: int = key(
        1,
        "Servers that must have come before a daemon that starts places regions.",
        ge=1,
        le=100_000,
    )
    startup_wait_ms: int = key(
        60_000,
        "Longest wait for these servers, in milliseconds. After it the daemon places regions all the same.",
        ge=0,
        le=3_600_000,
    )
    placement: Literal["retain", "round_robin", "random"] = key(
        "retain",
        "How servers are chosen. retain: a region returns to the server that had it, the others go round robin. "
        "round_robin: to the servers with the fewest regions. random: by lot.",
    )
    delay_ms: int = key(
        150, "How long the first operation for a server waits for others, in milliseconds.", ge=0, le=10_000
    )
    batch_max: int = key(
        32, "Most operations in one batch; a batch of this size does not wait for others.", ge=1, le=1_000
    )
    in_flight_max: int = key(
        128, "Most batches that were sent and not confirmed, of all servers together.", ge=1, le=100_000
    )
    open_attempts_max: int = key(
        0,
        "Failed attempts to open a region after which it is FAILED_OPEN and waits for an operator. With 0 the daemon "
        "goes on for ever, with growing pauses.",
        ge=0,
        le=1_000_000,
    )
    split: Literal["inherit", "metadata"] = key(
        "inherit",
        "What becomes of data as regions are split and merged. inherit: the data of a new region begins as that of "
        "the regions whose keys it has; only servers that say so as they register open such a region. metadata: the "
        "service keeps no data by region, so only keys change, and every server will do.",
    )
    move_cooldown_ms: int = key(
        0,
        "Time after a move, in milliseconds, in which no drain and no operator moves the region again without "
        "--force. Crashes, servers that leave, and unassign never wait for it. With 0 there is none.",
        ge=0,
        le=3_600_000,
    )
    split_size_bytes: int = key(
        10 * 1024**3,
        "Size from which on a region is split by itself, in bytes; with 0 none is. Only services that report sizes, "
        "and whose servers all split regions, have any that is. The option regent.split_size_bytes of a table goes "
        "before it.",
        ge=0,
        le=1 << 50,
    )
    split_requests_per_s: int = key(
        0,
        "Reads and writes a second, over half a minute or more, from which on a region is split by itself; with 0 none "
        "is. The option regent.split_requests_per_s of a table goes before it.",
        ge=0,
        le=1_000_000_000,
    )
    merge_size_bytes: int = key(
        0,
        "Two neighbours that have no more bytes together are merged by themselves; with 0 none are. It is never more "
        "than half of the size from which on a region is split. The option regent.merge_size_bytes of a table goes "
        "before it.",
        ge=0,
        le=1 << 50,
    )
    split_rest_ms: int = key(
        600_000,
        "Time, in milliseconds, for which a region rests that a split or a merge has made, or whose split or merge "
        "failed: meanwhile neither begins by itself. All regions rest for that long once a daemon becomes active.",
        ge=1_000,
        le=86_400_000,
    )
    split_regions_max: int = key(
        10_000,
        "Regions of a table from which on none of them is split by itself.",
        ge=1,
        le=1_000_000,
    )
    reshapes_max: int = key(
        4,
        "Splits and merges under way, those of operators included, from which on no further one begins by itself.",
        ge=1,
        le=1_000,
    )
    reshapes_per_minute_max: int = key(
        20,
        "Most splits and merges that begin by themselves in a minute.",
        ge=1,
        le=10_000,
    )
    reopen_per_server: int = key(
        10,
        "Most regions of one server that are closed and opened again at a time after the options of their table "
        "changed. The others of that server go on serving meanwhile.",
        ge=1,
        le=1_000,
    )
    balancer: Literal["simple", "stochastic"] = key(
        "simple",
        '"simple": a balance gives each server as many regions as the others. "stochastic": it lowers a cost made of '
        "the number of regions, tables, loads and moves; a child process of the daemon searches for the plan.",
    )
    balancer_timeout_ms: int = key(
        120_000,
        "Time, in milliseconds, after which a child process that has no plan yet is killed, and the balance fails.",
        ge=1_000,
        le=3_600_000,
    )
    balancer_by_table: bool = key(
        False,
        "Whether a simple balance spreads the regions of each table over the servers first, and then those of all "
        "tables. Placements deal the regions of each table to all servers then.",
    )
    balancer_period_ms: int = key(
        300_000,
        "Time, in milliseconds, after which the daemon looks again whether regions are even, and balances them where "
        "they are not. With 0 only commands do.",
        ge=0,
        le=86_400_000,
    )
    balancer_joins_ms: int = key(
        30_000,
        "Time, in milliseconds, in which no server has come or gone, after which the daemon looks, too: a rolling "
        "restart ends before regions move. With 0 it looks by regions.balancer_period_ms alone.",
        ge=0,
        le=3_600_000,
    )
    balancer_slop_percent: int = key(
        20,
        "By how much of its share a server may have more or fewer regions before the daemon begins a simple balance by "
        "itself. A command balances whatever the difference.",
        ge=0,
        le=100,
    )
    balancer_moves_together: int = key(
        20,
        "Regions that a balance moves at a time; the others go on serving.",
        ge=1,
        le=1_000,
    )
    balancer_spread_ms: int = key(
        0,
        "Time, in milliseconds, over which a balance spreads its moves: each wave of them waits for its part of it. "
        "With 0 a wave begins once the one before has ended.",
        ge=0,
        le=86_400_000,
    )
    transit_max: int = key(
        20_000,
        "Regions in transition from which on changes of tables and crashes begin no further batch.",
        ge=100,
        le=1_000_000,
    )
    transit_warning_ms: int = key(
        60_000,
        "Time in transition, in milliseconds, from which on a region counts as overdue in metrics and lists.",
        ge=1_000,
        le=86_400_000,
    )
    connections_max: int = key(
        2_000,
        "Most connections at a time, TLS handshakes in progress included. A server needs two, a client that follows "
        "routes one. At the limit a new connection replaces the oldest one that was never served.",
        ge=10,
        le=100_000,
    )
    connections_per_address_max: int = key(
        500,
        "As regions.connections_max, for the connections of one address (for IPv6, of one /64 network).",
        ge=10,
        le=100_000,
    )
    frame_timeout_ms: int = key(
        10_000,
        "Longest time, in milliseconds, for a partly received request to complete, and for a TLS handshake. The same "
        "limit holds until a new connection has begun with its Hello.",
        ge=100,
        le=600_000,
    )
    idle_timeout_ms: int = key(
        600_000,
        "The daemon closes a connection without any request for this time, in milliseconds.",
        ge=1_000,
        le=86_400_000,
    )
