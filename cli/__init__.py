"""Holds the ``regent`` command. It reaches daemons over their HTTP surface, and imports the daemon only to run one."""
