"""Takes snapshots of the model: files with all partitions and brokers, for the pipeline.

``parts`` reads the model in turns of the loop, ``writer`` is the child process that makes the file, ``taking`` hands it
the parts, and ``keeper`` decides when. ``files`` names and removes files.
"""
