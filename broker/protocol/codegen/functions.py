"""Emits the source of the reader and the writer of one structure in one wire layout ("shape")."""

from __future__ import annotations

import re
from collections.abc import Callable

from squall.broker.protocol.codegen.model import FIXED, SIZES, FieldEncoding, FieldModel, StructModel
from squall.broker.protocol.codegen.source import WIDTH, MessageNames, needs_fresh_default


class FunctionEmitter:
    """Emits the parts that the readers and writers of one wire layout have in common."""

    def __init__(self, parent: MessageNames, struct: StructModel, version: int) -> None:
        self.parent, self.struct, self.version = parent, struct, version
        self.out, self.use = parent.out, parent.use
        self.flexible = parent.flexible(version)
        self.shape = struct.shapes[version]
        self.plain = [wire for wire in self.shape if wire.tag is None]
        self.tags = sorted((wire for wire in self.shape if wire.tag is not None), key=lambda wire: wire.tag or 0)
        here = {wire.name for wire in self.shape}
        self.absent = [field for field in struct.fields.values() if field.name not in here]

    def head(self, before: str, arguments: str, behind: str) -> None:
        """Emit the `def` line of a function: "def f(" (`before`), the arguments, and ") -> None:" (`behind`). A long
        line is split into these three.
        """
        if len(before + arguments + behind) <= WIDTH:
            self.out(before + arguments + behind)
            return
        self.out(before)
        self.out("    " + arguments)
        self.out(behind)


