"""Runs Apache Kafka's brokers as processes of this machine."""
