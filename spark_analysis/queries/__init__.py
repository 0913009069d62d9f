"""Holds the Spark query of each module of `squall.checkers.anomalies`, under the same name.

A query has the same definition and the same witnesses as the module's `find`, which is plain Python. The docstrings
there give the reasons. tests/parity compares the results of the query with those of `find`.
"""
