"""The page of the matrix, made from its rows alone."""

from typing import Any


def write_page(rows: list[dict[str, Any]], cells: list[Any]) -> None:
    return None