class ReaderEmitter(FunctionEmitter):
    """Emits a function `_read_...(view, at) -> (object, at)`."""

    def emit(self) -> None:
        """Emit the whole function. It reads the fields in their order, sets the fields that this version lacks to their
        defaults, and reads the tagged fields.
        """
        out = self.out
        out()
        name = self.parent.function("read", self.struct.name, self.version)
        self.head(f"def {name}(", "view: memoryview, at: int", f") -> tuple[{self.struct.name}, int]:")
        out.depth += 1
        out(f"o = {self.use('new')}({self.struct.name})")
        self.run: list[tuple[str, str]] = []
        for wire in self.plain:
            self.field(wire)
        number = "count" if self.tags else "n"
        number_is_read = self.flexible and self.first_byte(number)
        self.flush()
        for field in self.absent:
            out(f"o.{field.name} = {self.parent.fresh(field)}")
        if self.flexible:
            self.emit_tags(number_is_read)
        out("return o, at")
        out.depth -= 1
        out()

    def field(self, wire: FieldEncoding) -> None:
        """Emit the reading of one field into the object `o`. Fields of fixed width are gathered until a field of
        another kind follows.
        """
        target = f"o.{wire.name}"
        if wire.array:
            self.length("i")
            self.guarded(wire, target, lambda: self.array_body(wire, target))
        elif wire.kind in FIXED:
            self.run.append((target, FIXED[wire.kind]))
        elif wire.kind == "struct":
            self.nested(wire, target)
        else:
            self.length("h" if wire.kind == "string" else "i", text=wire.kind == "string")
            self.guarded(wire, target, lambda: self.take(wire, target))

    def flush(self) -> None:
        """Emit one `struct` unpacking for the fields that were collected in `run`."""
        if not self.run:
            return
        code = "".join(code for _, code in self.run)
        targets = ", ".join(target for target, _ in self.run)
        if len(self.run) == 1:
            targets = f"({targets},)"
        line = f"{targets} = _unpack_{self.parent.format(code)}(view, at)"
        if len(line) + 4 * self.out.depth > WIDTH:
            self.out("(")
            for target, _ in self.run:
                self.out(f"    {target},")
            self.out(f") = _unpack_{self.parent.format(code)}(view, at)")
        else:
            self.out(line)
        self.out(f"at += {sum(SIZES[code] for _, code in self.run)}")
        self.run.clear()

    def length(self, code: str, *, text: bool = False) -> None:
        """Emit code that reads a length into the variable `n`; -1 means null. `code` is the length's `struct` code in
        versions without compact encodings, "h" or "i". `text` is True for the length of a string.
        """
        if not self.flexible:
            self.run.append(("n", code))
            self.flush()
            return
        is_read = self.first_byte("n")
        self.flush()
        self.varint("n", is_read, text=text)
        self.out("n -= 1")

    def first_byte(self, name: str) -> bool:
        """Add the first byte of a varint, as the variable `name`, to the fixed-width fields that the next `flush`
        unpacks. If no such field is waiting, add nothing and return False.
        """
        if self.run:
            # Nearly all varints have one byte: so one unpacking reads it together with the fields before it.
            self.run.append((name, "B"))
        return bool(self.run)

    def varint(self, name: str, is_read: bool = False, *, text: bool = False) -> None:
        """Emit code that reads an unsigned varint into the variable `name`. `is_read` says that the variable already
        holds the first byte. With `text` the varint is the length of a string: if it is too large, the emitted code
        raises MalformedFrame. The emitted code calls a function only if the varint has more bytes.
        """
        if not is_read:
            self.out(f"{name} = view[at]")
            self.out("at += 1")
        self.out(f"if {name} > 127:")
        self.out(f"    {name}, at = {self.use('more_of_string' if text else 'more')}(view, at, {name})")

    def guarded(self, wire: FieldEncoding, target: str, body: Callable[[], None]) -> None:
        """Emit a test for null, then the code of `body`, which reads a content of length `n`. For null, the emitted
        code sets `target` (such as "o.name") to None, or raises MalformedFrame if the field is not nullable.
        """
        out = self.out
        if wire.nullable:
            out("if n >= 0:")
            out.depth += 1
            body()
            out.depth -= 1
            if self.flexible:
                out("else:")
                out(f"    {target} = None")
            else:
                out("elif n == -1:")
                out(f"    {target} = None")
                out("else:")
                out(f"    raise {self.use('negative')}(n)")
            return
        out("if n < 0:")
        out(f"    raise {self.use('negative')}(n)")
        body()

    def take(self, wire: FieldEncoding, target: str) -> None:
        """Emit code that assigns the next `n` bytes to `target`, such as "o.name": as str, as bytes, or as a view for
        records.
        """
        cut = "view[at : at + n]"
        self.out(f"{target} = {self._content(wire.kind, cut)}")
        self.out("at += n")

    def _content(self, kind: str, cut: str) -> str:
        if kind == "string":
            return f'str({cut}, "utf-8")'
        return f"{cut}.tobytes()" if kind == "bytes" else cut

    def nested(self, wire: FieldEncoding, target: str) -> None:
        """Emit code that reads a structure and assigns it to `target`, such as "o.topic". A nullable structure has a
        byte before it, which is negative for null (KIP-893).
        """
        self.flush()
        assert wire.struct is not None
        call = f"{target}, at = {self.parent.function('read', wire.struct, self.version)}(view, at)"
        if not wire.nullable:
            self.out(call)
            return
        self.out("n = view[at]")
        self.out("at += 1")
        self.out("if n < 128:")
        self.out(f"    {call}")
        self.out("else:")
        self.out(f"    {target} = None")

    def array_body(self, wire: FieldEncoding, target: str) -> None:
        """Emit code that reads `n` elements into a list, and assigns the list to `target`, such as "o.topics". The
        emitted code before this has already read the number `n`.
        """
        out = self.out
        bulk = {"int8": ("int8s", 1), "int16": ("int16s", 2), "int32": ("int32s", 4), "int64": ("int64s", 8)}
        bulk["uuid"] = ("uuids", 16)
        if wire.kind in bulk:
            name, size = bulk[wire.kind]
            out(f"{target} = {self.use(name)}(view, at, n)")
            out(f"at += n * {size}" if size > 1 else "at += n")
            return
        smallest = self.parent.smallest(wire, self.version)
        left = "len(view) - at" if smallest == 1 else f"(len(view) - at) // {smallest}"
        out(f"if n > {left}:")
        out(f"    raise {self.use('too_many')}(n)")
        items = "items_" + wire.name
        out(f"{items}: list[{wire.struct or 'str'}] = []")
        out(f"{target} = {items}")
        out("for _ in range(n):")
        out.depth += 1
        if wire.kind == "struct":
            assert wire.struct is not None
            out(f"i_{wire.name}, at = {self.parent.function('read', wire.struct, self.version)}(view, at)")
            out(f"{items}.append(i_{wire.name})")
        else:
            self._string_element(items)
        out.depth -= 1

    def _string_element(self, items: str) -> None:
        out = self.out
        if self.flexible:
            self.varint("m", text=True)
            out("m -= 1")
        else:
            out(f"(m,) = _unpack_{self.parent.format('h')}(view, at)")
            out("at += 2")
        out("if m < 0:")
        out(f"    raise {self.use('negative')}(m)")
        out(f'{items}.append(str(view[at : at + m], "utf-8"))')
        out("at += m")

    def emit_tags(self, number_is_read: bool) -> None:
        """Emit code that reads the tagged fields that this version knows, and skips unknown ones. `number_is_read` says
        that the first byte of the number of tagged fields has been read.
        """
        out = self.out
        for wire in self.tags:
            out(f"o.{wire.name} = {self.parent.fresh(self.struct.fields[wire.name])}")
        if not self.tags:
            if not number_is_read:
                out("n = view[at]")
                out("at += 1")
            out("if n:")
            out(f"    at = {self.use('skip_tags')}(view, at, n)")
            return
        self.varint("count", number_is_read)
        out("for _ in range(count):")
        out.depth += 1
        out(f"tag, at, stop = {self.use('read_tag')}(view, at)")
        for index, wire in enumerate(self.tags):
            out(f"{'elif' if index else 'if'} tag == {wire.tag}:")
            out.depth += 1
            self.field(wire)
            self.flush()
            out("if at != stop:")
            out(f"    raise {self.use('tag_size')}({wire.tag})")
            out.depth -= 1
        out("else:")
        out("    at = stop")
        out.depth -= 1


