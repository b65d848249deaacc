"""The daemon's HTTP surface: a unix socket for the ``regent`` command, for scrapes and for probes."""
