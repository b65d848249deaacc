"""The process and its machine: logs, systemd, clock, the loop's guard, and sessions from the settings."""
