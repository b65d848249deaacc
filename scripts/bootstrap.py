"""Makes .venv from the lock: `python3 scripts/bootstrap.py demo` or `... test`. Standard library only; safe to repeat.

A stamp in the environment holds the lock's hash and the sections installed, so a second run costs a moment.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "regent-stamp.json"
TASKS = {"demo": ["runtime", "embedded"], "test": ["runtime", "embedded", "tests"]}
PYTHON_MIN = (3, 11)

sys.path.insert(0, str(ROOT))


def main() -> int:
    task = sys.argv[1] if len(sys.argv) == 2 else ""
    if task not in TASKS:
        return fail(f"say for what: {' or '.join(TASKS)}, not {task!r}")
    if sys.version_info < PYTHON_MIN:
        found = ".".join(map(str, sys.version_info[:3]))
        return fail(f"Python 3.11 or newer is needed, this is {found}. Name another one: make PYTHON=python3.11 ...")
    wanted = TASKS[task] + ([] if java_is_there() else ["java"])
    made_from, sections = read_stamp()
    if made_from == inputs() and sections.issuperset(wanted) and PYTHON.exists():
        return 0
    return install(wanted)


def install(wanted: list[str]) -> int:
    sections = read_lock()
    sizes = {name: int(sections[name][0]) for name in wanted}
    parts = ", ".join(f"{name} {size} MB" for name, size in sizes.items())
    say(f"Python packages into {VENV.name}: at most {sum(sizes.values())} MB to download ({parts})")
    if not PYTHON.exists() and not make_venv():
        return 1
    STAMP.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder, "requirements.txt")
        part.write_text("".join(sections[name][1] for name in wanted))
        if not pip("--require-hashes", "--only-binary", ":all:", "-r", str(part)):
            return fail("pip could not install the locked packages; its message stands above")
    if not pip("--no-deps", "--no-build-isolation", "--no-index", "-e", str(ROOT)):
        return fail("regent itself could not be installed into the environment; pip's message stands above")
    STAMP.write_text(json.dumps({"inputs": inputs(), "sections": wanted}))
    say(f"{VENV.name} is ready")
    return 0


def make_venv() -> bool:
    try:
        import ensurepip  # noqa: F401  Debian splits it off: venv alone is there without it
        import venv
    except ImportError:
        minor = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        fail(
            f"this Python has no venv/ensurepip. On Debian or Ubuntu: sudo apt-get install -y python3-venv "
            f"(or {minor} where several Pythons are installed), then run the same command again"
        )
        return False
    try:
        venv.EnvBuilder(clear=True, symlinks=True, with_pip=True).create(VENV)
    except (OSError, subprocess.CalledProcessError) as error:
        fail(f"the virtual environment {VENV} could not be made: {error}")
        return False
    return True


def pip(*arguments: str) -> bool:
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    environment = {**os.environ, "PIP_USER": "0", "PIP_ROOT_USER_ACTION": "ignore"}
    ran = subprocess.run([*command, *arguments], env=environment, stdin=subprocess.DEVNULL, check=False)
    return ran.returncode == 0


def read_lock() -> dict[str, tuple[str, str]]:
    """Per section its download size in MB (for this kind of machine) and its requirements."""
    text = (ROOT / "requirements.lock").read_text()
    found = re.split(r"^# section: (\w+), (\d+) MB\n", text, flags=re.MULTILINE)[1:]
    return {name: (size, body) for name, size, body in zip(found[::3], found[1::3], found[2::3], strict=True)}


def read_stamp() -> tuple[str, set[str]]:
    """What the environment was made from, and the sections that it has."""
    try:
        stamp = json.loads(STAMP.read_text())
        return stamp["inputs"], set(stamp["sections"])
    except (OSError, ValueError, KeyError):
        return "", set()


def inputs() -> str:
    """Hash of what the environment is made from: the lock, the metadata and the place of the tree."""
    digest = hashlib.sha256(str(ROOT).encode())
    for name in ("requirements.lock", "pyproject.toml"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def java_is_there() -> bool:
    from brokers.embedded.java import system_java

    return system_java() is not None


def say(text: str) -> None:
    print(f"bootstrap: {text}", flush=True)


def fail(text: str) -> int:
    print(f"bootstrap: {text}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
