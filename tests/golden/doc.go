// Package golden holds log directories that Apache Kafka 4.4 wrote (testdata), and tests that a broker takes them over and serves them as Kafka did. README.md
// says what there is; make makes them again, and judge has Kafka look at directories of ours.
package golden
