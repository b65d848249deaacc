"""The process and its machine: logs, systemd, clock, the loop's guard, and sessions as settings ask for them."""
