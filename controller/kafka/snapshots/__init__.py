"""Takes snapshots of the model: files with all partitions and brokers, for the pipeline.

``taking`` reads the model in turns of the loop, and hands the parts to ``writer``, the child process that makes the
file. ``keeper`` decides when.
"""
