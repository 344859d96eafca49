# matchattention serve in a container.
#   docker build -t matchattention .                                                     CPU
#   docker build -t matchattention:gpu --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu128 .
#   docker run --rm -p 8080:8080 -e MATCHATTENTION_TOKEN=$(openssl rand -hex 24) [--gpus all] matchattention
FROM python:3.11-slim

# Which PyTorch: the CPU's, or a CUDA one for --gpus all (Triton needs a C compiler at run time).
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN case "$TORCH_INDEX" in \
      */cpu) ;; \
      *) apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/* ;; \
    esac
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" "torch>=2.11"

WORKDIR /src
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY matchattention ./matchattention
RUN pip install --no-cache-dir ".[serve]" && rm -rf /src

RUN useradd --create-home server
USER server
WORKDIR /home/server
ENV PYTHONUNBUFFERED=1
EXPOSE 8080
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/v2/health/ready')"]
# The server refuses to start on 0.0.0.0 without MATCHATTENTION_TOKEN.
ENTRYPOINT ["matchattention", "serve", "--host", "0.0.0.0", "--port", "8080"]
