"""A small trio Kafka client over Env, exact about outcomes: ok, fail, info."""
