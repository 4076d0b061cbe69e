"""Column types: their names, what a sink and a store take, and columns found by name.

**Names.** Known names are `ALIASES`, Spark's names of small integers, Arrow's own names, `decimal(p, s)`, and, made of
these, `list<...>`, `map<..., ...>` and `struct<name: ..., ...>`. A store keeps flat types only; a sink takes all types.
Spark's types that no store and no sink has (intervals, times of day, variants, ...) have no name here; `of_spark` reads
them as well, because a source may have them. Errors name the place inside a type: `("a", "element")` in
`struct<a: array<innt>>`. Spark's schemas (`taskplace.spark.ddl`) are read by the same `Tokens`.

>>> tokens = Tokens("array<innt>", WORDS)
>>> tokens.take(), tokens.expect("<")
('array', None)
>>> with tokens.inside("element"):
...     raise tokens.unknown(tokens.take(), ["int", "string"])
Traceback (most recent call last):
taskplace.spark.types.TypeTextError: in element: found 'innt', expected a type; did you mean 'int'?

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
| dictionary, run-end encoded, extension types | the type of their values |
| lists, maps, structs with fields | the same, of such types |
| null | null: no type yet |

Refused: times of day, durations, intervals, unions, decimals of more digits, structs without fields; variants and
geometries, which would be stored as structs of their encoding.

>>> text(readable(pa.dictionary(pa.int32(), pa.large_string()))), text(readable(pa.uint64()))
('string', 'decimal(20, 0)')

**Rows of a processor** (`selectable`). Nodes select rows: a repartition takes those of each partition, a `Deduplicate`
the first of each key. Arrow cannot do that for views and run-end encoded columns, alone or inside other types. So they
get the type of their values: string_view becomes string.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc

from taskplace.errors import InputError
from taskplace.spark.casts import is_list, plain
from taskplace.validation import NO_SURROGATES, has_surrogates, named, nearest
from topology.errors import shown

#: Texts in quotes, names in backticks, signs, words.
WORDS = re.compile(
    r"""\s*+(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[<>(),:]|[^\s<>(),:`'"]+|\S)"""
)
#: The name of the type of a column with only nulls; nulls have the same hash in every type.
UNTYPED = "null"
#: The most digits of a decimal, in Spark and in a store.
DIGITS = 38
#: Letters before a mistake that an error shows.
_SHOWN = 60
#: Types in types, at most.
DEEPEST = 100


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


class Tokens:
    """The words of a written type that have not been read yet."""

    def __init__(self, written: str, words: re.Pattern[str]) -> None:
        self.written = written
        self._words = [(match[1], match.start(1), match.end(1)) for match in words.finditer(written.rstrip())]
        self._next = 0
        self._place: tuple[str, ...] = ()

    def peek(self) -> str:
        """Return the next word; "" at the end."""
        return self._words[self._next][0] if self._next < len(self._words) else ""

    def take(self) -> str:
        """Return the next word, and go on behind it; "" at the end."""
        word = self.peek()
        self._next += bool(word)
        return word

    @property
    def begin(self) -> int:
        """Where the next word begins in the text."""
        return self._words[self._next][1] if self._next < len(self._words) else len(self.written)

    @property
    def end(self) -> int:
        """Where the last word that was taken ends."""
        return self._words[self._next - 1][2] if self._next else 0

    def expect(self, *words: str) -> None:
        """Take the next word, one of these. Errors: `TypeTextError` for another one."""
        if self.peek() not in words:
            raise self.unexpected(" or ".join(map(repr, words)))
        self.take()

    def finish(self) -> None:
        """Refuse words that are left."""
        if self.peek():
            raise self.unexpected("nothing more")

    def number(self) -> int:
        """Take the next word, a whole number."""
        if not re.fullmatch(r"-?[0-9]{1,9}", self.peek()):
            raise self.unexpected("a whole number")
        return int(self.take())

    def decimal(self, *, any_scale: bool = False) -> tuple[int, int]:
        """Take the digits of a decimal: `(9, 2)`, or `(9)`; with `any_scale`, the second number may be any."""
        self.expect("(")
        digits, scale = self.number(), 0
        if not any_scale <= digits <= DIGITS:  # Spark has a decimal(0, 0), Arrow has none
            raise self.error(f"{digits} digits", f"a decimal of 1 to {DIGITS} digits")
        if self.peek() == ",":
            self.take()
            scale = self.number()
        if not 0 <= scale <= digits and not any_scale:
            raise self.error(f"a scale of {scale} with a precision of {digits}", f"a scale of 0 to {digits}")
        self.expect(")")
        return digits, scale

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Have errors name a part of the type: the field of a struct, `element`, `key` or `value`."""
        if len(self._place) >= DEEPEST:
            raise TypeTextError((), "types nested too deeply", f"at most {DEEPEST} levels")
        self._place = (*self._place, name)
        yield
        self._place = self._place[:-1]

    def error(self, found: str, expected: str, hint: str = "") -> TypeTextError:
        """Return the error for what was found at this place."""
        return TypeTextError(self._place, found, expected, hint)

    def unexpected(self, expected: str) -> TypeTextError:
        """Return the error for the next word."""
        before = self.written[: self.end].strip()
        before = before if len(before) <= _SHOWN else f"...{before[-_SHOWN:]}"
        behind = f" behind {before!r}" if before else ""
        return self.error(self.peek() or "the end of the type", f"{expected}{behind}")

    def unknown(self, name: str, known: Collection[str]) -> TypeTextError:
        """Return the error for a word that names no type."""
        if not name or name in ("<", ">", "(", ")", ",", ":"):
            self._next -= bool(name)
            return self.unexpected("a type")
        return self.error(name, "a type", nearest(name.lower(), known))


def name_of(word: str) -> str:
    """Return the name that a word stands for: in backticks, it may have any letters."""
    return word[1:-1].replace("``", "`") if word.startswith("`") and len(word) > 1 else word


#: Names that Arrow does not have, or that have another meaning here.
ALIASES = {
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "boolean": pa.bool_(),
}
#: The usual names, for the hint with the nearest one.
USUAL = (
    *ALIASES,
    "string",
    "binary",
    "bool",
    "double",
    "float",
    "int8",
    "int16",
    "int32",
    "int64",
    "float64",
    "decimal(9, 2)",
)
_KNOWN = {
    **ALIASES,
    "timestamp_ntz": pa.timestamp("us"),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
}


#: In a word of Arrow's may stand more in brackets: `timestamp[us, tz=UTC]`.
_WORDS = re.compile(r"\s*+(`(?:[^`]|``)*`|[<>(),:]|[^\s<>(),:`\[]+(?:\[[^\]]*\])?|\S)")
_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=([^\]]+)\]")
_DECIMALS = ("decimal", "decimal128", "numeric")
_LISTS = ("list", "array")
#: The key in the metadata of a struct's field that marks the struct as a value of Spark's: a variant, a geometry.
MARKS = (b"variant", b"geometry", b"geography")
_UNITS = ("year", "month", "day", "hour", "minute", "second")


def _marked(mark: bytes, first: pa.Field, last: str) -> pa.DataType:
    return pa.struct([first, pa.field(last, pa.binary(), nullable=False, metadata={mark: b"true"})])


#: As Spark passes them to Python workers.
_MARKED = {
    "variant": _marked(b"variant", pa.field("value", pa.binary(), nullable=False), "metadata"),
    "geometry": _marked(b"geometry", pa.field("srid", pa.int32(), nullable=False), "wkb"),
    "geography": _marked(b"geography", pa.field("srid", pa.int32(), nullable=False), "wkb"),
}


def parse(written: str) -> pa.DataType:
    """Return the Arrow type of a name. Errors: `TypeTextError`, a `ValueError`, with the place inside the type.

    >>> parse("decimal(9, 2)"), parse("map<string, list<timestamp>>")
    (Decimal128Type(decimal128(9, 2)), MapType(map<string, list<item: timestamp[us, tz=UTC]>>))
    >>> parse("struct<a: list<innt>>")
    Traceback (most recent call last):
    taskplace.spark.types.TypeTextError: in a.element: found 'innt', expected a type; did you mean 'int'?
    """
    return _parsed(written, of_spark=False)


def of_spark(written: str) -> pa.DataType:
    """Return the type in which a task gets a column, from the type's name in Spark (`simpleString`) or in Arrow.

    Errors: as `parse`.

    >>> of_spark("array<interval day to second>"), of_spark("struct<>"), of_spark("time(6)")
    (ListType(list<item: duration[us]>), StructType(struct<>), Time64Type(time64[ns]))
    """
    return _parsed(written, of_spark=True)


def _parsed(written: str, *, of_spark: bool) -> pa.DataType:
    tokens = Tokens(written, _WORDS)
    kind = _type(tokens, of_spark)
    tokens.finish()
    return kind


def _type(tokens: Tokens, of_spark: bool) -> pa.DataType:
    name = tokens.take()
    lower = name.lower()
    if of_spark and (spark_kind := _sparks_own(tokens, lower)) is not None:
        return spark_kind
    if lower in _DECIMALS:
        return pa.decimal128(*tokens.decimal(any_scale=True))
    if lower in _LISTS:
        tokens.expect("<")
        element = _part(tokens, "element", of_spark)
        tokens.expect(">")
        return pa.list_(element)
    if lower == "map":
        tokens.expect("<")
        key = _part(tokens, "key", of_spark)
        tokens.expect(",")
        value = _part(tokens, "value", of_spark)
        tokens.expect(">")
        return pa.map_(key, value)
    if lower == "struct":
        return _struct(tokens, of_spark)
    kind = _KNOWN.get(name) or _KNOWN.get(lower)
    if kind is not None:
        return kind
    if zoned := _ZONED.fullmatch(name):
        return pa.timestamp(zoned[1], zoned[2])
    try:
        return pa.type_for_alias(lower)
    except ValueError:
        raise tokens.unknown(name, (*USUAL, *_DECIMALS, *_LISTS, "map", "struct")) from None


def _sparks_own(tokens: Tokens, name: str) -> pa.DataType | None:
    """Return a type that only Spark has, or None; the name is taken already."""
    if name == "void":
        return pa.null()
    if name in ("time", *_MARKED):
        if tokens.peek() == "(":
            tokens.expect("(")
            tokens.take()
            tokens.expect(")")
        return _MARKED.get(name, pa.time64("ns"))
    if name == "string" and tokens.peek().lower() == "collate":
        tokens.take()
        tokens.take()
        return pa.string()
    if name == "interval":
        unit = tokens.take().lower() if tokens.peek().lower() in _UNITS else ""
        if unit and tokens.peek().lower() == "to":
            tokens.take()
            tokens.take()
        return pa.month_day_nano_interval() if unit in ("", "year", "month") else pa.duration("us")
    return None


def _part(tokens: Tokens, name: str, of_spark: bool) -> pa.DataType:
    with tokens.inside(name):
        if name == "element" and tokens.peek() == "item":  # as Arrow writes lists
            tokens.take()
            tokens.expect(":")
        return _type(tokens, of_spark)


def _struct(tokens: Tokens, of_spark: bool) -> pa.DataType:
    tokens.expect("<")
    fields: list[pa.Field] = []
    if of_spark and tokens.peek() == ">":
        tokens.take()
        return pa.struct(fields)
    while True:
        if tokens.peek() in ("", "<", ">", "(", ")", ",", ":"):
            raise tokens.unexpected("the name of a field")
        name = name_of(tokens.take())
        tokens.expect(":")
        fields.append(pa.field(name, _part(tokens, name, of_spark)))
        if tokens.peek() != ",":
            tokens.expect(",", ">")
            return pa.struct(fields)
        tokens.take()


def arrow_schema(columns: pa.Schema | Mapping[str, object], path: str = "store") -> pa.Schema:
    """Return the Arrow schema of `columns` (name -> type or type name).

    The names are those of a sink's schema (`column_types.parse`). Errors: `InputError` with the nearest name, or for
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
    if has_surrogates(written):  # in the name of a struct's field
        raise InputError(path, found=written, expected=NO_SURROGATES)
    try:
        return parse(written)
    except TypeTextError as error:
        if error.found == written.strip():  # all of it is one wrong word
            raise InputError(path, found=written, expected=expected, hint=error.hint) from None
        raise InputError(
            f"{path}{error.suffix}",
            found=error.found,
            expected=error.expected,
            hint=error.hint,
        ) from None


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
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
    )


T = pa.types
_STAGED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
_SAME = {
    *(pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.binary(), pa.date32()),
}


class Unreadable(ValueError):
    """A type that Parquet cannot store, or Spark cannot read; the message has the remedy."""


def readable(kind: pa.DataType) -> pa.DataType:
    """Return the type as which a column of this type is staged. Errors: `Unreadable`."""
    kind = plain(kind)
    if kind in _SAME:
        return kind
    if kind in _STAGED:
        return _STAGED[kind]
    if T.is_large_string(kind) or T.is_string_view(kind):
        return pa.string()
    if T.is_large_binary(kind) or T.is_binary_view(kind) or T.is_fixed_size_binary(kind):
        return pa.binary()
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
    if is_list(kind):
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
        cast = (
            "cast it to string, or take its fields with variant_get"
            if what == "variant"
            else "use ST_AsBinary"
        )
        raise Unreadable(f"a {what} would be stored as a struct of its encoding: {cast}, in the source")


def check_names(names: Sequence[str], what: str = "columns") -> None:
    """Refuse names that are equal for Spark. Errors: `Unreadable`."""
    if not names:
        raise Unreadable(f"{what}: none; Parquet cannot store rows without columns")
    seen: dict[str, str] = {}
    for name in names:
        if has_surrogates(name):
            raise Unreadable(f"{what}: the name {name!r} has surrogates (halves of characters): rename it")
        if (other := seen.setdefault(name.lower(), name)) != name or names.count(name) > 1:
            raise Unreadable(
                f"{what} {other!r} and {name!r}, which Spark treats as one name: rename one of them"
            )


def untyped(kind: pa.DataType) -> bool:
    """Return whether a type, or a part of it, is unknown (null)."""
    if is_list(kind):
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
    if is_list(kind):
        return f"list<{text(kind.value_type)}>"
    if T.is_map(kind):
        return f"map<{text(kind.key_type)}, {text(kind.item_type)}>"
    if T.is_struct(kind):
        return f"struct<{', '.join(f'{_quoted(field.name)}: {text(field.type)}' for field in kind)}>"
    return str(kind)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"


def selectable(rows: pa.Table, node: str) -> pa.Table:
    """Return rows with the same values, in columns from which rows can be selected. O(bytes of replaced columns)."""
    for place, field in enumerate(rows.schema):
        kind = replaced(field.type)
        if kind.equals(field.type) and not (T.is_nested(kind) or isinstance(kind, pa.BaseExtensionType)):
            continue
        try:
            if not kind.equals(field.type):
                chunks = [_converted(chunk, kind) for chunk in rows.column(place).chunks]
                rows = rows.set_column(place, field.with_type(kind), pa.chunked_array(chunks, kind))
            rows.column(place).slice(0, 0).take(pa.array([], pa.int64()))
        except pa.ArrowException as error:
            raise InputError(
                f"node {node!r}, column {field.name!r}",
                found=f"{field.type} ({error})",
                expected="a type from which Arrow can select rows",
                hint="cast the column in the processor, for example to string or binary",
            ) from None
    return rows


def replaced(kind: pa.DataType) -> pa.DataType:
    """Return the type that replaces a type; the type itself if it can stay.

    >>> replaced(pa.string_view()), replaced(pa.run_end_encoded(pa.int32(), pa.int64())), replaced(pa.large_string())
    (DataType(string), DataType(int64), DataType(large_string))
    >>> replaced(pa.list_(pa.binary_view()))
    ListType(list<item: binary>)
    """
    if T.is_string_view(kind) or T.is_binary_view(kind):
        return pa.string() if T.is_string_view(kind) else pa.binary()
    if T.is_run_end_encoded(kind):
        return replaced(kind.value_type)
    if T.is_dictionary(kind):
        return pa.dictionary(kind.index_type, replaced(kind.value_type), kind.ordered)
    if T.is_map(kind):
        return pa.map_(replaced(kind.key_type), replaced(kind.item_type), kind.keys_sorted)
    if T.is_struct(kind):
        return pa.struct([field.with_type(replaced(field.type)) for field in kind])
    if T.is_list(kind) or T.is_large_list(kind) or T.is_fixed_size_list(kind):
        inner = kind.value_field.with_type(replaced(kind.value_type))
        if T.is_fixed_size_list(kind):
            return pa.list_(inner, kind.list_size)
        return pa.large_list(inner) if T.is_large_list(kind) else pa.list_(inner)
    return kind


def _converted(array: pa.Array, to: pa.DataType) -> pa.Array:
    if T.is_run_end_encoded(array.type):
        values = _converted(array.values, to)  # before they are repeated: Arrow cannot repeat a view
        whole = pa.RunEndEncodedArray.from_arrays(array.run_ends, values)
        return pc.run_end_decode(whole.slice(array.offset, len(array)))
    return array.cast(to)
