"""Reads ranges of offsets for batch loads of a topic into an offline store: the plan of a load, and the reader of one
range. `squall.spark_analysis.load` makes a Spark data source of them.
"""
