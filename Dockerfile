# One image for the API and the worker; which of them it is, the command says.
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN useradd --system --uid 10001 --create-home tessera \
    && install --directory --mode 700 --owner tessera --group tessera /data

WORKDIR /opt/tessera
COPY requirements/runtime.txt requirements/runtime.txt
RUN pip install --no-cache-dir --require-hashes -r requirements/runtime.txt
COPY pyproject.toml README.md ./
COPY compiler compiler
COPY app app
COPY worker worker
COPY tessera tessera
RUN pip install --no-cache-dir --no-deps --no-build-isolation --no-index .
# Machine code is compiled here, for any processor of this architecture, and stored beside the sources: containers
# load it from there, also where nothing of the image can be written.
ENV NUMBA_CPU_NAME=generic
RUN python -m compiler.kernels

USER tessera
ENV TESSERA_DATA_DIR=/data TESSERA_HOST=0.0.0.0 TESSERA_PORT=8080
EXPOSE 8080
CMD ["python", "-m", "app.server"]
