"""The same client script against our cluster and a peer, in one run on one machine: ratios, not absolute figures.

`squall bench` starts three brokers of ours and, where Apache Kafka is given (KAFKA_HOME, or its jars by Maven),
three nodes of it, one cluster at a time, and prints what each did and the ratio.
"""
