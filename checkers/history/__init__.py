"""Reads a run's history: parses its lines into tables, and converts these tables to Parquet files and back."""
