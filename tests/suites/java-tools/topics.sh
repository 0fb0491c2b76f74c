# Topics: made, described, altered, deleted, refused.

topics_create() { create "$T-a" 3 --config retention.ms=3600000; has "Created topic $T-a"; }
topics_create_twice() {
  k topics --create --topic "$T-a"; fails; has 'TopicExistsException|already exists'
  k topics --create --if-not-exists --topic "$T-a"; ok
}
topics_bad_name() { k topics --create --topic 'jt/bad*name'; fails; has InvalidTopicException; }
topics_config_bad() {
  k topics --create --topic "$T-x" --config retention.ms=soon; fails
  has 'Invalid value soon for configuration retention.ms|ConfigException|InvalidConfigurationException'
}
topics_list() {
  k topics --list; ok; has "^$T-a$"
  k topics --list --exclude-internal; hasnt '^__consumer_offsets$'
}
topics_describe() {
  k topics --describe --topic "$T-a"; ok
  has 'TopicId: [A-Za-z0-9_-]{22}.*PartitionCount: 3.*retention.ms=3600000'
  lines 'Partition: [0-2].*Leader: [0-9]+.*Replicas: [0-9]+.*Isr: [0-9]+' 3
}
topics_partitions() { k topics --alter --topic "$T-a" --partitions 5; ok; until_has 10 'PartitionCount: 5' topics --describe --topic "$T-a"; }
topics_shrink() { k topics --alter --topic "$T-a" --partitions 2; fails; has InvalidPartitionsException; }
topics_overrides() {
  k topics --describe --topics-with-overrides --topic "$T-a"; ok; has "Topic: $T-a"
  k topics --describe --under-replicated-partitions; ok; hasnt "Topic: $T-a"
  k topics --describe --unavailable-partitions; ok; hasnt "Topic: $T-a"
}
topics_delete() {
  create "$T-gone" 1
  k topics --delete --topic "$T-gone"; ok; sleep 1
  k topics --describe --topic "$T-gone"; fails; has 'does not exist'
}
