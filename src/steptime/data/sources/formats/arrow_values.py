"""What columns an Arrow schema has, and the values of Arrow arrays as `SampleSource` gives them.

A structure becomes a column for each of its fields (`image.bytes`), except the pair of bytes and
path in which Hugging Face datasets keep pictures and sound, which becomes the bytes.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from steptime.data.source import Column, Values
from steptime.errors import DataError

MAX_DEPTH = 8


def columns_of(schema: pa.Schema, where: str, wanted: tuple[str, ...] | None) -> tuple[Column, ...]:
    """Return the columns of a schema, or those of them that are wanted.

    Raises:
        DataError: a wanted column is not there, or a type has no values for a training.
    """
    missing = [name for name in wanted or () if schema.get_field_index(name) < 0]
    if missing:
        have = ", ".join(schema.names)
        raise DataError(f"{where} has no column {', '.join(missing)}: it has {have}")
    found: list[Column] = []
    for field in schema:
        if wanted is None or field.name in wanted:
            found += _columns(field.name, field.type, where)
    if len({column.name for column in found}) < len(found) or not found:
        what = "has no columns" if not found else "has two columns of one name"
        raise DataError(f"{where} {what}")
    classes = _classes(schema)
    return tuple(column._replace(classes=classes.get(column.name)) for column in found)


class ClassLabel(msgspec.Struct):
    """What Hugging Face datasets note of a label."""

    kind: str = msgspec.field(name="_type", default="")
    names: list[str] = []


def _classes(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """The names of labels, from the note that Hugging Face datasets leave in a schema."""
    note = (schema.metadata or {}).get(b"huggingface", b"{}")
    try:
        features = msgspec.json.decode(note)["info"]["features"]
        labels = {name: msgspec.convert(f, ClassLabel) for name, f in features.items() if f}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}  # a note, not data
    return {n: tuple(label.names) for n, label in labels.items() if label.kind == "ClassLabel"}


def _columns(name: str, kind: pa.DataType, where: str, depth: int = 0) -> list[Column]:
    if isinstance(kind, pa.BaseExtensionType) and not _is_tensor(kind):
        return _columns(name, kind.storage_type, where, depth + 1)
    if pa.types.is_struct(kind) and depth < MAX_DEPTH:
        if _is_media(kind):
            return [Column(name, "bytes")]
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return [c for f in fields for c in _columns(f"{name}.{f.name}", f.type, where, depth + 1)]
    column = _column(name, kind)
    if column is None:
        raise DataError(
            f"column {name} of {where} has the type {kind}, which has no form for a training",
            hint="Name the columns to read: columns=[…].",
        )
    return [column]


def _column(name: str, kind: pa.DataType) -> Column | None:
    types = pa.types
    if types.is_dictionary(kind):
        return _column(name, kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return Column(name, "text")
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return Column(name, "bytes")
    if types.is_fixed_size_binary(kind) and not types.is_decimal(kind):
        return Column(name, "bytes")
    if (dtype := _dtype(kind)) is not None:
        return Column(name, "number", dtype, ())
    if _is_tensor(kind):
        inner = _dtype(kind.value_type)
        return Column(name, "array", inner, tuple(kind.shape)) if inner else None
    shape: tuple[int, ...] | None = ()
    while types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind):
        fixed = types.is_fixed_size_list(kind)
        shape = (*shape, kind.list_size) if fixed and shape is not None else None
        kind = kind.value_type
    if shape == ():
        return None
    inner = _dtype(kind)
    if inner is None and types.is_string(kind):
        return Column(name, "array", "object", None)
    return Column(name, "array", inner, shape) if inner else None


def _dtype(kind: pa.DataType) -> str | None:
    types = pa.types
    if types.is_boolean(kind):
        return "bool"
    if types.is_integer(kind) or types.is_floating(kind):
        return str(np.dtype(kind.to_pandas_dtype()).name)
    if types.is_timestamp(kind) or types.is_date(kind):
        return f"datetime64[{kind.unit if types.is_timestamp(kind) else 'ms'}]"
    return None


def _is_tensor(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.FixedShapeTensorType) and kind.permutation in (
        None,
        list(range(len(kind.shape))),
    )


def _is_media(kind: pa.StructType) -> bool:
    names = {kind.field(i).name for i in range(kind.num_fields)}
    return names == {"bytes", "path"} and _column("", kind.field("bytes").type) == Column(
        "", "bytes"
    )


def values_of(table: pa.Table | pa.RecordBatch, columns: tuple[Column, ...]) -> dict[str, Values]:
    """Return the values of rows that were taken, by column."""
    found: dict[str, Values] = {}
    by_name = {column.name: column for column in columns}
    for name, array in zip(table.schema.names, table.columns, strict=True):
        _gather(name, array, by_name, found)
    return {column.name: found[column.name] for column in columns}


def _gather(
    name: str,
    array: pa.Array | pa.ChunkedArray,
    columns: dict[str, Column],
    found: dict[str, Values],
) -> None:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
    if isinstance(array.type, pa.BaseExtensionType) and not _is_tensor(array.type):
        array = array.storage
    if pa.types.is_struct(array.type):
        if _is_media(array.type):
            found[name] = _values(_media(name, array), columns[name])
            return
        for i in range(array.type.num_fields):
            inner = f"{name}.{array.type.field(i).name}"
            if any(c == inner or c.startswith(f"{inner}.") for c in columns):
                _gather(inner, pc.struct_field(array, [i]), columns, found)
    elif name in columns:
        found[name] = _values(array, columns[name])


def _media(name: str, array: pa.StructArray) -> pa.Array:
    data = pc.struct_field(array, "bytes")
    if data.null_count:
        paths = pc.struct_field(array, "path").filter(data.is_null()).to_pylist()
        outside = next((path for path in paths if path), None)
        if outside:
            what = f"the bytes of {name} are not in the file but in {outside!r}"
            raise ValueError(f"{what}: open the folder of those files")
    return data


def _values(array: pa.Array, column: Column) -> Values:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if column.kind in ("text", "bytes"):
        values: list[object] = array.to_pylist()
        return values
    if array.null_count:
        raw = array.to_pylist()
        if column.kind == "array" and column.dtype != "object":
            return [None if v is None else np.asarray(v, column.dtype) for v in raw]
        return list(raw)  # absent is not zero
    if column.kind == "number":
        return np.asarray(array.to_numpy(zero_copy_only=False)).astype(column.dtype, copy=False)
    if column.shape is not None:
        flat, inner = len(array), array.storage if _is_tensor(array.type) else array
        while pa.types.is_fixed_size_list(inner.type):
            inner = inner.flatten()
        return _numbers(inner).reshape(flat, *column.shape)
    return _ragged(array, column)


def _numbers(array: pa.Array) -> np.ndarray:
    if array.null_count:
        raise ValueError("a number in an array is missing")
    return np.asarray(array.to_numpy(zero_copy_only=False))


def _ragged(array: pa.Array, column: Column) -> Values:
    if pa.types.is_nested(array.type.value_type) or column.dtype == "object":
        nested = array.to_pylist()
        if column.dtype == "object":
            return list(nested)
        return [np.array(value, dtype=column.dtype) for value in nested]
    flat = _numbers(array.flatten())
    ends = np.cumsum(pc.list_value_length(array).to_numpy(zero_copy_only=False))
    return list(np.split(flat, ends[:-1]))
