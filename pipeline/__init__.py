"""Runs jobs on Spark over the journals of all daemons: DataFrames in, DataFrames out, on any Spark master.

:mod:`~pipeline.session` starts Spark and is all that is imported before; :mod:`~pipeline.jobs` reads and writes. The
other modules are functions of DataFrames: :mod:`~pipeline.bronze` and :mod:`~pipeline.gaps` merge journals (J1),
:mod:`~pipeline.audit` judges them (J2).
:mod:`~pipeline.inputs` has snapshots, assignments and loads as arrays, without Spark. The daemon never imports this
package.
"""
