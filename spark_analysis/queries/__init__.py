"""Holds the Spark query of each module of `squall.checkers.anomalies`, under the same name.

Definitions and witnesses are the same as those of the reference finder there, whose docstrings give the reasons;
tests/parity compares both.
"""
