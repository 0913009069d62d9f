"""A night of runs in one Spark session: from their histories to the store's rows, and from the store to the table."""
