"""The public model that the parties of a session move together, as one of them has it: differences go out, means come back.

Each party trains from the public model and hands in its own; the difference is shortened to an L2 norm of C at most, and the mean
of the differences is released with noise (McMahan, Ramage, Talwar and Zhang 2018, without their server). Where records are
protected, the gradient of each record at the public model is shortened instead (Abadi et al. 2016).

With adaptive clipping (Andrew, Thakkar, McMahan and Ramaswamy 2021) one coordinate more says whether the difference is within C,
and C follows a quantile of the norms. Both are one vector in the unit ball: (a u / C, t (2 b - 1)) with a^2 + t^2 = 1, so
nothing changes in the budget; the noise on u is 1 / a times as large.
"""

from __future__ import annotations

import copy
import hashlib
import math
import struct
from collections.abc import Iterator, Mapping
from io import SEEK_CUR, BytesIO
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from quietmean.core.arrays import Array
from quietmean.core.errors import InputError, reason_of
from quietmean.core.keywords import python_call
from quietmean.core.output import Output
from quietmean.core.party import Vector
from quietmean.core.readable import count_of
from quietmean.learning.sites import packed, unpacked
from quietmean.sessions.round_mean import norms, shortened

# Statistics of a party's own records: their average is not what clipping bounds, and a variance with noise may be negative.
_BUFFERS = ("running_mean", "running_var")


