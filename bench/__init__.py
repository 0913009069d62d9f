"""Runs the same client script against Squall's cluster and a peer on one machine, and compares them by ratios.

`squall bench` starts three brokers of Squall and, if Apache Kafka is given (KAFKA_HOME, or its jars by Maven), three
nodes of it, one cluster at a time, and prints each cluster's figures and their ratios.
"""
