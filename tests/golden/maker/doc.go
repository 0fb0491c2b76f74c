// Command maker talks to a real Apache Kafka to fill the golden directories, and writes down what it says of them. The script make beside it, which starts and
// stops Kafka, runs it:
//
//	maker fill SET PHASE ADDRESS              do what a phase of a set does to a running broker
//	maker capture ADDRESS FILE TOPIC...       keep what the running broker says of topics
//	maker expect SET STOPPED FILE DIR OUT     write expect.json: what was captured, and what the files of DIR hold
package main
