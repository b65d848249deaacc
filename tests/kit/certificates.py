"""Makes certificates for tests: an authority signs them for 127.0.0.1."""

from __future__ import annotations

import subprocess
from pathlib import Path

DAYS = "30"


class Authority:
    """Signs certificates; all files are below ``folder``."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key, self.file = folder / f"{name}.key", folder / f"{name}.pem"
        folder.mkdir(parents=True, exist_ok=True)
        _openssl(
            *("req", "-x509", *_new_key(self._key), "-out", str(self.file)),
            *("-days", DAYS, "-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE"),
        )

    def signed(self, name: str, host: str = "IP:127.0.0.1", *, into: Path | None = None) -> Path:
        """Makes a file with key and certificate."""
        key, request, file = (self._folder / f"{name}.{end}" for end in ("key", "csr", "crt"))
        extensions = self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={host}\n", encoding="utf-8")
        _openssl("req", *_new_key(key), "-out", str(request), "-subj", f"/CN={name}")
        _openssl(
            *("x509", "-req", "-in", str(request), "-out", str(file), "-days", DAYS, "-extfile", str(extensions)),
            *("-CA", str(self.file), "-CAkey", str(self._key), "-CAcreateserial"),
        )
        both = into or self._folder / f"{name}.pem"
        both.write_text(key.read_text(encoding="utf-8") + file.read_text(encoding="utf-8"), encoding="utf-8")
        return both


def _new_key(path: Path) -> tuple[str, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(path))


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
