"""A key-value cache whose columns are written into room that is there, and not copied each step."""

from typing import Any

ROOM = 64  # columns: a cache of n columns is copied once in so many steps


def growing_cache(config: Any) -> Any:
    """An empty cache of transformers; its layers that keep every column grow in place."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    class GrowingLayer(DynamicLayer):  # type: ignore[misc]  # transformers has no types
        """`keys` and `values` are the first columns of two larger tensors."""

        keys: Any
        values: Any
        room: tuple[Any, Any] | None = None

        def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> Any:
            if not self.is_initialized:
                self.lazy_initialization(key_states, value_states)
            have = self.get_seq_length()
            needed = have + key_states.shape[2]
            if self.room is None or self.room[0].shape[2] < needed:
                keys = _with_room(self.keys, key_states, have)
                self.room = keys, _with_room(self.values, value_states, have)
            for whole, new in zip(self.room, (key_states, value_states), strict=True):
                whole[:, :, have:needed] = new
            self.keys, self.values = (whole[:, :, :needed] for whole in self.room)
            return self.keys, self.values

        def batch_select_indices(self, indices: Any) -> None:
            super().batch_select_indices(indices)
            self.room = None  # the rows that are left have no room yet

    whole = DynamicCache(config=config)
    whole.layers = [GrowingLayer() if type(one) is DynamicLayer else one for one in whole.layers]
    return whole


def _with_room(old: Any, new: Any, have: int) -> Any:
    """The columns there are, (rows, heads, columns, size), with room behind them."""
    rows, heads, count, size = new.shape
    whole = new.new_empty((rows, heads, have + count + ROOM, size))
    if have:
        whole[:, :, :have] = old
    return whole
