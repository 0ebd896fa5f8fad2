"""A session: many means of vectors under one agreement and one budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quietmean.core.arrays import Array, Mask
from quietmean.core.domain import PrivacyUnit
from quietmean.core.errors import InputError, ProtocolFailure
from quietmean.core.file_kinds import read_json
from quietmean.core.keywords import python_call
from quietmean.core.output import Output, json_object, require_version
from quietmean.core.party import PartyId, PopulationNoise, Vector
from quietmean.core.readable import count_of, epsilon_text
from quietmean.graphs import ExecutionTrace
from quietmean.planning.accuracy import stated_variance
from quietmean.planning.gate import decide
from quietmean.planning.plan import Plan
from quietmean.privacy import Charge
from quietmean.protocols.execution import Execution
from quietmean.randomness import Seed
from quietmean.randomness.noise import StackedNoise
from quietmean.sessions.round_mean import RoundMean, checked_clip, clipped_rows, clipped_vector, numbers_of
from quietmean.studies.agreement.session_terms import SessionTerms, TermsKeywords

FORMAT = "quietmean-session-account-1"


class SessionAccount:
    """Counts the rounds that began. With a ``store``, a small file that is rewritten before each round, it outlives the process.

    Raises :class:`InputError` for a store of a session with other terms.
    """

    def __init__(self, terms: SessionTerms, store: Path | None = None) -> None:
        self.terms = terms
        self._store = None if store is None else Output(store, "the session's account", "store", own=self._is_own, private=True)
        self._begun = 0
        if store is not None and self._store is not None:
            if store.exists():
                self._begun = self._read(store)
            self._store.require_free()

    @property
    def begun(self) -> int:
        """How many rounds began; each is paid for, whatever came of it."""
        return self._begun

    @property
    def left(self) -> int:
        return self.terms.rounds - self._begun

    @property
    def spent(self) -> Charge:
        """What all rounds so far cost at most. Those that never begin cost nothing."""
        return self.terms.charge(self._begun)

    @property
    def epsilon(self) -> float:
        """What all rounds so far cost at the session's delta; rounded up."""
        return self.terms.spent_epsilon(self._begun)

    def begin(self) -> int:
        """Pay for one more round, and its number from 1. Raises :class:`InputError` if the budget has no more rounds."""
        if self.left <= 0:
            raise InputError(
                f"the session's {count_of(self.terms.rounds, 'round is', 'rounds are')} over and its budget is spent. "
                "Keep what it has, or agree anew."
            )
        if self._store is not None:
            self._store.write_json({"format": FORMAT, "terms": self.terms.digest, "begun": self._begun + 1})
        self._begun += 1
        return self._begun

    def _is_own(self, content: bytes) -> bool:
        fields = json_object(content)
        return (fields.get("format"), fields.get("terms")) == (FORMAT, self.terms.digest)

    def _read(self, store: Path) -> int:
        raw = read_json(store)
        require_version(raw.get("format"), FORMAT, f"file {store}")
        if raw.get("format") != FORMAT or not isinstance(raw.get("begun"), int) or raw["begun"] < 0:
            raise InputError(f"file {store} is not an account of a session of this version. Name another file.")
        if raw.get("terms") != self.terms.digest:
            raise InputError(f"file {store} belongs to a session with other terms. Give it the same ones, or name another file.")
        return int(raw["begun"])


@dataclass(frozen=True, eq=False)
class RoundRelease:
    """What a round released: the mean (d,) of the vectors counted, and the execution that says what happened."""

    mean: Vector
    execution: Execution

    @property
    def counted(self) -> Mask:
        """The parties whose vectors are in the mean, shape (n,)."""
        return self.execution.contributors()

    @property
    def variance(self) -> float:
        """The variance of the noise in each coordinate of the mean."""
        return stated_variance(self.execution)


class Engine(Protocol):
    """Carries out rounds of all parties in this process; of one party between machines see :mod:`.joined`."""

    def exchange(
        self, plan: Plan, round_: int, values: Mapping[PartyId, Vector], weights: Vector, leaves: Mapping[PartyId, int]
    ) -> RoundRelease:
        """One round of a session. ``values``: of the parties that are there, each (d,); ``weights``, (n,), are public.

        ``leaves``: parties that are gone for the rest of this round after so many steps of the protocol. Raises
        :class:`ProtocolFailure` if the round has no result.
        """


