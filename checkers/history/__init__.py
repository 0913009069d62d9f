"""A run's history: its lines, the tables they become, and those tables as Parquet files and back."""
