# vstate serve over the store that VSTATE_STORE names. docs/howto/run-the-services.md
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY versioned_state versioned_state
RUN python -m venv /opt/vstate && /opt/vstate/bin/pip install --no-cache-dir ".[server,postgres,redis,s3,encrypted]"

FROM python:3.13-slim
COPY --from=build /opt/vstate /opt/vstate
RUN useradd --uid 1000 --create-home vstate
USER vstate
ENV PATH=/opt/vstate/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 8420
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8420/health', timeout=2)"]
ENTRYPOINT ["vstate"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8420", "--tokens", "/run/secrets/tokens"]
