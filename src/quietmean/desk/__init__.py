"""The site's page on this machine: for who answers for the data and has no shell. It reads, and shows; studies run elsewhere."""

from quietmean.desk.app import Desk, make_app
from quietmean.desk.serving import serve
from quietmean.desk.shelf import Shelf

__all__ = ["Desk", "Shelf", "make_app", "serve"]
