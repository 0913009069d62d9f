"""The anomalies: each module holds what one is, where that is written, what shows it, and its reference finder.

A family of anomalies that one finder sees together is one module. `registry` lists the modules. The Spark query of a
module is `spark_analysis/queries/` under the same name, its histories are `tests/unit/checkers/anomalies/test_NAME.py`.
"""
