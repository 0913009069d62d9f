"""Implements a Kafka-compatible broker on trio: `await broker_main(env, config)`. See ARCHITECTURE.md.

All of it is private: the module `squall` says what is not.
"""
