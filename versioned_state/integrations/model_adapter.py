"""``ModelAdapter``: the base of adapters that a framework takes only if they are models of pydantic.

Layer: integrations.
"""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, PrivateAttr

from versioned_state.integrations.adapter import Adapter, Place
from versioned_state.repository.repository import Repository


class ModelAdapter(BaseModel):
    """A model that keeps its data in a repository, as an ``Adapter`` does. Its copies use the same store.

    Args:
        place: as for ``Adapter``.
        data: the fields of the model.
    """

    _adapter: Adapter = PrivateAttr()

    def __init__(self, place: Place, **data: Any) -> None:
        super().__init__(**data)
        self._adapter = Adapter(place)

    @property
    def repository(self) -> Repository:
        """Everything that the adapter stores, for ``log``, ``diff``, ``blame`` and the command line."""
        return self._adapter.repository

    def close(self) -> None:
        """Close the store, if this object opened it."""
        self._adapter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __deepcopy__(self, memo: Any = None) -> Self:
        return self  # a store cannot be copied
