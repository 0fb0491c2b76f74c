// Command broker is Oncelog: a Kafka-compatible transactional broker in one process. It turns flags into a configuration,
// starts a list of parts, waits for a signal and stops the parts in reverse; broker --help says the rest.
package main
