// Command bench measures figures of a broker, ours or Apache Kafka's, in the same way:
//
//	bench txn   -broker ADDR [-n 500] [-rounds 3]      transactions per second of one producer, one record in each
//	bench acks  -broker ADDR [-conns 1] [-flush 1] [-for 5s] [-rounds 3]
//	            acknowledgements (acks=-1) per second of connections that each write one record after the other, with flush.messages
//	bench start -broker ADDR [-rounds 5] [-prepare CMD] -- CMD...
//	            milliseconds from exec of CMD on an empty folder to the first acknowledged record
//	bench internal -broker ADDR [-n 200000] [-prepare CMD] -- CMD...
//	            what n transactions and n offset commits of few ids and groups leave in the internal topics, and how soon a broker
//	            takes records and has its coordinators on that
//	bench partitions -broker ADDR [-n 10000] [-per N] [-idle 10s] [-metrics URL] [-pid PID] [-prepare CMD] [-- CMD...]
//	            what n partitions cost, all of one topic or N of each: creation, memory, descriptors, processor time while idle,
//	            metadata, fetch sessions, first records; with CMD also stops and starts. Without CMD the broker runs already,
//	            and PID is its process if that is to be looked at.
//
// In CMD {dir} stands for a fresh folder; -prepare runs in it before, untimed. Each round prints a line, the last line has
// the median; internal and partitions print one line per figure.
package main
