"""Takes snapshots of the model: files with all partitions and brokers, for the pipeline.

:mod:`~controller.snapshots.parts` reads the model in turns of the loop, :mod:`~controller.snapshots.writer` is the
child process that makes the file, :mod:`~controller.snapshots.taking` hands it the parts, and
:mod:`~controller.snapshots.keeper` decides when. :mod:`~controller.snapshots.files` names and removes files.
"""
