"""The publications that protocols come from: the one record of each, from which pages, CITATION.cff and docstrings take it.

What a publication's own text or the reference lists of the three papers do not say is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# The most authors that a text names; of more it names the first.
_NAMED = 4


class PublicationKind(StrEnum):
    """What a publication is, in the words of the Citation File Format."""

    ARTICLE = "article"
    CONFERENCE_PAPER = "conference-paper"
    UNPUBLISHED = "unpublished"


@dataclass(frozen=True)
class Author:
    """``given`` may be initials."""

    family: str
    given: str

    def __str__(self) -> str:
        return f"{self.given} {self.family}"


@dataclass(frozen=True)
class Publication:
    """One publication; what is not known is left out. ``pages``: first and last. ``doi`` and ``arxiv`` are without prefix."""

    authors: tuple[Author, ...]
    title: str
    kind: PublicationKind
    year: int | None = None
    venue: str = ""
    volume: str = ""
    pages: tuple[int, int] | None = None
    doi: str = ""
    arxiv: str = ""

    @property
    def short(self) -> str:
        """Families and year, as a text names it; of more than four authors the first."""
        families = [author.family for author in self.authors]
        named = f"{families[0]} et al." if len(families) > _NAMED else _listed(families)
        return named if self.year is None else f"{named} {self.year}"

    @property
    def citation(self) -> str:
        """A line of a list of references, in Markdown."""
        where = f"{self.venue} {self.volume}".strip()
        pages = f"pages {self.pages[0]} to {self.pages[1]}" if self.pages else ""
        doi = f"[doi:{self.doi}](https://doi.org/{self.doi})" if self.doi else ""
        arxiv = f"[arXiv:{self.arxiv}](https://arxiv.org/abs/{self.arxiv})" if self.arxiv else ""
        rest = ", ".join(filter(None, (where, pages, "" if self.year is None else str(self.year), doi, arxiv)))
        return f"{_listed(list(map(str, self.authors)))}: *{self.title}*{f'. {rest}' if rest else ''}."


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _authors(*names: str) -> tuple[Author, ...]:
    """Read authors written as "Family, Given"."""
    parts = (name.split(", ") for name in names)
    return tuple(Author(family, given) for family, given in parts)


INCA = Publication(
    _authors("Sabater, César", "Ben Mokhtar, Sonia", "Ramon, Jan"),
    "Dropout-Robust Mechanisms for Differentially Private and Fully Decentralized Mean Estimation",
    PublicationKind.ARTICLE,
    2026,
    "Proceedings on Privacy Enhancing Technologies",
    "2026(2)",
    (472, 498),
    doi="10.56553/popets-2026-0057",
)
CORDP_DME = Publication(
    _authors("Vithana, Sajani", "Cadambe, Viveck R.", "Calmon, Flavio P.", "Jeong, Haewon"),
    "Correlated Privacy Mechanisms for Differentially Private Distributed Mean Estimation",
    PublicationKind.CONFERENCE_PAPER,
    2025,
    "IEEE Conference on Secure and Trustworthy Machine Learning (SaTML)",
    pages=(590, 614),
)
ADQSP = Publication(
    _authors("Li, Qiongxiu", "Gundersen, Jaron Skovsted", "Lopuhaä-Zwakenberg, Milan", "Heusdens, Richard"),
    "Adaptive Differentially Quantized Subspace Perturbation (ADQSP): A Unified Framework for Privacy-Preserving Distributed "
    "Average Consensus",
    PublicationKind.UNPUBLISHED,
)
SUBSPACE_PERTURBATION = Publication(
    _authors("Li, Q.", "Heusdens, R.", "Christensen, M. G."),
    "Privacy-Preserving Distributed Optimization via Subspace Perturbation: A General Framework",
    PublicationKind.ARTICLE,
    2020,
    "IEEE Transactions on Signal Processing",
    "68",
    (5983, 5996),
)
PDMM = Publication(
    _authors("Zhang, G.", "Heusdens, R."),
    "Distributed Optimization Using the Primal-Dual Method of Multipliers",
    PublicationKind.ARTICLE,
    2018,
)
ADMM = Publication(
    _authors("Boyd, S.", "Parikh, N.", "Chu, E.", "Peleato, B.", "Eckstein, J."),
    "Distributed Optimization and Statistical Learning via the Alternating Direction Method of Multipliers",
    PublicationKind.ARTICLE,
    2011,
    "Foundations and Trends in Machine Learning",
    "3(1)",
    (1, 122),
)
SECRET_SHARING_CONSENSUS = Publication(
    _authors("Li, Q.", "Cascudo, I.", "Christensen, M. G."),
    "Privacy-Preserving Distributed Average Consensus Based on Additive Secret Sharing",
    PublicationKind.CONFERENCE_PAPER,
    2019,
    "European Signal Processing Conference (EUSIPCO)",
)
GOPA = Publication(
    _authors("Sabater, César", "Bellet, Aurélien", "Ramon, Jan"),
    "An Accurate, Scalable and Verifiable Protocol for Federated Differentially Private Averaging",
    PublicationKind.ARTICLE,
    2022,
    "Machine Learning",
    "111(11)",
    (4249, 4293),
)
MUFFLIATO = Publication(
    _authors("Cyffers, Edwige", "Even, Mathieu", "Bellet, Aurélien", "Massoulié, Laurent"),
    "Muffliato: Peer-to-Peer Privacy Amplification for Decentralized Optimization and Averaging",
    PublicationKind.ARTICLE,
    2022,
    "Advances in Neural Information Processing Systems",
    "35",
    (15889, 15902),
)
GOSSIP = Publication(
    _authors("Boyd, Stephen", "Ghosh, Arpita", "Prabhakar, Balaji", "Shah, Devavrat"),
    "Randomized Gossip Algorithms",
    PublicationKind.ARTICLE,
    2006,
    "IEEE Transactions on Information Theory",
    "52(6)",
    (2508, 2530),
)
SECAGG = Publication(
    _authors(
        "Bonawitz, Keith",
        "Ivanov, Vladimir",
        "Kreuter, Ben",
        "Marcedone, Antonio",
        "McMahan, H. Brendan",
        "Patel, Sarvar",
        "Ramage, Daniel",
        "Segal, Aaron",
        "Seth, Karn",
    ),
    "Practical Secure Aggregation for Privacy-Preserving Machine Learning",
    PublicationKind.CONFERENCE_PAPER,
    2017,
    "ACM SIGSAC Conference on Computer and Communications Security",
    pages=(1175, 1191),
)
SECAGG_PLUS = Publication(
    _authors("Bell, James Henry", "Bonawitz, Kallista A.", "Gascón, Adrià", "Lepoint, Tancrède", "Raykova, Mariana"),
    "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead",
    PublicationKind.CONFERENCE_PAPER,
    2020,
    "ACM SIGSAC Conference on Computer and Communications Security",
    pages=(1253, 1269),
)
DISTRIBUTED_DISCRETE_GAUSSIAN = Publication(
    _authors("Kairouz, P.", "Liu, Z.", "Steinke, T."),
    "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation",
    PublicationKind.CONFERENCE_PAPER,
    2021,
    "International Conference on Machine Learning",
)
SHARING = Publication(
    _authors("Ben-Or, Michael", "Goldwasser, Shafi", "Wigderson, Avi"),
    "Completeness Theorems for Non-Cryptographic Fault-Tolerant Distributed Computation",
    PublicationKind.CONFERENCE_PAPER,
    1988,
    "ACM Symposium on Theory of Computing",
)
PACKED_SHARING = Publication(
    _authors("Franklin, Matthew", "Yung, Moti"),
    "Communication Complexity of Secure Computation",
    PublicationKind.CONFERENCE_PAPER,
    1992,
    "ACM Symposium on Theory of Computing",
)
PRIV_UNIT_G = Publication(
    _authors("Asi, H.", "Feldman, V.", "Talwar, K."),
    "Optimal Algorithms for Mean Estimation under Local Differential Privacy",
    PublicationKind.CONFERENCE_PAPER,
    2022,
    "International Conference on Machine Learning",
    pages=(1046, 1056),
)
CENTRAL = Publication(
    _authors("Dwork, Cynthia", "McSherry, Frank", "Nissim, Kobbi", "Smith, Adam"),
    "Calibrating Noise to Sensitivity in Private Data Analysis",
    PublicationKind.CONFERENCE_PAPER,
    2006,
    "Theory of Cryptography Conference (TCC)",
    pages=(265, 284),
)
LOCAL = Publication(
    _authors("Duchi, John C.", "Jordan, Michael I.", "Wainwright, Martin J."),
    "Local Privacy, Data Processing Inequalities, and Statistical Minimax Rates",
    PublicationKind.UNPUBLISHED,
    2013,
    arxiv="1302.3203",
)
