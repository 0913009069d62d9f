"""Rewrites the generated modules in broker/protocol/schema, from the jars of Apache Kafka in a folder.

    python -m squall.broker.protocol.codegen ~/.cache/squall/kafka-4.3.1
"""

from __future__ import annotations

import sys
from pathlib import Path

from squall.broker.protocol.codegen.build import modules
from squall.broker.protocol.codegen.definitions import definitions

SCHEMA = Path(__file__).parent.parent / "schema"


def main() -> None:
    """Write the modules that have changed, and remove modules that are no longer generated."""
    try:
        (jars,) = sys.argv[1:]
        wanted = modules(definitions(Path(jars)))
    except (ValueError, FileNotFoundError) as problem:
        raise SystemExit(f"name a folder with Kafka's jars (`squall setup --kafka` fetches them): {problem}") from None
    for path in SCHEMA.glob("*.py"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        path = SCHEMA / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    main()
