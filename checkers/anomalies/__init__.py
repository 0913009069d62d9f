"""Defines the anomalies. Each module says what an anomaly is, where that is written and what evidence shows it, and has
its reference finder.

Anomalies that one finder sees together share a module. `registry` lists the modules. The Spark query of a module has
the same name in `spark_analysis/queries/`, and the module's test histories are in
`tests/unit/checkers/anomalies/test_NAME.py`.
"""
