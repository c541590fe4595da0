"""Turn a base with Python into the root file system of the image. Runs as root inside the Dockerfile, alters the machine it runs on.

Installs the fetched distributions below a prefix, takes away what no role uses, and compiles everything once, for the optimisation
level of the entry point. Bytecode is never checked against its source (PEP 552, unchecked hash), so neither time stamps nor a
read-only root matter. Needs the standard library only.
"""

from __future__ import annotations

import argparse
import compileall
import py_compile
import shutil
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

from sbom import write_sbom  # a neighbour in the build, not a package

OPTIMISATION = 2
PACKAGES = (
    "apt",
    "debconf",
    "init-system-helpers",
    "login",
    "login.defs",
    "passwd",
    "perl-base",
    "sysvinit-utils",
    "libapt-pkg7.0",
)
"""Debian's, that install or start things: nothing does either in a container. Purged, so that the package list stays true."""
PROGRAMS = ("dpkg*", "pip*", "idle*", "pydoc*", "2to3*", "python*-config", "update-alternatives")
FOLDERS = (
    "/etc/apt",
    "/usr/include",
    *(f"/usr/share/{name}" for name in ("gcc", "gdb", "info", "lintian", "locale", "man", "perl5", "python3")),
)
EMPTIED = ("/tmp", "/var/tmp", "/var/cache", "/var/log", "/var/lib/apt", "/var/lib/dpkg/info", "/root")
STANDARD_LIBRARY = (
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "test",
    "tkinter",
    "turtledemo",
    "turtle.py",
    "venv",
    "site-packages",
    "sitecustomize.py",
)
"""Of these, `site-packages` is where some bases have pip."""
IN_WHEELS = ("*.pyi", "*.pyx", "*.pxd", "*.c", "*.h", "*.cpp", "*.hash", "py.typed", "tests", "test", "__pycache__")
ABOUT_THE_INSTALLATION = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")
"""They tell how this machine installed, which differs from one to the next."""
HEAVIEST = ("gpu_dra.node.app", "gpu_dra.hardware.nvml", "yaml")
"""Modules that between them load every native one."""
USER = "nonroot:x:65532:65532:gpu-dra:/nonexistent:/usr/sbin/nologin\n"
COMMAND = "#!{python} -{flags}\nfrom gpu_dra.cli.main import main\n\nraise SystemExit(main())\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--site", type=Path, required=True, help="folder that fetch.py filled")
    parser.add_argument("--prefix", type=Path, required=True, help="where to install")
    parser.add_argument("--sbom", type=Path, required=True, help="file to write")
    options = parser.parse_args()
    library = install(options.site, options.prefix)
    strip_system()
    write_sbom(options.sbom, site=library, dpkg=Path("/var/lib/dpkg/status"))
    compile_all(Path(sysconfig.get_path("stdlib")), library)
    # A base that lacks a shared library is found out here and not on a node. Started anew: this process remembers what is gone.
    subprocess.run([options.prefix / "bin" / "python3", "-BOOPs", "-c", f"import {', '.join(HEAVIEST)}"], check=True)


def install(site: Path, prefix: Path) -> Path:
    """A virtual environment without pip or activation scripts (PEP 405); returns its library folder."""
    library = prefix / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    library.parent.mkdir(parents=True)
    shutil.copytree(site, library, ignore=shutil.ignore_patterns(*IN_WHEELS, *ABOUT_THE_INSTALLATION))
    remove(library / "bin", library / "example.py")  # nvidia-ml-py lays its example at the top
    programs = prefix / "bin"
    programs.mkdir()
    interpreter = Path(sys.executable).resolve()
    (programs / "python3").symlink_to(interpreter)
    version = ".".join(map(str, sys.version_info[:3]))
    (prefix / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\ninclude-system-site-packages = false\nversion = {version}\n")
    command = programs / "gpu-dra"
    # -P and -s: neither the working directory nor a home directory brings modules.
    command.write_text(COMMAND.format(python=programs / "python3", flags="O" * OPTIMISATION + "Ps"))
    command.chmod(0o755)
    return library


def strip_system() -> None:
    """Take away package managers, documentation, caches and set-user-ID bits."""
    if dpkg := shutil.which("dpkg"):
        found = subprocess.run(
            ["dpkg-query", "-W", "-f", "${Package}\n"], capture_output=True, text=True, check=True
        ).stdout.split()
        unwanted = [name for name in PACKAGES if name in found]
        subprocess.run(
            [dpkg, "--purge", "--force-depends", "--force-remove-essential", "--force-remove-protected", *unwanted],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    standard = Path(sysconfig.get_path("stdlib"))
    for folder in map(Path, ("/usr/bin", "/usr/sbin", "/usr/local/bin")):
        remove(*(path for pattern in PROGRAMS for path in folder.glob(pattern)))
    remove(
        *map(Path, FOLDERS),
        *(standard / name for name in STANDARD_LIBRARY),
        *standard.glob("config-*"),
        *Path("/etc").glob("python3*"),
        *Path("/usr/lib").glob("*/gconv"),  # the C library's conversions of character sets; Python has its own
    )
    remove(*(path for folder in EMPTIED for path in Path(folder).glob("*")))
    remove(*Path("/usr/share/doc").glob("*/[!c]*"), *Path("/etc").glob("*-"), *Path("/var/lib/dpkg").glob("*-old"))
    for path in Path("/usr").rglob("*"):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
            path.chmod(stat.S_IMODE(mode) & 0o1777)
    for name, line in (("passwd", USER), ("group", "nonroot:x:65532:\n")):
        with Path("/etc", name).open("a") as file:
            file.write(line)


def remove(*paths: Path) -> None:
    """Remove files and folders that are there."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def compile_all(*folders: Path) -> None:
    """Bytecode of one optimisation level beside every source, and no other. A source that does not compile stops the build."""
    for folder in folders:
        remove(*folder.rglob("__pycache__"))
        compiled = compileall.compile_dir(
            folder, quiet=1, optimize=OPTIMISATION, workers=0, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )
        if not compiled:
            sys.exit(f"{folder}: a module does not compile")


if __name__ == "__main__":
    main()
