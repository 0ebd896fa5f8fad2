"""A page with which a browser contributes to a study with a committee: one file that asks, seals and sends.

The same sealed study, address and version give the same bytes: no time and no path is in it.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from quietmean.core.errors import InputError
from quietmean.form.files import page_text, policy_text, source, source_hash
from quietmean.form.result_page import page_of, result_page
from quietmean.form.signed_page import SignedPage, place_of
from quietmean.form.words import asked_by, learnt, odds_of
from quietmean.planning.automatic import Choice
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
    script = _script()
    place = urlsplit(drop)
    parts = {
        "default-src": "'none'",
        "script-src": f"'sha256-{source_hash(script)}'",
        "style-src": f"'sha256-{source_hash(source('form.css'))}'",
        "worker-src": "blob:",
        "img-src": "data:",
        "connect-src": f"{place.scheme}://{place.netloc}",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    policy = policy_text(parts)
    scripts = f'<script type="application/json" id="survey">{survey}</script>\n<script>{script}</script>\n'
    page = page_text(policy, "Survey", source("form.html").rstrip("\n"), scripts)
    return FormPage(page.encode(), f"{policy}; {_HEADER}")


def _script() -> str:
    """All modules as one script, each in a function of its own, those that others need first."""
    order: dict[str, str] = {}

    def add(name: str) -> None:
        if name in order:
            return
        text = source(f"{name}.js")
        for _, needed in _IMPORT.findall(text):
            add(needed)
        exported = _EXPORT.findall(text)
        body = _EXPORT.sub("", _IMPORT.sub(lambda match: f"const {{{match[1].replace(' as ', ': ')}}} = ${match[2]};", text))
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
    return {
        "name": study.name,
        "by": asked_by(sealed),
        "file": re.sub(r"[^A-Za-z0-9]+", "-", study.name).strip("-")[:40] or "study",
        "reads": [
            f"The members are {members}.",
            always["READS"],
            f"Everybody learns this, with noise: {answers}.",
            "Nobody else learns what you enter.",
            "Before you agree, the page asks its server only how many answered and whether your link was used.",
            always["ONCE"],
        ],
        "terms": [[fact.key, str(fact.text)] for fact in screen.rows],
        "always": [
            *odds_of(sealed, contract.epsilon_a_priori, choice.plan.target.delta),
            *(text for key, text in always.items() if key not in _OF_SITES),
            "A browser keeps no budget: nobody adds up what you answer to several studies.",
        ],
    }


__all__ = ["FormPage", "SignedPage", "form_page", "learnt", "page_of", "place_of", "result_page"]
