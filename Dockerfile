# The one image of gpu-dra; every role is a subcommand. `hack/image` builds it, also where no registry can be reached: see docs/image.md.
# A plain `docker build .` works too where Debian's and PyPI's servers can be reached.
ARG BASE_IMAGE=docker.io/library/debian:trixie-slim

# The locked distributions, in one folder. hack/image lays them in site/ARCHITECTURE where a build cannot reach PyPI; else uv gets them.
FROM ${BASE_IMAGE} AS distributions
ARG TARGETARCH
COPY . /src
RUN set -eu; \
    arch=${TARGETARCH:-$(case $(uname -m) in x86_64) echo amd64 ;; aarch64) echo arm64 ;; *) uname -m ;; esac)}; \
    if [ -d "/src/site/$arch" ]; then mv "/src/site/$arch" /site; exit; fi; \
    if ! python3 -m ensurepip --version 2>/dev/null; then \
      apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends python3-venv ca-certificates; \
    fi; \
    python3 -m venv /uv && /uv/bin/pip install --quiet --no-cache-dir uv==0.13.9; \
    python3 /src/hack/container/fetch.py --uv /uv/bin/uv --project /src --output /site

# The root file system as it will be: Python unless the base has it, the distributions, stripped, with bytecode.
FROM ${BASE_IMAGE} AS root
COPY hack/container/assemble.py hack/container/sbom.py /build/
COPY --from=distributions /site /build/site
RUN set -eu; \
    if ! python3 -c 'import sys, ssl, json; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
      apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
        python3-minimal libpython3-stdlib libstdc++6; \
    fi; \
    python3 -B /build/assemble.py --site /build/site --prefix /opt/gpu-dra --sbom /usr/share/gpu-dra/sbom.json; \
    rm -r /build

# In one layer, so that what was taken away is gone.
FROM scratch
ARG VERSION=unknown
ARG BASE_IMAGE
COPY --from=root / /
ENV PATH=/opt/gpu-dra/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    GRPC_ENABLE_FORK_SUPPORT=0
LABEL org.opencontainers.image.title="gpu-dra" \
      org.opencontainers.image.description="DRA driver and lifecycle manager for NVIDIA GPUs on Kubernetes" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"
# Roles that change the host are given uid 0 by their pod's securityContext.
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/opt/gpu-dra/bin/gpu-dra"]
