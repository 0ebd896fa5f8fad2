"""What five sites and a relay need for a rehearsal, in a folder each: key, roster, study, invented data, the relay's certificate.

``python prepare.py FOLDER`` as root: every folder then belongs to the account of the sites. In a real study nothing of this is
made in one place: each site makes its own key, and nobody else sees it.
"""

from __future__ import annotations

import csv
import datetime
import json
import os
import random
import subprocess
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

ACCOUNT = 10001
DIRECT, AT_THE_RELAY = ("ada", "bob", "cyd"), ("dan", "eve")
STUDY = """
[study]
name = "rehearsal"
epsilon = 4.0
delta = 1e-6
colluding = 1
start_timeout = 180.0
round_timeout = 60.0

[[column]]
name = "age"
low = 0
high = 110
missing = "indicator"
"""


def certificate(host: str, folder: Path) -> None:
    """Of the relay's host, signed by itself, for one day."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    today = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(hours=1))
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "relay.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "relay.key").write_bytes(private)


def main(root: Path) -> None:
    places = {name: f"{name}:7001" for name in DIRECT} | dict.fromkeys(AT_THE_RELAY, "relay:relay:7443")
    if (root / "relay" / "relay.key").exists():
        sys.exit("the volumes have a rehearsal already: compose down -v removes them")
    certificate("relay", root / "relay")
    roster = ""
    for number, (name, place) in enumerate(places.items()):
        made = [
            sys.executable,
            "-m",
            "quietmean",
            "key",
            "new",
            "--key",
            root / name / "site.key",
            "--name",
            name,
            "--address",
            place,
        ]
        entry = json.loads(subprocess.run([*made, "--json"], check=True, capture_output=True).stdout)
        roster += f'[[party]]\nname = "{name}"\naddress = "{place}"\nkey = "{entry["public_key"]}"\n\n'
        drawn = random.Random(number)  # noqa: S311
        with (root / name / "visits.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["age"], *([round(drawn.gauss(48 + number, 12))] for _ in range(200))])
        (root / name / "study.toml").write_text(STUDY)
        # Nobody is at a terminal there.
        (root / name / "policy.toml").write_text("[policy]\nunattended = true\n")
        (root / name / "relay.pem").write_bytes((root / "relay" / "relay.pem").read_bytes())
    for name in (*places, "relay"):
        # The roster comes last: a site that starts before it is there starts again.
        for path in (root / name, *(root / name).iterdir()):
            os.chown(path, ACCOUNT, ACCOUNT)
        (root / name / "roster.toml").write_text(roster)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
