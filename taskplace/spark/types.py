"""Column types: their names, what a sink and a store take, and columns found by name.

**Names.** Known names are Spark's (`SPARK`), `decimal(p, s)`, Arrow's own, and, made of these, `list<...>`,
`map<..., ...>` and `struct<name: ..., ...>`. A store keeps flat types only; a sink takes all types. Spark's types that
no store and no sink has (intervals, times of day, variants, ...) have no name here. Errors name the place inside a
type: `("a", "element")` in `struct<a: array<innt>>`. `TypeReader` also reads Spark's schemas (`taskplace.spark.ddl`).

**Sinks.** Every Spark must be able to read what is staged for a sink. `readable` returns the type as which a column of
any Arrow type is staged, and `text` the name of such a type in declarations, manifests and errors.

| Arrow | staged as |
|---|---|
| boolean, int8 to int64, float32, float64, string, binary, date32 | the same |
| uint8, uint16, uint32; uint64 | int16, int32, int64; decimal(20, 0) |
| float16 | float |
| large and view forms of string and binary, binary of fixed size | string, binary |
| date64 | date |
| timestamps of any unit, with and without a zone | timestamp (UTC), timestamp_ntz: microseconds |
| decimals of at most 38 digits | decimal(p, s) |
| dictionary, extension types | the type of their values |
| lists, maps, structs with fields | the same, of such types |
| null | null: no type yet |

Refused: times of day, durations, intervals, unions, decimals of more digits, structs without fields; variants and
geometries, which would be stored as structs of their encoding.

>>> text(readable(pa.dictionary(pa.int32(), pa.large_string()))), text(readable(pa.uint64()))
('string', 'decimal(20, 0)')

**Between nodes** (`canonical`), each kind of value has one type: a string, whether a processor returns strings, large
ones, views or a dictionary. So nodes can select rows, which Arrow cannot do of all layouts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import pyarrow as pa

from taskplace.errors import InputError
from taskplace.validation import named, nearest
from topology.errors import shown

#: The name of the type of a column with only nulls; nulls have the same hash in every type.
UNTYPED = "null"
#: The most digits of a decimal, in Spark and in a store.
DIGITS = 38
#: Letters before a mistake that an error shows.
_SHOWN = 60
#: Types in types, at most.
DEEPEST = 100

#: Spark's types without parameters. In Arrow, some of the names have another meaning, or none.
SPARK = {
    "boolean": pa.bool_(),
    **dict.fromkeys(("byte", "tinyint"), pa.int8()),
    **dict.fromkeys(("short", "smallint"), pa.int16()),
    **dict.fromkeys(("int", "integer"), pa.int32()),
    **dict.fromkeys(("long", "bigint"), pa.int64()),
    **dict.fromkeys(("float", "real"), pa.float32()),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), pa.timestamp("us", tz="UTC")),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
_ARROW = ("bool", "int8", "int16", "int32", "int64", "float32", "float64")
_DECIMALS = ("decimal", "dec", "numeric", "decimal128")
_CHARACTERS = ("char", "varchar", "character")
_NESTED = ("array", "list", "map", "struct")
#: Spark's types that have no name here, and the beginnings of such types.
_RARE = ("time", "interval", "variant", "geometry", "geography")
_RARE_PAIRS = (("string", "collate"), ("timestamp", "with"), ("timestamp", "without"))
#: What may follow the type of a column: `NOT NULL`, `COMMENT '...'`.
_FOLLOWS = ("not", "null", "comment", "default", "generated", "collate", "with", "without")
#: Names in backticks, texts in quotes, signs, words. In a word of Arrow's, more may follow: `timestamp[us, tz=UTC]`.
_WORD = re.compile(
    r"""\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[<>(),:]|[^\s<>(),:`'"\[]+(?:\[[^\]]*\])?|\S)"""
)
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=([^\]]+)\]")
#: The key in the metadata of a struct's field that marks the struct as a value of Spark's: a variant, a geometry.
MARKS = (b"variant", b"geometry", b"geography")
T = pa.types
_LIST_KINDS = (T.is_list, T.is_large_list, T.is_fixed_size_list, T.is_list_view, T.is_large_list_view)
_STAGED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
_SAME = {*SPARK.values()} - {kind for kind in SPARK.values() if T.is_timestamp(kind)}


def differ(now: Sequence[str], before: Sequence[str]) -> bool:
    """Return whether two keys have other types. A column with only nulls so far has no type, and fits any.

    >>> differ(["int64"], ["int64", "date32[day]"]), differ([UNTYPED], ["int64"])
    (True, False)
    """
    return len(now) != len(before) or any(
        len({*pair} - {UNTYPED}) > 1 for pair in zip(now, before, strict=True)
    )


class TypeTextError(ValueError):
    """A written type that is none: where in it, what was found, what was expected, the nearest known name."""

    def __init__(self, place: tuple[str, ...], found: str, expected: str, hint: str = "") -> None:
        where = f"in {'.'.join(place)}: " if place else ""
        super().__init__(f"{where}found {shown(found)}, expected {expected}{hint and '; ' + hint}")
        self.place, self.found, self.expected, self.hint = place, found, expected, hint

    @property
    def suffix(self) -> str:
        """The place, as what follows the path of the whole type."""
        return "".join(f".{name}" for name in self.place)


class TypeReader:
    """Reads written types: Spark's (DDL), and, with `arrow`, those of Arrow.

    - `rare`: whether a type was read that has no name here; null stands for it. Without `arrow` only
    - `timestamp`: what `timestamp` means, which depends on Spark's session

    Errors: `TypeTextError`.

    >>> TypeReader("a long NOT NULL, `b c`: map<string, decimal(9, 2)> COMMENT 'x, y'").columns("")
    [('a', DataType(int64), 'long'), ('b c', MapType(map<string, decimal128(9, 2)>), 'map<string, decimal(9, 2)>')]
    """

    def __init__(
        self, written: str, *, arrow: bool = False, timestamp: pa.DataType = SPARK["timestamp"]
    ) -> None:
        self.rare = False
        self._names, self._arrow = {**SPARK, "timestamp": timestamp}, arrow
        self._written = written
        self._words = [(match[1], match.start(1), match.end(1)) for match in _WORD.finditer(written.rstrip())]
        self._next = 0
        self._place: tuple[str, ...] = ()

    def column_type(self) -> pa.DataType:
        """Read the type of one column, and what follows it, to the end of the text."""
        kind = self.type()
        self._skip_what_follows()
        if self._peek():
            raise self._unexpected("nothing more")
        return kind

    def type(self) -> pa.DataType:
        """Read the next type."""
        written = self._take()
        name, behind = written.lower(), self._peek().lower()
        if not self._arrow and (name in _RARE or (name, behind) in _RARE_PAIRS):
            self.rare = True
            self._skip()
            return pa.null()
        if name in _DECIMALS:
            return pa.decimal128(*self._digits()) if behind == "(" else pa.decimal128(10, 0)
        if name in _CHARACTERS:
            self._expect("(")
            self._number()
            self._expect(")")
            return pa.string()
        if name in _NESTED:
            return self._nested(name)
        if name in self._names:
            return self._names[name]
        if self._arrow:
            if zoned := _ZONED.fullmatch(written):
                return pa.timestamp(zoned[1], zoned[2])
            with suppress(ValueError):
                return pa.type_for_alias(name)
        if not name or name in "<>(),:":
            self._next -= bool(name)
            raise self._unexpected("a type")
        known = (*SPARK, *_DECIMALS, *_NESTED, *(_ARROW if self._arrow else _RARE))
        raise TypeTextError(self._place, written, "a type", nearest(name, known))

    def columns(self, end: str) -> list[tuple[str, pa.DataType, str]]:
        """Read columns, or the fields of a struct, up to the word `end`: names, types, and types as written."""
        found = []
        while True:
            if not re.fullmatch(r"\w+|`.+`", self._peek(), re.DOTALL):
                raise self._unexpected(
                    "a name, in backticks if it has other signs than letters, digits and _"
                )
            name = self._take()
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            if self._peek() == ":":
                self._take()
            begin = self._next
            with self._inside(name):
                kind = self.type()
                found.append((name, kind, self._text(begin)))
                self._skip_what_follows()
                if self._peek() == end:
                    return found
                self._expect(",", *filter(None, [end]))

    def _nested(self, name: str) -> pa.DataType:
        self._expect("<")
        if name == "struct":
            fields = [] if self._peek() == ">" else self.columns(">")
            kind: pa.DataType = pa.struct([(name, kind) for name, kind, _ in fields])
        elif name == "map":
            key = self._part("key")
            self._expect(",")
            kind = pa.map_(key, self._part("value"))
        else:
            kind = pa.list_(self._part("element"))
        self._expect(">")
        return kind

    def _part(self, name: str) -> pa.DataType:
        with self._inside(name):
            return self.type()

    @contextmanager
    def _inside(self, name: str) -> Iterator[None]:
        """Have errors name a part of the type: the field of a struct, `element`, `key` or `value`."""
        if len(self._place) >= DEEPEST:
            raise TypeTextError((), "types nested too deeply", f"at most {DEEPEST} levels")
        self._place = (*self._place, name)
        yield
        self._place = self._place[:-1]

    def _digits(self) -> tuple[int, int]:
        self._expect("(")
        digits, scale = self._number(), 0
        if not 1 <= digits <= DIGITS:
            raise TypeTextError(self._place, f"{digits} digits", f"a decimal of 1 to {DIGITS} digits")
        if self._peek() == ",":
            self._take()
            scale = self._number()
        if not 0 <= scale <= digits:
            found = f"a scale of {scale} with a precision of {digits}"
            raise TypeTextError(self._place, found, f"a scale of 0 to {digits}")
        self._expect(")")
        return digits, scale

    def _number(self) -> int:
        if not re.fullmatch(r"-?[0-9]{1,9}", self._peek()):
            raise self._unexpected("a whole number")
        return int(self._take())

    def _peek(self) -> str:
        """Return the next word; "" at the end."""
        return self._words[self._next][0] if self._next < len(self._words) else ""

    def _take(self) -> str:
        word = self._peek()
        self._next += bool(word)
        return word

    def _text(self, begin: int) -> str:
        """Return the text from a word to the last one that was taken."""
        return self._written[self._words[begin][1] : self._words[self._next - 1][2]]

    def _expect(self, *words: str) -> None:
        if self._peek() not in words:
            raise self._unexpected(" or ".join(map(repr, words)))
        self._take()

    def _skip_what_follows(self) -> None:
        if self._peek().lower() in _FOLLOWS:
            self._skip()

    def _skip(self) -> None:
        """Go on to the end of a column, or of a field."""
        depth = 0
        while self._peek() and (depth or self._peek() not in (",", ">")):
            depth += {"(": 1, ")": -1}.get(self._take(), 0)

    def _unexpected(self, expected: str) -> TypeTextError:
        """Return the error for the next word."""
        before = self._text(0).strip() if self._next else ""
        before = before if len(before) <= _SHOWN else f"...{before[-_SHOWN:]}"
        behind = f" behind {before!r}" if before else ""
        return TypeTextError(self._place, self._peek() or "the end of the type", f"{expected}{behind}")


def parse(written: str) -> pa.DataType:
    """Return the Arrow type of a name. Errors: `TypeTextError`, a `ValueError`, with the place inside the type.

    >>> parse("decimal(9, 2)"), parse("map<string, list<timestamp>>")
    (Decimal128Type(decimal128(9, 2)), MapType(map<string, list<item: timestamp[us, tz=UTC]>>))
    >>> parse("struct<a: list<innt>>")
    Traceback (most recent call last):
    taskplace.spark.types.TypeTextError: in a.element: found 'innt', expected a type; did you mean 'int'?
    """
    return TypeReader(written, arrow=True).column_type()


def arrow_schema(columns: pa.Schema | Mapping[str, object], path: str = "store") -> pa.Schema:
    """Return the Arrow schema of `columns` (name -> type or type name).

    The names are those of a sink's schema (`parse`). Errors: `InputError` with the nearest name, or for
    a column that a schema has twice.

    >>> arrow_schema({"tailnum": "string", "at": "timestamp"}).types
    [DataType(string), TimestampType(timestamp[us, tz=UTC])]
    """
    if isinstance(columns, pa.Schema):
        if len(set(columns.names)) != len(columns):  # a mapping would keep only the last one
            raise InputError(path, found=columns.names, expected="each column name once")
        return columns
    if not isinstance(columns, Mapping):
        raise InputError(path, found=columns, expected="columns with their types, such as {'id': 'int64'}")
    fields = []
    for name, kind in columns.items():
        named(name, path, "the name of a column")
        if not isinstance(kind, pa.DataType):
            expected = "an Arrow type or its name, such as 'int64' or 'decimal(9, 2)'"
            if not isinstance(kind, str):
                raise InputError(f"{path}.{name}", found=kind, expected=expected)
            kind = parsed(kind, f"{path}.{name}", expected)
        fields.append(pa.field(name, kind))
    return pa.schema(fields)


def parsed(written: str, path: str, expected: str) -> pa.DataType:
    """Return the type that a text means. Errors: `InputError` with the place inside it and the nearest known name.

    >>> parsed("list<innt>", "stores.seen.key.id", "a type")
    Traceback (most recent call last):
    taskplace.errors.InputError: stores.seen.key.id.element: found 'innt', expected a type; did you mean 'int'?
    """
    try:
        return parse(written)
    except TypeTextError as error:
        if error.found == written.strip():  # all of it is one wrong word
            raise InputError(path, found=written, expected=expected, hint=error.hint) from None
        at = f"{path}{error.suffix}"
        raise InputError(at, found=error.found, expected=error.expected, hint=error.hint) from None


def table_given(rows: object, path: str) -> None:
    """Refuse rows that are not an Arrow table. Errors: `InputError`."""
    if not isinstance(rows, pa.Table | pa.RecordBatch):
        raise InputError(
            path, found=rows, expected="a pyarrow.Table", hint="pa.Table.from_pylist(rows) makes one"
        )


def column_of(rows: pa.Table | pa.RecordBatch, name: str, path: str) -> pa.ChunkedArray:
    """Return a column by its name. Errors: `InputError` with the existing columns and the nearest one.

    A table without rows may lack columns (such as `pa.table({})`), so it gives an empty column for any name.
    """
    table_given(rows, path)
    if not rows.num_rows:
        return pa.chunked_array([pa.nulls(0)])
    index = rows.schema.get_field_index(name)
    if index < 0:
        names = rows.schema.names
        expected = f"one column {name!r}" if name in names else f"a column {name!r}"
        raise InputError(path, found=names, expected=expected, hint=nearest(name, names))
    return rows.column(index)


def check_cast(given: pa.DataType, wanted: pa.DataType, path: str, column: str = "") -> None:
    """Refuse to read a number or a text as a time, or a time as a number, because the unit is unknown.

    Arrow would do it: an integer becomes a timestamp in the store's unit, and a timestamp a number in its own unit.
    `column` is the name of the source column, if it differs.

    >>> check_cast(pa.int64(), pa.timestamp("us"), "stores.seen.value.at")
    Traceback (most recent call last):
    taskplace.errors.InputError: stores.seen.value.at: found 'int64', expected timestamp[us]; \
cast the column before: a number has no unit of time
    """
    if pa.types.is_dictionary(given):
        given = given.value_type
    if pa.types.is_null(given) or pa.types.is_temporal(given) == pa.types.is_temporal(wanted):
        return
    if pa.types.is_temporal(given) and not _is_number(wanted):
        return  # a time as text loses nothing
    what = "a number has no unit of time" if _is_number(given) or _is_number(wanted) else "parse the text"
    shown = f"{column!r}, {given}" if column else str(given)
    raise InputError(path, found=shown, expected=str(wanted), hint=f"cast the column before: {what}")


def _is_number(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (T.is_integer, T.is_floating, T.is_decimal, T.is_boolean))


class Unreadable(ValueError):
    """A type that Parquet cannot store, or Spark cannot read; the message has the remedy."""


def canonical(kind: pa.DataType) -> pa.DataType:
    """Return the type that columns with values of a type have between nodes; most types stay as they are.

    >>> canonical(pa.dictionary(pa.int8(), pa.large_string())), canonical(pa.list_(pa.binary_view(), 2))
    (DataType(string), ListType(list<item: binary>))
    """
    if T.is_dictionary(kind) or T.is_run_end_encoded(kind):  # the latter cannot be cast: `canonical_rows`
        return canonical(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return canonical(kind.storage_type)
    if T.is_large_string(kind) or T.is_string_view(kind):
        return pa.string()
    if T.is_large_binary(kind) or T.is_binary_view(kind) or T.is_fixed_size_binary(kind):
        return pa.binary()
    if any(is_list(kind) for is_list in _LIST_KINDS):
        return pa.list_(_canonical_field(kind.value_field))
    if T.is_map(kind):
        return pa.map_(_canonical_field(kind.key_field), _canonical_field(kind.item_field))
    if T.is_struct(kind):
        return pa.struct([_canonical_field(field) for field in kind])
    return kind


def _canonical_field(field: pa.Field) -> pa.Field:
    return field.with_type(canonical(field.type))  # keeps `MARKS`


def readable(kind: pa.DataType) -> pa.DataType:
    """Return the type as which a column of this type is staged. Errors: `Unreadable`."""
    kind = canonical(kind)
    if kind in _SAME:
        return kind
    if kind in _STAGED:
        return _STAGED[kind]
    if T.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if T.is_decimal(kind):
        scale = max(kind.scale, 0)
        digits = max(kind.precision - kind.scale + scale, scale)
        if digits > DIGITS:
            raise Unreadable(
                f"Spark's decimals have at most {DIGITS} digits: cast the column to fewer digits, or to string"
            )
        return pa.decimal128(digits, scale)
    if T.is_list(kind):
        return pa.list_(readable(kind.value_type))
    if T.is_map(kind):
        return pa.map_(readable(kind.key_type), readable(kind.item_type))
    if T.is_struct(kind):
        _check_marks(kind)
        check_names([field.name for field in kind], "a struct's fields")
        return pa.struct([(field.name, readable(field.type)) for field in kind])
    raise Unreadable(f"Spark cannot read {kind} from Parquet: cast the column to int64 or string")


def _check_marks(kind: pa.StructType) -> None:
    """Refuse a struct that is the encoding of a variant or a geometry. Errors: `Unreadable`."""
    marks = {mark for field in kind for mark in MARKS if mark in (field.metadata or {})}
    if marks:
        what = marks.pop().decode()
        variant = "cast it to string, or take its fields with variant_get"
        cast = variant if what == "variant" else "use ST_AsBinary"
        raise Unreadable(f"a {what} would be stored as a struct of its encoding: {cast}, in the source")


def check_names(names: Sequence[str], what: str = "columns") -> None:
    """Refuse names that are equal for Spark. Errors: `Unreadable`."""
    if not names:
        raise Unreadable(f"{what}: none; Parquet cannot store rows without columns")
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.lower(), name)) != name or names.count(name) > 1:
            raise Unreadable(
                f"{what} {other!r} and {name!r}, which Spark treats as one name: rename one of them"
            )


def untyped(kind: pa.DataType) -> bool:
    """Return whether a type, or a part of it, is unknown (null)."""
    if T.is_list(kind):
        return untyped(kind.value_type)
    if T.is_map(kind):
        return untyped(kind.key_type) or untyped(kind.item_type)
    if T.is_struct(kind):
        return any(untyped(field.type) for field in kind)
    return bool(T.is_null(kind))


def text(kind: pa.DataType) -> str:
    """Return the name of a type that `readable` returned."""
    if T.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if T.is_date32(kind):
        return "date"
    if T.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if T.is_list(kind):
        return f"list<{text(kind.value_type)}>"
    if T.is_map(kind):
        return f"map<{text(kind.key_type)}, {text(kind.item_type)}>"
    if T.is_struct(kind):
        return f"struct<{', '.join(f'{_quoted(field.name)}: {text(field.type)}' for field in kind)}>"
    return str(kind)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"
