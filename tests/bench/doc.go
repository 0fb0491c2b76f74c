// Command bench measures two figures of a broker, ours or Apache Kafka's, in the same way:
//
//	bench txn   -broker ADDR [-n 500] [-rounds 3]      transactions per second of one producer, one record in each
//	bench start -broker ADDR [-rounds 5] [-prepare CMD] -- CMD...
//	            milliseconds from exec of CMD on an empty folder to the first acknowledged record
//
// In CMD {dir} stands for a fresh folder; -prepare runs in it before, untimed. Each round prints a line, the last line has
// the median.
package main
