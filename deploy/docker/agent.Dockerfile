# The agent of a Kubernetes cluster:
#   docker build -f deploy/docker/agent.Dockerfile -t ghcr.io/windlass/agent:0.1.0 .
FROM python:3.12-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/windlass
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY services services
COPY agent agent
RUN /opt/windlass/bin/pip install --constraint constraints.txt ".[agent]" \
 && /opt/windlass/bin/python -m compileall -q /opt/windlass/lib

FROM python:3.12-slim-bookworm
COPY --from=build /opt/windlass /opt/windlass
ENV PATH=/opt/windlass/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# A number, so that runAsNonRoot can be checked.
USER 65532:65532
ENTRYPOINT ["windlass-agent"]