class MemoryEngine:
    """All parties in this process: the same programs as between machines, each with noise of its own.

    ``noise``: of the n parties in a round, fresh from the operating system by default.
    """

    def __init__(self, noise: Callable[[int, int], PopulationNoise] | None = None) -> None:
        self._noise = noise

    def exchange(
        self, plan: Plan, round_: int, values: Mapping[PartyId, Vector], weights: Vector, leaves: Mapping[PartyId, int]
    ) -> RoundRelease:
        parties, dimension, protocol = plan.target.parties, plan.target.dimension, plan.protocol
        rows = np.zeros((parties, dimension))
        for party, value in values.items():
            rows[party] = value
        trace = ExecutionTrace.everyone(protocol.rounds, parties)
        for party in range(parties):
            last = leaves.get(party, protocol.rounds) if party in values else 0
            trace.online[last + 1 :, party] = False
        execution = plan.execution(Seed.from_os(), trace, weights)
        if plan.gated and not decide(plan.target, execution).passes:
            raise ProtocolFailure(
                "the round has no result, as what was seen of it would be more than the session allows. Begin another round."
            )
        noise = StackedNoise.from_os(parties) if self._noise is None else self._noise(round_, parties)
        releases = protocol.batch(execution.schedule, trace, rows, weights, noise)
        by = releases.by
        if not protocol.traits.releases_are_public:
            # Every party has the result; that of the first is taken for all.
            by = by & (by.cumsum() == 1)
        weight = float(releases.weight[by].sum())
        if not weight > 0:
            there = len(values)
            raise ProtocolFailure(
                f"the round has no result: {there} of {parties} parties were there, of whom {len(leaves)} left. Wait for more."
            )
        return RoundRelease(execution.decode(releases.vector[by].sum(axis=0), weight), execution)


# A party's vector (d,), or its records (N, d); None for a party that misses the round.
Given = ArrayLike | None


