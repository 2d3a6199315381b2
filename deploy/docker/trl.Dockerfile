# What runs TRL on its runtimes, for Kubeflow Trainer:
#   docker build -f deploy/docker/trl.Dockerfile -t ghcr.io/windlass/trl-trainer:0.1.0 deploy/docker
FROM pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_BREAK_SYSTEM_PACKAGES=1
COPY trl-requirements.txt /tmp/requirements.txt
# Whatever torch is there stays.
RUN pip freeze | grep '^torch==' > /tmp/kept.txt \
 && pip install --constraint /tmp/kept.txt --requirement /tmp/requirements.txt \
 && rm /tmp/requirements.txt /tmp/kept.txt
WORKDIR /workspace
# A user without a home or a name, as torch's caches want one.
ENV HOME=/tmp USER=trainer PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT []
CMD ["torchrun", "-m", "trl.scripts.sft"]
