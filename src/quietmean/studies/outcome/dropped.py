"""What became of a contribution that a drop acknowledged: anybody can tell who has the receipt, the result and members' logs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from quietmean.core.errors import InputError
from quietmean.core.file_kinds import FileKind, kind_of_content
from quietmean.core.readable import listed
from quietmean.node.net import Purpose
from quietmean.protocols.committee.session import CommitteeSession
from quietmean.protocols.committee_size import quorum
from quietmean.studies.agreement.contribution import DropLog, DropReceipt
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.signed import signed_in


class Verdict(StrEnum):
    """What a receipt turns out to be of. The last two say that the drop broke its word."""

    COUNTED = "counted"
    LEFT_OUT = "in the log and left out"
    LATE = "too late"
    UNKNOWN = "not known"
    MISSING = "acknowledged and not in the log"
    FORKED = "two contents of one place"


@dataclass(frozen=True)
class DropJudged:
    """A verdict on the receipt, in a sentence. ``drop``: the key that signed it."""

    verdict: Verdict
    sentence: str
    drop: str

    @property
    def is_proof(self) -> bool:
        """Whether it proves that the drop did not do what it signed."""
        return self.verdict in (Verdict.MISSING, Verdict.FORKED)

    def to_json(self) -> dict[str, Any]:
        """What stands in the result."""
        return {"verdict": self.verdict.value, "sentence": self.sentence, "drop": self.drop, "proof": self.is_proof}


# Whether members signed the page that follows from their result.
_SIGNED = {"signed": True, "another": False}


@dataclass(frozen=True)
class DropFiles:
    """Logs of members of a sealed study, receipts, and saved ``pages`` of a result, whose digests are kept by the files' names.

    More members than may collude have to agree to prove anything.
    """

    sealed: Sealed
    logs: dict[str, DropLog] = field(default_factory=dict)
    receipts: list[DropReceipt] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)

    def take(self, content: bytes, session: CommitteeSession, name: str = "") -> bool:
        """Whether a file of this name is one of these. Raises :class:`InputError` for one that is not as it was signed."""
        kind = kind_of_content(content)
        if kind is FileKind.DROP_RECEIPT:
            self.receipts.append(DropReceipt.of_file(content))
        elif kind is FileKind.DROP_LOG:
            log = DropLog.verified(signed_in(Purpose.COMMITTEE_LOG, content), session)
            if self.logs.setdefault(log.member, log).signed.body != log.signed.body:
                raise InputError(f"member {log.member} signed two different logs, so it lies. Leave both out.")
        elif kind is FileKind.PAGE:
            self.pages[name] = hashlib.sha256(content).hexdigest()
        else:
            return False
        return True

    @property
    def _enough(self) -> int:
        committee = self.sealed.study.committee
        return 1 + (0 if committee is None else committee.colluding)

    def _names(self, logs: Iterable[DropLog]) -> list[str]:
        names = {entry.identity: entry.name for entry in self.sealed.entries}
        return sorted(names.get(log.member, log.member) for log in logs)

    def to_json(self) -> dict[str, Any]:
        """The position and head that most members read to, and who they are; ``apart``: who read another log than these."""
        ends = [(log.chains[-1].position, log.chains[-1].head.hex()) for log in self.logs.values() if log.chains]
        if not ends:
            return {}
        end = Counter(ends).most_common(1)[0][0]
        same = [log for log in self.logs.values() if log.chains and log.chains[-1].head.hex() == end[1]]
        # Who stopped sooner or later read the same.
        apart = [log for log in self.logs.values() if not log.agrees_with(same[0])]
        others = {"apart": self._names(apart)} if apart else {}
        return {"position": end[0], "head": end[1], "members": self._names(same), **others}

    def signed_pages(self) -> list[dict[str, Any]]:
        """Of each saved page, its name and digest, and who signed it.

        Two quorums have an honest member in common, so two pages are never both signed by as many. Raises :class:`InputError` for
        a page that fewer signed.
        """
        committee = self.sealed.study.committee
        members, colluding = (0, 0) if committee is None else (committee.members, committee.colluding)
        enough = quorum(members, colluding)
        found = []
        for name, digest in self.pages.items():
            signers = self._names(log for log in self.logs.values() if log.page == digest)
            if len(signers) < enough:
                needed = f"{enough} of the {members} members have to sign it, and in these files {len(signers) or 'none'} did"
                if len(self.logs) < enough:
                    raise InputError(f"{name} is not known to be right: {needed}. Give more files NAME.dropped.")
                raise InputError(f"{name} is not the page that members signed: {needed}. Believe nothing in it.")
            found.append({"file": name, "sha256": digest, "signed": signers})
        return found

    def about(self, counted: Collection[str], made: Callable[[], bytes], saved: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """What all of these say of a result, for its document; nothing without any of them.

        ``counted``: digests of what counts; ``made``: its page, made anew; ``saved``: from :meth:`signed_pages`. Raises
        :class:`InputError` for a receipt of another study.
        """
        judged = [one.to_json() for one in self.judged(counted)]
        lists = {"receipts": judged, "saved_pages": list(saved)}
        return {**self.to_json(), **self._about_page(made), **{name: found for name, found in lists.items() if found}}

    def _about_page(self, made: Callable[[], bytes]) -> dict[str, Any]:
        """Which members signed the page of the result, which is ``made`` anew, and which another one; nothing without logs."""
        signed = [log for log in self.logs.values() if log.page]
        if not signed:
            return {}
        digest = hashlib.sha256(made()).hexdigest()
        names = {what: self._names(log for log in signed if (log.page == digest) == same) for what, same in _SIGNED.items()}
        return {"page": {"sha256": digest, **names}}

    @staticmethod
    def told(about: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
        """What :meth:`about` says in sentences, and which are warnings."""
        for receipt in about.get("receipts", []):
            yield receipt["sentence"], receipt["proof"]
        page = about.get("page", {})
        if page.get("signed"):
            yield f"Members {listed(page['signed'])} signed the page of this result, {page['sha256'][:16]}.", False
        if page.get("another"):
            others = listed(page["another"])
            yield f"{others} signed another page than this version makes of this result. Compare the versions.", True
        if about.get("apart"):
            text = f"{listed(about['apart'])} read another log of the drop than {listed(about['members'])}."
            yield f"{text} The drop keeps two, or a member lies. Ask all for the files in their folders.", True
        for saved in about.get("saved_pages", []):
            yield f"{saved['file']} is the page of this study's result: members {listed(saved['signed'])} signed it.", False

    def judged(self, counted: Collection[str]) -> list[DropJudged]:
        """What became of what each receipt is of. ``counted``: digests of what counts.

        Raises :class:`InputError` for a receipt of another study.
        """
        return [self._judge(receipt, counted) for receipt in self.receipts]

    def _judge(self, receipt: DropReceipt, counted: Collection[str]) -> DropJudged:
        place, committee = receipt.place, self.sealed.study.committee
        if receipt.session != self.sealed.digest or committee is None:
            raise InputError("the receipt is of another study. Give the one that came for this study.")
        if any(_contradict(receipt, other) for other in self.receipts):
            text = (
                f"drop {receipt.drop} signed two different contents of place {place.position}. These two receipts prove that it "
                "does not keep one log."
            )
            return DropJudged(Verdict.FORKED, text, receipt.drop)
        name = f"contribution {place.digest[:16]}"
        if place.digest in counted:
            return DropJudged(Verdict.COUNTED, f"{name} is counted in this result.", receipt.drop)
        having = [log for log in self.logs.values() if log.has(place)]
        if having:
            reasons = [log.left_out[receipt.contributor] for log in having if receipt.contributor in log.left_out]
            why = f"The reason: {reasons[0]}." if reasons else "No log says why. Ask the other members for their logs."
            text = f"{name} is in the log of {listed(self._names(having))}, and the vote left it out. {why}"
            return DropJudged(Verdict.LEFT_OUT, text, receipt.drop)
        if receipt.time.timestamp() > committee.lists_at:
            text = f"{name} came at {receipt.came}, when the time for contributions was over."
            return DropJudged(Verdict.LATE, text, receipt.drop)
        if len(self.logs) >= self._enough:
            members = listed(self._names(self.logs.values()))
            text = (
                f"drop {receipt.drop} acknowledged {name} as number {place.position} at {receipt.came}, and it is not there in "
                f"the logs of {members}. The receipt and these logs prove that the drop left it out."
            )
            return DropJudged(Verdict.MISSING, text, receipt.drop)
        text = f"{name} is not counted. Give the files NAME.dropped of {self._enough} members or more to learn why."
        return DropJudged(Verdict.UNKNOWN, text, receipt.drop)


def _contradict(one: DropReceipt, other: DropReceipt) -> bool:
    """Whether one drop signed both, and two things of one place of one study."""
    same = (one.drop, one.session, one.place.position) == (other.drop, other.session, other.place.position)
    return same and one.place != other.place
