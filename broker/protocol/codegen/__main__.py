"""Rewrites the generated modules in broker/protocol/schema."""

from __future__ import annotations

from pathlib import Path

from squall.broker.protocol.codegen.build import modules

SCHEMA = Path(__file__).parent.parent / "schema"


def main() -> None:
    """Write the modules that have changed, and remove modules that are no longer generated."""
    wanted = modules()
    for path in SCHEMA.glob("*.py"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        path = SCHEMA / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    main()
