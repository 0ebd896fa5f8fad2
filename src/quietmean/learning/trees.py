"""Models as nested dicts, lists and tuples of arrays: to one vector and back, shapes, types and devices kept.

Leaves are numpy arrays, plain floats, or tensors of PyTorch, which is used through the tensors that are given and never imported.
Whole numbers, booleans, texts and None are not averaged: they stay as they are in the model at hand.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError
from quietmean.core.party import Vector

# Statistics of a party's own records: their average is not what clipping bounds, and a variance with noise may be negative.
_BUFFERS = ("running_mean", "running_var")


class Tree:
    """The structure of a ``model``. Raises :class:`InputError` if it has nothing to average, or statistics of BatchNorm."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._leaves = list(_leaves(model, ""))
        self._shapes = {name: _numbers(leaf).shape for name, leaf in self._leaves}
        if not self._leaves or not self.size:
            raise InputError("the model holds no array of floating-point numbers: give nested dicts, lists or tuples of arrays")
        for name, _ in self._leaves:
            if name.rsplit(".", 1)[-1] in _BUFFERS:
                raise InputError(
                    f"the model holds {name}, a statistic of BatchNorm over a party's own records: use GroupNorm or LayerNorm"
                )

    @property
    def size(self) -> int:
        """Coordinates d of the vector."""
        return sum(int(np.prod(shape)) for shape in self._shapes.values())

    def describe(self) -> dict[str, list[int]]:
        """The shapes of what is averaged, by name, in plain data."""
        return {name: list(shape) for name, shape in self._shapes.items()}

    def flat(self, model: Any, whose: str = "the model") -> Vector:
        """The vector (d,) of a model of this structure. Raises :class:`InputError` for another one; it holds no value."""
        return np.concatenate([leaf.ravel() for leaf in self._arrays(model, whose, lambda shape: shape)])

    def rows(self, model: Any, whose: str = "the model") -> Array:
        """The vectors, (N, d), of N models in one: each array has one more axis of size N before its own.

        As ``torch.func.vmap`` gives gradients of single records. Raises :class:`InputError` as :meth:`flat` does.
        """
        first = next((len(_numbers(leaf)) for _, leaf in _leaves(model, "") if _numbers(leaf).ndim), 0)
        arrays = self._arrays(model, whose, lambda shape: (first, *shape))
        return np.hstack([leaf.reshape(first, int(np.prod(leaf.shape[1:]))) for leaf in arrays])

    def filled(self, vector: Vector) -> Any:
        """The model with the numbers of a vector (d,) in place of its own. What is not averaged is that of the model."""
        parts, start = {}, 0
        for name, shape in self._shapes.items():
            size = int(np.prod(shape))
            parts[name] = vector[start : start + size].reshape(shape)
            start += size
        return _rebuilt(self._model, "", parts)

    def _arrays(self, model: Any, whose: str, shaped: Any) -> Iterator[Array]:
        leaves = dict(_leaves(model, ""))
        for name in [*self._shapes, *leaves]:
            if name not in leaves or name not in self._shapes:
                fault = "has no array" if name not in leaves else "has an array more,"
                raise InputError(f"{whose} {fault} {name or 'itself'}: all models need the structure of the first")
        for name, shape in self._shapes.items():
            array, expected = _numbers(leaves[name]), shaped(shape)
            if array.shape != expected:
                raise InputError(f"{name or 'the array'} of {whose} has shape {array.shape}, not {expected}: mend it")
            yield array


def _is_tensor(leaf: Any) -> bool:
    return hasattr(leaf, "detach") and hasattr(leaf, "new_tensor")


def _is_averaged(leaf: Any) -> bool:
    if _is_tensor(leaf):
        return bool(leaf.is_floating_point())
    if isinstance(leaf, np.ndarray | np.generic):
        if leaf.dtype.kind in "cO":
            raise InputError(f"an array of type {leaf.dtype} cannot be averaged: give floating-point numbers")
        return leaf.dtype.kind == "f"
    return isinstance(leaf, float)


def _children(tree: Any) -> Iterator[tuple[Any, str]] | None:
    if isinstance(tree, Mapping):
        return ((key, str(key)) for key in tree)
    if isinstance(tree, list | tuple):
        return ((index, str(index)) for index in range(len(tree)))
    return None


def _leaves(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    children = _children(tree)
    if children is not None:
        for key, name in children:
            yield from _leaves(tree[key], f"{path}.{name}" if path else name)
    elif _is_averaged(tree):
        yield path, tree
    elif not (tree is None or isinstance(tree, int | str | bytes | np.ndarray | np.generic) or _is_tensor(tree)):
        raise InputError(f"{path or 'the model'} is a {type(tree).__name__}: give nested dicts, lists or tuples of arrays")


def _rebuilt(tree: Any, path: str, parts: Mapping[str, Array]) -> Any:
    children = _children(tree)
    if children is None:
        return _like(tree, parts[path]) if path in parts else tree
    made = {key: _rebuilt(tree[key], f"{path}.{name}" if path else name, parts) for key, name in children}
    if isinstance(tree, Mapping):
        # A copy keeps the kind of the dict, and what a state_dict has besides.
        fresh: Any = copy.copy(tree)
        for key, value in made.items():
            fresh[key] = value
        return fresh
    listed = list(made.values())
    return type(tree)(*listed) if hasattr(tree, "_fields") else type(tree)(listed)


def _numbers(leaf: Any) -> Array:
    if _is_tensor(leaf):
        leaf = leaf.detach().cpu().double().numpy()
    return np.asarray(leaf, dtype=np.float64)


def _like(leaf: Any, array: Array) -> Any:
    if _is_tensor(leaf):
        return leaf.new_tensor(array)
    if isinstance(leaf, np.ndarray):
        return array.astype(leaf.dtype)
    return type(leaf)(array)
