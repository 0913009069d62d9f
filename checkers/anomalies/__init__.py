"""Defines the anomalies. Each module says what an anomaly is, where that is written and what evidence shows it, and has
its reference finder and its query for Spark (`check`).

Anomalies that one finder sees together share a module. `registry` lists the modules. A module's test histories are in
`tests/unit/checkers/anomalies/test_NAME.py`.
"""
