"""The site's pages on this machine, for who answers for the data and has no shell: they show, and sign; studies run elsewhere."""

from quietmean.desk.app import Desk, make_app
from quietmean.desk.serving import serve
from quietmean.desk.shelf import Shelf

__all__ = ["Desk", "Shelf", "make_app", "serve"]
