"""Private means over Flower's links: a mod for clients, a workflow for the server, and the agreement between the clients.

Importing this needs no ``flwr``; :func:`quietmean_mod` and :class:`SealedMean` import it when they are used, in an environment
that has it.
"""

from quietmean.flower.agreement import FlowerAgreement
from quietmean.flower.party import StarParty, leave
from quietmean.flower.site import Home, make_home
from quietmean.flower.workflow import ClientsMean, Relay, SealedMean, quietmean_mod

__all__ = ["ClientsMean", "FlowerAgreement", "Home", "Relay", "SealedMean", "StarParty", "leave", "make_home", "quietmean_mod"]
