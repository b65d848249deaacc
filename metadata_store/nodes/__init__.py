"""Reads and writes the znodes besides topics and partition states: one module per kind.

Changes of metadata are fenced. Empty parent znodes and the admin endpoint's announcement are written without a fence.
"""
