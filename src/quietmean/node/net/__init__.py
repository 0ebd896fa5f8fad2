"""Communication between machines: keys and roster, TLS, frames, connections, and the listening side."""

from typing import TYPE_CHECKING

from quietmean.core.lazy import importer

if TYPE_CHECKING:
    from quietmean.node.net.addresses import Address as Address
    from quietmean.node.net.addresses import RelayAddress as RelayAddress
    from quietmean.node.net.addresses import format_address as format_address
    from quietmean.node.net.addresses import is_never_dialled as is_never_dialled
    from quietmean.node.net.addresses import number_of as number_of
    from quietmean.node.net.addresses import numbers_to_dial as numbers_to_dial
    from quietmean.node.net.addresses import open_account_socket as open_account_socket
    from quietmean.node.net.addresses import parse_address as parse_address
    from quietmean.node.net.addresses import parse_place as parse_place
    from quietmean.node.net.duplex import Handler as Handler
    from quietmean.node.net.duplex import OnAnswer as OnAnswer
    from quietmean.node.net.identity import KEY_PREFIX as KEY_PREFIX
    from quietmean.node.net.identity import PASSPHRASE_FILE as PASSPHRASE_FILE
    from quietmean.node.net.identity import Group as Group
    from quietmean.node.net.identity import Identity as Identity
    from quietmean.node.net.identity import Purpose as Purpose
    from quietmean.node.net.identity import Roster as Roster
    from quietmean.node.net.identity import RosterEntry as RosterEntry
    from quietmean.node.net.identity import Seal as Seal
    from quietmean.node.net.identity import format_public_key as format_public_key
    from quietmean.node.net.identity import is_signed as is_signed
    from quietmean.node.net.identity import parse_public_key as parse_public_key
    from quietmean.node.net.identity import public_key_bytes as public_key_bytes
    from quietmean.node.net.identity import require_distinct as require_distinct
    from quietmean.node.net.identity import require_name as require_name
    from quietmean.node.net.identity import show_hidden as show_hidden
    from quietmean.node.net.link import NOT_A_PARTY as NOT_A_PARTY
    from quietmean.node.net.link import Link as Link
    from quietmean.node.net.link import WithheldError as WithheldError
    from quietmean.node.net.listener import ONLY_CHECKS as ONLY_CHECKS
    from quietmean.node.net.listener import Acceptor as Acceptor
    from quietmean.node.net.listener import HandshakePool as HandshakePool
    from quietmean.node.net.listener import Listener as Listener
    from quietmean.node.net.listener import network_of as network_of
    from quietmean.node.net.listener import open_socket as open_socket
    from quietmean.node.net.stream import ByteStream as ByteStream
    from quietmean.node.net.stream import VectorCodec as VectorCodec
    from quietmean.node.net.stream import decode_vector as decode_vector
    from quietmean.node.net.stream import encode_vector as encode_vector
    from quietmean.node.net.terms import difference as difference
    from quietmean.node.net.terms import differing as differing
    from quietmean.node.net.terms import listed as listed
    from quietmean.node.net.terms import term_digests as term_digests
    from quietmean.node.net.tls import Credentials as Credentials
    from quietmean.node.net.transport import Connection as Connection
    from quietmean.node.net.transport import DirectRoute as DirectRoute
    from quietmean.node.net.transport import Endpoint as Endpoint
    from quietmean.node.net.transport import Refusals as Refusals
    from quietmean.node.net.transport import Route as Route
    from quietmean.node.net.transport import Traffic as Traffic
    from quietmean.node.net.wire import ACCEPTED as ACCEPTED
    from quietmean.node.net.wire import KEM_CIPHERTEXT_BYTES as KEM_CIPHERTEXT_BYTES
    from quietmean.node.net.wire import KEM_KEY_BYTES as KEM_KEY_BYTES
    from quietmean.node.net.wire import REFUSED as REFUSED
    from quietmean.node.net.wire import VERSION as VERSION
    from quietmean.node.net.wire import AnswerFrame as AnswerFrame
    from quietmean.node.net.wire import AnyRequest as AnyRequest
    from quietmean.node.net.wire import CancelTransfer as CancelTransfer
    from quietmean.node.net.wire import Check as Check
    from quietmean.node.net.wire import ConfirmTransfer as ConfirmTransfer
    from quietmean.node.net.wire import Count as Count
    from quietmean.node.net.wire import Ending as Ending
    from quietmean.node.net.wire import GateLog as GateLog
    from quietmean.node.net.wire import Heartbeat as Heartbeat
    from quietmean.node.net.wire import InRound as InRound
    from quietmean.node.net.wire import Limits as Limits
    from quietmean.node.net.wire import Log as Log
    from quietmean.node.net.wire import Payload as Payload
    from quietmean.node.net.wire import Readiness as Readiness
    from quietmean.node.net.wire import Refused as Refused
    from quietmean.node.net.wire import ResendRequest as ResendRequest
    from quietmean.node.net.wire import Revealed as Revealed
    from quietmean.node.net.wire import Start as Start
    from quietmean.node.net.wire import Transfer as Transfer
    from quietmean.node.net.wire import Vote as Vote
    from quietmean.node.net.wire import check_finite as check_finite
    from quietmean.node.net.wire import decode_header as decode_header
    from quietmean.node.net.wire import encode_frame as encode_frame
    from quietmean.node.net.wire import in_round as in_round
    from quietmean.node.net.wire import inner_request as inner_request
else:
    _NAMES = {
        "addresses": (
            "Address RelayAddress format_address is_never_dialled number_of numbers_to_dial open_account_socket "
            "parse_address parse_place"
        ),
        "duplex": "Handler OnAnswer",
        "identity": (
            "Group Identity KEY_PREFIX PASSPHRASE_FILE Purpose Roster RosterEntry Seal format_public_key is_signed "
            "parse_public_key public_key_bytes require_distinct require_name show_hidden"
        ),
        "link": "Link NOT_A_PARTY WithheldError",
        "listener": "Acceptor HandshakePool Listener ONLY_CHECKS network_of open_socket",
        "stream": "ByteStream VectorCodec decode_vector encode_vector",
        "terms": "difference differing listed term_digests",
        "tls": "Credentials",
        "transport": "Connection DirectRoute Endpoint Refusals Route Traffic",
        "wire": (
            "ACCEPTED AnswerFrame AnyRequest CancelTransfer Check ConfirmTransfer Count Ending GateLog Heartbeat "
            "InRound KEM_CIPHERTEXT_BYTES KEM_KEY_BYTES Limits Log Payload REFUSED Readiness Refused ResendRequest "
            "Revealed Start Transfer VERSION Vote check_finite decode_header encode_frame in_round inner_request"
        ),
    }
    _PLACES = {name: f"node.net.{module}" for module, names in _NAMES.items() for name in names.split()}
    __getattr__, __all__ = importer(__name__, _PLACES), list(_PLACES)
