"""Apache Kafka as processes of this machine."""
