# regent's daemon. Settings: mount /etc/regent/regent.toml or set REGENT_SECTION__KEY (docs/reference/settings.md).
# The build's steps are scripts/image/build.sh, which the tests run as well.
# The digest says which image; its tag is for people. Renew both for security updates: docker buildx imagetools inspect.
ARG PYTHON_IMAGE=python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7
FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY . .
RUN scripts/image/build.sh

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="regent" \
      org.opencontainers.image.description="Controller of a Kafka cluster in ZooKeeper mode" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/regent /opt/regent
COPY --from=build --chown=10001:10001 /run/regent /run/regent
COPY --from=build --chown=10001:10001 /var/lib/regent /var/lib/regent
COPY --from=build --chown=10001:10001 /etc/regent /etc/regent
ENV PATH=/opt/regent/bin:$PATH PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
VOLUME /var/lib/regent
EXPOSE 9095 9096
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["regent", "health"]
ENTRYPOINT ["regent"]
CMD ["run"]
