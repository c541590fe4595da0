"""The two images that pods of a local cluster run, made from what this machine has, without a registry.

    archives = build(cache, say=say)          # {"gpudra.dev/pause:1": Path(….tar), "gpudra.dev/sample:1": Path(….tar)}

`pause` is a static C program. `sample` is a shell (busybox) plus the machine's C library and loader: as CUDA images do, it brings
what the driver's programs and libraries need that are injected into it. `ctr -n k8s.io images import FILE` names them.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
from pathlib import Path

from hack.testbed.cluster.errors import LabError, Say
from hack.testbed.elf_stub import Architecture, architecture, is_static
from hack.testbed.native import static_program
from hack.testbed.oci import Image, ImageEntry, ImageFile, ImageFolder, ImageLink, archive

PAUSE_REFERENCE = "gpudra.dev/pause:1"
SAMPLE_REFERENCE = "gpudra.dev/sample:1"

_SOURCES = Path(__file__).resolve().parent.parent / "images"
_APPLETS = (
    *("[", "awk", "basename", "cat", "chmod", "cp", "cut", "date", "dd", "dirname", "du", "echo", "env", "expr", "false", "find"),
    *("grep", "head", "hostname", "id", "ip", "kill", "ln", "ls", "mkdir", "mknod", "mount", "mv", "nc", "nslookup", "od", "ps"),
    *("printf", "pwd", "readlink", "realpath", "rm", "sed", "seq", "sh", "sha256sum", "sleep", "sort", "stat", "tail", "tar"),
    *("tee", "test", "timeout", "touch", "tr", "true", "umount", "uname", "uniq", "wc", "wget", "which", "xargs"),
)
_C_LIBRARY = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1")
"""The last three are empty since glibc 2.34, yet older programs name them."""
_LOADERS = {"x86_64": "lib64/ld-linux-x86-64.so.2", "aarch64": "lib/ld-linux-aarch64.so.1"}
"""Where the psABI says that the program interpreter is."""


def build(cache: Path, *, say: Say) -> dict[str, Path]:
    """Archive files below `cache` by image reference, named for their content. Raises LabError when a part is missing here."""
    arch = architecture(platform.machine())
    images = (
        pause_image(static_program(_SOURCES / "pause.c", cache=cache, say=say), arch),
        sample_image(busybox=_busybox(), c_library=_c_library(arch), arch=arch),
    )
    return {image.reference: _store(cache, archive(image), image.reference) for image in images}


def pause_image(program: Path, arch: Architecture) -> Image:
    """The sandbox's image around a built `pause`."""
    return Image(
        reference=PAUSE_REFERENCE,
        architecture=arch.oci,
        entries={"pause": ImageFile(content=program.read_bytes(), mode=0o755)},
        command=("/pause",),
    )


def sample_image(*, busybox: Path, c_library: dict[str, Path], arch: Architecture) -> Image:
    """A shell with the C library at the places where Debian's loader looks; `c_library` maps image paths to files."""
    entries: dict[str, ImageEntry] = {
        "bin/busybox": ImageFile(content=busybox.read_bytes(), mode=0o755),
        **{f"bin/{applet}": ImageLink(target="busybox") for applet in _APPLETS},
        **{path: ImageFile(content=file.read_bytes(), mode=0o755) for path, file in c_library.items()},
        "etc/passwd": ImageFile(content=b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
        "etc/group": ImageFile(content=b"root:x:0:\nnogroup:x:65534:\n"),
        "etc/nsswitch.conf": ImageFile(content=b"hosts: files dns\n"),
        "etc/ld.so.conf": ImageFile(
            content=f"include /etc/ld.so.conf.d/*.conf\n/usr/lib/{arch.triplet}\n/lib/{arch.triplet}\n".encode()
        ),
        "etc/ld.so.conf.d": ImageFolder(),
        f"usr/lib/{arch.triplet}": ImageFolder(),
        "usr/bin": ImageFolder(),
        "root": ImageFolder(mode=0o700),
        "tmp": ImageFolder(mode=0o1777),
    }
    return Image(reference=SAMPLE_REFERENCE, architecture=arch.oci, entries=entries, command=("sh",))


def _busybox() -> Path:
    found = shutil.which("busybox")
    if found is None or not is_static(Path(found).read_bytes()):
        state = "is not there" if found is None else f"at {found} needs shared libraries"
        raise LabError(f"the sample image needs a static busybox; busybox {state}: apt-get install busybox-static")
    return Path(found)


def _c_library(arch: Architecture) -> dict[str, Path]:
    loader = _LOADERS[arch.machine]
    return {
        loader: _library_file(Path(loader).name),
        **{f"lib/{arch.triplet}/{name}": _library_file(name) for name in _C_LIBRARY},
    }


def _library_file(name: str) -> Path:
    """Where the compiler finds a library, which is right on any distribution. An unknown name comes back as it was given."""
    compiler = shutil.which("cc") or "gcc"
    answer = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
    if not Path(answer).is_absolute():
        raise LabError(f"{compiler} does not know {name}: the sample image carries this machine's glibc (apt-get install libc6)")
    return Path(answer).resolve()


def _store(cache: Path, content: bytes, reference: str) -> Path:
    name = reference.rpartition("/")[2].replace(":", "-")
    path = cache / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}.tar"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(content)
        temporary.replace(path)
    return path
