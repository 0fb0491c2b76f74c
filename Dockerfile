FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /out/broker ./cmd/broker && mkdir /out/data

FROM scratch
COPY --from=build /out/broker /broker
COPY --from=build --chown=65532:65532 /out/data /var/lib/oncelog
USER 65532:65532
ENV KAFKA_NODE_ID=1 \
    KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092 \
    KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 \
    KAFKA_LOG_DIRS=/var/lib/oncelog \
    KAFKA_HTTP_LISTENER=0.0.0.0:9644
VOLUME /var/lib/oncelog
EXPOSE 9092 9644
HEALTHCHECK --interval=5s --timeout=6s --start-period=10s CMD ["/broker", "health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/broker"]
