"""Serves one OpenMetrics endpoint of a broker: off by default, on loopback, without libraries of the harness."""
