"""Two-variable comprehensions and cel.bind (cel-go's comprehensions and bindings extensions)."""

from __future__ import annotations

from typing import Any, Final

from drakkar.cel import macros
from drakkar.cel.natives import printed
from drakkar.cel.signatures import Library
from drakkar.cel.values import Failure, KeyedMap, key_in, key_of, keys_of


def _insert(mapping: dict[Any, Any], key: Any, value: Any) -> Any:
    if key_in(mapping, key) is not None:
        return Failure(f"insert failed: key {printed(key)} already exists")
    grown = {**mapping, key_of(key): value}
    return KeyedMap(grown) if type(mapping) is KeyedMap or type(key) not in (str, int) else grown


def _insert_all(mapping: dict[Any, Any], entries: dict[Any, Any]) -> Any:
    for key in keys_of(entries):
        if key_in(mapping, key) is not None:
            return Failure(f"insert failed: key {printed(key)} already exists")
    merged = {**mapping, **entries}
    return KeyedMap(merged) if KeyedMap in (type(mapping), type(entries)) else merged


TWO_VARIABLES: Final = Library(
    name="two-variable comprehensions",
    declarations="""
cel.@mapInsert(map(<K>, <V>), <K>, <V>) -> map(<K>, <V>)    @mapInsert_map_key_value
cel.@mapInsert(map(<K>, <V>), map(<K>, <V>)) -> map(<K>, <V>)    @mapInsert_map_map
""",
    implementations={"@mapInsert_map_key_value": _insert, "@mapInsert_map_map": _insert_all},
    macros=macros.TWO_VARIABLES,
)

BINDINGS: Final = Library(name="bindings", macros=macros.BINDINGS)
