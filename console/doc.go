// Package console is the broker's HTTP server: metrics for Prometheus and the answers to probes. It knows the broker as any
// Kafka client does, by sending it requests, and gets the broker's own metrics as a prometheus.Gatherer.
//
//	GET /metrics    everything measured, the lag of consumer groups included, which is computed at the scrape
//	GET /healthz    200 while the process runs
//	GET /readyz     200 when the broker answers and knows a controller, else 503 and why
//
// Concurrency: a Console is used by the goroutine that starts and stops it; handlers run side by side, and scrapes take
// turns in the lag collector.
package console
