"""A committee that holds shares: contributors each send one file, and a few members open one noisy sum of them.

Packed secret sharing (Franklin and Yung 1992) of m members whose noise hides every value from all other contributors. No
registered protocol: its parties, the members, have no values of their own.
"""

from quietmean.protocols.committee_size import Committee, Size

__all__ = ["Committee", "Size"]