class Session:
    """Means of vectors of ``parties`` parties, one each round, for at most ``rounds`` rounds; all parties in this process.

    ``epsilon`` and ``delta``: the budget of one ``unit``, a whole party or one record of a party, over all rounds, under
    replacement. ``clip`` C: each vector is shortened to an L2 norm of C at most, in the units of the vectors; it may change from
    round to round if that depends on nothing but what is public. ``colluding``: how many parties may put together what they see
    in all rounds, by default one in ten; ``dropouts``: the fraction that may miss a round. ``weights``: public weights of the
    parties, shape (n,), where whole parties are protected; records count alike. ``store``: a small file with what was spent, with
    which a session that was killed goes on. Raises :class:`InputError` for terms that nobody can keep.
    """

    @python_call
    def __init__(
        self,
        *,
        parties: int,
        clip: float = 1.0,
        weights: ArrayLike | None = None,
        store: str | Path | None = None,
        engine: Engine | None = None,
        **terms: Unpack[TermsKeywords],
    ) -> None:
        self.terms = SessionTerms.stated(parties, terms)
        self.clip = checked_clip(clip)
        self.account = SessionAccount(self.terms, None if store is None else Path(store))
        self._engine = MemoryEngine() if engine is None else engine
        self._shares = self._checked_weights(weights)
        self._last: RoundMean[PartyId] | None = None
        # Before anything is spent.
        self.terms.plan  # noqa: B018 - computed once, and refused here

    def __repr__(self) -> str:
        terms, name = self.terms, self.terms.plan.protocol.name
        rounds, size = count_of(terms.rounds, "round"), count_of(terms.dimension, "coordinate")
        spent = f"{self.begun} of {rounds}, epsilon {epsilon_text(self.epsilon)} of {terms.epsilon:g} at delta {terms.delta:g}"
        return f"Session({name}, {terms.parties} parties, {size}, {spent})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    @property
    def begun(self) -> int:
        """Rounds that began, with a result or without."""
        return self.account.begun

    @property
    def round(self) -> int:
        """The number of the last round that began; 0 before the first."""
        return self.account.begun

    @property
    def rounds_left(self) -> int:
        return self.account.left

    @property
    def over(self) -> bool:
        """Whether no round is left."""
        return self.account.left <= 0

    @property
    def epsilon(self) -> float:
        """What the rounds so far cost at most at the session's delta, whatever happened in them; rounded up."""
        return self.account.epsilon

    def last(self) -> RoundMean[PartyId] | None:
        """The mean of the last round, if this process had it."""
        return self._last

    def noise(self, clip: float | None = None) -> float:
        """The standard deviation of the noise in a mean of all parties' vectors, per coordinate, as planned: an estimate."""
        return self.terms.noise(self.clip if clip is None else checked_clip(clip))

    @python_call
    def mean(
        self,
        vectors: Sequence[Given] | NDArray[Any] | Mapping[PartyId, ArrayLike],
        *,
        clip: float | None = None,
        leaves: Mapping[PartyId, int] | None = None,
    ) -> RoundMean[PartyId]:
        """One round: the mean of the parties' vectors, each shortened to ``clip``, with noise.

        ``vectors``: one (d,) for each party in order, as an array (n, d) or a list with None for who misses this round, or by
        party; where records are protected, one array (N, d) of records each. What is not a number counts as 0. ``leaves``:
        parties that are killed in this round after so many steps of the protocol, to try what happens then. Raises
        :class:`InputError`, and nothing is spent, for other shapes, too few parties, or if no round is left;
        :class:`ProtocolFailure` for a round without a result, which is paid for: colluding parties have seen what it sent.
        """
        bound = self.clip if clip is None else checked_clip(clip)
        plan, terms = self.terms.plan, self.terms
        party_vectors = self._given(vectors)
        values, weights = {}, np.ones(terms.parties)
        for party, value in party_vectors.items():
            if terms.unit == PrivacyUnit.RECORD:
                weights[party] = len(value)
                total = clipped_rows(value, bound, plan.value_step)
            else:
                total = clipped_vector(value, bound) * self._shares[party]
            values[party] = plan.admit(total, float(weights[party])).vector
        self._require_enough(len(values))
        leaving = {party: last for party, last in (leaves or {}).items() if party in values}
        number = self.account.begin()
        exchanged = self._engine.exchange(plan, number, values, weights, leaving)
        scale = bound
        if terms.unit == PrivacyUnit.PARTY:
            parts = exchanged.execution.parts
            scale *= float(parts.sum() / (parts @ self._shares))
        self._last = RoundMean(
            number,
            exchanged.mean * scale,
            tuple(np.nonzero(exchanged.counted)[0].tolist()),
            exchanged.execution,
            _parties=tuple(range(terms.parties)),
            _scale=scale,
            _terms=terms,
            _begun=self.account.begun,
        )
        return self._last

    def _require_enough(self, there: int) -> None:
        """Raises :class:`InputError` where it is known before the start that so few parties get no result."""
        least = int(getattr(self.terms.plan.protocol, "minimum", 1))
        if there < least:
            raise InputError(
                f"{there} of {self.terms.parties} parties are there and a round takes {least}. Wait, or plan for dropouts."
            )

    def _given(self, vectors: Any) -> dict[PartyId, Array]:
        """The arrays of the parties that are there. Raises :class:`InputError` for parties or shapes that cannot be."""
        parties, dimension = self.terms.parties, self.terms.dimension
        listed = vectors if isinstance(vectors, Mapping) else dict(enumerate(vectors))
        if not isinstance(vectors, Mapping) and len(listed) != parties:
            raise InputError(f"there are {len(listed)} vectors for {parties} parties. Give one each, None for who is missing.")
        by_record = self.terms.unit == PrivacyUnit.RECORD
        arrays = {}
        for party, value in listed.items():
            if party not in range(parties):
                raise InputError(f"party {party} does not exist. Choose one of 0 to {parties - 1}.")
            if value is None:
                continue
            array = numbers_of(value, f"the vector of party {party} is")
            if by_record and not array.size:
                # A party without records is there: a list of none has no columns.
                array = array.reshape(0, dimension)
            if array.shape[-1:] != (dimension,) or array.ndim != 1 + by_record:
                shape = f"(N, {dimension}), a row for each record" if by_record else f"({dimension},)"
                raise InputError(
                    f"party {party} gave an array of shape {array.shape}, which does not fit this session. Give {shape}."
                )
            arrays[int(party)] = array
        if not arrays:
            raise InputError("nobody is there. Give the vector of at least one party.")
        return arrays

    def _checked_weights(self, weights: ArrayLike | None) -> Array:
        """Weights (n,) as parts of the largest. Raises :class:`InputError` for those that cannot be."""
        parties = self.terms.parties
        if weights is None:
            return np.ones(parties)
        if self.terms.unit == PrivacyUnit.RECORD:
            raise InputError("weights are for whole parties, records count alike. Leave weights out, or protect unit party.")
        if self.terms.plan.protocol.traits.transfers_mass:
            name = self.terms.plan.protocol.name
            raise InputError(f"weights need to know whose vectors are in the mean, which {name} does not say. Leave them out.")
        checked = numbers_of(weights, "weights are")
        if checked.shape != (parties,) or not (np.isfinite(checked).all() and (checked > 0).all()):
            raise InputError(f"weights are not one for each party. Give {parties} finite numbers > 0.")
        return np.asarray(checked / checked.max(), dtype=np.float64)
