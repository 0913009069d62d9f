"""Reads ranges of offsets for batch loads of a topic into an offline store: the plan of a load, and the reader of one
range (mechanism P8 in docs/mechanisms.md). `spark_analysis.load` makes a Spark data source of them.
"""
