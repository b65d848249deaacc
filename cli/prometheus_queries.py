"""Names the series of Kafka in Prometheus, as the rules that its JMX exporter is delivered with name them."""

from __future__ import annotations

from typing import Final, NamedTuple


class Queries(NamedTuple):
    """Queries in PromQL. Series have the label ``topic``, and ``partition`` where they are about one."""

    size: str = "max by (topic, partition) (kafka_log_log_size)"
    bytes_in: str = "sum by (topic) (rate(kafka_server_brokertopicmetrics_bytesin_total[5m]))"
    bytes_out: str = "sum by (topic) (rate(kafka_server_brokertopicmetrics_bytesout_total[5m]))"
    records: str = "max by (topic, partition) (rate(kafka_log_log_logendoffset[5m]))"


USUAL: Final = Queries()


class Source(NamedTuple):
    """A Prometheus: its address, and the token that it wants, empty if none."""

    url: str
    token: str = ""
