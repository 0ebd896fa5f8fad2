"""What every protocol is: a class to fill in, and the capabilities that it may have, one file each."""

from quietmean.protocols.mechanism.mechanism import Mechanism

__all__ = ["Mechanism"]
