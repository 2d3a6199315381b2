# What runs TorchTune on its runtimes, for Kubeflow Trainer, beside the torch that Trainer takes:
#   docker build -f deploy/docker/torchtune.Dockerfile \
#     -t ghcr.io/windlass/torchtune-trainer:0.1.0 deploy/docker
FROM pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_BREAK_SYSTEM_PACKAGES=1
COPY torchtune-requirements.txt /tmp/requirements.txt
RUN pip freeze | grep '^torch==' > /tmp/kept.txt \
 && pip install --constraint /tmp/kept.txt --requirement /tmp/requirements.txt \
 && rm /tmp/requirements.txt /tmp/kept.txt
WORKDIR /workspace
ENV HOME=/tmp USER=trainer PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT []
CMD ["tune", "ls"]
