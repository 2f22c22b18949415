# tfimg itself, without its wheels: builder/self_image.py hands in BASE, and puts a layer of the wheels on top.
ARG BASE
FROM ${BASE} AS base

# An empty virtual environment, at a path that does not know Python's version; then what drives an engine.
FROM base AS environment
RUN --mount=type=bind,source=build,target=/build \
    sh /build/environment

FROM environment AS system
ARG SOURCE_DATE_EPOCH
RUN --mount=type=bind,source=build,target=/build \
    --mount=type=secret,id=ca --mount=type=secret,id=network --mount=type=secret,id=netrc \
    sh /build/with-network apt-get update --quiet && \
    sh /build/with-network apt-get install --quiet --yes --no-install-recommends docker-cli docker-buildx && \
    rm -rf /var/lib/apt/lists/* && \
    sh /build/settle

FROM scratch AS image
COPY --link --from=system / /
ENV PATH=/opt/tensorflow/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    VIRTUAL_ENV=/opt/tensorflow \
    LANG=C.UTF-8
WORKDIR /work
ENTRYPOINT ["tfimg"]
CMD ["--help"]
