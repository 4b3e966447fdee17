"""A page of a list."""

from typing import Generic, TypeVar

from switchboard._model import Model

T = TypeVar("T")


class Page(Model, Generic[T]):
    """Some items; `next` is the cursor of the page behind them."""

    items: list[T]
    next: str | None = None
