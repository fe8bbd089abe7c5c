# A server for CPUs, without torch:
#
#     docker build --tag latentmt .
#     docker run --rm --publish 127.0.0.1:8000:8000 latentmt
#
# Another command goes after the name: docker run … latentmt models.

FROM python:3.13.9-slim-bookworm AS build
WORKDIR /source
RUN python -m venv /opt/latentmt
COPY locks/serve.txt locks/
RUN /opt/latentmt/bin/pip install --no-cache-dir --require-hashes --no-deps --requirement locks/serve.txt
COPY pyproject.toml README.md LICENSE ./
COPY latentmt latentmt
RUN /opt/latentmt/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/latentmt/bin/pip uninstall --yes setuptools pip

FROM python:3.13.9-slim-bookworm
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin latentmt
COPY --from=build /opt/latentmt /opt/latentmt
ENV PATH="/opt/latentmt/bin:$PATH" PYTHONDONTWRITEBYTECODE=1
USER 10001
EXPOSE 8000
HEALTHCHECK --start-period=30s --interval=30s --timeout=10s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/readyz', timeout=8)"]
ENTRYPOINT ["latentmt"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000"]
