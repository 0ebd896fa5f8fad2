"""A page with which a browser contributes to a study with a committee: one file that asks, seals and sends.

The same sealed study, address and version give the same bytes: no time and no path is in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from dataclasses import dataclass
from importlib import resources
from urllib.parse import urlsplit

from quietmean.core.errors import InputError
from quietmean.form.signed_page import SignedPage, place_of
from quietmean.planning.automatic import Choice
from quietmean.statistics import Columns, Statistic
from quietmean.statistics.names import names_of
from quietmean.studies.agreement.program import EncodingProgram, require_program
from quietmean.studies.agreement.sealed import Sealed
from quietmean.studies.agreement.voucher import vouching_of
from quietmean.studies.party.agreement import Signatory, signatories
from quietmean.studies.party.contract import BY_VOUCHER, Contract
from quietmean.studies.party.first_screen import FirstScreen
from quietmean.studies.party.handing_in import require_drop

_MAIN = "main"
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([a-z0-9]+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
# The policy of a page that is served, beside that in the file itself: no page shows it in a frame.
_HEADER = "frame-ancestors 'none'"
# What is said of one site with many records is not about a person with one.
_OF_SITES = ("SITE", "LARGEST")
_OF_PERSONS = {
    "PEOPLE": "Answer once. With several links a person is protected less.",
    "ONCE": "What you send cannot be changed or taken back.",
    "KEYS": "The coordinator says which keys the members have. Call a member to compare them.",
}


@dataclass(frozen=True)
class FormPage:
    """A page: its ``content``, and the ``policy`` that a server sends with it (Content-Security-Policy)."""

    content: bytes
    policy: str

    @property
    def digest(self) -> str:
        """SHA-256 of the file, hexadecimal: what its coordinator publishes beside the sealed study."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def sends_to(self) -> str:
        """Scheme and host of its drop: it can send nothing to another one."""
        found = re.search(r"connect-src ([^;]*)", self.policy)
        return "" if found is None else found[1]

    @classmethod
    def of_file(cls, content: bytes) -> FormPage:
        """A page that a file has. Raises :class:`InputError` for another file."""
        found = re.search(rb'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', content[:4096])
        if found is None or b'id="survey"' not in content:
            raise InputError("it is not a page of quietmean study form. Make one with that command.")
        return cls(content, f"{found[1].decode()}; {_HEADER}")


def form_page(sealed: Sealed, choice: Choice, drop: str) -> FormPage:
    """The page for contributions to a sealed study, which go to the drop at this address.

    Raises :class:`InputError` for a study without vouchers or without an encoding program, and for no address of a drop.
    """
    require_drop(drop)
    program = EncodingProgram.of(sealed.study.workload, choice.plan)
    if vouching_of(sealed.invitation) is None:
        raise InputError("a page is for who has a voucher, and this study has none. Invite with a registrar and vouchers.")
    require_program(sealed.program, program.digest)
    survey = {
        "about": _about(sealed, choice),
        "drop": drop.rstrip("/"),
        "fields": sealed.content.decode(),
        "program": program.content.decode(),
        "sealed": sealed.signed.to_file().decode(),
    }
    # In a script no text may look like its end.
    data = json.dumps(survey, sort_keys=True).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return _page(data, drop)


