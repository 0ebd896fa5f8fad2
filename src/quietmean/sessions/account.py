"""What a session has spent: rounds are written down before they begin, so that a crash can only count too many."""

from __future__ import annotations

from pathlib import Path

from quietmean.core.errors import InputError
from quietmean.core.json_file import read_json
from quietmean.core.output import Output, json_object, require_version
from quietmean.core.readable import count_of
from quietmean.privacy import Charge
from quietmean.studies.agreement.session_terms import SessionTerms

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
                f"the session's {count_of(self.terms.rounds, 'round is', 'rounds are')} over and its budget is spent: "
                "keep what it has, or agree anew"
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
            raise InputError(f"file {store} is not an account of a session of this version: name another file")
        if raw.get("terms") != self.terms.digest:
            raise InputError(f"file {store} belongs to a session with other terms: give it the same ones, or name another file")
        return int(raw["begun"])
