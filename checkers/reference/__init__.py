"""The obvious slow finder of each anomaly: the oracle for the Spark jobs."""
