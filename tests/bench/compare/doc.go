// Command compare measures brokers side by side, with the same clients in the same minutes on the same machine:
//
//	compare [-load PATTERN] [-rounds 5] [-out DIR] [-page FILE [-keep]]
//	compare growth [-load PATTERN] [-page FILE]   what a request costs as a broker has more and more
//	compare limit receive|send|answer|flush ...   the limits, see limit.go; compare runs them itself
//
// Every load runs on one broker, then on the other, and so on alternately (A B A B); what counts is the median of the ratios of
// the pairs, since a machine has moods that last longer than a pair. Client and broker share it, so the broker's own processor
// time for the work says more than the rate at which it was done.
//
// Loads that move bytes and those of single records also have a limit: a process that does the same with the bytes and nothing else, in the same
// rounds. The ratio of ours to it tells how much of the cost is the machine's own. For single records that is loopback, wake-ups and the write to a
// file; it is measured on Linux only, as system calls past Go's scheduler are.
//
// The brokers are started by shell commands, each on a fresh folder:
//
//	BENCH_ONCELOG   default: a binary built from this module
//	BENCH_KAFKA     none by default, and then only ours is measured
//	BENCH_TOOL      runs a class of Kafka's tools, as bin/kafka-run-class.sh does; without it loads of Java clients are left out
//
// In a command {dir} stands for the folder, {port} for the port to listen on at 127.0.0.1, and {settings} for what the load wants set, as
// --set key=value --set ...; the command may stay in the foreground or leave the broker behind. The broker is the process that listens on the port.
//
// The table goes to stdout. -out writes it as results.json, table.txt and chart.svg, and -page as a page of the documentation,
// with -keep beside what that tells of other loads already.
package main
