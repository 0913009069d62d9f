"""Holds the code that the runtimes of real brokers share: files, probes, links through Toxiproxy, and disk faults."""
