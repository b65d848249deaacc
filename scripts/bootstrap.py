"""Makes .venv from the lock: `python3 scripts/bootstrap.py demo|test|pipeline`. Standard library only; safe to repeat.

A stamp in the environment holds the lock's hash and the sections installed, so a second run costs a moment. PySpark is
large: only `pipeline` installs it, and only where a suitable Java exists.
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
TASKS = {
    "demo": ["runtime", "embedded"],
    "test": ["runtime", "embedded", "tests"],
    "pipeline": ["runtime", "embedded", "tests", "pipeline"],
}
SOURCES = ("pyspark",)
"""Packages without wheels: they are built here, from pinned packages alone."""
PYTHON_MIN = (3, 11)

sys.path.insert(0, str(ROOT))


def main() -> int:
    task = sys.argv[1] if len(sys.argv) == 2 else ""
    if task not in TASKS:
        return fail(f"say for what: {', '.join(TASKS)}, not {task!r}")
    if sys.version_info < PYTHON_MIN:
        found = ".".join(map(str, sys.version_info[:3]))
        return fail(f"Python 3.11 or newer is needed, this is {found}. Name another one: make PYTHON=python3.11 ...")
    wanted = TASKS[task] + ([] if java_is_there() else ["java"])
    if "pipeline" in wanted and (unfit := spark_is_unfit()):
        wanted.remove("pipeline")
        say(f"PySpark is left out: {unfit}")
    made_from, sections = read_stamp()
    there = sections if made_from == inputs() and PYTHON.exists() else set[str]()
    needed = [name for name in wanted if name != "pipeline"]
    if not there.issuperset(needed) and install(needed, there):
        return 1
    there = there.union(needed)
    if not there.issuperset(wanted) and install(wanted, there):
        write_stamp(there)
        say("PySpark is left out: it could not be installed, pip's message stands above; its tests are skipped")
    return 0


def install(wanted: list[str], there: set[str]) -> int:
    """Installs the sections ``wanted``, beside those that are ``there`` and up to date."""
    sections = read_lock()
    sizes = {name: int(sections[name][0]) for name in wanted if name not in there}
    parts = ", ".join(f"{name} {size} MB" for name, size in sizes.items())
    say(f"Python packages into {VENV.name}: at most {sum(sizes.values())} MB to download ({parts})")
    if not PYTHON.exists() and not make_venv():
        return 1
    STAMP.unlink(missing_ok=True)
    if not install_locked("".join(sections[name][1] for name in wanted)):
        return fail("pip could not install the locked packages; its message stands above")
    if not pip("--no-deps", "--no-build-isolation", "--no-index", "-e", str(ROOT)):
        return fail("regent itself could not be installed into the environment; pip's message stands above")
    write_stamp(there.union(wanted))
    say(f"{VENV.name} is ready")
    return 0


def write_stamp(sections: set[str]) -> None:
    """Records that the environment has these sections of the present lock."""
    STAMP.write_text(json.dumps({"inputs": inputs(), "sections": sorted(sections)}))


def install_locked(requirements: str) -> bool:
    """Installs wheels, then the packages that are built with them."""
    blocks = re.split(r"\n(?=[a-z])", requirements.strip())
    built = [block for block in blocks if block.partition("==")[0] in SOURCES]
    with tempfile.TemporaryDirectory() as folder:

        def install_file(name: str, packages: list[str], *options: str) -> bool:
            part = Path(folder, name)
            part.write_text("\n".join(packages) + "\n")
            return pip("--require-hashes", *options, "-r", str(part))

        if not install_file("wheels.txt", [block for block in blocks if block not in built], "--only-binary", ":all:"):
            return False
        if not built:
            return True
        say(f"building {', '.join(SOURCES)} from source, which takes a minute")
        from_source = ("--no-deps", "--no-build-isolation", "--use-pep517")
        return install_file("sources.txt", built, *from_source)


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
    """Reads the requirements of each section and its download size in MB, for this kind of machine."""
    text = (ROOT / "requirements.lock").read_text()
    found = re.split(r"^# section: (\w+), (\d+) MB\n", text, flags=re.MULTILINE)[1:]
    return {name: (size, body) for name, size, body in zip(found[::3], found[1::3], found[2::3], strict=True)}


def read_stamp() -> tuple[str, set[str]]:
    """Reads the origin of the environment, and its sections."""
    try:
        stamp = json.loads(STAMP.read_text())
        return stamp["inputs"], set(stamp["sections"])
    except (OSError, ValueError, KeyError):
        return "", set()


def inputs() -> str:
    """Hashes the origin of an environment: the lock, the metadata and the folder of the tree."""
    digest = hashlib.sha256(str(ROOT).encode())
    for name in ("requirements.lock", "pyproject.toml"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def java_is_there() -> bool:
    from testing.embedded.java import system_java

    return system_java() is not None


def spark_is_unfit() -> str:
    """Returns why Spark cannot run on this machine's Java; empty where it can."""
    from pipeline.session import CannotStart, need_java

    try:
        need_java()
    except CannotStart as error:
        return str(error)
    return ""


def say(text: str) -> None:
    print(f"bootstrap: {text}", flush=True)


def fail(text: str) -> int:
    print(f"bootstrap: {text}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
