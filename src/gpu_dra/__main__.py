"""`python -m gpu_dra` is `gpu-dra`."""

import sys

from gpu_dra.cli.main import main

sys.exit(main())
