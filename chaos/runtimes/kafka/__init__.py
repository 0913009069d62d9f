"""Runs Apache Kafka's brokers as OS processes of this machine."""
