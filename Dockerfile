# Switchboard in one image: `switchboard up`, a node of a Ray cluster, or any command of `switchboard`.
#
#   docker build --tag switchboard:cuda .                               NVIDIA GPU, driver 580 or newer
#   docker build --tag switchboard:cpu --build-arg VARIANT=cpu .
#   docker build --target sbom --output type=local,dest=build/sbom .    CycloneDX list of all packages
#
# Both variants install the same versions, those of requirements.lock, with their hashes. What changes seldom lies below:
# PyTorch and CUDA, then the other packages, then the code.
#
# A tag may get another content: `make digests` pins the base image here, and all images of compose.yaml and the clusters,
# by what the registry has now. For one build:
#   docker build --build-arg PYTHON=python@$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' \
#     python:3.11-slim-bookworm) .

ARG PYTHON=python:3.11-slim-bookworm
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
        --without torch torchaudio triton 'nvidia-*' 'cuda-*' > service-cpu.lock

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

# PyTorch without CUDA is of the same version, but no file of the package index: only PyTorch's own has it. The hashes in
# torch-cpu.lock are checked; while it has none, `make lock-cpu` writes them.
FROM base AS packages-cpu
ARG UV_LINK_MODE=copy
ARG UV_CACHE_DIR=/var/cache/uv
ARG UV_COMPILE_BYTECODE=1
ENV SWITCHBOARD_ASR__DEVICE=cpu \
    SWITCHBOARD_DIARIZATION__DEVICE=cpu
RUN --mount=type=bind,from=locks,source=/locks,target=/locks \
    --mount=type=cache,target=/var/cache/uv \
    /locks/uv pip install --torch-backend cpu --no-deps --requirement /locks/torch-cpu.lock
# hadolint ignore=DL3059
RUN --mount=type=bind,from=locks,source=/locks,target=/locks \
    --mount=type=cache,target=/var/cache/uv \
    /locks/uv pip install --require-hashes --no-deps --requirement /locks/service-cpu.lock \
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