def _page(survey: str, drop: str) -> FormPage:
    script, style, template = _script(), _source("form.css"), _source("form.html")
    place = urlsplit(drop)
    parts = {
        "default-src": "'none'",
        "script-src": f"'sha256-{_hash(script)}'",
        "style-src": f"'sha256-{_hash(style)}'",
        "worker-src": "blob:",
        "img-src": "data:",
        "connect-src": f"{place.scheme}://{place.netloc}",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    policy = "; ".join(f"{name} {value}" for name, value in parts.items())
    fields = {"policy": policy, "title": "Survey", "style": style, "survey": survey, "script": script}
    html = re.sub(r"\{(\w+)\}", lambda match: fields[match[1]], template)
    return FormPage(html.encode(), f"{policy}; {_HEADER}")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _source(name: str) -> str:
    return resources.files("quietmean.form").joinpath(name).read_text(encoding="utf-8")


def _script() -> str:
    """All modules as one script, each in a function of its own, those that others need first."""
    order: dict[str, str] = {}

    def add(name: str) -> None:
        if name in order:
            return
        source = _source(f"{name}.js")
        for _, needed in _IMPORT.findall(source):
            add(needed)
        exported = _EXPORT.findall(source)
        body = _EXPORT.sub("", _IMPORT.sub(lambda match: f"const {{{match[1].replace(' as ', ': ')}}} = ${match[2]};", source))
        order[name] = f"const ${name} = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();\n"

    add(_MAIN)
    return '"use strict";\n' + "".join(order.values())


def _about(sealed: Sealed, choice: Choice) -> dict[str, object]:
    """What the page says of the study before anything is entered, in the words of its contract."""
    study = sealed.study
    _, parties, _ = signatories(sealed)
    everybody = (*parties, Signatory(BY_VOUCHER, ""))
    contract = Contract(study, everybody, len(parties), sealed, contributes=True, choice=choice)
    screen = FirstScreen.of(contract)
    always = {fact.key: str(fact.text) for fact in screen.always}
    members = ", ".join(sorted(entry.name for entry in sealed.computing))
    answers = "; ".join(learnt(one, study.workload.columns) for one in study.workload.statistics)
    for key, text in _OF_PERSONS.items():
        always |= {key: text} if key in always else {}
    convener = next(
        (entry.name for entry in sealed.entries if entry.identity == sealed.invitation.convener), sealed.invitation.convener
    )
    return {
        "name": study.name,
        "by": f"{convener} asks.",
        "file": re.sub(r"[^A-Za-z0-9]+", "-", study.name).strip("-")[:40] or "study",
        "reads": [
            f"The members are {members}.",
            always["READS"],
            f"Everybody learns this, with noise: {answers}.",
            "Nobody else learns what you enter. Nothing else is sent.",
            always["ONCE"],
        ],
        "terms": [[fact.key, str(fact.text)] for fact in screen.rows],
        "always": [
            *_odds(times_right(contract.epsilon_a_priori, choice.plan.target.delta), *_members_of(sealed)),
            *(text for key, text in always.items() if key not in _OF_SITES),
            "A browser keeps no budget: nobody adds up what you answer to several studies.",
        ],
    }


def times_right(epsilon: float, delta: float) -> int:
    """How often of 100 times somebody is right at most who sees a result and guesses which of two answers one person gave.

    Beforehand both answers are as likely; whatever else that somebody knows. For a result that is (``epsilon``, ``delta``)
    differentially private where one person's answer is replaced, both answers' chances of any set of results differ in total
    variation by at most (e^epsilon - 1 + 2 delta) / (e^epsilon + 1); half of that above 1/2 is the bound, rounded up (Kairouz,
    Oh and Viswanath 2015, The composition theorem for differential privacy).
    """
    small = math.exp(-epsilon)
    return min(100, math.ceil(100 * (1 + delta * small) / (1 + small) + 1e-9))


def _odds(right: int, colluding: int, members: int) -> list[str]:
    """What a cost means, for who knows no epsilon."""
    guess = "Somebody who sees the result may guess which of two answers you gave."
    if right >= 100:
        return [f"{guess} That guess may be right nearly always: the noise hides little of one answer."]
    bound = f"That guess is right at most {right} times in 100, where blind luck gives 50."
    holds = f"This holds even if they know all other answers, and work with {colluding} of the {members} members."
    return [f"{guess} {bound}", holds]


def _members_of(sealed: Sealed) -> tuple[int, int]:
    terms = sealed.study.committee
    return (0, 0) if terms is None else (terms.colluding, terms.members)


def learnt(statistic: Statistic, columns: Columns) -> str:
    """What a question tells, in the words of its kind and with its columns, such as "means of pay for each sex"."""
    # What follows in a kind's words is for statisticians: tests and ratios.
    said, where, fields = statistic.summary.partition(", with ")[0], statistic.where, statistic.describe()
    known = names_of(_texts([value for name, value in fields.items() if name not in ("kind", "where")]))
    names = [name for name in columns.names if name in known]
    for words, field, text in (("a column", "column", "{}"), (" in groups", "by", " for each {}")):
        name = getattr(statistic, field, None)
        if words in said and name in names:
            said = said.replace(words, text.format(name))
            names.remove(name)
    named = f"{said}: {', '.join(names)}" if names else said
    return f"{named}, only where {where}" if where else named


def _texts(value: object) -> str:
    return value if isinstance(value, str) else " ".join(map(_texts, value)) if isinstance(value, list | tuple) else ""


__all__ = ["FormPage", "SignedPage", "form_page", "learnt", "place_of", "times_right"]
