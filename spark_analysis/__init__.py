"""The anomalies of `checkers` in large histories, with Spark."""
