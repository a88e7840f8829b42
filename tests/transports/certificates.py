"""Temporary certificates for tests: an authority, and certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Certificates:
    """Paths of PEM files."""

    authority: str
    server: str
    client: str

    def server_context(self, *, wants_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server)
        if wants_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.authority)
        return context


def make(directory: Path) -> Certificates:
    """Make an authority, a certificate for 127.0.0.1 and one for a client."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
    now = datetime.datetime.now(datetime.timezone.utc)

    def build(name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(authority_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
                critical=False,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        )

    def leaf(common_name: str) -> str:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        certificate = (
            build(name, key)
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .sign(authority_key, hashes.SHA256())
        )
        path = directory / f"{common_name}.pem"
        path.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return str(path)

    # The key signs certificates and revocation lists only.
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    root = (
        build(authority_name, authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    path = directory / "authority.pem"
    path.write_bytes(root.public_bytes(serialization.Encoding.PEM))
    return Certificates(str(path), leaf("server"), leaf("client"))
