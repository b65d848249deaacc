"""Measures the tests by planting bugs: written by hand (``planted/``), or drawn from the syntax of the product."""
