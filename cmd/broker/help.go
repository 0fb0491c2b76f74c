package main

const help = `Oncelog is a message broker that Kafka clients use as if it were Apache Kafka, with exactly-once transactions.

    broker [serve] [flags]      run the broker until SIGINT or SIGTERM; one more, a second later, ends it at once
    broker health [URL]         ask a running broker whether it is ready; exit code 0 means yes
                                (default http://127.0.0.1:9644/readyz)
    broker import DIR...        take over partitions that Apache Kafka wrote, with the broker stopped; broker import --help
    broker check DIR            verify a log directory whole, with the broker stopped; broker check --help
    broker dump FILE...         print files of a partition as Kafka's dump tool does; broker dump --help
    broker --version            which build this is
    broker --help               this text

Flags of serve:
    --config FILE               read settings from a server.properties; Kafka's own files work
    --set key=value             set one setting; repeatable
    --log-level LEVEL           debug, info (default), warn or error; also ONCELOG_LOG_LEVEL
    --log-format FORMAT         text (default) or json, on standard error; also ONCELOG_LOG_FORMAT

Settings have Kafka's names. Later ones win: default, FILE, environment, --set. In the environment KAFKA_FOO_BAR=x is
foo.bar=x (two underscores for one, three for a dash). Without --config the file is

    listeners=PLAINTEXT://127.0.0.1:9092
    log.dirs=./data
    node.id=1

and these matter most:
    listeners                   where Kafka clients connect; port 0 takes a free one, the ready line says which
    advertised.listeners        where clients are told to connect, if that is another address (containers, NAT)
    log.dirs                    the folder for all data, or several; they are made and formatted by themselves
    http.listener               where /metrics, /healthz and /readyz are (default 127.0.0.1:9644, empty for nowhere)
    auto.create.topics.enable   whether a topic that a client asks for is created (default true)
    num.partitions              partitions of such topics (default 1)

Examples:
    broker
    broker --set listeners=PLAINTEXT://127.0.0.1:19092 --set log.dirs=/tmp/d --set http.listener=
    broker --config /etc/kafka/server.properties --log-format json
    KAFKA_LISTENERS=PLAINTEXT://:9092 KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://kafka.example.org:9092 broker
`
