"""The session of one party in one study, independent of the transport: agreement, mixing, dissemination, closing, result."""

from typing import TYPE_CHECKING

from quietmean.core.lazy import importer

if TYPE_CHECKING:
    from quietmean.node.session.carrier import Carrier as Carrier
    from quietmean.node.session.carrier import PeerLink as PeerLink
    from quietmean.node.session.gate import position_of as position_of
    from quietmean.node.session.inbox import read_vector as read_vector
    from quietmean.node.session.logs import decode_log as decode_log
    from quietmean.node.session.result import NodeResult as NodeResult
    from quietmean.node.session.result import kept_result as kept_result
    from quietmean.node.session.result import note_refusal as note_refusal
    from quietmean.node.session.result import refusal as refusal
    from quietmean.node.session.retrying import RetryPolicy as RetryPolicy
    from quietmean.node.session.retrying import retry as retry
    from quietmean.node.session.session import StudySession as StudySession
    from quietmean.node.session.settings import Brought as Brought
    from quietmean.node.session.settings import LinkKeys as LinkKeys
    from quietmean.node.session.settings import NodeSettings as NodeSettings
    from quietmean.node.session.settings import Observers as Observers
    from quietmean.node.session.settings import Opening as Opening
    from quietmean.node.session.settings import PairKeys as PairKeys
    from quietmean.node.session.settings import PlannedMachine as PlannedMachine
    from quietmean.node.session.settings import PlannedValue as PlannedValue
    from quietmean.node.session.settings import SiteHooks as SiteHooks
    from quietmean.node.session.settings import StartAgreement as StartAgreement
    from quietmean.node.session.settings import StartTerms as StartTerms
    from quietmean.node.session.settings import Waits as Waits
    from quietmean.node.session.settings import commitment_hash as commitment_hash
    from quietmean.node.session.settings import public_seed as public_seed
    from quietmean.node.session.settings import seed_check as seed_check
else:
    _NAMES = {
        "carrier": "Carrier PeerLink",
        "gate": "position_of",
        "inbox": "read_vector",
        "logs": "decode_log",
        "result": "NodeResult kept_result note_refusal refusal",
        "retrying": "RetryPolicy retry",
        "session": "StudySession",
        "settings": (
            "Brought LinkKeys NodeSettings Observers Opening PairKeys PlannedMachine PlannedValue SiteHooks "
            "StartAgreement StartTerms Waits commitment_hash public_seed seed_check"
        ),
    }
    _PLACES = {name: f"node.session.{module}" for module, names in _NAMES.items() for name in names.split()}
    __getattr__, __all__ = importer(__name__, _PLACES), list(_PLACES)
