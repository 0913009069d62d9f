"""Finds the anomalies of `checkers` in large histories, with Spark. The package is private, as `squall` says."""
