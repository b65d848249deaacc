"""Connects the process with its machine: logs, systemd, clock, the loop's guard, and sessions from the settings."""
