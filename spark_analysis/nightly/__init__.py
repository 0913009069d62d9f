"""Measures the runs of a night in one Spark session: from their histories to rows of the store, and from the store to
the durability table.
"""
