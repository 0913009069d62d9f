"""Compares Squall's cluster with a peer, which is Apache Kafka, by ratios: the same client script runs against both on
one machine.

`squall bench` starts three brokers of Squall and, if Apache Kafka is given (KAFKA_HOME, or its jars by Maven), three
nodes of it, one cluster at a time, and prints each cluster's figures and their ratios.
"""
