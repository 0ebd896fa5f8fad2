"""Options of a committee whose members open the sum of what others contribute, which several commands have in common."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter

from quietmean.core.errors import InputError

if TYPE_CHECKING:
    from quietmean.protocols.committee_size import Committee


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class CommitteeShape:
    """A committee whose members open the sum of what others contribute, in one message each.

    Parameters
    ----------
    committee
        So many members hold shares, and everybody else only contributes a file. Nobody learns more than the result unless more
        than --committee-colluding of them collude, no matter who else does.
    committee_colluding
        How many members may collude, with all other contributors; default 1.
    committee_gone
        How many members may be gone for good at any moment; default as many as may collude.
    committee_size
        gone: members that lie can prevent a result. lying: their sums are corrected, for twice the bytes. Default gone.
    verified
        Members check that each number of a contribution, and of their noise, is within its bounds, and that cells of a table add
        up, without learning them. Sums are corrected as with lying; a file is larger by the bits of a number.
    products
        With --verified, where each contributes one record (--largest-weight 1, or --unit party): members also check that squares
        and products are those of its values. A file has the remainders of products, too.
    """

    committee: int | None = None
    committee_colluding: int | None = None
    committee_gone: int | None = None
    committee_size: str | None = None
    verified: bool = False
    products: bool = False

    @property
    def shape(self) -> dict[str, Any]:
        """What is given of it but for the number of members, by its name in a study."""
        gone = self.committee_gone if self.committee_gone is not None else self.committee_colluding
        checked = {"verified": self.verified or None, "products": self.products or None}
        dimensions = {"colluding": self.committee_colluding, "gone": gone, "size": self.committee_size, **checked}
        return {name: value for name, value in dimensions.items() if value is not None}

    @property
    def chosen(self) -> Committee | None:
        """The committee; None where none is asked for. Raises :class:`InputError` for one that gives no result."""
        from quietmean.protocols.committee_size import Committee

        return None if self.committee is None else Committee.parse({"members": self.committee, **self.shape})

    def require_possible(self) -> None:
        """Raises :class:`InputError` for a committee that gives no result, and for options of one where there is none."""
        if self.committee is None and self.shape:
            raise self._alone({})
        _ = self.chosen

    def _alone(self, others: dict[str, Any]) -> InputError:
        """Where no committee is asked for, but options of one are given."""
        own = {
            "committee_colluding": self.committee_colluding,
            "committee_gone": self.committee_gone,
            "committee_size": self.committee_size,
            "verified": self.verified or None,
            "products": self.products or None,
        }
        names = [f"--{name.replace('_', '-')}" for name, value in {**own, **others}.items() if value is not None]
        return InputError(f"options {', '.join(names)} go with --committee MEMBERS: give it, or leave them out")

    @property
    def now(self) -> dict[str, Any]:
        """The time of a committee that is rehearsed on this machine: contributions come at once."""
        return {} if self.committee is None else {"contribute_by": datetime.now(UTC).isoformat(timespec="seconds"), "grace": 0.0}

    def fields(self, fields: dict[str, Any], **others: Any) -> dict[str, Any]:
        """The fields of a study, with ``minimum`` and ``largest_weight`` in its committee where it has one.

        ``others``: when contributions come and by whose vouchers, as far as that is given. Raises :class:`InputError` for options
        of a committee where there is none.
        """
        set_fields = self.shape | {name: value for name, value in others.items() if value is not None}
        if self.committee is None:
            if set_fields:
                raise self._alone(others)
            return fields
        options = dict(fields["options"])
        moved = {
            "members": self.committee,
            "minimum": fields.get("minimum"),
            "largest_weight": options.pop("largest_weight", None),
        }
        committee = set_fields | {name: value for name, value in moved.items() if value is not None}
        return fields | {"minimum": None, "options": options, "committee": committee}


NO_COMMITTEE = CommitteeShape()