class WriterEmitter(FunctionEmitter):
    """Emits a function `_write_...(o, w)`, which passes the pieces of the encoded structure to `w`."""

    def emit(self) -> None:
        """Emit the whole function. It raises an error if a field that this version lacks has a value other than its
        default, unless the field is ignorable. It writes the version's fields in their order, then the tagged fields.
        """
        out = self.out
        out()
        name = self.parent.function("write", self.struct.name, self.version)
        self.head(f"def {name}(", f"o: {self.struct.name}, w: {self.use('Write')}", ") -> None:")
        out.depth += 1
        before = len(out.lines)
        for field in self.absent:
            if not field.ignorable:
                out(f"if {self.differs(field)}:")
                out(f'    raise {self.use("absent")}("{field.name}")')
        self.run: list[tuple[str, str]] = []
        for wire in self.plain:
            self.field(wire, f"o.{wire.name}")
        if self.flexible:
            self.emit_tags()
        self.flush()
        if len(out.lines) == before:
            out("pass")
        out.depth -= 1
        out()

    def differs(self, field: FieldModel) -> str:
        """Return an expression that is true if the field has another value than its default."""
        value, default = f"o.{field.name}", field.default
        if default is ...:
            return f"{value} != {field.struct}()"
        if default is None:
            return f"{value} is not None"
        if default is True:
            return f"not {value}"
        if default == () or (not default and default is not None):
            return value
        return f"{value} != {self.parent.literal(field)}"

    def field(self, wire: FieldEncoding, value: str) -> None:
        """Emit code that writes one field. `value` is the expression for its value, such as "o.name". Fields of fixed
        width are collected in `run`, and the next `flush` writes them together.
        """
        prefix = "compact_" if self.flexible else ""
        if wire.kind in FIXED and not wire.array:
            self.run.append((f"{self.use('uuid')}({value})" if wire.kind == "uuid" else value, FIXED[wire.kind]))
            return
        self.flush()
        if wire.array:
            self.array(wire, value)
        elif wire.kind == "string":
            if self.struct.fields[wire.name].nullable and not wire.nullable:
                self.out(f"if {value} is None:")
                self.out(f'    raise {self.use("null")}("{wire.name}")')
            self.out(f"w({self.use(prefix + ('nullable_string' if wire.nullable else 'string'))}({value}))")
        elif wire.kind == "struct":
            self.nested(wire, value)
        else:
            self.counted(wire, value, lambda item: self.out(f"w({item})"))

    def flush(self) -> None:
        """Emit one `struct` packing for the fields that were collected in `run`."""
        if self.run:
            code = "".join(code for _, code in self.run)
            self._call(f"w(_pack_{self.parent.format(code)}(", [value for value, _ in self.run])
            self.run.clear()

    def _call(self, head: str, values: list[str]) -> None:
        line = head + ", ".join(values) + "))"
        if len(line) + 4 * self.out.depth <= WIDTH:
            self.out(line)
            return
        self.out("w(")
        self.out("    " + head.removeprefix("w("))
        for value in values:
            self.out(f"        {value},")
        self.out("    )")
        self.out(")")

    def counted(self, wire: FieldEncoding, value: str, content: Callable[[str], None]) -> None:
        """Emit code that writes a length and a content, or null. `value` is the expression for the content, such as
        "o.records". `content` gets the name of a variable with that value, and emits code that writes it.
        """
        out, name, field = self.out, f"v_{wire.name}", self.struct.fields[wire.name]
        out(f"{name} = {value}")
        # A tagged field with the default null is written only where it is not null.
        never_null = wire.tag is not None and field.default is None
        if wire.nullable and not never_null:
            null = r'w(b"\0")' if self.flexible else r'w(b"\xff\xff\xff\xff")'
            out(f"if {name} is None:")
            out(f"    {null}")
            out("else:")
            out.depth += 1
        elif not never_null and (field.nullable or wire.kind == "records"):
            out(f"if {name} is None:")
            out(f'    raise {self.use("null")}("{wire.name}")')
        out(f"w({self.use('UVARINT')}[len({name}) + 1])" if self.flexible else f"w({self.use('length')}({name}))")
        content(name)
        if wire.nullable and not never_null:
            out.depth -= 1

    def array(self, wire: FieldEncoding, value: str) -> None:
        """Emit code that writes the number of elements, then the elements. `value` is the expression for the list, such
        as "o.topics".
        """

        def content(items: str) -> None:
            if wire.kind in FIXED and wire.kind != "uuid":
                self.out(f'w({self.use("packed")}("{FIXED[wire.kind]}", {items}))')
                return
            item = f"i_{wire.name}"
            self.out(f"for {item} in {items}:")
            if wire.kind == "struct":
                assert wire.struct is not None
                self.out(f"    {self.parent.function('write', wire.struct, self.version)}({item}, w)")
            elif wire.kind == "uuid":
                self.out(f"    w({self.use('uuid')}({item}))")
            else:
                self.out(f"    w({self.use('compact_string' if self.flexible else 'string')}({item}))")

        self.counted(wire, value, content)

    def nested(self, wire: FieldEncoding, value: str) -> None:
        """Emit code that writes a structure. `value` is the expression for it, such as "o.topic". A nullable structure
        has a byte before it, which is negative for null (KIP-893).
        """
        assert wire.struct is not None
        out = self.out
        function = self.parent.function("write", wire.struct, self.version)
        if not wire.nullable:
            out(f"{function}({value}, w)")
            return
        if wire.tag is not None and self.struct.fields[wire.name].default is None:
            # A tagged field that is null is not written at all, so there is nothing to test here.
            out(r'w(b"\x01")')
            out(f"{function}({value}, w)")
            return
        name = f"v_{wire.name}"
        out(f"{name} = {value}")
        out(f"if {name} is None:")
        out(r'    w(b"\xff")')
        out("else:")
        out(r'    w(b"\x01")')
        out(f"    {function}({name}, w)")

    def emit_tags(self) -> None:
        """Emit the writing of the tagged fields that have another value than their default."""
        out = self.out
        if not self.tags and self.run:
            self.run.append(("0", "B"))
            return
        self.flush()
        if not self.tags:
            out(r'w(b"\0")')
            return
        self.use("Buffer")
        self.use("tagged")
        out("tags: list[bytes] = []")
        for wire in self.tags:
            field = self.struct.fields[wire.name]
            out(f"if {self.tag_condition(wire, field)}:")
            out.depth += 1
            out("parts: list[Buffer] = []" if wire is self.tags[0] else "parts = []")
            before = len(out.lines)
            self.field(wire, f"o.{wire.name}")
            self.flush()
            for index in range(before, len(out.lines)):
                # The size of a tagged field comes before its content, so the content is collected before it is written.
                line = re.sub(r"\bw\(", "parts.append(", out.lines[index], count=1)
                out.lines[index] = re.sub(r", w\)$", ", parts.append)", line)
            out(f'tags.append(tagged({wire.tag}, b"".join(parts)))')
            out.depth -= 1
        out(f"w({self.use('UVARINT')}[len(tags)])")
        out("for content in tags:")
        out("    w(content)")

    def tag_condition(self, wire: FieldEncoding, field: FieldModel) -> str:
        """Return an expression that is true if a tagged field must be written. Usually it compares the value with the
        default (`differs`).

        There are two exceptions. If the default is [] and the field is nullable, None must be written, too. A structure
        whose fields all have immutable defaults is compared with these defaults field by field.
        """
        value = f"o.{wire.name}"
        if wire.nullable and field.default == ():
            return f"{value} is None or {value}"
        if field.default is ... and field.struct is not None:
            nested = self.parent.message.structs[field.struct].fields.values()
            if not any(needs_fresh_default(inner) for inner in nested):
                literals = [(inner.name, self.parent.literal(inner)) for inner in nested]
                return " or ".join(f"{value}.{name} != {text}" for name, text in literals)
        return self.differs(field)
