"""Runs jobs on Spark over the journals of all daemons, on any Spark master.

:mod:`~pipeline.session` starts Spark and is all that is imported before; :mod:`~pipeline.jobs` reads and writes.
:mod:`~pipeline.merge` merges journals (J1) in tasks that read and write whole files (:mod:`~pipeline.segments`), and
:mod:`~pipeline.audit` judges them (J2). :mod:`~pipeline.layout` says where rows are. :mod:`~pipeline.inputs` has
snapshots, assignments and loads as arrays, without Spark. The daemon never imports this package.
"""
