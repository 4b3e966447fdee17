# Switchboard in one image: `switchboard up`, a node of a Ray cluster, or any command of `switchboard`.
#
#   docker build --tag switchboard:cuda .                               NVIDIA GPU, driver 580 or newer
#   docker build --tag switchboard:cpu --build-arg VARIANT=cpu .
#   docker build --target sbom --output type=local,dest=build/sbom .    CycloneDX list of all packages
#
# Both variants install the same versions, those of requirements.lock, with their hashes. What changes seldom lies below:
# PyTorch and CUDA, then the other packages, then the code.
#
# `make digests` renews the digest of the base image here, and those of compose.yaml and the clusters.

ARG PYTHON=python:3.11-slim-bookworm@sha256:d29f48a31a8b408ed19272ca1e7b10ebae13b240a27e862d3d4217c528e2e0c3
ARG VARIANT=cuda

FROM ${PYTHON} AS base
ENV VIRTUAL_ENV=/opt/venv \
    PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    SWITCHBOARD_DATA_DIR=/data \
    SWITCHBOARD_CHECKPOINTS=/models \
    HF_HOME=/models/hub
# KubeRay asks for the health of a node with wget. Debian keeps one version of it at a time.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends wget \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 1000 --create-home --shell /bin/bash switchboard \
    && install --directory --owner=switchboard --group=switchboard --mode=700 \
        /data /models /backups /home/switchboard/.switchboard \
    && python3 -m venv --without-pip /opt/venv

# The tool that installs, and the parts of the lock in the order of the layers. Nothing of it is in the image.
FROM base AS locks
WORKDIR /locks
COPY pyproject.toml requirements.lock serve_app/deploy/service_lock.py serve_app/deploy/*.lock ./
RUN python3 -m venv /uv && /uv/bin/pip install --require-hashes --requirement installer.lock && mv /uv/bin/uv . \
    && python3 service_lock.py requirements.lock torch torchaudio > torch.lock \
    && python3 service_lock.py requirements.lock pyproject.toml > service.lock \
    && python3 service_lock.py requirements.lock pyproject.toml \
        --without torch triton 'nvidia-*' 'cuda-*' > service-cpu.lock

FROM base AS packages-cuda
ARG UV_LINK_MODE=copy
ARG UV_CACHE_DIR=/var/cache/uv
ARG UV_COMPILE_BYTECODE=1
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
RUN --mount=type=bind,from=locks,source=/locks,target=/locks \
    --mount=type=cache,target=/var/cache/uv \
    /locks/uv pip install --require-hashes --requirement /locks/torch.lock --requirement /locks/cuda.lock
# hadolint ignore=DL3059
RUN --mount=type=bind,from=locks,source=/locks,target=/locks \
    --mount=type=cache,target=/var/cache/uv \
    /locks/uv pip install --require-hashes --requirement /locks/service.lock \
    && /locks/uv pip install --require-hashes --no-deps --requirement /locks/aws.lock

# PyTorch without CUDA is of the same version, but only PyTorch's own index has it, so its hashes have a lock of their own.
# The compiled operators of torchaudio need CUDA. Nothing here uses them, and without the files torchaudio does without.
FROM base AS packages-cpu
ARG UV_LINK_MODE=copy
ARG UV_CACHE_DIR=/var/cache/uv
ARG UV_COMPILE_BYTECODE=1
ENV SWITCHBOARD_ASR__DEVICE=cpu \
    SWITCHBOARD_DIARIZATION__DEVICE=cpu
RUN --mount=type=bind,from=locks,source=/locks,target=/locks \
    --mount=type=cache,target=/var/cache/uv \
    /locks/uv pip install --torch-backend cpu --require-hashes --no-deps --requirement /locks/torch-cpu.lock
# hadolint ignore=DL3059
RUN --mount=type=bind,from=locks,source=/locks,target=/locks \
    --mount=type=cache,target=/var/cache/uv \
    /locks/uv pip install --require-hashes --no-deps --requirement /locks/service-cpu.lock \
    && rm -r /opt/venv/lib/python3.11/site-packages/torchaudio/lib \
    && /locks/uv pip install --require-hashes --no-deps --requirement /locks/aws.lock

# hadolint ignore=DL3006
FROM packages-${VARIANT} AS service
WORKDIR /home/switchboard/switchboard
COPY . .
RUN --mount=type=bind,from=locks,source=/locks,target=/locks \
    /locks/uv pip install --no-cache --no-deps --no-build-isolation --editable . \
    && python -m compileall -q db pipeline serve_app

FROM service AS bill
RUN --mount=type=bind,from=locks,source=/locks,target=/locks \
    python3 -m venv --without-pip /sbom \
    && /locks/uv pip install --no-cache --python /sbom --require-hashes --requirement /locks/sbom.lock \
    && /sbom/bin/cyclonedx-py environment --output-reproducible --output-file /sbom.cdx.json /opt/venv

FROM scratch AS sbom
COPY --from=bill /sbom.cdx.json /

FROM service
LABEL org.opencontainers.image.title="Switchboard" \
    org.opencontainers.image.description="Telephone calls become text, speakers, tone and tasks." \
    org.opencontainers.image.licenses="Apache-2.0"
COPY --from=bill /sbom.cdx.json /usr/share/switchboard/sbom.cdx.json
USER 1000:1000
EXPOSE 8000
# The proxy in front of Intake answers it, once Serve has told it of its routes.
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s \
    CMD ["wget", "-q", "-T", "2", "-O", "/dev/null", "http://127.0.0.1:8000/-/healthz"]
ENTRYPOINT ["switchboard"]
CMD ["up"]
