"""A Kafka-compatible broker on trio: `await broker_main(env, config)`. See ARCHITECTURE.md.

Private, as `squall` says.
"""
