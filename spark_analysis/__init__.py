"""The anomalies of `checkers` in large histories, with Spark. Private, as `squall` says."""
