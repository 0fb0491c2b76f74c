// Package conformance runs independent Kafka clients (franz-go and sarama) against the real broker binary: what they are
// promised about records, groups and transactions, also when the broker is killed in between.
//
// All of it but the tests that kill the broker passes against Apache Kafka as well: BOOTSTRAP=host:port go test ./tests/conformance
package conformance
