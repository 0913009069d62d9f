"""Implements a Kafka-compatible broker on trio: `await broker_main(env, config)`. See ARCHITECTURE.md.

Everything here is private, as the docstring of `squall` explains.
"""
