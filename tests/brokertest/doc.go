// Package brokertest runs the real broker binary for tests: built once, on a free port, in a folder of the test's own, and
// killed, stopped and started again as the test likes.
//
// With BOOTSTRAP=host:port in the environment the tests run against that broker instead, which may be Apache Kafka: this
// is how the tests themselves are tested. Tests that have to kill the broker skip themselves then.
// With ONCELOG_BROKER=FILE that binary is run, and nothing is built.
//
// A Broker belongs to the goroutine of its test.
package brokertest
