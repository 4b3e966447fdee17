from typing import Generic, TypeVar

from switchboard._model import Model

T = TypeVar("T")


class Page(Model, Generic[T]):
    """A page of a list; `next` is the cursor of the next page."""

    items: list[T]
    next: str | None = None
