"""Serves one OpenMetrics endpoint of a broker. It is off by default, listens on loopback, and needs no library."""
