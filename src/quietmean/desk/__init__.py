"""The site's pages, for data owners without a shell: they show, and sign; studies run in other processes."""

from quietmean.desk.access import ProxyAccess
from quietmean.desk.app import Desk, make_app
from quietmean.desk.serving import serve, serve_behind_proxy
from quietmean.desk.site_folder import SiteFolder
from quietmean.desk.starting import Here

__all__ = ["Desk", "Here", "ProxyAccess", "SiteFolder", "make_app", "serve", "serve_behind_proxy"]
