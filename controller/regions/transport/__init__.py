"""Brings operations to servers, and their answers back, by znodes of regions in transition (seed 000)."""
