"""What holds for unit tests: product code that blocks the event loop fails.

The kubelet's calls, the probes and the health stream share one loop, so that a file on a slow disk or a wait in one of them delays all.
"""

import pytest
from blockbuster import blockbuster_ctx

LOCAL_DIRECTORY = {"os.mkdir", "os.unlink", "os.stat", "os.scandir"}
MAY_BLOCK = (
    ("gpu_dra/claims/room.py", {"open_claims"}, {"io.TextIOWrapper.read", "os.mkdir", "os.stat"}),  # at start, says so itself
    ("gpu_dra/kube/kubeconfig.py", {"load_kubeconfig"}, {"io.TextIOWrapper.read"}),  # at start, says so itself
    ("gpu_dra/kube/auth.py", {"in_cluster"}, {"os.stat"}),  # at start
    ("gpu_dra/core/locks.py", {"_open", "_unlink", "names"}, LOCAL_DIRECTORY),  # a call, cheaper than a thread
    ("gpu_dra/hardware/reservations.py", {"stamp"}, {"os.stat"}),  # the same
    ("gpu_dra/node/servers.py", {"_unlink"}, {"os.unlink"}),  # the same
    ("gpu_dra/node/coexistence.py", {"_other_driver"}, {"os.stat"}),  # the same
    ("gpu_dra/cdi/writer.py", {"exists_intact"}, {"os.stat", "io.BufferedReader.read"}),  # only tests ask it
    ("threading.py", {"join"}, {"threading.Lock.acquire"}),  # grpc ends its poller wherever its last object is let go
    ("logging/__init__.py", {"emit"}, {"io.BufferedWriter.write", "io.TextIOWrapper.write"}),  # to a file under pytest alone
)
"""Where, in which functions, and which calls."""


@pytest.fixture(autouse=True, scope="module")
def nothing_blocks_the_event_loop():
    with blockbuster_ctx("gpu_dra") as detector:
        for file, functions, calls in MAY_BLOCK:
            for call in calls:
                detector.functions[call].can_block_in(file, functions)
        yield
