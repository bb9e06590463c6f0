# An environment to work and grade in: docker build -t tinyparallel . && docker run -it tinyparallel
# torch comes in its CUDA build (docker run --gpus all …); for a smaller image name an index that has
# the CPU build: --build-arg PIP_EXTRA_INDEX_URL=…
FROM python:3.12-slim-bookworm

# A compiler for the kernels on the CPU, git for `grader submit`, bubblewrap for `--sandbox`.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap g++ git make \
    && rm -rf /var/lib/apt/lists/*

ARG PIP_EXTRA_INDEX_URL=
ENV PIP_NO_CACHE_DIR=1

WORKDIR /course
COPY . .
RUN make setup
ENV PATH="/course/.venv/bin:${PATH}"
CMD ["bash"]
