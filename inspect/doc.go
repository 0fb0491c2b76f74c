// Package inspect works on data directories while no broker does: it prints files as Apache Kafka's own tool prints them (Dump), checks a whole
// directory against itself (Check), and takes over partitions that Apache Kafka wrote (Import).
//
// Dump and Check only read. Check reads everything once: each batch with its records, and everything that can be derived from them
// (indexes, transaction indexes, producers, leader epochs) is derived anew and compared with the files. It shares no code with what
// writes those files, but for the formats themselves and the rules of idempotence.
//
// Import changes a log directory in an order that a crash at any point leaves usable; the file of its name has the steps.
//
// # Messages
//
// Records of coordinators and of Kafka's metadata log are read by their schemas, which are data (schema_table.go), so that what this broker
// doesn't serve (share groups, streams groups) can still be shown.
//
// # Concurrency
//
// Check reads several partitions at once, each by one goroutine, and ends them all before it returns. Everything else is sequential.
package inspect
