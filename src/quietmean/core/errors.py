"""The error tree. Every error that a person can meet carries the exit code of the command line."""


class QuietmeanError(Exception):
    """Base of all errors that quietmean raises on purpose."""

    exit_code = 3

    def __str__(self) -> str:
        """A sentence may quote what a stranger wrote: nothing of it changes a screen."""
        return "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in super().__str__())


class InputError(QuietmeanError):
    """The user's mistake: one sentence that names the value and the remedy. Exit code 2."""

    exit_code = 2


class ProtocolFailure(QuietmeanError):
    """A protocol could not finish (too few parties, a peer that never connected). Exit code 3."""


class NothingPublished(ProtocolFailure):
    """A protocol ended without a result, and it is certain that nobody can have one: what was charged may be given back."""


class NotStarted(ProtocolFailure):
    """A study did not start, or started without this party: nothing of its data has left.

    ``for_good``: it never will in this study; else the same command may try again. ``refunded``: whether what was reserved for it
    was given back.
    """

    def __init__(self, sentence: str, *, for_good: bool = True, refunded: bool = False) -> None:
        super().__init__(sentence)
        self.for_good, self.refunded = for_good, refunded


class NotYet(QuietmeanError):
    """A study goes on, and this process has done all that it could: start it again later. Exit code 4."""

    exit_code = 4


class Outage(QuietmeanError):
    """A disk or the memory of this machine refuses for now: the same command goes on later. Exit code 75, EX_TEMPFAIL."""

    exit_code = 75


class PeerError(QuietmeanError):
    """A peer sent something that this protocol does not allow: an error of the peer, not of the local user."""


class NumericalError(QuietmeanError):
    """A solver could not certify its answer to the stated accuracy; no number is returned instead."""


def unfit_field(name: str, reason: str) -> InputError:
    """A field of a document holds something else than it should."""
    return InputError(f"field {name!r} is not as it should be: {reason}")


def reason_of(error: BaseException) -> str:
    """Why, in the system's words, without its number and without the path, which the sentence around it has."""
    return str(getattr(error, "strerror", None) or error)