class Tree:
    """The structure of a ``model``. Raises :class:`InputError` if it has nothing to average, or statistics of BatchNorm."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._leaves = list(_leaves(model, ""))
        self._shapes = {name: _numbers(leaf).shape for name, leaf in self._leaves}
        if not self._leaves or not self.size:
            raise InputError("the model holds no array of floating-point numbers. Give nested dicts, lists or tuples of arrays.")
        for name, _ in self._leaves:
            if name.rsplit(".", 1)[-1] in _BUFFERS:
                raise InputError(
                    f"the model holds {name}, a statistic of BatchNorm over a party's own records. Use GroupNorm or LayerNorm."
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
                raise InputError(f"{whose} {fault} {name or 'itself'}. Give all models the structure of the first.")
        for name, shape in self._shapes.items():
            array, expected = _numbers(leaves[name]), shaped(shape)
            if array.shape != expected:
                raise InputError(f"{name or 'the array'} of {whose} has shape {array.shape}, not {expected}. Correct it.")
            yield array


def _is_tensor(leaf: Any) -> bool:
    return hasattr(leaf, "detach") and hasattr(leaf, "new_tensor")


def _is_averaged(leaf: Any) -> bool:
    if _is_tensor(leaf):
        return bool(leaf.is_floating_point())
    if isinstance(leaf, np.ndarray | np.generic):
        if leaf.dtype.kind in "cO":
            raise InputError(f"an array of type {leaf.dtype} cannot be averaged. Give floating-point numbers.")
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
        raise InputError(f"{path or 'the model'} is a {type(tree).__name__}. Give nested dicts, lists or tuples of arrays.")


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


# How fast C moves, Andrew et al. section 3.
_RATE = 0.2
# How a member of a ZIP file begins: its mark, and the lengths of its name and of what follows on that.
_MEMBER = struct.Struct("<4s22xHH")


class MeanOfRound(Protocol):
    """What a session gives back of a round."""

    @property
    def round(self) -> int: ...
    @property
    def mean(self) -> Vector: ...


class SharedModel:
    """``model``, public, with which everybody starts: nested dicts, lists and tuples of arrays, or a ``state_dict`` of PyTorch.

    ``clip``: the largest L2 norm of a difference, or of a record's gradient, in the units of the model. ``learning_rate`` and
    ``momentum`` are applied to what was released. With ``indicator`` t > 0 one coordinate more of this weight makes ``clip``
    follow the ``quantile`` of all norms. ``decay``, a model of numbers or one for all: the public model times it is taken off
    each step, as the gradient of an L2 penalty is. All parties start with the same. Vectors are in the unit ball: the
    session's own clip is 1, its dimension :attr:`dimension`. Raises :class:`InputError` for a model without arrays or with
    statistics of BatchNorm, and for impossible numbers.
    """

    @python_call
    def __init__(
        self,
        model: Any,
        *,
        clip: float = 1.0,
        learning_rate: float = 1.0,
        momentum: float = 0.0,
        indicator: float = 0.0,
        quantile: float = 0.5,
        decay: Any = 0.0,
    ) -> None:
        if not (math.isfinite(clip) and clip > 0):
            raise InputError(f"clip is {clip:g}. Choose a finite number > 0, the largest L2 norm of a difference.")
        if not (math.isfinite(learning_rate) and learning_rate > 0):
            raise InputError(f"learning_rate is {learning_rate:g}. Choose a finite number > 0.")
        for name, number in (("momentum", momentum), ("indicator", indicator), ("quantile", quantile)):
            if not 0 <= number < 1:
                raise InputError(f"{name} is {number:g}. Choose 0 <= {name} < 1.")
        self._tree = Tree(model)
        self._vector = self._tree.flat(model)
        # By coordinate.
        self._decay = np.zeros_like(self._vector) + (decay if isinstance(decay, int | float) else self._tree.flat(decay, "decay"))
        if not (np.isfinite(self._decay).all() and (self._decay >= 0).all()):
            raise InputError("decay has a number that is not finite, or below 0. Give the weights of an L2 penalty.")
        self._velocity = np.zeros_like(self._vector)
        self._rate, self._momentum = learning_rate, momentum
        self._indicator, self._quantile = indicator, quantile
        self.clip = float(clip)
        self.round = 0
        self.within: float | None = None

    @property
    def dimension(self) -> int:
        """Coordinates of the vectors that are handed in."""
        return self._tree.size + (self._indicator > 0)

    @property
    def model(self) -> Any:
        """The public model as it is now, in the structure, shapes and types of the first."""
        return self._tree.filled(self._vector)

    def describe(self) -> dict[str, Any]:
        """What has to be alike at all parties, in plain data; of the numbers of the model a digest."""
        numbers = b"".join(array.astype("<f8").tobytes() for array in (self._vector, self._decay))
        return {
            "arrays": self._tree.describe(),
            "numbers": hashlib.sha256(numbers).hexdigest(),
            "clip": self.clip,
            "learning_rate": self._rate,
            "momentum": self._momentum,
            "quantile": self._quantile,
        }

    def difference(self, trained: Any, whose: str = "the model") -> Vector:
        """What a party hands in that trained this model, shape (d,). Raises :class:`InputError` for another structure."""
        encoded: Vector = self._encoded((self._tree.flat(trained, whose) - self._vector)[None])[0]
        return encoded

    def steps(self, gradients: Any, whose: str = "the gradients") -> Array:
        """What a party hands in where records are protected, shape (N, d): a row against the gradient of each record.

        ``gradients`` at the public :attr:`model`: each array with one axis more in front, of size N. Raises
        :class:`InputError` for another structure.
        """
        return self._encoded(-self._tree.rows(gradients, whose))

    def move(self, mean: MeanOfRound) -> Any:
        """Take over what a round released. The new public model.

        Raises :class:`InputError` unless it is the round after that of this model: who missed rounds needs the model of a
        party that did not, see :meth:`load`.
        """
        if mean.round != self.round + 1:
            raise InputError(
                f"the model here is that after round {self.round}, and this is the mean of round {mean.round}. Load the model "
                f"after round {mean.round - 1} from a party that has it (save), and move it again."
            )
        t = self._indicator
        step: Vector = mean.mean[: self._vector.size] * self.clip / math.sqrt(1 - t * t)
        if t:
            self.within = float(np.clip((mean.mean[-1] / t + 1) / 2, 0.0, 1.0))
            self.clip *= math.exp(-_RATE * (self.within - self._quantile))
        self._velocity = self._momentum * self._velocity + step - self._decay * self._vector
        self._vector = self._vector + self._rate * self._velocity
        self.round = mean.round
        return self.model

    def save(self, path: str | Path) -> None:
        """Write it, whole and durably, for a restart or for a party that missed rounds. Everything in it is public.

        It takes the place of a file of a model of the same size. Raises :class:`InputError` where anything else is there.
        """
        content = packed(vector=self._vector, velocity=self._velocity, clip=self.clip, round=self.round)
        Output(Path(path), "the shared model", "path", own=self._is_own).write(content)

    def load(self, path: str | Path) -> Any:
        """Go on from a file of :meth:`save`: this party's, or that of another party, whom this one trusts for it. The model.

        Raises :class:`InputError` for a file that cannot be read, or of a model of another size.
        """
        try:
            vector, velocity, *numbers = unpacked(Path(path).read_bytes(), ("vector", "velocity", "clip", "round")).values()
            clip, round_ = float(numbers[0]), int(numbers[1])
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{path} is not a file of a shared model ({reason_of(error)}). Give one that save wrote.") from None
        if not (vector.shape == velocity.shape == self._vector.shape):
            raise InputError(
                f"{path} is of a model of {count_of(vector.size, 'number')}, this one has {self._vector.size}. Give another file."
            )
        if not (np.isfinite([*vector, *velocity, clip]).all() and clip > 0 and round_ >= 0):
            raise InputError(f"{path} holds numbers that no round makes. Give another file.")
        self._vector, self._velocity, self.clip, self.round = vector, velocity, clip, round_
        return self.model

    def _is_own(self, content: bytes) -> bool:
        """Whether a file begins as one that :meth:`save` writes of a model of this size; of a large one no more may be here."""
        file = BytesIO(content)
        try:
            mark, name, extra = _MEMBER.unpack(file.read(_MEMBER.size))
            if (mark, file.read(name)) != (b"PK\x03\x04", b"vector.npy"):
                return False
            file.seek(extra, SEEK_CUR)
            np.lib.format.read_magic(file)
            shape, _, kind = np.lib.format.read_array_header_1_0(file)
        except (struct.error, ValueError):
            return False
        return shape == self._vector.shape and kind == self._vector.dtype

    def _encoded(self, rows: Array) -> Array:
        """Rows (N, d) in the unit ball, with the coordinate for adaptive clipping if there is one."""
        inside = shortened(rows, self.clip)
        t = self._indicator
        if not t:
            return inside
        signed = np.where(norms(rows) <= self.clip, t, -t)
        return np.hstack([inside * math.sqrt(1 - t * t), signed[:, None]])
