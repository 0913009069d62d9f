"""The Spark query of each module of `squall.checkers.anomalies`, under the same name.

Same definitions and same witnesses as the reference finder there, whose docstrings say why; tests/parity holds the two
together.
"""
