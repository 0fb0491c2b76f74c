# Settings of topics, brokers, groups and loggers; quotas and credentials, which the same tool alters.

configs_topic() {
  config topics "$T-a" --alter --add-config 'max.message.bytes=200000,cleanup.policy=[compact,delete]'; ok
  until_has 10 'max.message.bytes=200000.*synonyms=\{DYNAMIC_TOPIC_CONFIG:max.message.bytes=200000' configs --describe --entity-type topics --entity-name "$T-a"
  has 'cleanup.policy=compact,delete'
  config topics "$T-a" --alter --delete-config max.message.bytes; ok; sleep 0.5
  config topics "$T-a" --describe; hasnt max.message.bytes
  config topics "$T-a" --describe --all; has max.message.bytes=1048588
}
configs_topic_bad() { config topics "$T-a" --alter --add-config no.such.config=1; fails; has 'InvalidConfigurationException|Unknown topic config'; }
configs_broker() { config brokers "$NODE" --describe --all; ok; has 'num.io.threads='; has 'log.retention.ms='; has 'sensitive=(true|false) synonyms='; }
configs_broker_dynamic() {
  local all=(--entity-type brokers --entity-default)
  k configs --alter "${all[@]}" --add-config log.cleaner.threads=2; ok
  until_has 10 log.cleaner.threads=2 configs --describe "${all[@]}"
  k configs --alter "${all[@]}" --delete-config log.cleaner.threads; ok
}
configs_quota() {
  config clients "$T-cl" --alter --add-config producer_byte_rate=1000000,consumer_byte_rate=2000000; ok
  until_has 10 producer_byte_rate=1000000 configs --describe --entity-type clients --entity-name "$T-cl"; has consumer_byte_rate=2000000
  config clients "$T-cl" --alter --delete-config producer_byte_rate,consumer_byte_rate; ok
}
configs_scram() {
  config users "$T-u" --alter --add-config 'SCRAM-SHA-256=[iterations=8192,password=secret]'; ok
  config users "$T-u" --alter --add-config 'SCRAM-SHA-512=[password=secret]'; ok
  until_has 10 SCRAM-SHA-256=iterations=8192 configs --describe --entity-type users --entity-name "$T-u"; has SCRAM-SHA-512=iterations=4096
  config users "$T-u" --alter --delete-config SCRAM-SHA-256; ok
  config users "$T-u" --alter --delete-config SCRAM-SHA-512; ok
}
configs_scram_twice() {
  config users "$T-u" --alter --add-config 'SCRAM-SHA-256=[password=secret],SCRAM-SHA-512=[password=secret]'; fails; has DuplicateResourceException
}
configs_group() {
  config groups "$T-cg" --alter --add-config consumer.session.timeout.ms=50000; ok
  until_has 10 consumer.session.timeout.ms=50000 configs --describe --entity-type groups --entity-name "$T-cg"
}
configs_loggers() { config broker-loggers "$NODE" --describe; ok; has 'root=|ROOT'; }
