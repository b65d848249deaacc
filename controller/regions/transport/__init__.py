"""Brings operations to servers, and their answers back, by znodes of regions in transition, as HBase 1.x did."""
