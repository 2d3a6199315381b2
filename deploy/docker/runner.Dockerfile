# The runner of jobs: TRL, and TorchTune beside it in an environment of its own:
#   docker build -f deploy/docker/runner.Dockerfile -t ghcr.io/windlass/runner:0.1.0 .
FROM pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_BREAK_SYSTEM_PACKAGES=1
# For python graders, where a pod may make user namespaces.
RUN apt-get update && apt-get install --yes --no-install-recommends bubblewrap \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE deploy/docker/torchtune-requirements.txt ./
COPY services services
COPY agent agent
# Whatever torch is there stays.
RUN pip freeze | grep '^torch==' > /tmp/kept.txt \
 && pip install --constraint /tmp/kept.txt --constraint constraints.txt ".[agent,train,qlora]" \
 && rm /tmp/kept.txt
# It has all of the above as well, but for the torchao, which PEFT would refuse.
ENV WINDLASS_TORCHTUNE_PYTHON=/opt/torchtune/bin/python
RUN python -m venv --system-site-packages --without-pip /opt/torchtune \
 && pip --python "$WINDLASS_TORCHTUNE_PYTHON" install --no-deps --requirement torchtune-requirements.txt
# What an agent asks of a machine: both backends can run, and QLoRA with TRL.
RUN python -c "import os, pathlib; from windlass_agent.machine import backends; \
found = backends.runnable_backends(pathlib.Path(os.environ['WINDLASS_TORCHTUNE_PYTHON'])); \
assert {'trl', 'torchtune'} <= set(found), found; \
assert backends.installed_libraries() == ['bitsandbytes'], 'see ClusterSettings.libraries'"
WORKDIR /tmp
ENV HOME=/tmp USER=windlass PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# A number, so that runAsNonRoot can be checked; the settings' run_as_user.
USER 10001:10001
ENTRYPOINT []
CMD ["python", "-m", "windlass_agent.runner", "--help"]
